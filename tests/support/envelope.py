"""Read what a command prints with --json, checked against the JSON Schema that `herd schema output` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FILE = Path(__file__).resolve().parents[2] / "docs/schema/output.schema.json"
SCHEMA = json.loads(FILE.read_text(encoding="utf-8"))
VALID = Draft202012Validator(SCHEMA)


def envelope(output: str) -> dict[str, Any]:
    """Return the envelope in the output of a command, which may have other lines before and after it."""
    found: dict[str, Any]
    found, _ = json.JSONDecoder().raw_decode(output[output.index('{"schema": ') :])
    errors = [error.message for error in VALID.iter_errors(found)]
    assert errors == [], output
    return found


def the_rig(output: str) -> dict[str, Any]:
    """Return the row of the only rig in the envelope of a command."""
    (rig,) = envelope(output)["rigs"]
    return dict(rig)
