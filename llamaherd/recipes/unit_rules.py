"""Rules for a systemd unit that starts an engine: command line, variables, start, restarts, paths, devices, user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llamaherd.checks.arguments import HOMES, READ, WRITTEN
from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.recipes.commands import Position, Word
from llamaherd.recipes.containers import end_of_run, options_of_run
from llamaherd.recipes.memory_limits import check_memory_limit
from llamaherd.recipes.recipe import NOT_AS_IT_LOOKS, NOT_AT_BOOT, ServerCommand, base_name
from llamaherd.recipes.units import Setting, Unit, unit_environment

SHELL_IN_UNIT = Rule(
    "LH191",
    "A unit has shell syntax, and systemd runs no shell.",
    why="""
    Pipes, `&&`, redirections and `~` reach the program as arguments. A comment stands on a line of its own:
    behind a value it is a part of it.
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080 >> /var/log/llama.log
    """,
    language="ini",
    fix="leave it out; the journal keeps what the server prints.",
)

NEVER_STARTED = Rule(
    "LH192",
    "systemd would refuse the service, or never consider it started.",
    why="""
    llama-server and vLLM do not call sd_notify and stay in the foreground. A service has one `ExecStart`, unless
    it is `oneshot`.
    """,
    example="""
    [Service]
    Type=notify
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080
    """,
    language="ini",
    fix="write `Type=exec`, and probe `/health` for readiness.",
)

UNIT_VARIABLE = Rule(
    "LH193",
    "A variable of a unit is read in another way than it seems.",
    why="""
    `${NAME}` is replaced only in command lines, and only if `Environment=` or `EnvironmentFile=` sets it. A value with
    blanks needs quotes around the whole assignment.
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m ${MODEL} --port 8080
    """,
    language="ini",
    fix="set the variable, or write the value itself.",
    sometimes=("warning",),
)

OUT_OF_SIGHT = Rule(
    "LH194",
    "A service cannot access a file or a device that it needs.",
    why="""
    `ProtectHome=`, `PrivateTmp=` and `PrivateDevices=` hide files; a relative path starts in `/` without
    `WorkingDirectory=`.
    """,
    example="""
    [Service]
    ProtectHome=true
    User=llama
    ExecStart=/usr/bin/llama-server -m /home/tom/qwen.gguf --port 8080
    """,
    language="ini",
    fix="put the file where the service can read it, or name its folder in `BindReadOnlyPaths=`.",
)


_SETTING = re.compile(r"\[?[A-Z][A-Za-z]+(?:=|\]$)")
"""A setting or a section of a unit. Flags and values of engines have other forms."""
_OPERATORS = {"|", "||", "&", "&&", "<", "<<", ">", ">>", "2>&1", "&>", "&>>", ";"}
_BUILTINS = {"cd", "export", "source", ".", "ulimit", "set", "umask", "alias", "exec", "eval", "if", "while", "for"}
SECRET_NAME = re.compile(r"(?:^|_)(?:TOKEN|API_?KEY|SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)
"""Names of variables whose value is a secret, and not the path of a file with it."""
_BEHIND = re.compile(r"(?:^|\s)#")
_PART = re.compile(r"(?<=[^\s$])\$[A-Za-z_]\w*|^\$[A-Za-z_]\w*(?=[^\s\w])")


@dataclass(frozen=True)
class StartedUnit:
    """A unit with the command of its ExecStart."""

    file: Path
    unit: Unit
    words: tuple[Word, ...] = ()
    """The words of ExecStart, prefixes left out."""
    excerpt: bool = False
    """Whether it is a part of a unit on a page."""

    @property
    def partial(self) -> bool:
        """True for a part of a unit: a drop-in, or an excerpt on a page."""
        whole = any(name in ("Service", "Container") for name, _ in self.unit.sections)
        return self.file.suffix == ".conf" or self.excerpt or not whole

    @property
    def start(self) -> Setting | None:
        """The setting that starts the server: a command, or the image of a Quadlet."""
        return self.unit.last("ExecStart") or self.unit.last("Image", "Container")

    @property
    def of_user(self) -> bool:
        """True if a user's own manager runs it."""
        wanted = self.unit.value("WantedBy", "Install")
        return wanted == "default.target" or self.under_user

    @property
    def under_user(self) -> bool:
        """True if it is in a folder of users' units."""
        return "/systemd/user/" in str(self.file.absolute())

    def finding(
        self, rule: Rule, at: Position, message: str, way_out: str, severity: Severity | None = None
    ) -> Finding:
        """Return a finding in this unit's file."""
        return rule.at(Place(self.file, *at), message, way_out, severity)


