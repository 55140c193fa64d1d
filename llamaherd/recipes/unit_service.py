"""Rules for the service of a server: its start and restarts, readiness, paths, devices, ports and user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.recipes.commands import Word
from llamaherd.recipes.memory_limits import check_memory_limit
from llamaherd.recipes.recipe import NOT_AT_BOOT, ServerCommand
from llamaherd.recipes.unit_rules import NEVER_STARTED, OUT_OF_SIGHT, StartedUnit, swallowed
from llamaherd.recipes.units import Unit


def check_boot(started: StartedUnit) -> Iterator[Finding]:
    """Yield the faults of the starts at boot, and of the restarts."""
    yield from _restarts(started)
    yield from _at_boot(started)
    yield from _again(started)


def _whole(started: StartedUnit) -> bool:
    """Return whether the whole unit is given, so that absent settings are really missing."""
    sections = {name for name, _ in started.unit.sections}
    return not started.partial and "Unit" in sections and swallowed(started.words) is None


def _at_boot(started: StartedUnit) -> Iterator[Finding]:
    """Report units that do not start at boot: `systemctl enable` creates the links that [Install] names."""
    wanted = started.unit.last("WantedBy", "Install")
    pulled = wanted or any(started.unit.all(key, "Install") for key in ("RequiredBy", "UpheldBy", "Also"))
    start = started.start
    if not pulled and start and _whole(started):
        message = "nothing starts this at boot: `WantedBy=` under `[Install]` is missing"
        yield started.finding(NOT_AT_BOOT, start.start, message, "add `WantedBy=multi-user.target` there", "note")
    elif wanted and started.under_user and wanted.text in {"multi-user.target", "graphical.target"}:
        message = f"a user's manager has no `{wanted.text}`: this does not start by itself"
        yield started.finding(NOT_AT_BOOT, wanted.at, message, "write `WantedBy=default.target`")


def _again(started: StartedUnit) -> Iterator[Finding]:
    """Report servers that systemd does not start again after a crash (man systemd.service, Restart=)."""
    restart, start = started.unit.last("Restart"), started.start
    if restart is None and start and _whole(started):
        message = "a server that crashes stays down: `Restart=` is missing"
        yield started.finding(NOT_AT_BOOT, start.start, message, "add `Restart=on-failure` and `RestartSec=5`", "note")
    elif restart and restart.text == "on-success":
        message = "a server that crashes stays down: `on-success` restarts it only after a clean exit"
        yield started.finding(NOT_AT_BOOT, restart.at, message, "write `Restart=on-failure`")


GIVEN_UP = Rule(
    "LH196",
    "A server that cannot start is given up at once.",
    why="""
    `Restart=` waits a tenth of a second, and gives up after five starts in ten seconds, unless the unit sets other
    values.
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080
    Restart=on-failure
    """,
    language="ini",
    fix="add `RestartSec=5`, and `StartLimitIntervalSec=` and `StartLimitBurst=` under `[Unit]`.",
    severity="note",
)


def _restarts(started: StartedUnit) -> Iterator[Finding]:
    restart = started.unit.last("Restart")
    limits = ("StartLimitIntervalSec", "StartLimitInterval", "StartLimitBurst")
    limited = any(started.unit.last(key, section) for key in limits for section in ("Unit", "Service"))
    if restart and restart.text != "no" and not limited and started.unit.last("RestartSec") is None:
        message = "a server that cannot start is tried five times within a second, and then never again"
        way_out = "add `RestartSec=5`, and `StartLimitIntervalSec=` under `[Unit]`"
        yield started.finding(GIVEN_UP, restart.at, message, way_out)


_PATH_FLAGS = {
    *("-m", "--model", "-md", "--model-draft", "--spec-draft-model", "-mm", "--mmproj", "--lora", "--api-key-file"),
    *("--chat-template-file", "--grammar-file", "--log-file", "--slot-save-path", "--ssl-key-file", "--ssl-cert-file"),
    *("--models-dir", "--models-preset", "--control-vector", "--path"),
}
_HOMES = ("/home/", "/root/", "/run/user/")


def _paths(started: StartedUnit, server: ServerCommand) -> Iterator[Finding]:
    folder = started.unit.value("WorkingDirectory")
    named = [(flag, word) for flag, word in zip(server.arguments, server.arguments[1:], strict=False)]
    paths = [word for flag, word in named if str(flag) in _PATH_FLAGS and not word.unknown and not server.contained]
    for word in paths:
        if not folder and not started.partial and not re.match(r"[/~%$\u201c\u2018-]", str(word)):
            message = f"`{word}` is relative to `/`: a service starts there, unless `WorkingDirectory=` names a folder"
            yield started.finding(OUT_OF_SIGHT, word.start, message, "write the whole path, from `/` on")
    folders = [Word(each.value, each.at) for each in started.unit.all("WorkingDirectory")]
    yield from _hidden(started, [*paths, *started.words[:1], *folders])


def _hidden(started: StartedUnit, paths: list[Word]) -> Iterator[Finding]:
    bound = " ".join(each.text for key in ("BindPaths", "BindReadOnlyPaths") for each in started.unit.all(key))
    home = started.unit.value("ProtectHome").lower()
    hiding: list[tuple[str, tuple[str, ...]]] = []
    if home in {"true", "yes", "1", "on", "tmpfs"}:
        hiding.append((f"ProtectHome={home}", _HOMES))
    if started.unit.yes("PrivateTmp"):
        hiding.append(("PrivateTmp=", ("/tmp/", "/var/tmp/")))
    for key, prefixes in hiding:
        for word in paths:
            text = str(word)
            if text.startswith(prefixes) and not any(text.startswith(each.split(":")[-1]) for each in bound.split()):
                message = f"`{key}` hides `{text}` from the server"
                way_out = "move it, for example to /srv; or add `BindReadOnlyPaths=` with its folder"
                yield started.finding(OUT_OF_SIGHT, word.start, message, way_out)


_NEVER_READY = {
    "notify": "never reports readiness to systemd: after TimeoutStartSec (90 s) it is killed",
    "notify-reload": "never reports readiness to systemd: after TimeoutStartSec (90 s) it is killed",
    "forking": "does not go into the background: after TimeoutStartSec (90 s) it is killed",
    "oneshot": "does not end: the unit stays `activating`, and units that are ordered after it never start",
    "dbus": "takes no name on D-Bus: after TimeoutStartSec (90 s) it is killed",
}
"""The fault of each type: llama.cpp b11434 and vLLM 0.33.0 do not call sd_notify."""


def check_service(started: StartedUnit, server: ServerCommand) -> Iterator[Finding]:
    """Yield the faults of a server's service."""
    yield from _readiness(started, server)
    yield from _paths(started, server)
    yield from check_boot(started)
    yield from _devices(started, server)
    yield from _locked(started, server)
    yield from _saving(started, server)


