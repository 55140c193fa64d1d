"""What is wrong with a systemd unit around the server that it starts: readiness, paths, devices, limits, its user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.diagnostics.rule import Rule
from llamaherd.recipes import unitplaces, unitstart
from llamaherd.recipes.commands import Word
from llamaherd.recipes.heldweights import LIMIT_BELOW_HELD, holds_beyond
from llamaherd.recipes.memorylimit import LIMIT_BELOW_SAVED, saves_beyond
from llamaherd.recipes.programs import ServerCommand
from llamaherd.recipes.unit_rules import NEVER_STARTED, OUT_OF_SIGHT
from llamaherd.recipes.unitrules import Started
from llamaherd.recipes.units import Unit
from llamaherd.text.numbers import whole

_NEVER_READY = {
    "notify": "never tells systemd that it is ready: after TimeoutStartSec (90 s) it is killed",
    "notify-reload": "never tells systemd that it is ready: after TimeoutStartSec (90 s) it is killed",
    "forking": "does not go into the background: after TimeoutStartSec (90 s) it is killed",
    "oneshot": "does not end: the unit stays `activating`, and what is ordered after it never starts",
    "dbus": "takes no name on D-Bus: after TimeoutStartSec (90 s) it is killed",
}
"""llama.cpp b11434 and vLLM 0.33.0 hold no call of sd_notify."""


def check(started: Started, server: ServerCommand) -> Iterator[Finding]:
    """Everything wrong around a server."""
    yield from _readiness(started, server)
    yield from unitplaces.check(started, server)
    yield from unitstart.check(started, server)
    yield from _devices(started, server)
    yield from _locked(started, server)
    yield from _saving(started, server)
    yield from _port(started, server)
    yield from _unreachable(started, server)
    yield from _network(started, server)
    yield from _root(started, server)


def _readiness(started: Started, server: ServerCommand) -> Iterator[Finding]:
    setting = started.unit.last("Type")
    way_out = "write `Type=exec`, and ask /health for readiness"
    if setting and setting.text in _NEVER_READY and not server.contained:
        message = f"`Type={setting.text}`: {server.program} {_NEVER_READY[setting.text]}"
        yield started.finding(NEVER_STARTED, setting.at, message, way_out)
    watchdog = started.unit.last("WatchdogSec")
    if watchdog and watchdog.text not in {"0", "infinity"} and not server.contained:
        message = f"`WatchdogSec=`: {server.program} never answers systemd's watchdog, and is killed after that time"
        yield started.finding(NEVER_STARTED, watchdog.start, message, "leave it out, and ask /health by a timer")
    starts = started.unit.all("ExecStart")
    if len(starts) > 1 and started.unit.value("Type") != "oneshot":
        message = (
            "a second `ExecStart` is refused: a service has one, unless an empty `ExecStart=` takes back the first"
        )
        yield started.finding(NEVER_STARTED, starts[1].start, message, "keep one of them; a unit for each server")


def _saving(started: Started, server: ServerCommand) -> Iterator[Finding]:
    limit = started.unit.last("MemoryMax")
    if limit and not server.contained and (said := saves_beyond(server, limit.text)):
        yield started.finding(LIMIT_BELOW_SAVED, limit.at, *said)
    model = server.value("-m", "--model")
    there = Path(str(model)) if model and str(model).startswith("/") and not server.contained else None
    if limit and (held := holds_beyond(server, limit.text, there)):
        yield started.finding(LIMIT_BELOW_HELD, limit.at, *held)


def _devices(started: Started, server: ServerCommand) -> Iterator[Finding]:
    layers = server.value("-ngl", "--gpu-layers", "--n-gpu-layers")
    wanted = server.program == "vllm" or (layers is not None and str(layers) != "0")
    wanted = wanted or "CUDA_VISIBLE_DEVICES" in server.settings
    if not wanted or server.contained:
        return
    processes = started.unit.last("ProcSubset")
    if processes and processes.text == "pid":
        message = "`ProcSubset=pid` hides /proc/driver/nvidia, and CUDA does not start without it"
        yield started.finding(OUT_OF_SIGHT, processes.at, message, "leave it out")
    writes = started.unit.last("MemoryDenyWriteExecute")
    if writes and started.unit.yes("MemoryDenyWriteExecute") and server.program == "vllm":
        message = "vLLM compiles kernels as it runs, which `MemoryDenyWriteExecute=` forbids"
        yield started.finding(OUT_OF_SIGHT, writes.at, message, "leave it out")
    allows = started.unit.all("DeviceAllow")
    allowed = " ".join(each.text for each in allows)
    if "nvidia" in allowed and not re.search(r"uvm|nvidia\*|char-\*", allowed):
        message = "`DeviceAllow=` allows a GPU and not nvidia-uvm: CUDA does not start without it"
        yield started.finding(
            OUT_OF_SIGHT, allows[0].at, message, "add `DeviceAllow=char-nvidia-uvm rw`, and nvidiactl"
        )
    for key in ("PrivateDevices", "DevicePolicy"):
        setting = started.unit.last(key)
        closed = started.unit.yes(key) if key == "PrivateDevices" else not re.search("nvidia|dri|kfd|dxg", allowed)
        if setting and closed and setting.text != "auto":
            message = (
                f"`{key}={setting.text}` hides the GPU's devices: the server would compute on the CPU, and not say so"
            )
            way_out = "leave it out" if key == "PrivateDevices" else "add `DeviceAllow=char-nvidia rw` and its like"
            yield started.finding(OUT_OF_SIGHT, setting.at, message, way_out)


NOT_ALLOWED = Rule(
    "LH197",
    "A service may not do what a flag says.",
    why="""
    A service that is not root may lock 8 MiB. The rest is not locked, and a line in the log says so.

    `--mlock` is `--load-mode mlock` since llama.cpp b10878 (LH101).
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --mlock --port 8080
    """,
    language="ini",
    way_out="add `LimitMEMLOCK=infinity`. For a port below 1024 add a capability, or take another port.",
    sometimes=("warning",),
)


def _locked(started: Started, server: ServerCommand) -> Iterator[Finding]:
    flag = server.locks
    capabilities = started.unit.value("AmbientCapabilities")
    if flag is None or started.partial or server.contained or _is_root(started) or "CAP_IPC_LOCK" in capabilities:
        return
    limit = started.unit.last("LimitMEMLOCK")
    if limit is None or re.fullmatch(r"\d+[KM]?", limit.text.split(":")[0]):
        message = f"`{flag}` locks nothing: a service may lock 8 MiB, unless `LimitMEMLOCK=` says more"
        yield started.finding(NOT_ALLOWED, flag.start, message, "add `LimitMEMLOCK=infinity`", "warning")


def _port(started: Started, server: ServerCommand) -> Iterator[Finding]:
    """Ports that are root's, unless a capability says otherwise (ip(7))."""
    port = server.value("--port")
    able = _is_root(started) or "CAP_NET_BIND_SERVICE" in started.unit.value("AmbientCapabilities")
    if port is None or able or server.contained or started.partial:
        return
    if 0 < (whole(str(port)) or 0) < 1024:
        message = f"port {port} is below 1024, and only root may listen there"
        way_out = "take a port from 1024 on, or add `AmbientCapabilities=CAP_NET_BIND_SERVICE`"
        yield started.finding(NOT_ALLOWED, port.start, message, way_out)