def check_unit(started: StartedUnit) -> Iterator[Finding]:
    """Yield the faults of a unit, except for the arguments of its server."""
    yield from _swallowed(started)
    yield from _not_continued(started)
    yield from _behind(started)
    yield from _environment(started)
    if started.words:
        yield from _no_shell(started, started.words)
        yield from _variables(started)
    yield from _secrets(started)


def swallowed(line: tuple[Word, ...]) -> int | None:
    """Return the index of the first word that is a setting of its own, in a line that a backslash continues."""
    return next((index for index, word in enumerate(line[1:], start=1) if _SETTING.match(str(word))), None)


def _swallowed(started: StartedUnit) -> Iterator[Finding]:
    """Report a backslash at the end of a last line: the next setting or section becomes a part of it."""
    index = swallowed(started.words)
    if index is not None:
        key = str(started.words[index]).partition("=")[0]
        message = f"the line above ends in a backslash: `{key}` becomes an argument, and is not set"
        yield started.finding(NOT_AS_IT_LOOKS, started.words[index].start, message, "leave that backslash out")


def _not_continued(started: StartedUnit) -> Iterator[Finding]:
    """Report lines of flags that systemd ignores, as the line above them does not end in a backslash."""
    for line in started.unit.not_continued:
        message = f"systemd ignores `{line.chars.split()[0]}` and the rest of this line: the one above has no backslash"
        yield started.finding(NOT_AS_IT_LOOKS, line.at[0], message, "end the line above with a backslash")


def _behind(started: StartedUnit) -> Iterator[Finding]:
    """Report comments after a command line, which systemd does not have."""
    for setting in started.unit.all("ExecStart"):
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", lambda found: "." * len(found[0]), setting.text)
        if found := _BEHIND.search(bare):
            at = setting.value.at[found.end() - 1]
            message = f"systemd has no comments after a value: this is a part of `{setting.key}`"
            yield started.finding(SHELL_IN_UNIT, at, message, "put the comment on a line of its own")


def _environment(started: StartedUnit) -> Iterator[Finding]:
    for name, value in unit_environment(started.unit).items():
        variable = re.search(r"\$\{?([A-Za-z_]\w*)", str(value))
        if variable and not value.unknown:
            message = f"`{variable[0]}` in `Environment={name}=` is not expanded: systemd reads it as written"
            yield started.finding(UNIT_VARIABLE, value.start, message, "write the value itself")


def is_operator(word: str) -> bool:
    """Return whether a word is an operator of a shell, which ends a command or redirects its output."""
    return word in _OPERATORS or re.match(r"\d?>>?[&/\w]", word) is not None


KEY_IN_UNIT = Rule(
    "LH199",
    "A key or token is in a unit.",
    why="Units are readable, and `systemctl show` prints their variables to every user of the host.",
    example="""
    [Service]
    User=llama
    Environment=LLAMA_API_KEY=0123456789
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080
    """,
    language="ini",
    fix="put it into a file of mode 0600 that `EnvironmentFile=` names, or use `LoadCredential=`.",
    severity="warning",
)


