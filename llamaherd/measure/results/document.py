"""Parse and write a result as JSON or as journal lines, redact it for publication, and render its JSON Schema."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import StringConstraints, ValidationError

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.results.result import FORMAT, Around, Cell, Recorded, Result, Run, Start

MOST_RESULT_BYTES, _MOST_VALUES = 8 << 20, 400_000
"""Bytes and values of a result. A run has some 400 bytes and 22 values, and 256 more with its pieces."""

_RESTORE = "restore the last good one from version control, or leave it out"


def with_id(result: Result) -> Result:
    """Return the result with its id."""
    return result.model_copy(update={"id": content_id(result)})


def content_id(result: Result) -> str:
    """Return the hash of a result without its id: 12 hexadecimal digits."""
    value = result.model_dump(mode="json", exclude={"id"}, exclude_defaults=True)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def result_bytes(result: Result) -> bytes:
    """Render the document, a line for each run, without defaults. Raise UserError if it is too large."""
    value = {"format": FORMAT} | result.model_dump(mode="json", exclude_defaults=True, exclude={"cells"})
    head = json.dumps(value, indent=1)
    cells = ",\n  ".join(map(_cell_text, result.cells))
    data = f'{head[:-2]},\n "cells": [\n  {cells}\n ]\n}}\n'.encode()
    if len(data) > MOST_RESULT_BYTES:
        raise UserError("this result is larger than what is read again", "measure fewer conditions at a time")
    return data


def _cell_text(cell: Cell) -> str:
    runs = ",\n    ".join(json.dumps(run.model_dump(mode="json", exclude_defaults=True)) for run in cell.runs)
    condition = json.dumps(cell.condition.model_dump(mode="json", exclude_defaults=True))
    took = cell.telemetry.model_dump(mode="json", exclude_defaults=True) if cell.telemetry else None
    telemetry = f'"telemetry": {json.dumps(took)},\n   ' if took is not None else ""
    return f'{{"condition": {condition},\n   {telemetry}"runs": [\n    {runs}]}}'


def parse_result(data: bytes, name: str) -> Result:
    """Parse the result in a document of this name. Raise UserError."""
    value = load_json(data, name)
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
        raise UserError(
            f"{name} was changed after the measurement: the hash of its content differs from its id", _RESTORE
        )
    return result


def load_json(data: bytes, name: str) -> Any:
    """Parse JSON within bounds. Raise UserError."""
    if len(data) > MOST_RESULT_BYTES:
        raise unusable_result(name, f"it is larger than {MOST_RESULT_BYTES >> 20} MiB")
    try:
        value = json.loads(data.decode())
    except RecursionError:
        raise unusable_result(name, "it is nested too deeply") from None
    except UnicodeDecodeError:
        raise unusable_result(name, "it is no text") from None
    except ValueError:
        raise unusable_result(name, "it is no JSON, or ends in the middle") from None
    if has_too_many_values(value):
        raise unusable_result(name, f"it holds more than {_MOST_VALUES:,} values")
    return value


def has_too_many_values(value: Any, most: int = _MOST_VALUES) -> bool:
    """Check for more values than are validated: each wrong one would be reported."""
    left, count = [value], 0
    while left and count <= most:
        each = left.pop()
        inner = list(each.values()) if isinstance(each, dict) else each if isinstance(each, list) else []
        count += len(inner)
        left += [deeper for deeper in inner if isinstance(deeper, dict | list)]
    return count > most


def unusable_result(name: str, why: str) -> UserError:
    """Return the error that a file is unusable as a result, with the reason."""
    return UserError(f"{name} is no usable result: {why}", _RESTORE)


def _validated(data: bytes, name: str) -> Result:
    try:
        return Result.model_validate_json(data)
    except ValidationError as error:
        raise unusable_result(name, _problem(error)) from None


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    problem = first["msg"].removeprefix("Value error, ")
    return f"`{place or 'cells'}`: {problem[0].lower()}{problem[1:]}"


def head_line(result: Result) -> bytes:
    """Return the first line of a journal: the result before the first run."""
    return _journal_line({"begin": result.model_dump(mode="json", exclude_defaults=True)})


def start_line(start: Start) -> bytes:
    """Return a line of a journal: the server was started once more."""
    return _journal_line({"start": start.model_dump(mode="json", exclude_defaults=True)})


def run_line(cell: int, run: Run) -> bytes:
    """Return a line of a journal: a run under the condition of this number."""
    return _journal_line({"cell": cell, "run": run.model_dump(mode="json", exclude_defaults=True)})


def exclusion_line(cell: int, number: int, why: str) -> bytes:
    """Return a line of a journal that excludes a run of a cell, by their numbers, afterwards."""
    return _journal_line({"cell": cell, "excluded": number, "why": why})


def _journal_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def fold_journal(data: bytes, name: str) -> tuple[Result, int]:
    """Return the result that a journal has so far, and how many of its bytes are complete lines. Raise UserError.

    A power cut leaves a last line that is incomplete or no text: it is ignored.
    """
    if len(data) > MOST_RESULT_BYTES:
        raise unusable_result(name, f"it is larger than {MOST_RESULT_BYTES >> 20} MiB")
    lines = data.splitlines(keepends=True)
    values: list[dict[str, Any]] = []
    whole = 0
    for number, line in enumerate(lines, start=1):
        try:
            value = load_json(line, f"line {number} of {name}")
        except UserError:
            if number == len(lines):
                break
            raise
        if not line.endswith(b"\n"):
            break
        values.append(value)
        whole += len(line)
    return _folded(values, name), whole


def _has_run(cells: Sequence[dict[str, Any]], cell: int, place: int) -> bool:
    """Check that a journal's cell has a run of this number."""
    runs = cells[cell]["runs"] if 0 <= cell < len(cells) else []
    return 0 <= place < len(runs) and isinstance(runs[place], dict)