def _unreachable(started: Started, server: ServerCommand) -> Iterator[Finding]:
    setting, unit = started.unit.last("PrivateNetwork"), started.unit
    if str(server.value("--host") or "").endswith(".sock") or server.contained:
        return
    if setting and unit.yes("PrivateNetwork"):
        message = "with `PrivateNetwork=` nobody reaches the server: it has a network of its own"
        yield started.finding(
            OUT_OF_SIGHT, setting.at, message, "leave it out, or listen on a socket: `--host /run/….sock`"
        )
    families = unit.last("RestrictAddressFamilies")
    if families and not families.text.startswith("~") and "AF_INET" not in families.text and families.text != "none":
        message = "without AF_INET the server opens no port"
        yield started.finding(OUT_OF_SIGHT, families.at, message, f"write `{families.text} AF_INET AF_INET6`")
    denied = unit.last("IPAddressDeny")
    if denied and denied.text in {"any", "0.0.0.0/0"} and not unit.all("IPAddressAllow") and not started.partial:
        message = "`IPAddressDeny=` keeps everybody out, the host itself too"
        yield started.finding(OUT_OF_SIGHT, denied.at, message, "add `IPAddressAllow=localhost`, and your network")


def check_container(file: Path, unit: Unit, words: tuple[Word, ...]) -> Iterator[Finding]:
    """`docker run` in a unit: systemd keeps the client running, which must stay, and has no terminal."""
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
            message = f"`{text}` wants a terminal, and a service has none"
            yield NEVER_STARTED.at(Place(file, *word.start), message, "leave it out")


