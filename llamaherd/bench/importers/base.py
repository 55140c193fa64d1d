"""What importers share: values of JSON that may be anything, and the result that is made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from llamaherd import __version__
from llamaherd.bench.results.document import finished
from llamaherd.bench.results.provenance import Provenance
from llamaherd.bench.results.result import Cell, Condition, Result, Run, Source, SourceKind, is_moment

_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|[+-]00:?00)?")


@dataclass(frozen=True)
class Whose:
    """Where imported results belong, and when they were measured if they do not tell it themselves."""

    rig: str
    instance: str
    at: str


def number(value: object) -> float | None:
    """A finite number above 0, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e15 else None


def count(value: object) -> int:
    """A whole number from 0 on; 0 for anything else."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else 0


def text(value: object) -> str | None:
    """A text that says something, or None for anything else."""
    return value.strip() if isinstance(value, str) and value.strip() else None


def numbers(value: object) -> list[float]:
    """The finite numbers above 0 of a list."""
    return [found for each in value if (found := number(each))] if isinstance(value, list) else []


def utc(value: object, otherwise: str) -> str:
    """A time in our form, where it is UTC or does not say of which place it is; else the other one."""
    found = _ISO.fullmatch(value) if isinstance(value, str) else None
    told = f"{found[1]}T{found[2]}Z" if found else ""
    return told if is_moment(told) else otherwise


def imported(
    whose: Whose,
    kind: SourceKind,
    cells: Iterable[tuple[Condition, Iterable[Run]]],
    notes: Iterable[str],
    *,
    stack: str | None = None,
    at: object = None,
    provenance: Provenance | None = None,
) -> Result:
    """A result of others. Runs under one condition are of one cell, in the order in which they come."""
    runs: dict[Condition, list[Run]] = {}
    for condition, each in cells:
        runs.setdefault(condition, []).extend(each)
    began = utc(at, whose.at)
    return finished(
        Result(
            llamaherd=__version__,
            rig=whose.rig,
            instance=whose.instance,
            stack=stack,
            began=began,
            ended=began,
            source=Source(kind=kind, notes=tuple(notes)),
            provenance=provenance or Provenance(),
            cells=tuple(Cell(condition=condition, runs=tuple(each)) for condition, each in runs.items()),
        )
    )


Object = dict[str, Any]
