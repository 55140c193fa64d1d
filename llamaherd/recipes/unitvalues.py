"""Values of a unit that systemd cannot read: it says so in the journal, and takes its default."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from llamaherd.findings import Finding
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
_TIME = re.compile(rf"(?:\d+(?:\.\d+)?\s*{_UNIT}?\s*)+|infinity")
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
        yield from _specifiers(started, setting)
        if setting.key in {"WantedBy", "RequiredBy", "After", "Wants"}:
            yield from _targets(started, setting)


def _value(started: Started, setting: Setting, kind: str) -> Iterator[Finding]:
    text = setting.text
    skipped = f"systemd cannot read `{setting.key}={text}`, and takes its default"
    if kind == "time" and not _TIME.fullmatch(text):
        yield started.finding("LH190", setting.at, skipped, "write a time, such as `30`, `5min` or `1h 30min`")
    elif kind in _WORDS and text.lower() not in _WORDS[kind] and text not in _WORDS[kind]:
        close = get_close_matches(text, _WORDS[kind], n=1, cutoff=0.6)
        shown = ", ".join(f"`{word}`" for word in _WORDS[kind][:8])
        way_out = f"did you mean `{close[0]}`?" if close and kind != "bool" else f"it is one of {shown}"
        yield started.finding("LH190", setting.at, skipped, "write `true` or `false`" if kind == "bool" else way_out)
    elif kind == "gone":
        message = f"`{setting.key}` did something once: systemd only warns of it now"
        yield started.finding("LH190", setting.start, message, "leave it out", "warning")


def _specifiers(started: Started, setting: Setting) -> Iterator[Finding]:
    for found in _SPECIFIER.finditer(setting.text):
        if found[1] not in _SPECIFIERS:
            message = f"`{found[0]}` is no specifier of systemd, which skips the whole line"
            yield started.finding("LH193", setting.value.at[found.start()], message, "write `%%` for a percent sign")
            return


def _targets(started: Started, setting: Setting) -> Iterator[Finding]:
    for name in setting.text.split():
        close = get_close_matches(name, _TARGETS, n=1, cutoff=0.85)
        if close and name != close[0]:
            message = f"there is no `{name}` in systemd: nothing would come of this"
            yield started.finding("LH190", setting.at, message, f"did you mean `{close[0]}`?", "warning")
