"""Preset files of llama-server's router (`--models-preset`), read as it reads them.

Source: llama.cpp b11434, common/preset.cpp (parse_ini_from_file, load_from_ini, to_args),
tools/server/server-models.cpp:479-528 (what the router sets itself), common/arg.cpp:4768-4790.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.diagnostics.spelling import nearest_name
from llamaherd.engines import flags
from llamaherd.engines.flags import Catalogue, Flag, Problem
from llamaherd.engines.flags.advice import DOWNLOADS, ENDS, OPEN, SECRET
from llamaherd.engines.flags.conflicts import SOURCES, find_conflicts
from llamaherd.engines.flags.effective import OFF, effective_options
from llamaherd.engines.flags.environment import SWITCHED, flag_of_variable
from llamaherd.engines.flags.translations import UNKNOWN_FLAG
from llamaherd.recipes.commands import is_veiled, word_at
from llamaherd.recipes.recipe import MOST_SERVERS, Recipe, ServerCommand
from llamaherd.recipes.servers import other_catalogues

OF_PRESETS = ("load-on-startup", "stop-timeout", "dedup-cache-models", "version")
"""Keys that are not flags."""
OF_THE_ROUTER = (
    *("--host", "--port", "--api-key", "--api-key-file", "--ssl-key-file", "--ssl-cert-file"),
    *("--models-dir", "--models-max", "--models-preset", "--models-autoload"),
)
"""Flags that the router sets for each model's server, or removes."""
_HEADER = re.compile(r"\[[ \t]*([^\]]+?)[ \t]*\][ \t]*(?:[;#].*)?")
_SETTING = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*=[ \t]*([^;#\n]*?)[ \t]*(?:[;#].*)?")
_CUT = re.compile(r"=[^;#\n]*[^\s;#=](?P<at>[;#])(?P<rest>.*)")
_KEYS = re.compile(r"^[ \t]*(?:--?)?(?P<key>[A-Za-z][\w.-]*)[ \t]*(?:[=:](?P<value>.*)|$)", re.MULTILINE)
_OWN = ("ctx-size", "c", "n-gpu-layers", "gpu-layers", "ngl", "hf-repo", "hf", "mmproj", "load-on-startup")
"""Keys that hardly any other program's file has."""


@dataclass(frozen=True)
class _Setting:
    key: str
    value: str
    line: int
    flag: Flag | None
    """The flag that the key is; None for a key of the router's own, and an unknown one."""
    words: tuple[str, ...]
    """The arguments of the model's server; empty for a switch that is off, and for keys that are not flags."""


_Section = tuple[str, int, list[_Setting]]
"""The name of a section, its line, and its settings."""


def is_preset(text: str) -> bool:
    """Return whether a text has sections, and keys of which half are llama-server's flags, one of them in `_OWN`."""
    if not re.search(r"^[ \t]*\[[^\]\n]+\]", text, re.MULTILINE):
        return False
    keys = [found for found in _KEYS.finditer(text) if found["key"] != "version"]
    known = [found for found in keys if found["key"] in OF_PRESETS or _is_flag(found["key"])]
    own = any(found["key"] in _OWN or ".gguf" in (found["value"] or "") for found in known)
    model = any((found["value"] or "").strip().endswith(".gguf") for found in keys)
    return (own and 2 * len(known) >= len(keys)) or (model and len(known) > 0)


def _is_flag(key: str) -> bool:
    """Return whether any version has a flag of this name."""
    return any(_flag(each, key) for each in flags.catalogues("llama.cpp"))


def check_text(file: Path, text: str) -> Recipe:
    """Return the recipe of a preset file, with a server for each section of a model."""
    known = _catalogue()
    return _Reader(file, known).read(text.removeprefix("\ufeff")) if known else Recipe()


def _catalogue() -> Catalogue | None:
    """Return the flags of the newest version, as a file names no version."""
    found = flags.catalogues("llama.cpp")
    return found[-1] if found else None


def _flag(known: Catalogue, key: str) -> str | None:
    """Return the flag of a key: a flag without dashes, or its variable.

    The router compares keys as they are, with no `_` for `-` (b11434, common/preset.cpp:250).
    """
    variable = flag_of_variable(known, key) if key.isupper() else None
    if variable:
        return variable.spellings[-1]
    return next((name for name in (f"--{key}", f"-{key}") if known.find(name) and "_" not in key), None)


PRESET_REFUSED = Rule(
    "LH270",
    "The router does not start with a preset file.",
    why="""
    `--models-preset` takes sections and `key = value` lines that begin at the first column. Keys are flags
    without dashes, or their variables. The router refuses an unknown key, and any other line.
    """,
    example="""
    [qwen]
    model = /srv/models/qwen.gguf
    context = 8192
    """,
    language="ini",
    fix="write the key as the flag is called: here `ctx-size`.",
)


PRESET_LINE = Rule(
    "LH271",
    "A line of a preset file is read in another way than it seems.",
    why="""
    A value ends at the first `;` or `#`. Quotes belong to it. A switch is on unless it is `off`, `false`, `0` or
    `disabled`. The router sets host, port and keys itself. The second section of one name replaces the first.
    """,
    example="""
    [qwen]
    model = "/srv/models/qwen.gguf"
    """,
    language="ini",
    fix="apply the fix of the finding.",
    sometimes=(
        "warning",
        "note",
    ),
)


@dataclass(frozen=True)
class _Reader:
    file: Path
    known: Catalogue

    def _fault(self, rule: Rule, line: int, message: str, way_out: str, severity: Severity | None = None) -> Finding:
        return rule.at(Place(self.file, line, 1), message, way_out, severity)

    def read(self, text: str) -> Recipe:
        """Return the findings of all lines, and the servers that the router would start."""
        sections: list[_Section] = [("", 1, [])]
        findings = (*self._lines(text, sections), *self._all(sections))
        # The second section of one name replaces the first.
        last = {name: (number, settings) for name, number, settings in sections if name != "*"}
        servers = (
            self._server(name, number, self._with_common(sections, name, own))
            for name, (number, own) in last.items()
            if name or any(each.words for each in own)
        )
        return Recipe(findings, tuple(islice(servers, MOST_SERVERS)))

    def _server(self, name: str, number: int, settings: list[_Setting]) -> ServerCommand:
        """Return the server of a section. A name with a slash or a colon is a model of the hub."""
        of_router = [each for each in settings if not self._among(each, OF_THE_ROUTER)]
        words = [(text, each.line) for each in of_router for text in each.words or _off(each)]
        if re.search(r"[/:]", name) and not any(self._among(each, SOURCES) for each in settings):
            words = [("-hf", number), (name, number), *words]
        arguments = tuple(word_at(text, (line, 1)) for text, line in words)
        unknown = tuple(f"{each.key} = {each.value}" for each in settings if is_veiled(each.value))
        command = ServerCommand("llama-server", "llama.cpp", arguments, (number, 1), dropped=unknown)
        return replace(command, served_as=name or "default", group="router")

    def _with_common(self, sections: list[_Section], name: str, settings: list[_Setting]) -> list[_Setting]:
        """Return the settings of a section with those for all models that it does not replace."""
        own = {each.flag or each.key for each in settings}
        common = (each for section, _, given in sections if section == "*" for each in given)
        return [*(each for each in common if name and (each.flag or each.key) not in own), *settings]

    def _lines(self, text: str, sections: list[_Section]) -> Iterator[Finding]:
        """Add the sections of a text to a list, and yield the findings of its lines."""
        for number, line in enumerate(text.splitlines(), start=1):
            header, setting = _HEADER.fullmatch(line), _SETTING.fullmatch(line)
            if header:
                sections.append((header[1], number, []))
            elif setting:
                if not is_veiled(setting[2]):
                    yield from self._value(number, line, setting[1], setting[2])
                sections[-1][2].append(self._setting(setting[1], setting[2], number))
            elif line.strip() and line.strip()[0] not in ";#":
                yield self._unread(number, line)

    def _all(self, sections: list[_Section]) -> Iterator[Finding]:
        yield from self._sections(sections)
        several = any(name not in ("", "*") for name, _, _ in sections)
        for name, _, settings in sections:
            if name == "*" and several:
                continue  # judged in each section
            yield from self._settings(name, settings if name == "*" else self._with_common(sections, name, settings))

    def _unread(self, number: int, line: str) -> Finding:
        message = f"the router reads no file with this line, `{line.strip()[:40]}`, and does not start"
        bare = line.strip().lstrip("-")
        key, value = (*re.split(r"\s*[=:]\s*|\s+", bare, maxsplit=1), "true")[:2]
        if _HEADER.fullmatch(line.strip()) or _SETTING.fullmatch(line.strip()):
            way_out = "begin it at the first column"
        else:
            way_out = f"write `{key} = {value}`"
        return self._fault(PRESET_REFUSED, number, message, way_out)

    def _value(self, number: int, line: str, key: str, value: str) -> Iterator[Finding]:
        """Report values that the router reads otherwise than they seem."""
        if cut := _CUT.search(line):
            message = f"the value ends at `{cut['at']}`: what follows is a comment to the router"
            yield self._fault(
                PRESET_LINE, number, message, "pass it by the router's command line, or leave the sign out"
            )
        if value[:1] in ("'", '"') and value[-1:] == value[:1]:
            message = f"the quotes are a part of `{key}`: the router does not remove them"
            yield self._fault(PRESET_LINE, number, message, f"write `{key} = {value[1:-1]}`")
        elif value.startswith("~") or re.match(r"\$\{?\w", value):
            message = f"the router does not replace `{value.split('/')[0]}`: this is not a path"
            yield self._fault(PRESET_LINE, number, message, "write the whole path, from `/` on")

    def _setting(self, key: str, value: str, number: int) -> _Setting:
        name = _flag(self.known, key)
        flag = self.known.find(name) if name else None
        underscored = "_" in key and flag is None and self.known.find(f"--{key}") is not None
        if key in OF_PRESETS or is_veiled(value) or underscored:
            words: tuple[str, ...] = ()
        elif name is None or flag is None:
            words = (f"--{key}" if len(key) > 3 else f"-{key}",) + ((value,) if value not in SWITCHED else ())
        elif flag.values:
            words = (name, value)
        else:
            words = () if value.lower() in OFF else (name,)
        return _Setting(key, value, number, flag, words)

    def _sections(self, sections: list[_Section]) -> Iterator[Finding]:
        names: set[str] = set()
        for name, number, settings in sections:
            sources = [each for each in settings if self._among(each, SOURCES)]
            if not name and any(each.words for each in settings):
                message = "what stands above all sections makes a model that is called `default`"
                yield self._fault(
                    PRESET_LINE, settings[0].line, message, "put `[*]` above what is for every model", "warning"
                )
            if name in names:
                message = f"`[{name}]` stands here again: nothing of the first one counts"
                yield self._fault(PRESET_LINE, number, message, "put both into one section", "warning")
            if name == "*" and sources:
                message = "every model would be this one"
                yield self._fault(PRESET_LINE, sources[0].line, message, "put it into a section of its own", "warning")
            elif name not in ("", "*") and settings and not sources and not re.search(r"[/:]", name):
                message = f"`[{name}]` names no model: it is one only if `--models-dir` holds it under this name"
                yield self._fault(
                    PRESET_LINE, number, message, "add `model = /path/to.gguf`, or `hf-repo = USER/NAME`", "note"
                )
            names.add(name)

    def _among(self, setting: _Setting, names: tuple[str, ...]) -> bool:
        return setting.flag is not None and bool(setting.words) and setting.flag in map(self.known.find, names)

    def _settings(self, section: str, settings: list[_Setting]) -> Iterator[Finding]:
        """Report the faults of a section's settings as flags."""
        arguments: list[str] = []
        lines: list[_Setting] = []
        for setting in settings:
            if section != "" and self._among(setting, OF_THE_ROUTER):
                message = f"`{setting.key}` has no effect here: the router sets it itself for each model"
                yield self._fault(
                    PRESET_LINE, setting.line, message, "write it on the router's command line", "warning"
                )
                continue
            if "_" in setting.key and not setting.words and setting.key not in OF_PRESETS:
                message = f"`{setting.key}` is no option of {self.known}: the router does not start"
                way_out = f"write `{setting.key.replace('_', '-')}`"
                yield self._fault(PRESET_REFUSED, setting.line, message, way_out)
            yield from self._switch(setting)
            arguments += setting.words
            lines += [setting] * len(setting.words)
        for problem in flags.check_arguments(self.known, arguments, other_catalogues(self.known)):
            if problem.rule not in (DOWNLOADS, ENDS, OPEN, SECRET):
                yield self._problem(problem, lines[problem.index])
        for clash in find_conflicts(effective_options(self.known, arguments)):
            own = lines[clash.options[0].index]
            yield clash.at(Place(self.file, own.line, 1))

    def _switch(self, setting: _Setting) -> Iterator[Finding]:
        flag = setting.flag
        if flag and not flag.values and setting.value.lower() not in SWITCHED:
            why = "only `off`, `false`, `0` and `disabled` do not"
            if _flag(self.known, setting.key) in flag.negated:
                why = "it is not `true` to the router"
            message = f"`{setting.key} = {setting.value}` switches it on: {why}"
            yield self._fault(PRESET_LINE, setting.line, message, f"write `{setting.key} = true`, or `false`")

    def _problem(self, problem: Problem, setting: _Setting) -> Finding:
        """Return the finding of a flag, in the syntax of a preset."""
        if problem.rule is UNKNOWN_FLAG:
            names = (*OF_PRESETS, *(name.lstrip("-") for name in self.known.flags))
            longer = (name for name in names if len(setting.key) > 4 and name.startswith(setting.key))
            close = nearest_name(setting.key, names) or next(longer, None)
            message = f"`{setting.key}` is no option of {self.known}: the router does not start"
            return self._fault(
                PRESET_REFUSED, setting.line, message, f"did you mean `{close}`?" if close else "leave it out"
            )
        way_out = problem.help
        if problem.replacement:
            name, *values = problem.replacement
            way_out = f"write `{name.lstrip('-')} = {values[0] if values else 'true'}`"
        return replace(problem, help=way_out).at(Place(self.file, setting.line, 1))


def _off(setting: _Setting) -> tuple[str, ...]:
    """Return the argument for a switch that is off; none if it has no negation."""
    off = setting.flag is not None and not setting.flag.values and setting.value.lower() in OFF
    return setting.flag.negated[-1:] if off and setting.flag else ()
