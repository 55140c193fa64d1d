"""The JSON document that every command prints with `--json`: one envelope, its JSON Schema, and its printing.

`herd --help` imports this module: it imports no other package that takes long to load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from llamaherd.diagnostics.findings import Finding, UserError, to_print

SCHEMA = 1
"""The version of the envelope. A new key keeps it; another meaning of a key increases it."""
JSON, COMMAND = "llamaherd.json", "llamaherd.command"
_FINDINGS, _ERRORS, _PRINTED = "llamaherd.findings", "llamaherd.errors", "llamaherd.printed"


@dataclass(frozen=True)
class Envelope:
    """The result of a command: rows of rigs, findings, errors of the run, and what belongs to no single rig.

    `ok`: the command succeeded and found nothing wrong. Each row of `rigs` has the rig's name as `rig`.
    """

    ok: bool
    rigs: Sequence[Mapping[str, Any]] = ()
    data: Mapping[str, Any] | None = None
    findings: Sequence[Finding] = ()
    errors: Sequence[UserError] = ()

    def document(self, command: str) -> dict[str, Any]:
        """Return the envelope as JSON values. All its keys are always there."""
        return {
            "schema": SCHEMA,
            "command": command,
            "ok": self.ok,
            "rigs": list(self.rigs),
            "findings": [finding.as_json() for finding in to_print(self.findings)],
            "errors": [{"message": error.message, "help": error.help} for error in self.errors],
            "data": dict(self.data or {}),
        }


def print_envelope(found: Envelope) -> None:
    """Print an envelope as one line of JSON. A command that repeats itself prints one line each time."""
    context = click.get_current_context()
    context.meta[_PRINTED] = True
    click.echo(json.dumps(found.document(context.meta.get(COMMAND, ""))))


def note_printed() -> None:
    """Note that the command has printed JSON of its own, such as a stored result."""
    click.get_current_context().meta[_PRINTED] = True


def note_findings(findings: Sequence[Finding]) -> None:
    """Keep findings for the envelope of a command that fails."""
    _note(_FINDINGS, findings)


def note_error(error: UserError) -> None:
    """Keep an error for the envelope of a command that fails."""
    _note(_ERRORS, [error])


def _note(key: str, values: Sequence[object]) -> None:
    if context := click.get_current_context(silent=True):
        context.meta.setdefault(key, []).extend(values)


@contextmanager
def failure_printed(context: click.Context) -> Iterator[None]:
    """Print an envelope with the errors of a command that ends with `--json` and has printed no document."""
    try:
        yield
    except (SystemExit, click.exceptions.Exit) as ended:
        code = ended.code if isinstance(ended, SystemExit) else ended.exit_code
        meta = context.meta
        if code and meta.get(JSON) and not meta.get(_PRINTED):
            with context:
                print_envelope(Envelope(False, findings=meta.get(_FINDINGS, ()), errors=meta.get(_ERRORS, ())))
        raise


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}


_EDIT = {
    "type": "object",
    "required": ["file", "line", "column", "end_column", "old", "new"],
    "additionalProperties": False,
    "properties": {
        "file": _text("The file."),
        "line": {"type": "integer", "minimum": 1},
        "column": {"type": "integer", "minimum": 1},
        "end_column": {"type": "integer", "minimum": 1, "description": "The first column that stays."},
        "old": _text("The text that is replaced."),
        "new": _text("The text that replaces it."),
    },
}
_FINDING = {
    "type": "object",
    "required": ["code", "severity", "file", "line", "column", "message", "help", "edits"],
    "additionalProperties": False,
    "properties": {
        "code": {"type": "string", "pattern": "^LH[0-9]{3}$", "description": "`herd explain CODE` explains it."},
        "severity": {"enum": ["error", "warning", "note"]},
        "file": _text("The file, folder or word of the command line."),
        "line": {"type": "integer", "minimum": 1},
        "column": {"type": "integer", "minimum": 1},
        "message": _text("What is wrong, in one sentence."),
        "help": _text("The fix."),
        "edits": {"type": "array", "items": _EDIT, "description": "The fix as exact changes, if it is certain."},
    },
}
_ERROR = {
    "type": "object",
    "required": ["message", "help"],
    "additionalProperties": False,
    "properties": {"message": _text("What failed, in one sentence."), "help": _text("What to do next; may be empty.")},
}
_RIG = {
    "type": "object",
    "required": ["rig"],
    "properties": {
        "rig": _text("The name of the rig."),
        "ok": {"type": "boolean", "description": "Whether nothing is wrong with this rig."},
        "error": {"type": ["string", "null"], "description": "Why there is no result of this rig."},
    },
}


def envelope_schema() -> dict[str, Any]:
    """Return the JSON Schema of the envelope."""
    properties = {
        "schema": {"const": SCHEMA, "description": "The version of this envelope."},
        "command": _text("The command that printed it, such as `plan` or `models list`."),
        "ok": {"type": "boolean", "description": "Whether the command succeeded and found nothing wrong."},
        "rigs": {"type": "array", "items": _RIG, "description": "One row for each rig, with the command's own keys."},
        "findings": {"type": "array", "items": _FINDING, "description": "Mistakes in the inventory."},
        "errors": {"type": "array", "items": _ERROR, "description": "Why the command ended without a result."},
        "data": {"type": "object", "description": "What belongs to no single rig, with the command's own keys."},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:llamaherd:output",
        "title": "What `herd` prints with --json",
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


def envelope_schema_text() -> str:
    """Return the JSON Schema of the envelope as text."""
    return json.dumps(envelope_schema(), indent=2, ensure_ascii=False) + "\n"
