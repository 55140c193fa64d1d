"""Rules for any systemd unit: sections, keys, values, variables, shell syntax."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.recipes.commands import Position, Word, is_veiled
from llamaherd.recipes.units import Setting, Unit, known_keys, unit_environment, words

SKIPPED_BY_SYSTEMD = Rule(
    "LH190",
    "systemd skips a section, key or value of a unit.",
    why="""
    Names are compared with systemd's own table of version 257. It also skips a line that is neither a section nor
    a setting.
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080
    StartLimitIntervalSec=300
    """,
    language="ini",
    fix="put the key under the section that it belongs to.",
    sometimes=("warning",),
)

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
    "A service cannot access a file, a device or the network that it needs.",
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
        whole = any(name == "Service" for name, _ in self.unit.sections)
        return self.file.suffix == ".conf" or self.excerpt or not whole

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
    yield from _names(started)
    yield from _swallowed(started)
    yield from _behind(started)
    yield from _environment(started)
    for key in ("ExecStartPre", "ExecStartPost", "ExecStop", "ExecReload"):
        for setting in started.unit.all(key):
            yield from _no_shell(started, words(setting.value, {}))
    if started.words:
        yield from _no_shell(started, started.words)
        yield from _variables(started)
    yield from _secrets(started)


def _names(started: StartedUnit) -> Iterator[Finding]:
    """Report sections and keys that systemd's own table lacks."""
    known = known_keys()
    if any(section not in known and not _own(section) for section, _ in started.unit.sections):
        yield from _sections(started)
    for text, at in () if started.excerpt else started.unit.unread:
        shown = text if len(text) < 40 else f"{text[:40]}…"
        message = f"systemd skips this line: `{shown}` is neither a section nor a setting"
        way_out = "write `Key=value`; the line above continues here if its last character is a backslash"
        yield started.finding(SKIPPED_BY_SYSTEMD, at, message, way_out)
    for setting in started.unit.settings:
        if not setting.section and not started.excerpt:
            message = f"`{setting.key}` is under no section: systemd skips it"
            home = _home(setting.key) or "Service"
            yield started.finding(SKIPPED_BY_SYSTEMD, setting.start, message, f"put `[{home}]` on a line above it")
        elif setting.section in known and setting.key not in known[setting.section] and not _own(setting.key):
            yield _unknown(started, setting)


def swallowed(line: tuple[Word, ...]) -> int | None:
    """Return the index of the first word that is a setting of its own, in a line that a backslash continues."""
    known = known_keys()["Service"]
    places = ((index, str(word).partition("=")) for index, word in enumerate(line[1:], start=1))
    return next((index for index, (key, equals, _) in places if equals and key in known), None)


def _swallowed(started: StartedUnit) -> Iterator[Finding]:
    """Report a backslash at the end of a last line: the next setting or section becomes a part of it."""
    index = swallowed(started.words)
    if index is not None:
        key = str(started.words[index]).partition("=")[0]
        message = f"the line above ends in a backslash: `{key}` becomes an argument, and is not set"
        yield started.finding(SKIPPED_BY_SYSTEMD, started.words[index].start, message, "leave that backslash out")


def _own(name: str) -> bool:
    """Return whether systemd leaves a section or key to other programs (man systemd.unit)."""
    return name.startswith("X-")


def _sections(started: StartedUnit) -> Iterator[Finding]:
    known = known_keys()
    for section, at in started.unit.sections:
        if section not in known and not _own(section) and not _of_another_generator(section):
            close = get_close_matches(section, known, n=1, cutoff=0.6)
            way_out = f"did you mean `[{close[0]}]`?" if close else "leave it out"
            message = f"systemd has no section `[{section}]`, and skips its lines"
            yield started.finding(SKIPPED_BY_SYSTEMD, at, message, way_out)


def _of_another_generator(section: str) -> bool:
    """Return whether a section is of other kinds of units: mounts, slices, and Podman's."""
    return section in {"Mount", "Automount", "Swap", "Slice", "Scope", "Container", "Pod", "Volume", "Network", "Image"}


def _home(key: str) -> str | None:
    homes = [section for section in ("Service", "Unit", "Install", "Timer") if key in known_keys()[section]]
    return homes[0] if homes else None


def _unknown(started: StartedUnit, setting: Setting) -> Finding:
    home = _home(setting.key)
    if home:
        message = f"`{setting.key}` has no effect under `[{setting.section}]`: systemd skips it there"
        return started.finding(SKIPPED_BY_SYSTEMD, setting.start, message, f"put it under `[{home}]`")
    known = known_keys()[setting.section]
    same = next((key for key in known if key.lower() == setting.key.lower()), None)
    close = [same] if same else get_close_matches(setting.key, known, n=1, cutoff=0.75)
    way_out = f"did you mean `{close[0]}`?" if close else "leave it out"
    message = f"systemd 257 has no key `{setting.key}` under `[{setting.section}]`: it skips it"
    return started.finding(SKIPPED_BY_SYSTEMD, setting.start, message, way_out, "error" if close else "warning")


