"""Whichever of these a file holds: told apart by what is in it, not by its name."""

from __future__ import annotations

import json

from llamaherd.bench.importers.base import Object, Whose
from llamaherd.bench.importers.llama_bench import is_llama_bench, read_llama_bench
from llamaherd.bench.importers.llama_benchy import is_llama_benchy, read_llama_benchy
from llamaherd.bench.importers.sweep_bench import is_sweep_bench, read_sweep_bench
from llamaherd.bench.importers.tables import read_tables
from llamaherd.bench.results.document import MOST, loaded, too_many
from llamaherd.bench.results.result import Result
from llamaherd.diagnostics.findings import UserError

_WAY_OUT = (
    "llama-bench `-o json`, llama-sweep-bench `--output-format jsonl`, llama-benchy `--format json` and tables with a "
    "column of t/s can be read"
)


def read_foreign(data: bytes, name: str, whose: Whose) -> tuple[Result, ...]:
    """The results that others have written, in a file of this name. Raises UserError."""
    if len(data) > MOST:
        raise UserError(f"{name} is larger than {MOST >> 20} MiB", _WAY_OUT)
    try:
        document = data.decode()
    except UnicodeDecodeError:
        raise UserError(f"{name} is no text", _WAY_OUT) from None
    rows = _rows(document, name)
    if rows is None:
        found = read_tables(document, whose)
    elif len(rows) == 1 and is_llama_benchy(rows[0]):
        found = read_llama_benchy(rows[0], whose)
    elif is_llama_bench(rows):
        found = read_llama_bench(rows, whose)
    elif is_sweep_bench(rows):
        found = read_sweep_bench(rows, whose)
    else:
        found = ()
    found = tuple(result for result in found if any(cell.runs for cell in result.cells))
    if not found:
        raise UserError(f"{name} holds no measurement that is known here", _WAY_OUT)
    return found


def _rows(document: str, name: str) -> list[Object] | None:
    """The objects of a JSON document or of lines of JSON; None where it is something else."""
    start = document.lstrip()[:1]
    if start not in ("{", "["):
        return None
    try:
        value = json.loads(document)
    except RecursionError:
        raise UserError(f"{name} is nested too deeply", _WAY_OUT) from None
    except ValueError:
        value = [loaded(line.encode(), name) for line in document.splitlines() if line.strip()[:1] == "{"]
    if too_many(value):
        raise UserError(f"{name} holds more values than are looked at", _WAY_OUT)
    rows = value if isinstance(value, list) else [value]
    return rows if all(isinstance(row, dict) for row in rows) else []
