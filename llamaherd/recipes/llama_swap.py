"""Read `config.yaml` of llama-swap: the command of each model, with its macros expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import Finding, Place, Rule, nearest
from llamaherd.inventory.yaml_file import Document, Path_
from llamaherd.recipes import shell
from llamaherd.recipes.commands import (
    Command,
    Text,
    Word,
    YamlFile,
    as_list,
    as_mapping,
    expand,
    joined,
    placed,
    yaml_file,
)
from llamaherd.recipes.recipe import MOST_SERVERS, NOT_READ, Recipe, ServerCommand

_MACRO = re.compile(r"\$\{([A-Za-z0-9_.-]{1,64})\}")
_ITS_OWN = frozenset({"PORT", "MODEL_ID", "PID"})
"""Macros that llama-swap sets itself; `${env.NAME}` is a variable of its environment."""
_OPERATORS = frozenset(("&&", "||", "|", ";", ">", ">>", "2>&1", "&"))
_FIRST_PORT = 5800
_CARRIED = frozenset(("cmd", "env", "ttl", "proxy", "macros", "name", "description"))
"""The keys of a model that are carried over, or are only shown to users."""
_DEEPEST = 8
"""The most levels of macros in macros."""


def is_config(text: str) -> bool:
    """Return whether a YAML file is llama-swap's: it has models, each with a command."""
    return bool(
        re.search(r"^models[ \t]*:", text, re.MULTILINE) and re.search(r"^[ \t]+cmd[ \t]*:", text, re.MULTILINE)
    )


def check_text(file: Path, text: str) -> Recipe:
    """Return the recipe of a config.yaml's commands. Raise InventoryError for a text that is not YAML."""
    reader = _Reader(yaml_file(file, text), shell.reader_of(file, text))
    recipe = Recipe()
    seen: set[tuple[Place, str]] = set()
    for number, (name, model) in enumerate(as_mapping(reader.document.data.get("models")).items()):
        if number == MOST_SERVERS:
            break
        if isinstance(model, dict) and isinstance(model.get("cmd"), str):
            found = reader.model(("models", name), model, number)
            # A macro is judged once, though many commands have it.
            new = [each for each in found.findings if (each.place, each.code) not in seen]
            seen |= {(each.place, each.code) for each in new}
            recipe += Recipe(tuple(new), found.servers)
    return recipe


SWAP_REFUSED = Rule(
    "LH282",
    "llama-swap does not start with this config.yaml.",
    why="""
    The command of a model has no `${PORT}`, where llama-swap expects the server unless `proxy` names another address.
    Or it names a macro that is declared nowhere. Or `env` is not a list. Or it has shell syntax, such as `&&`. Other
    problems of the commands are reported as for any script.
    """,
    example="""
    $ herd check config.yaml
    config.yaml:3:10: error LH282: the command has no `${PORT}`, where llama-swap expects the server
      help: add `--port ${PORT}`, or give `proxy` the address with its port
    """,
    language="console",
    fix="apply the fix of the help line.",
)