def _readiness(started: StartedUnit, server: ServerCommand) -> Iterator[Finding]:
    setting = started.unit.last("Type")
    way_out = "write `Type=exec`, and check /health for readiness"
    if setting and setting.text in _NEVER_READY and not server.contained:
        message = f"`Type={setting.text}`: {server.program} {_NEVER_READY[setting.text]}"
        yield started.finding(NEVER_STARTED, setting.at, message, way_out)
    watchdog = started.unit.last("WatchdogSec")
    if watchdog and watchdog.text not in {"0", "infinity"} and not server.contained:
        message = f"`WatchdogSec=`: {server.program} never notifies systemd's watchdog, and is killed after that time"
        yield started.finding(NEVER_STARTED, watchdog.start, message, "leave it out, and check /health by a timer")


def _saving(started: StartedUnit, server: ServerCommand) -> Iterator[Finding]:
    limit = started.unit.last("MemoryMax")
    if limit and not server.contained:
        model = server.value("-m", "--model")
        there = Path(str(model)) if model and str(model).startswith("/") else None
        yield from check_memory_limit(Place(started.file, *limit.at), server, limit.text, there)


def _devices(started: StartedUnit, server: ServerCommand) -> Iterator[Finding]:
    layers = server.value("-ngl", "--gpu-layers", "--n-gpu-layers")
    wanted = server.program == "vllm" or (layers is not None and str(layers) != "0")
    wanted = wanted or "CUDA_VISIBLE_DEVICES" in server.settings
    if not wanted or server.contained:
        return
    processes = started.unit.last("ProcSubset")
    if processes and processes.text == "pid":
        message = "`ProcSubset=pid` hides /proc/driver/nvidia, and CUDA does not start without it"
        yield started.finding(OUT_OF_SIGHT, processes.at, message, "leave it out")
    allows = started.unit.all("DeviceAllow")
    allowed = " ".join(each.text for each in allows)
    if "nvidia" in allowed and not re.search(r"uvm|nvidia\*|char-\*", allowed):
        message = "`DeviceAllow=` allows a GPU and not nvidia-uvm: CUDA does not start without it"
        yield started.finding(
            OUT_OF_SIGHT, allows[0].at, message, "add `DeviceAllow=char-nvidia-uvm rw`, and nvidiactl"
        )
    if folder := next((each for each in allows if re.match(r"/dev/dri/?(?:\s|$)", each.text)), None):
        message = "`DeviceAllow=` takes no folder: the GPU's devices stay closed, and the server computes on the CPU"
        yield started.finding(OUT_OF_SIGHT, folder.at, message, "write `DeviceAllow=char-drm rw`")
    for key in ("PrivateDevices", "DevicePolicy"):
        setting = started.unit.last(key)
        closed = started.unit.yes(key) if key == "PrivateDevices" else not re.search("nvidia|dri|kfd|dxg", allowed)
        if setting and closed and setting.text != "auto":
            message = f"`{key}={setting.text}` hides the GPU's devices: the server would silently compute on the CPU"
            way_out = "leave it out" if key == "PrivateDevices" else "add `DeviceAllow=char-nvidia rw` and its like"
            yield started.finding(OUT_OF_SIGHT, setting.at, message, way_out)