def _behind(started: StartedUnit) -> Iterator[Finding]:
    """Report comments after a value, which systemd does not have."""
    for setting in started.unit.settings:
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", lambda found: "." * len(found[0]), setting.text)
        found = _BEHIND.search(bare)
        if found and setting.key not in {"Description", "Documentation"}:
            at = setting.value.at[found.end() - 1]
            message = f"systemd has no comments after a value: this is a part of `{setting.key}`"
            yield started.finding(SHELL_IN_UNIT, at, message, "put the comment on a line of its own")


def _environment(started: StartedUnit) -> Iterator[Finding]:
    found, stray = unit_environment(started.unit)
    for word in stray:
        if str(word).startswith("#"):
            break  # a comment, which is reported elsewhere
        if str(word) == "export":
            message = "`export` is the shell's: systemd skips it"
            yield started.finding(UNIT_VARIABLE, word.start, message, "write `Environment=NAME=value`")
            break
        message = f"`{word}` is no `NAME=value`: systemd ends a value at a blank, and skips this"
        way_out = 'put quotes around the whole assignment: `Environment="NAME=a b"`'
        yield started.finding(UNIT_VARIABLE, word.start, message, way_out)
        break
    for name, value in found.items():
        if several := re.search(r",\s*([A-Z_]{3,})=", str(value)):
            message = f"all of this is the value of `{name}`: systemd separates variables by blanks"
            at = value.text.at[several.start()] if value.text.at else value.start
            yield started.finding(UNIT_VARIABLE, at, message, "write a blank for the comma", "warning")
        variable = re.search(r"\$\{?([A-Za-z_]\w*)", str(value))
        if variable:
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
    for name, value in unit_environment(started.unit)[0].items():
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


# systemd 257, man systemd.service, systemd.kill, systemd.time, systemd.special, systemd.unit (SPECIFIERS).
_WORDS: Mapping[str, tuple[str, ...]] = {
    "type": ("simple", "exec", "forking", "oneshot", "dbus", "notify", "notify-reload", "idle"),
    "restart": ("no", "on-success", "on-failure", "on-abnormal", "on-watchdog", "on-abort", "always"),
    "kill": ("control-group", "process", "mixed", "none"),
    "bool": ("true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"),
}
_UNIT = r"(?:us|usec|µs|μs|ms|msec|s|sec|seconds?|m|min|minutes?|h|hr|hours?|d|days?|w|weeks?|M|months?|y|years?)"
# A number ends where no digit follows: else one of many digits can be read in many ways, and each is tried.
_TIME = re.compile(rf"(?:\d+(?:\.\d+)?(?!\d)\s*{_UNIT}?\s*)+|infinity")
_SIZE = r"\d+(?:\.\d+)?\s*[KMGTPE]?"
_SIZED, _SIGNAL = "write a size such as `48G`, or `infinity`", "write such as `SIGINT`"
_SHAPES: tuple[tuple[str, str, str], ...] = (
    (r"Memory(?:Max|High|Low|Min|SwapMax|Limit)", rf"{_SIZE}|[\d.]+%|infinity", _SIZED),
    (r"Limit(?!CPU|RTTIME|NICE)\w+", rf"(?:{_SIZE}|infinity)(?::(?:{_SIZE}|infinity))?", _SIZED),
    (r"(?:Startup)?CPUQuota", r"[\d.]+%", "write percent of one processor: `400%` is four"),
    (r"Nice", r"\+?1?\d|-(?:1?\d|20)", "write a number from -20 to 19"),
    (r"OOMScoreAdjust", r"[+-]?(?:\d{1,3}|1000)", "write a number from -1000 to 1000"),
    (r"CPUAffinity|AllowedCPUs", r"[\d\s,-]+|numa", "write numbers and ranges, such as `0-7`"),
    (
        r"Standard(?:Output|Error)",
        r"(?:inherit|null|tty|journal|kmsg|socket|syslog)(?:\+console)?|fd(?::.*)?|(?:file|append|truncate):[/%].*",
        "write `journal`, or a whole path behind `append:`",
    ),
    (
        r"(?:Restart|Final)?KillSignal",
        r"(?:SIG)?(?:HUP|INT|QUIT|ABRT|KILL|USR[12]|TERM|CONT|STOP|PIPE|ALRM|RTM(?:IN|AX)[+-]\d+)|\d+",
        _SIGNAL,
    ),
)
"""Keys, the values that systemd accepts (man systemd.resource-control, systemd.exec, systemd.kill), and the help.

Sizes end in one letter: `48GB` is invalid, and is skipped (systemd 257, src/basic/parse-util.c, parse_size).
"""
_SUFFIX = re.compile(r".+\.(?:service|socket|target|device|mount|automount|swap|timer|path|slice|scope)")
_DATE = re.compile(r"%Y[-_./]?%m|%m[-_./]?%d|%H[-_:.]?%M|%F\b|%T\b")
_TARGETS = ("multi-user.target", "default.target", "graphical.target", "network-online.target", "timers.target")
_SPECIFIER = re.compile(r"%(.?)")
_SPECIFIERS = frozenset("aAbBCdDEfgGhHiIjJlLmMnNopPqsStTuUvVwWyY%")