BEFORE_NETWORK = Rule(
    "LH198",
    "A service does not wait for the network.",
    why="network.target is reached before there is an address; network-online.target waits, if something pulls it in.",
    example="""
    [Unit]
    After=network-online.target

    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080
    """,
    language="ini",
    way_out="add `Wants=network-online.target` beside `After=network-online.target`.",
    severity="warning",
)


def _network(started: Started, server: ServerCommand) -> Iterator[Finding]:
    host = server.value("--host")
    fetches = server.has("-hf", "-hfr", "--hf-repo", "-mu", "--model-url")
    own = host and not host.unknown and re.fullmatch(r"\d+(?:\.\d+){3}", str(host))
    specific = own and str(host) != "0.0.0.0" and not str(host).startswith("127.")
    after = " ".join(each.text for each in started.unit.all("After", "Unit"))
    pulled = " ".join(e.text for k in ("Wants", "Requires", "BindsTo") for e in started.unit.all(k, "Unit"))
    if "network-online.target" in after and "network-online.target" not in pulled and not started.partial:
        at = next(each.at for each in started.unit.all("After", "Unit") if "network-online.target" in each.text)
        message = "`After=` alone does not start network-online.target, so that this may wait for nothing"
        yield started.finding(BEFORE_NETWORK, at, message, "add `Wants=network-online.target`")
    elif (specific or fetches) and "network-online.target" not in after and not started.partial:
        at = host.start if specific and host else fetches.start if fetches else server.start
        message = "this needs the network up, and network.target does not wait for that"
        way_out = "add `Wants=network-online.target` and `After=network-online.target` under `[Unit]`"
        yield started.finding(BEFORE_NETWORK, at, message, way_out)


def _is_root(started: Started) -> bool:
    unit = started.unit
    return unit.value("User") in {"", "root", "0"} and not unit.yes("DynamicUser") and not started.of_user


AS_ROOT = Rule(
    "LH195",
    "A server runs as root.",
    why="""
    Without `User=` or `DynamicUser=` a service of the system is root, and so is whoever breaks into it. A unit of
    a user's own manager is not meant.
    """,
    example="""
    [Service]
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080
    """,
    language="ini",
    way_out="make a user for it, and name it in `User=`.",
    severity="note",
)


def _root(started: Started, server: ServerCommand) -> Iterator[Finding]:
    if _is_root(started) and not started.partial and not server.contained:
        setting = started.unit.last("User") or started.unit.last("ExecStart")
        if setting:
            message = "the server runs as root, and whoever breaks into it is root"
            way_out = "make a user for it, `useradd --system llama`, and write `User=llama`"
            yield started.finding(AS_ROOT, setting.start, message, way_out)
