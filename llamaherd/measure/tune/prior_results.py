"""Results of finished searches in the results folder, as suggestions of `herd fit` and `herd init`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.tune.candidate import MODEL, Candidate
from llamaherd.measure.tune.final_measurements import deeper_of
from llamaherd.measure.tune.journal import (
    Fingerprint,
    FingerprintGpu,
    Head,
    Search,
    candidate_of,
    newest_searches,
    read_search,
)
from llamaherd.measure.tune.objective import Objective
from llamaherd.measure.tune.result import yaml_of
from llamaherd.measure.tune.standings import Standing, ratio_text, standings

MOST = 3
"""Searches that are shown."""
_GIB = 1 << 30


@dataclass(frozen=True)
class PriorResult:
    """The result of one search: the best keys, their score, and its file."""

    rig: str
    instance: str
    aim: Objective
    likeness: Fingerprint
    standing: Standing
    declared: bool
    """True if the best keys are those that were declared there."""
    day: str
    file: Path
    cost: str = ""
    """The loss of quality by its cache, if that is coarser than the declared one."""

    @property
    def score(self) -> float:
        """Its score, higher is better."""
        return self.standing.score

    @property
    def lines(self) -> list[str]:
        """All of its keys, as lines of an instance."""
        return yaml_of(self.standing.candidate, Candidate()).splitlines()


def prior_results(results: Path) -> list[PriorResult]:
    """Return the newest finished search of each instance for each objective, if it contains its fingerprint."""
    found: dict[tuple[str, str, str], PriorResult] = {}
    for path in newest_searches(results):
        with suppress(UserError):
            search = read_search(path)
            head = search.head
            place = (head.rig, head.instance, head.aim.purpose)
            if place not in found and (each := _prior_result(search, head, path.relative_to(results.parent))):
                found[place] = each
    return list(found.values())


def _prior_result(search: Search, head: Head, file: Path) -> PriorResult | None:
    if search.found is None or head.likeness is None:
        return None
    base, best = candidate_of(head.declared), candidate_of(search.found.keys)
    standing = next((each for each in standings(search, base) if each.candidate == best), None)
    deeper = deeper_of(search, base, best)
    # The name of a model means nothing on another rig.
    if standing is None or (deeper and deeper.doubt) or best[MODEL] != base[MODEL]:
        return None
    ended, cost = search.found.ended[:10], search.cost(best)
    return PriorResult(
        *(head.rig, head.instance, head.aim, head.likeness, standing, best == base, ended, file),
        cost=str(cost) if cost else "",
    )


def results_of_model(
    every: Iterable[PriorResult], engine: str, header: str, gpus: Sequence[int], context: int, parallel: int
) -> list[PriorResult]:
    """Return the best result for each objective of this model, engine, context and slots on GPUs of these bytes.

    Sizes are equal if they round to the same GiB. Cores are not compared, so results without a GPU are left out.
    """
    return _best(
        each
        for each in every
        if gpus
        and (each.likeness.engine, each.likeness.header) == (engine, header)
        and (each.likeness.context, each.likeness.parallel) == (context, parallel)
        and _rounded_sizes([gpu.memory_bytes for gpu in each.likeness.gpus]) == _rounded_sizes(gpus)
    )


def results_of_machine(every: Iterable[PriorResult], gpus: Sequence[tuple[str, int]], cores: int) -> list[PriorResult]:
    """Return the best result for each model and objective on these GPUs, each a model and its bytes, and as many cores.

    Results without a GPU are left out: as many cores may be of any speed.
    """
    there = Counter((model, round(memory / _GIB)) for model, memory in gpus)

    def alike(used: Sequence[FingerprintGpu]) -> bool:
        wanted = Counter((gpu.model, round((gpu.memory_bytes or 0) / _GIB)) for gpu in used)
        return bool(wanted) and wanted <= there

    return _best(each for each in every if each.likeness.cores == cores and alike(each.likeness.gpus))


def _best(every: Iterable[PriorResult]) -> list[PriorResult]:
    """Return the best result of each model, context and objective, the newest first."""
    found: dict[tuple[str, int, Objective], PriorResult] = {}
    for each in every:
        what = (each.likeness.model, each.likeness.context, each.aim)
        if what not in found or each.score > found[what].score:
            found[what] = each
    return sorted(found.values(), key=lambda each: (each.day, str(each.file)), reverse=True)[:MOST]


def _rounded_sizes(sizes: Sequence[int | None]) -> list[int]:
    return sorted(round((size or 0) / _GIB) for size in sizes)


def prior_result_lines(each: PriorResult) -> Iterator[str]:
    """Yield the measured score, its rig and its file; then the keys, as lines of an instance."""
    like = each.likeness
    gpus = ", ".join(f"{count} {name}" if count > 1 else name for name, count in _counted(like))
    on = f"{gpus}, {like.cores} cores" if gpus else f"{like.cores} cores"
    beside = "as declared there" if each.declared else f"{ratio_text(each.standing.beside)} vs declared there"
    yield f"{each.aim.shown(each.score)} ({each.aim}) on {each.rig}/{each.instance} ({on}): {beside}"
    yield f"{like.model}, {like.context} tokens; found by `herd tune` on {each.day}, {each.file}; with"
    yield from (f"  {line}" for line in each.lines)
    if each.cost:
        yield each.cost


def _counted(like: Fingerprint) -> Iterable[tuple[str, int]]:
    return Counter(gpu.model for gpu in like.gpus).items()


def prior_result_json(each: PriorResult) -> dict[str, Any]:
    """Return a result as JSON."""
    beside = each.standing.beside
    return {
        "rig": each.rig,
        "instance": each.instance,
        "for": each.aim.purpose,
        "score": each.score,
        "beside": [beside.value, beside.low, beside.high] if beside else None,
        "keys": dict(each.standing.candidate.keys),
        "on": each.likeness.model_dump(mode="json"),
        "found": each.day,
        "file": str(each.file),
    }