NOT_ALLOWED = Rule(
    "LH197",
    "A service may not do what a flag requires.",
    why="""
    A service that is not root may lock 8 MiB. The rest is not locked, and a line in the log reports that.

    `--mlock` is `--load-mode mlock` since llama.cpp b10878 (LH101).
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --mlock --port 8080
    """,
    language="ini",
    fix="add `LimitMEMLOCK=infinity`.",
    severity="warning",
)


def _locked(started: StartedUnit, server: ServerCommand) -> Iterator[Finding]:
    flag = server.locks
    capabilities = started.unit.value("AmbientCapabilities")
    if flag is None or started.partial or server.contained or _is_root(started) or "CAP_IPC_LOCK" in capabilities:
        return
    limit = started.unit.last("LimitMEMLOCK")
    if limit is None or re.fullmatch(r"\d+[KM]?", limit.text.split(":")[0]):
        message = f"`{flag}` locks nothing: a service may lock 8 MiB, unless `LimitMEMLOCK=` allows more"
        yield started.finding(NOT_ALLOWED, flag.start, message, "add `LimitMEMLOCK=infinity`")


def check_container(file: Path, unit: Unit, words: tuple[Word, ...]) -> Iterator[Finding]:
    """Report options of `docker run` in a unit that end the client, or need a terminal."""
    names = [str(word).rpartition("/")[2] for word in words]
    if names[:1] not in (["docker"], ["podman"]) or names[1:2] != ["run"] or "--sdnotify" in " ".join(names):
        return
    for word in words[2:]:
        text = str(word)
        if not text.startswith("-"):
            continue
        short = re.fullmatch(r"-[dit]+", text)
        if (text == "--detach" or (short and "d" in text)) and unit.value("Type") not in {"oneshot", "forking"}:
            message = f"with `{text}` the client ends at once, and the service with it"
            yield NEVER_STARTED.at(Place(file, *word.start), message, "leave it out")
        elif text == "--tty" or (short and "t" in text):
            message = f"`{text}` needs a terminal, and a service has none"
            yield NEVER_STARTED.at(Place(file, *word.start), message, "leave it out")


def _is_root(started: StartedUnit) -> bool:
    unit = started.unit
    return unit.value("User") in {"", "root", "0"} and not unit.yes("DynamicUser") and not started.of_user
