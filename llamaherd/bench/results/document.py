"""A result as a file holds it: one JSON document, or while it is measured a line for each run. Pure.

The id is the hash of all the rest: whoever edits a result by hand is told so when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from llamaherd import __version__
from llamaherd.bench.results.result import FORMAT, Cell, Result, Run, Start
from llamaherd.diagnostics.findings import UserError

MOST, _MOST_VALUES = 8 << 20, 400_000
"""Bytes and values of a result. A run has some 400 bytes and 22 values, and 256 more where it has its pieces."""

_TAKE_BACK = "take the last good one back from version control, or leave it out"


def finished(result: Result) -> Result:
    """The result with its id."""
    return result.model_copy(update={"id": content_id(result)})


def content_id(result: Result) -> str:
    """The hash of all of a result but its id: 12 hexadecimal digits."""
    value = result.model_dump(mode="json", exclude={"id"}, exclude_defaults=True)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def to_bytes(result: Result) -> bytes:
    """The document, a line for each run. What is as it is by default is left out. Raises UserError."""
    value = {"format": FORMAT} | result.model_dump(mode="json", exclude_defaults=True, exclude={"cells"})
    head = json.dumps(value, indent=1)
    cells = ",\n  ".join(map(_cell_text, result.cells))
    data = f'{head[:-2]},\n "cells": [\n  {cells}\n ]\n}}\n'.encode()
    if len(data) > MOST:
        raise UserError("this result is larger than what is read again", "measure fewer conditions at a time")
    return data


def _cell_text(cell: Cell) -> str:
    runs = ",\n    ".join(json.dumps(run.model_dump(mode="json", exclude_defaults=True)) for run in cell.runs)
    condition = json.dumps(cell.condition.model_dump(mode="json", exclude_defaults=True))
    took = cell.telemetry.model_dump(mode="json", exclude_defaults=True) if cell.telemetry else None
    telemetry = f'"telemetry": {json.dumps(took)},\n   ' if took is not None else ""
    return f'{{"condition": {condition},\n   {telemetry}"runs": [\n    {runs}]}}'


def parse(data: bytes, name: str) -> Result:
    """The result in a document of this name. Raises UserError."""
    value = loaded(data, name)
    found = value.get("format") if isinstance(value, dict) else None
    if type(found) is not int or "cells" not in value:
        raise UserError(f"{name} is no result of a measurement", "name a file that a measurement has written")
    if found > FORMAT:
        raise UserError(
            f"{name} is a result of format {found}, and this llamaherd, {__version__}, reads format {FORMAT}",
            "use the llamaherd that wrote it, or a newer one",
        )
    result = _validated(data, name)
    if result.id != content_id(result):
        raise UserError(f"{name} is not as it was measured: its content has another hash than its id", _TAKE_BACK)
    return result


def loaded(data: bytes, name: str) -> Any:
    """The JSON in some bytes, within bounds. Raises UserError."""
    if len(data) > MOST:
        raise unusable(name, f"it is larger than {MOST >> 20} MiB")
    try:
        value = json.loads(data.decode())
    except RecursionError:
        raise unusable(name, "it is nested too deeply") from None
    except UnicodeDecodeError:
        raise unusable(name, "it is no text") from None
    except ValueError:
        raise unusable(name, "it is no JSON, or ends in the middle") from None
    if too_many(value):
        raise unusable(name, f"it holds more than {_MOST_VALUES:,} values")
    return value


def too_many(value: Any, most: int = _MOST_VALUES) -> bool:
    """Whether it holds more values than are looked at: each that is wrong would be told one by one."""
    left, count = [value], 0
    while left and count <= most:
        each = left.pop()
        inner = list(each.values()) if isinstance(each, dict) else each if isinstance(each, list) else []
        count += len(inner)
        left += [deeper for deeper in inner if isinstance(deeper, dict | list)]
    return count > most


def unusable(name: str, why: str) -> UserError:
    """That a file cannot be used as a result, and why."""
    return UserError(f"{name} is no result that can be used: {why}", _TAKE_BACK)


def _validated(data: bytes, name: str) -> Result:
    try:
        return Result.model_validate_json(data)
    except ValidationError as error:
        raise unusable(name, _problem(error)) from None


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    problem = first["msg"].removeprefix("Value error, ")
    return f"`{place or 'cells'}`: {problem[0].lower()}{problem[1:]}"


def head_line(result: Result) -> bytes:
    """The first line of a journal: all that is known before the first run."""
    return _line({"begin": result.model_dump(mode="json", exclude_defaults=True)})


def start_line(start: Start) -> bytes:
    """A line of a journal: the server was started once more."""
    return _line({"start": start.model_dump(mode="json", exclude_defaults=True)})


def run_line(cell: int, run: Run) -> bytes:
    """A line of a journal: a run under the condition of this number."""
    return _line({"cell": cell, "run": run.model_dump(mode="json", exclude_defaults=True)})


def exclusion_line(cell: int, number: int, why: str) -> bytes:
    """A line of a journal: a run of a cell, by their numbers, does not count, as it came to be known later."""
    return _line({"cell": cell, "excluded": number, "why": why})


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def fold(data: bytes, name: str) -> tuple[Result, int]:
    """What a journal has so far, and how many of its bytes are whole lines. Raises UserError.

    A power cut leaves a last line that ends in the middle, or is no text: it is left out.
    """
    if len(data) > MOST:
        raise unusable(name, f"it is larger than {MOST >> 20} MiB")
    lines = data.splitlines(keepends=True)
    values: list[dict[str, Any]] = []
    whole = 0
    for number, line in enumerate(lines, start=1):
        try:
            value = loaded(line, f"line {number} of {name}")
        except UserError:
            if number == len(lines):
                break
            raise
        if not line.endswith(b"\n"):
            break
        values.append(value)
        whole += len(line)
    return _folded(values, name), whole


def _has(cells: Sequence[dict[str, Any]], cell: int, place: int) -> bool:
    """Whether a journal's cell has a run of this number."""
    runs = cells[cell]["runs"] if 0 <= cell < len(cells) else []
    return 0 <= place < len(runs) and isinstance(runs[place], dict)


def _folded(values: list[dict[str, Any]], name: str) -> Result:
    if not values or not isinstance(values[0], dict) or not isinstance(begun := values[0].get("begin"), dict):
        raise unusable(name, "it does not say what was to be measured")
    cells = [dict(each, runs=[]) for each in begun.get("cells", ()) if isinstance(each, dict)]
    starts = list(begun.get("starts", ()))
    for number, value in enumerate(values[1:], start=2):
        match value:
            case {"start": start}:
                starts.append(start)
            case {"cell": int(cell), "run": run} if 0 <= cell < len(cells):
                cells[cell]["runs"].append(run)
            case {"cell": int(cell), "excluded": int(place), "why": str(why)} if _has(cells, cell, place):
                cells[cell]["runs"][place]["excluded"] = why
            case _:
                raise unusable(name, f"line {number} says nothing that is known")
    whole = dict(begun, cells=cells, starts=starts)
    return _validated(json.dumps(whole).encode(), name)