def _folded(values: list[dict[str, Any]], name: str) -> Result:
    if not values or not isinstance(values[0], dict) or not isinstance(begun := values[0].get("begin"), dict):
        raise unusable_result(name, "its first line does not describe the measurement")
    cells = [dict(each, runs=[]) for each in begun.get("cells", ()) if isinstance(each, dict)]
    starts = list(begun.get("starts", ()))
    for number, value in enumerate(values[1:], start=2):
        match value:
            case {"start": start}:
                starts.append(start)
            case {"cell": int(cell), "run": run} if 0 <= cell < len(cells):
                cells[cell]["runs"].append(run)
            case {"cell": int(cell), "excluded": int(place), "why": str(why)} if _has_run(cells, cell, place):
                cells[cell]["runs"][place]["excluded"] = why
            case _:
                raise unusable_result(name, f"line {number} is no line of a journal")
    whole = dict(begun, cells=cells, starts=starts)
    return _validated(json.dumps(whole).encode(), name)


def result_schema() -> dict[str, Any]:
    """Return the schema of a result's document."""
    schema = _without_titles(Result.model_json_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:llamaherd:result",
        "title": "A measurement of llamaherd",
        **schema,
        "required": ["format", *schema["required"], "cells"],
    }


def result_schema_text() -> str:
    """Return the text of `result.schema.json`."""
    return json.dumps(result_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_titles(value: Any) -> Any:
    """Remove the titles that pydantic derives from names: they add nothing."""
    if isinstance(value, dict):
        return {key: _without_titles(each) for key, each in value.items() if not (key == "title" and type(each) is str)}
    return [_without_titles(each) for each in value] if isinstance(value, list) else value


HIDDEN = "…"

_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?i)\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+",  # URLs, with hosts, users and ports
        r"[\w.+-]+@[\w.-]+",  # addresses of mail, and users at hosts
        r"(?i)\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",  # UUIDs
        r"(?i)\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b",  # MAC addresses
        r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",  # IPv4
        r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}[0-9a-f]{0,4}(?![\w:])|(?i:(?<![\w:])[0-9a-f:]*::[0-9a-f:]*)",  # IPv6
        r"(?i)\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:lan|local|localdomain|home|internal|intranet|fritz\.box|home\.arpa)\b",
        r"(?<![\w.])(?:~\w*|[A-Za-z]:)?[/\\][^\s\"'|;,=]+",  # paths
    )
)
_HOME = re.compile(r"(?i)(?:/home/|/Users/|\\Users\\)([^\s/\\\"'|;,=:]+)")
_SHORTEST = 3
"""Letters of a name, below which it occurs in too many other words."""


def redact_result(result: Result) -> Result:
    """Return the result without private data, and with an id of its own.

    Names of hosts and users are removed wherever they occur as a word; rig and instance get generic names. Hashes of
    models and builds stay: they identify what was measured.
    """
    origin = result.provenance
    around = Around(
        instances=("another",) * len(origin.around.instances),
        processes=("another",) * len(origin.around.processes),
        load=origin.around.load,
    )
    provenance = origin.model_copy(
        update={
            "host": origin.host.model_copy(update={"name": None}),
            "gpus": tuple(gpu.model_copy(update={"uuid": None, "address": None}) for gpu in origin.gpus),
            "server": origin.server.model_copy(update={"user": None}),
            "around": around,
        }
    )
    starts = tuple(
        each.model_copy(update={"process": str(number) if each.process else None})
        for number, each in enumerate(result.starts)
    )
    bare = {"rig": "rig", "instance": "instance", "shared": True, "starts": starts, "provenance": provenance}
    return with_id(_scrubbed(result.model_copy(update=bare), _private_words(result)))


def redact_text(text: str, private: Iterable[str] = ()) -> str:
    """Remove addresses, UUIDs, paths and these words from a text."""
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    for word in private:
        text = re.sub(rf"(?i)(?<![^\W_]){re.escape(word)}(?![^\W_])", HIDDEN, text)
    return text


def _private_words(result: Result) -> tuple[str, ...]:
    """Return the names of the host, of the rig and of users, the longest first."""
    host, user = result.provenance.host.name or "", result.provenance.server.user or ""
    homes = set(_HOME.findall("\n".join(_texts(result.model_dump(mode="json")))))
    words = {host, host.partition(".")[0], user, result.rig, *homes}
    return tuple(sorted((word for word in words if len(word) >= _SHORTEST), key=len, reverse=True))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _texts(each)


def free_texts(model: type[Recorded]) -> frozenset[str]:
    """Return the fields of a model that may hold any text: not those of a fixed form, which hold no names."""
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if field.annotation in _FREE and not any(isinstance(each, StringConstraints) for each in field.metadata)
    )


_FREE = (str, str | None, tuple[str, ...], dict[str, str])
M = TypeVar("M", bound=Recorded)


def _scrubbed(model: M, private: tuple[str, ...]) -> M:
    free = free_texts(type(model))
    return model.model_copy(
        update={
            name: _deep(each, private) if name in free else _parts(each, private)
            for name in type(model).model_fields
            if isinstance(each := getattr(model, name), str | tuple | dict | Recorded)
        }
    )


def _parts(value: Any, private: tuple[str, ...]) -> Any:
    if isinstance(value, Recorded):
        return _scrubbed(value, private)
    return tuple(_parts(each, private) for each in value) if isinstance(value, tuple) else value


def _deep(value: Any, private: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact_text(value, private)
    if isinstance(value, dict):
        return {redact_text(key, private): redact_text(each, private) for key, each in value.items()}
    return tuple(redact_text(each, private) for each in value)