@dataclass(frozen=True)
class _Reader:
    yaml: YamlFile
    reader: shell.Reader

    @property
    def document(self) -> Document:
        """The data of the file."""
        return self.yaml.document

    def model(self, path: Path_, model: dict[str, Any], number: int) -> Recipe:
        """Return the recipe of one model."""
        macros = self._macros(self.document.data, ()) | self._macros(model, path)
        command = _without_comments(self.yaml.value((*path, "cmd"), model["cmd"]))
        body = _put_in(command, macros)
        names = {*macros, *_ITS_OWN}
        first = as_mapping(self.document.data).get("startPort")
        port = (first if isinstance(first, int) else _FIRST_PORT) + number
        words = expand(body, {"PORT": str(port), "MODEL_ID": str(path[-1])})
        ends = next((at for at, word in enumerate(words) if str(word) in _OPERATORS), len(words))
        settings = dict(self._settings(path, model))
        recipe = Recipe((*self._wiring(path, model, body, names), *self._unread(path, model, words[ends:])))
        recipe += self.reader.checked(Command(words[:ends], settings), ())
        if words and not (recipe.servers or recipe.findings):
            message = f"what the command of `{path[-1]}` starts is not read"
            found = NOT_READ.at(Place(self.document.file, *words[0].start), message, "check that by itself", "note")
            recipe += Recipe((found,))
        start = command.at[0] if command.at else words[0].start if words else (1, 1)
        return replace(
            recipe,
            servers=tuple(self._swapped(replace(each, start=start), str(path[-1]), model) for each in recipe.servers),
        )

    def _swapped(self, server: ServerCommand, name: str, model: dict[str, Any]) -> ServerCommand:
        """Return a server with what llama-swap does around it: one model of a group runs at a time."""
        groups = as_mapping(self.document.data.get("groups"))
        mine = next((each for each in groups if name in as_list(as_mapping(groups[each]).get("members"))), None)
        group = as_mapping(groups.get(mine or ""))
        swaps, alone = group.get("swap") is not False, group.get("exclusive") is not False
        time = model.get("ttl", self.document.data.get("globalTTL"))
        rest = [f"{key}:" for key in model if key not in _CARRIED]
        if groups and alone:
            rest.append(f"exclusive: of group {mine}" if mine else "that others end when it starts")
        return replace(
            server,
            served_as=name,
            group=(mine or "models") if swaps else "",
            alone=alone,
            unload_after=time if isinstance(time, int) and time > 0 else None,
            dropped=(*server.dropped, *rest),
        )

    def _unread(self, path: Path_, model: dict[str, Any], rest: tuple[Word, ...]) -> Iterator[Finding]:
        """Report syntax that llama-swap reads otherwise than intended."""
        if rest:
            message = f"no shell reads this: `{rest[0]}` reaches the server as an argument"
            way_out = "put the whole command into `sh -c '…'`, or leave out what follows"
            yield SWAP_REFUSED.at(Place(self.document.file, *rest[0].start), message, way_out)
        if model.get("env") is not None and not isinstance(model["env"], list):
            place = self.document.value((*path, "env"))
            yield SWAP_REFUSED.at(place, "`env` must be a list", "write it like `env: [CUDA_VISIBLE_DEVICES=0]`")

    def _settings(self, path: Path_, model: dict[str, Any]) -> Iterator[tuple[str, Word]]:
        for index, item in enumerate(as_list(model.get("env"))):
            name, equals, value = str(item).partition("=")
            if equals:
                at = self.yaml.at((*path, "env", index))
                yield name, Word(placed(value, at), at, unknown="${" in value)

    def _macros(self, data: Mapping[str, Any], path: Path_) -> dict[str, Text]:
        """Return the macros of the file, or of a model, with the places where their characters stand."""
        return {
            str(name): _without_comments(self.yaml.value((*path, "macros", name), str(value)))
            for name, value in as_mapping(data.get("macros")).items()
            if isinstance(value, str | int | float)
        }

    def _wiring(self, path: Path_, model: dict[str, Any], body: Text, known: set[str]) -> Iterator[Finding]:
        """Report a missing port, and undeclared macros."""
        place = self.document.value((*path, "cmd"))
        if "${PORT}" not in body.chars.replace("${port}", "${PORT}") and "${PORT}" in str(
            model.get("proxy", "http://localhost:${PORT}")
        ):
            message = "the command has no `${PORT}`, where llama-swap expects the server"
            yield SWAP_REFUSED.at(place, message, "add `--port ${PORT}`, or give `proxy` the address with its port")
        for found in _MACRO.finditer(body.chars):
            name = found[1]
            if name not in _ITS_OWN and not name.startswith("env."):
                message = f"there is no macro `{name}`, and llama-swap does not start"
                same = next((each for each in known if each.lower() == name.lower()), None)
                way_out = f"did you mean `{same}`?" if same else nearest(name, known)
                yield SWAP_REFUSED.at(Place(self.document.file, *body.at[found.start()]), message, way_out)


def _without_comments(text: Text) -> Text:
    return joined(line for line in text.lines() if not line.chars.lstrip().startswith("#"))


def _put_in(text: Text, macros: Mapping[str, Text]) -> Text:
    """Return the text with the values of its owner's macros in place of their names."""
    for _ in range(_DEEPEST):
        parts, start = [], 0
        for found in _MACRO.finditer(text.chars):
            if found[1] in macros:
                value = macros[found[1]]
                parts += [text.cut(start, found.start()), Text(value.chars.replace("\n", " "), value.at)]
                start = found.end()
        text = joined([*parts, text.cut(start, len(text.chars))])
        if not parts or len(text.chars) > _LONGEST:
            break
    return text


_LONGEST = 1 << 16
"""The most characters of a command with the values of its macros."""
