"""Rules for the command line and the variables of a systemd unit that starts an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.recipes.commands import Position, Word
from llamaherd.recipes.recipe import NOT_AS_IT_LOOKS
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
