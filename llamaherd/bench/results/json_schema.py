"""The JSON Schema of a result, for whoever reads them with other programs."""

from __future__ import annotations

import json
from typing import Any

from llamaherd.bench.results.result import Result


def result_schema() -> dict[str, Any]:
    """The schema of a result's document."""
    schema = _without_titles(Result.model_json_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:llamaherd:result",
        "title": "A measurement of llamaherd",
        **schema,
        "required": ["format", *schema["required"], "cells"],
    }


def result_schema_text() -> str:
    """The text of `result.schema.json`."""
    return json.dumps(result_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_titles(value: Any) -> Any:
    """Without the titles that pydantic makes of names: they say nothing more."""
    if isinstance(value, dict):
        return {key: _without_titles(each) for key, each in value.items() if not (key == "title" and type(each) is str)}
    return [_without_titles(each) for each in value] if isinstance(value, list) else value
