"""Run the verb of a document: read JSON, find the verb, write events. Roles bring their own verbs."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from llamaherd.onhost.document import MOST_BYTES, VERSION, DocumentError, decode, dump, parse_document
from llamaherd.onhost.system import FailedError, Host, System

_NAME = re.compile(r"([a-z][a-z0-9_]{0,40})(\.[a-z][a-z0-9_]{0,40})?\.([a-z][a-z0-9_]{0,40})")
_OF_ALL_ROLES = ("inspect", "verify")
_NO_ROLE = "llamaherd"

Input = TypeVar("Input")


@dataclass(frozen=True)
class NoInput:
    """The input of a verb that needs none."""


@dataclass(frozen=True)
class Verb(Generic[Input]):
    """A verb on a host: the type of its input, and the function that runs it and returns its result."""

    input: type[Input]
    run: Callable[[Input, System], object]


def find_verb(name: str) -> Verb[Any]:
    """Return the verb `ROLE.VERB` of `roles.ROLE.onhost`, or `ROLE.MODULE.VERB` of `roles.ROLE.onhost.MODULE`.

    `inspect` and `verify` are of all roles, and `llamaherd.MODULE.VERB` is of no role. Raise DocumentError where there
    is none.
    """
    if name in _OF_ALL_ROLES:
        module, verb = "llamaherd.onhost.verification", name
    elif (found := _NAME.fullmatch(name)) and found[1] == _NO_ROLE:
        module, verb = f"llamaherd.onhost{found[2] or ''}", found[3]
    elif found:
        module, verb = f"roles.{found[1]}.onhost{found[2] or ''}", found[3]
    else:
        raise DocumentError("the document names no verb")
    try:
        verbs: Mapping[str, Verb[Any]] = importlib.import_module(module).VERBS
        return verbs[verb]
    except (ModuleNotFoundError, AttributeError, KeyError):
        raise DocumentError(f"this version of the program has no verb `{name}`") from None


def perform(document: object, system: System) -> object:
    """Run the verb of a parsed document, and return its result. Raise DocumentError and FailedError."""
    if not isinstance(document, dict) or document.keys() != {"version", "verb", "input"}:
        raise DocumentError("the document does not have `version`, `verb` and `input` alone")
    if type(document["version"]) is not int or document["version"] != VERSION:
        raise DocumentError(f"this program reads version {VERSION} of documents alone")
    if not isinstance(document["verb"], str):
        raise DocumentError("the document names no verb")
    verb = find_verb(document["verb"])
    return verb.run(decode(verb.input, document["input"]), system)


FAULT = "the program on this host failed; that is a fault in llamaherd"
OTHER_VERSION = "run `herd up` again: it sends its own version of the program"


class Events:
    """JSON lines for the controller. The verb continues if the connection is lost."""

    def progress(self, line: str) -> None:
        """Write a line of progress."""
        _write(dump({"event": "progress", "text": line}))

    def warning(self, line: str) -> None:
        """Write a line about something that failed."""
        _write(dump({"event": "warning", "text": line}))

    def value(self, value: object) -> None:
        """Write a value that the verb sends while it runs."""
        _write(dump({"event": "value", "value": value}))

    def result(self, value: object) -> None:
        """Write the result of the verb."""
        _write(dump({"event": "result", "value": value}))

    def error(self, message: str, fix: str, log: Sequence[str]) -> None:
        """Write why the verb failed."""
        _write(dump({"event": "error", "message": message, "help": fix, "log": log}))


class Lines:
    """Plain lines for the journal."""

    def progress(self, line: str) -> None:
        """Write a line of progress."""
        _write(line)

    def warning(self, line: str) -> None:
        """Write a line about something that failed."""
        _write(line)

    def value(self, value: object) -> None:
        """Write nothing: a journal has no controller."""

    def result(self, value: object) -> None:
        """Write nothing: progress has reported it."""

    def error(self, message: str, fix: str, log: Sequence[str]) -> None:
        """Write why the verb failed."""
        for line in (*log, message, *([f"  help: {fix}"] if fix else [])):
            _write(line)


Output = Events | Lines
"""A destination for progress, a result and an error."""


def main(arguments: Sequence[str]) -> int:
    """Run the verb of the document on stdin, or in the file that is the one argument. Return the exit code."""
    os.umask(0o077)
    output: Output = Lines() if arguments else Events()
    try:
        host = Host(output.progress, output.warning, output.value)
        output.result(perform(parse_document(_document(arguments)), host))
    except FailedError as error:
        output.error(error.message, error.fix, error.log)
        return 1
    except DocumentError as error:
        output.error(str(error), OTHER_VERSION, ())
        return 2
    except Exception:
        last = traceback.format_exc(limit=-3).strip().splitlines()
        output.error(FAULT, "please report it with the lines above", last)
        return 70
    return 0


def _document(arguments: Sequence[str]) -> bytes:
    """Return the bytes of the document. On stdin it is one line: a controller may send lines to the verb after it."""
    if not arguments:
        return sys.stdin.buffer.readline(MOST_BYTES + 1)
    with Path(arguments[0]).open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _write(line: str) -> None:
    # In UTF-8, whatever the locale of a unit or a login is.
    with suppress(OSError):
        sys.stdout.buffer.write(f"{line}\n".encode(errors="replace"))
        sys.stdout.buffer.flush()
