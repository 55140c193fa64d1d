"""Read what a command prints with --json, checked against the JSON Schema that `herd schema output` prints."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.rigs import ROOT

SCHEMA = json.loads((ROOT / "docs/schema/output.schema.json").read_text(encoding="utf-8"))
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
