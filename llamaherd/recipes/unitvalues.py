"""Values of a unit that systemd cannot read: it says so in the journal, and takes its default."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from llamaherd.diagnostics.findings import Finding
from llamaherd.recipes.unit_rules import SKIPPED_BY_SYSTEMD, UNIT_VARIABLE
from llamaherd.recipes.unitrules import Started
from llamaherd.recipes.units import Setting, known_keys

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
"""Keys, what systemd reads as their values (man systemd.resource-control, systemd.exec, systemd.kill), what to write.

Sizes end in one letter: `48GB` is none, and is skipped (systemd 257, src/basic/parse-util.c, parse_size).
"""
_SUFFIX = re.compile(r".+\.(?:service|socket|target|device|mount|automount|swap|timer|path|slice|scope)")
_DATE = re.compile(r"%Y[-_./]?%m|%m[-_./]?%d|%H[-_:.]?%M|%F\b|%T\b")
_TARGETS = ("multi-user.target", "default.target", "graphical.target", "network-online.target", "timers.target")
_SPECIFIER = re.compile(r"%(.?)")
_SPECIFIERS = frozenset("aAbBCdDEfgGhHiIjJlLmMnNopPqsStTuUvVwWyY%")


def check(started: Started) -> Iterator[Finding]:
    """Everything that systemd cannot read as a value."""
    known = known_keys()
    for setting in started.unit.settings:
        if not setting.text or (started.generated and "$" in setting.text) or " #" in setting.text:
            continue
        yield from _value(started, setting, known.get(setting.section or "Service", {}).get(setting.key, ""))
        yield from _shape(started, setting)
        if not re.fullmatch(r"[\d.]+%", setting.text):
            yield from _specifiers(started, setting)
        if setting.key in _NAMES:
            yield from _targets(started, setting)


def _value(started: Started, setting: Setting, kind: str) -> Iterator[Finding]:
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
        message = f"`{setting.key}` did something once: systemd only warns of it now"
        yield started.finding(SKIPPED_BY_SYSTEMD, setting.start, message, "leave it out", "warning")


_NAMES = frozenset({"WantedBy", "RequiredBy", "After", "Before", "Wants", "Requires", "Requisite", "BindsTo", "PartOf"})
"""Keys whose values are units."""


def _shape(started: Started, setting: Setting) -> Iterator[Finding]:
    """Values of which systemd says in its journal that it cannot parse them, and ignores them."""
    for keys, values, way_out in _SHAPES:
        if re.fullmatch(keys, setting.key) and setting.text[:1] != "%" and not re.fullmatch(values, setting.text):
            message = f"systemd cannot read `{setting.key}={setting.text}`, and takes its default"
            yield started.finding(SKIPPED_BY_SYSTEMD, setting.at, message, way_out)


def _specifiers(started: Started, setting: Setting) -> Iterator[Finding]:
    if date := _DATE.search(setting.text):
        message = f"`{date[0]}` is no date here: systemd puts in names of its own, such as that of the machine"
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


def _targets(started: Started, setting: Setting) -> Iterator[Finding]:
    for name in setting.text.split():
        if not _SUFFIX.fullmatch(name) and "%" not in name:
            message = f"systemd ignores `{name}` in `{setting.key}=`: a unit's name has its kind behind a dot"
            yield started.finding(SKIPPED_BY_SYSTEMD, setting.at, message, f"write `{name}.service`", "warning")
            continue
        close = get_close_matches(name, _TARGETS, n=1, cutoff=0.85)
        if close and name != close[0]:
            message = f"there is no `{name}` in systemd: nothing would come of this"
            yield started.finding(SKIPPED_BY_SYSTEMD, setting.at, message, f"did you mean `{close[0]}`?", "warning")
