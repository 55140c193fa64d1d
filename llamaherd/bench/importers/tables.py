"""Tables that people publish: Markdown, tabs, or columns between blanks. What a heading does not say stays unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.bench.importers.base import Whose, imported
from llamaherd.bench.results.result import Condition, Result, Run

NOTES = ("a published table: model, build, machine and driver are told elsewhere, if at all",)
MOST_ROWS, _LONGEST = 2_000, 2_000
"""Rows of a table, and letters of a line, beyond which nobody has written it."""

_RATE = r"(?:t/s|tok/s|tokens/s|tps)"
_COLUMNS = {
    "context": r"context|ctx|depth|n_kv",
    "prefill": rf"(?:prefill|prompt|pp)\s*\(?{_RATE}\)?",
    "per_kwh": r"(?:decode\s*\(?)?tokens/kwh\)?",
    "decode": rf"(?:decode|generation|tg)\s*\(?{_RATE}\)?|{_RATE}(?:\s*avg)?",
    "ttft": r"ttft\s*\(?ms\)?",
    "watts": r"power\s*\(?w\)?|watts",
    "run": r"run|#",
    "draft_n": r"draft_n|drafted",
    "accepted": r"accepted",
    "share": r"accept\s*%|acceptance",
    "stack": r"stack|model|engine",
}
"""What headings mean, in small letters. Others are passed over."""

_HEADING = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _COLUMNS.items()), re.IGNORECASE)
_EACH = re.compile(r"(\d[\d,]{1,8}) tokens each", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[+-]?\d+(?:\.\d+)?", re.ASCII)
_KILO = {"": 1, "k": 1024}


@dataclass(frozen=True)
class Table:
    """Rows by what their columns mean; `tokens` each answer had, where the text above says so."""

    rows: tuple[dict[str, str], ...]
    tokens: int | None


def read_tables(document: str, whose: Whose) -> tuple[Result, ...]:
    """A result for each table of speeds in a text, and for each stack of one that has several."""
    return tuple(result for table in _tables(document) for result in _results(table, whose))


def _tables(document: str) -> Iterator[Table]:
    tokens: int | None = None
    head: list[str] = []
    rows: list[dict[str, str]] = []
    for line in [*(each for each in document.splitlines() if len(each) < _LONGEST), ""]:
        cells = _cells(line, head)
        if rows and (not cells or len(cells) != len(head) or len(rows) >= MOST_ROWS):
            yield Table(tuple(rows), tokens)
            head, rows, tokens = [], [], None
        if head and _is_rule(line):
            continue
        if head and len(cells) == len(head):
            rows.append({name: cell for name, cell in zip(head, cells, strict=True) if name})
        elif found := _headings(line):
            head = found
        elif each := _EACH.search(line):
            tokens = int(each[1].replace(",", ""))
        elif not rows:
            head = []


def _is_rule(line: str) -> bool:
    return bool(re.fullmatch(r"[\s|:+-]*-[\s|:+-]*", line))


def _headings(line: str) -> list[str]:
    """What the columns mean under this line; nothing where it heads no table of speeds."""
    if "|" in line or "\t" in line:
        names = [_meaning(cell) for cell in _split(line)]
    else:
        # Between blanks only known headings can be told apart, and they must be all there is.
        found = list(_HEADING.finditer(line))
        names = [each.lastgroup or "" for each in found]
        if re.sub(r"\s", "", _HEADING.sub("", line)):
            return []
    known = [name for name in names if name]
    return names if "decode" in known and len(known) > 1 and len(set(known)) == len(known) else []


def _meaning(cell: str) -> str:
    found = _HEADING.fullmatch(cell)
    return found.lastgroup or "" if found else ""


def _split(line: str) -> list[str]:
    cells = line.strip().strip("|").split("|") if "|" in line else line.strip().split("\t")
    return [cell.strip() for cell in cells]


def _cells(line: str, head: Sequence[str]) -> list[str]:
    if not head or "|" in line or "\t" in line:
        return _split(line) if line.strip() else []
    return line.split()


def _results(table: Table, whose: Whose) -> Iterator[Result]:
    if not any(_value(row, "decode") for row in table.rows):
        return
    if "stack" in table.rows[0]:
        for row in table.rows:
            cells = [(_condition(row, table), [_run(row, table)])] if _value(row, "decode") else []
            yield imported(whose, "table", cells, NOTES, stack=row["stack"] or None)
        return
    cells = [(_condition(row, table), [_run(row, table)]) for row in table.rows if _value(row, "decode")]
    yield imported(whose, "table", cells, [*NOTES, *_of_energy(table)])


def _condition(row: dict[str, str], table: Table) -> Condition:
    """What a row is of. Where a prompt was read, its context was filled by it; else nobody says that it was."""
    context = int(_value(row, "context") or 0) or None
    prompt = context if _value(row, "prefill") else None
    return Condition(kind="unknown", prompt=prompt, generated=table.tokens or 0, context=None if prompt else context)


def _run(row: dict[str, str], table: Table) -> Run:
    drafted, accepted = _value(row, "draft_n"), _value(row, "accepted")
    condition = _condition(row, table)
    return Run(
        prompt_n=condition.prompt,
        prompt_per_second=_value(row, "prefill"),
        predicted_n=table.tokens,
        predicted_per_second=_value(row, "decode"),
        draft_n=int(drafted) if drafted else None,
        draft_n_accepted=int(accepted) if accepted else None,
        first_token_ms=_value(row, "ttft"),
        watts=_value(row, "watts"),
    )


def _value(row: dict[str, str], name: str) -> float | None:
    """The number in a cell, where it is one above 0; `4K` is 4,096."""
    written = row.get(name, "").strip()
    found = _NUMBER.match(written)
    if not found:
        return None
    value = float(found[0].replace(",", "")) * _KILO.get(written[found.end() :].strip().lower()[:1], 1)
    return value if 0 < value < 1e15 else None


def _of_energy(table: Table) -> Iterator[str]:
    """What a column of tokens for a kilowatt-hour is made of, where the table's own figures tell."""
    told = [(_value(row, "per_kwh"), _value(row, "decode"), _value(row, "watts")) for row in table.rows]
    known = [(each, rate * 3.6e6 / watts) for each, rate, watts in told if each and rate and watts]
    if not known:
        return
    if all(abs(each / worked_out - 1) < 0.01 for each, worked_out in known):
        yield "its tokens for a kilowatt-hour are decode over the power beside it: nothing else is in them, no prefill"
    else:
        yield "its tokens for a kilowatt-hour are not decode over the power beside it"
