"""What a shell takes for its own in an argument, and assignments with blanks, which are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.recipes.commands import Command
from llamaherd.recipes.programs import base_name
from llamaherd.recipes.recipe_rules import NOT_AS_IT_LOOKS

_OVERRIDES = ("-ot", "--override-tensor", "-otd", "--override-tensor-draft", "--spec-draft-override-tensor")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ELEMENT = re.compile(r"[0-9]+[a-z0-9_-]*|q[0-9]\S*|bf16\S*|f16\S*", re.IGNORECASE)
"""What may go on behind a `;` in a list of CMake's: an architecture, or types of a cache."""
_NUMBER = re.compile(r"[0-9][0-9.,;/]*")
"""Shares of GPUs, which have commas between them."""
_VALUE = re.compile(r"[0-9]+|\S+\.gguf")


def check(file: Path, command: Command) -> Iterator[Finding]:
    """Everything that a shell does with a command's words before any program sees them."""
    yield from _assigned(file, command)
    if sign := cuts(command):
        message = f"the shell ends the command at this `{sign}`: what follows is none of its arguments"
        way_out = "put the argument into single quotes"
        if sign == ";" and not _of_cmake(command):
            way_out += ", with a comma for each `;`, as values are separated"
        assert command.cut
        yield NOT_AS_IT_LOOKS.at(Place(file, *command.cut.start), message, way_out)


def cuts(command: Command) -> str:
    """The sign in the last argument at which a shell ends the command, against what is meant; empty for none."""
    cut, words = command.cut, [str(word) for word in command.words]
    if cut is None or len(words) < 2:
        return ""
    if _of_cmake(command):
        cuts_list = cut.operator == ";" and words[-1].startswith("-D") and "=" in words[-1]
        return ";" if cuts_list and _ELEMENT.fullmatch(cut.behind) else ""
    if cut.operator == ";" and words[-2].startswith("-") and _NUMBER.fullmatch(words[-1] + cut.behind):
        return ";"
    if words[-2] not in _OVERRIDES:
        return ""
    return cut.operator if cut.operator != "|" or "=" not in words[-1] else ""


def _of_cmake(command: Command) -> bool:
    return base_name(str(command.words[0])) == "cmake"


def _assigned(file: Path, command: Command) -> Iterator[Finding]:
    words = [str(word) for word in command.words]
    if len(words) > 1 and _NAME.fullmatch(words[0]) and words[1] == "=":
        message = "this sets nothing: an assignment has no blanks around its `=`"
        value = words[2] if len(words) > 2 else "…"
        yield NOT_AS_IT_LOOKS.at(Place(file, *command.words[0].start), message, f"write `{words[0]}={value}`")
    for name, setting in command.settings.items():
        if not str(setting) and not setting.unknown and len(words) == 1 and _VALUE.fullmatch(words[0]):
            message = f"this runs `{words[0]}`, with `{name}` empty: an assignment has no blanks around its `=`"
            yield NOT_AS_IT_LOOKS.at(Place(file, *command.words[0].start), message, f"write `{name}={words[0]}`")