def _secrets(started: StartedUnit) -> Iterator[Finding]:
    for name, value in unit_environment(started.unit).items():
        if SECRET_NAME.search(name) and str(value) and not str(value).startswith(("/", "%", "$")):
            message = f"the value of `{name}` is in the unit: `systemctl show` prints it for every user of the host"
            way_out = f"put `{name}=…` into a file of mode 0600, and name that in `EnvironmentFile=`"
            yield started.finding(KEY_IN_UNIT, value.start, message, way_out)


def _no_shell(started: StartedUnit, line: tuple[Word, ...]) -> Iterator[Finding]:
    first = str(line[0]).lstrip("@!:+|-") if line else ""
    if first in _BUILTINS:
        message = f"`{first}` is a command of the shell, and systemd runs none"
        way_out = "use `Environment=`, `WorkingDirectory=` or a limit of systemd's; or `/bin/sh -c '…'`"
        yield started.finding(SHELL_IN_UNIT, line[0].start, message, way_out)
        return
    for word in line:
        text = str(word)
        if is_operator(text):
            message = f"systemd runs no shell: `{text}` reaches the program as an argument"
            way_out = "leave it out; output goes to the journal, and what must come first into `ExecStartPre=`"
            yield started.finding(SHELL_IN_UNIT, word.start, message, way_out)
            return
        if text.startswith("~/") or "=~/" in text:
            message = f"systemd does not expand `~`: `{text}` is not a path"
            yield started.finding(SHELL_IN_UNIT, word.start, message, "write the whole path, from `/` on")
    if first.rpartition("/")[2] in {"nohup", "screen", "tmux", "setsid"}:
        message = f"`{first}` detaches the server from systemd, for which the service has then ended"
        way_out = "start the server itself: systemd keeps it running"
        yield started.finding(SHELL_IN_UNIT, line[0].start, message, way_out)


def _variables(started: StartedUnit) -> Iterator[Finding]:
    """Report variables that nothing sets. The manager sets some with `User=` (man systemd.exec)."""
    if started.unit.all("EnvironmentFile") or started.unit.all("PassEnvironment"):
        return
    given = {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "INVOCATION_ID", "CREDENTIALS_DIRECTORY"}
    given |= {"RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY"}
    reported: set[str] = set()
    for word in started.words:
        part = _PART.search(str(word))
        if part and not word.unknown and " " not in str(word):
            message = f"`{part[0]}` is not expanded: inside a word systemd expands only `${{NAME}}`"
            yield started.finding(UNIT_VARIABLE, word.start, message, "write the value itself, or `${NAME}`")
        for name in word.unset:
            if name not in given | reported and not started.partial:
                reported.add(name)
                message = f"nothing sets `{name}` here: systemd replaces it by an empty text"
                way_out = f"write the value itself, or set it: `Environment={name}=…`, or an `EnvironmentFile=`"
                yield started.finding(UNIT_VARIABLE, word.start, message, way_out)


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


_PATH_FLAGS = {"-m", "--model", "-md", "-mm", "--api-key-file", "--ssl-key-file", "--ssl-cert-file", *READ, *WRITTEN}


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
        hiding.append((f"ProtectHome={home}", HOMES))
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
    run = end_of_run([base_name(str(word)) for word in words])
    options, _ = options_of_run(words[run:]) if run else ((), ())
    if any(option.name == "--sdnotify" for option in options):
        return
    for name, start in ((option.name, option.start) for option in options):
        short = re.fullmatch(r"-[dit]+", name)
        if (name == "--detach" or (short and "d" in name)) and unit.value("Type") not in {"oneshot", "forking"}:
            message = f"with `{name}` the client ends at once, and the service with it"
            yield NEVER_STARTED.at(Place(file, *start), message, "leave it out")
        elif name == "--tty" or (short and "t" in name):
            message = f"`{name}` needs a terminal, and a service has none"
            yield NEVER_STARTED.at(Place(file, *start), message, "leave it out")


def _is_root(started: StartedUnit) -> bool:
    unit = started.unit
    return unit.value("User") in {"", "root", "0"} and not unit.yes("DynamicUser") and not started.of_user