def check_values(started: StartedUnit) -> Iterator[Finding]:
    """Yield the values that systemd cannot parse."""
    known = known_keys()
    for setting in started.unit.settings:
        if not setting.text or is_veiled(setting.text) or " #" in setting.text:
            continue
        yield from _value(started, setting, known.get(setting.section or "Service", {}).get(setting.key, ""))
        yield from _shape(started, setting)
        if not re.fullmatch(r"[\d.]+%", setting.text):
            yield from _specifiers(started, setting)
        if setting.key in _NAMES:
            yield from _targets(started, setting)


def _value(started: StartedUnit, setting: Setting, kind: str) -> Iterator[Finding]:
    text = setting.text
    skipped = f"systemd cannot read `{setting.key}={text}`, and takes its default"
    if kind == "time" and not _TIME.fullmatch(text):
        yield started.finding(
            SKIPPED_BY_SYSTEMD, setting.at, skipped, "write a time, such as `30`, `5min` or `1h 30min`"
        )
    elif kind in _WORDS and text.lower() not in _WORDS[kind] and text not in _WORDS[kind]:
        close = get_close_matches(text, _WORDS[kind], n=1, cutoff=0.6)
        shown = ", ".join(f"`{word}`" for word in _WORDS[kind][:8])
        way_out = f"did you mean `{close[0]}`?" if close and kind != "bool" else f"it is one of {shown}"
        yield started.finding(
            SKIPPED_BY_SYSTEMD, setting.at, skipped, "write `true` or `false`" if kind == "bool" else way_out
        )
    elif kind == "gone":
        message = f"`{setting.key}` has no effect any more: systemd only warns of it"
        yield started.finding(SKIPPED_BY_SYSTEMD, setting.start, message, "leave it out", "warning")


_NAMES = frozenset({"WantedBy", "RequiredBy", "After", "Before", "Wants", "Requires", "Requisite", "BindsTo", "PartOf"})
"""Keys whose values are units."""


def _shape(started: StartedUnit, setting: Setting) -> Iterator[Finding]:
    """Report values that systemd cannot parse and ignores, with a line in its journal."""
    for keys, values, way_out in _SHAPES:
        if re.fullmatch(keys, setting.key) and setting.text[:1] != "%" and not re.fullmatch(values, setting.text):
            message = f"systemd cannot read `{setting.key}={setting.text}`, and takes its default"
            yield started.finding(SKIPPED_BY_SYSTEMD, setting.at, message, way_out)


def _specifiers(started: StartedUnit, setting: Setting) -> Iterator[Finding]:
    if date := _DATE.search(setting.text):
        message = f"`{date[0]}` is no date here: systemd replaces it by names of its own, such as that of the machine"
        at = setting.value.at[date.start()]
        yield started.finding(
            UNIT_VARIABLE, at, message, "write `%%` for a percent sign, or leave the date to the journal"
        )
        return
    for found in _SPECIFIER.finditer(setting.text):
        if found[1] not in _SPECIFIERS:
            message = f"`{found[0]}` is no specifier of systemd, which skips the whole line"
            yield started.finding(
                UNIT_VARIABLE, setting.value.at[found.start()], message, "write `%%` for a percent sign"
            )
            return


def _targets(started: StartedUnit, setting: Setting) -> Iterator[Finding]:
    for name in setting.text.split():
        if not _SUFFIX.fullmatch(name) and "%" not in name:
            message = f"systemd ignores `{name}` in `{setting.key}=`: a unit's name ends with its kind after a dot"
            yield started.finding(SKIPPED_BY_SYSTEMD, setting.at, message, f"write `{name}.service`", "warning")
            continue
        close = get_close_matches(name, _TARGETS, n=1, cutoff=0.85)
        if close and name != close[0]:
            message = f"there is no `{name}` in systemd: the setting would have no effect"
            yield started.finding(SKIPPED_BY_SYSTEMD, setting.at, message, f"did you mean `{close[0]}`?", "warning")
