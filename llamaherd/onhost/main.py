"""Run one verb: read a line of JSON from stdin, and write lines of progress, then a result or an error, to stdout.

A unit names a file with a document instead, and gets plain lines for its journal.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from llamaherd.onhost.document import MOST_BYTES, DocumentError, dump, parse_document
from llamaherd.onhost.system import FailedError, Host
from llamaherd.onhost.verbs import perform

FAULT = "the program on this host failed; that is a fault in llamaherd"
OTHER_VERSION = "run `herd up` again: it brings its own version of the program"


class Output(Protocol):
    """Where progress, a result and an error go."""

    def progress(self, line: str) -> None:
        """Write a line of progress."""

    def warning(self, line: str) -> None:
        """Write a line about something that failed."""

    def value(self, value: object) -> None:
        """Write a value that the verb sends while it runs."""

    def result(self, value: object) -> None:
        """Write what the verb returned."""

    def error(self, message: str, fix: str, log: Sequence[str]) -> None:
        """Write why the verb failed."""


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
        """Write what the verb returned."""
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
