"""Searches of `herd tune` that have come to their end already, beside an inventory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.measure.tune.candidate import Candidate, Figures, Objective, Purpose
from llamaherd.measure.tune.journal import Deep, Found, Head, Limited, SearchJournal, TriedCandidate, keys_of
from llamaherd.measure.tune.search import THREADS
from llamaherd.measure.tune.tuning import TuneTarget, tune_target
from roles import ROLES
from tests.support.rigs import changed, cpu_rig

HEADER = "# whose rig this is\n"


def declared(folder: Path) -> Path:
    """The file of a rig whose instance has two threads, and whose host nobody answers for."""
    file = folder / "box.yaml"
    rig = changed(cpu_rig(), {"instances/chat/threads": 2, "connect/port": 9})
    file.write_text(HEADER + yaml.safe_dump(rig, sort_keys=False))
    return file


def herd(*words: str | Path) -> Result:
    """What comes of a command."""
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="herd")


def searched(
    inventory: Path,
    purpose: Purpose = "turn",
    *,
    ended: bool = True,
    deep: Sequence[Deep] = (),
    limited: Mapping[int, float] | None = None,
    watts: tuple[int, ...] = (),
) -> TuneTarget:
    """A search that was made before: one thread is twice as fast.

    `deep` are what is declared and that at depth, `limited` scores of speed under power limits. `watts` are
    limits that were wished for by the option.
    """
    of = tune_target(inventory, ROLES, "box", "chat", watts)
    head = Head(
        llamaherd="0",
        rig="box",
        instance="chat",
        began="2026-11-24T15:00:00Z",
        identity=of.identity,
        aim=Objective(purpose=purpose),
        declared=keys_of(of.start),
        gpus=("big",) if limited else (),
        watts=tuple(limited or ()),
    )
    better = of.start.with_keys({THREADS: 1})
    with SearchJournal.begin(inventory.parent / "results", head) as journal:
        for number in (None, 0, 1, 2):
            for candidate, speed in ((of.start, 20.0), (better, 40.0)):
                journal.add(trial(candidate, speed, number))
        for candidate, each in zip((of.start, better), deep, strict=False):
            journal.add(each.model_copy(update={"keys": keys_of(candidate)}))
        for limit, speed in (limited or {}).items():
            for number in range(3):
                told = Limited(keys=keys_of(better), watts=limit, round=number, speed=speed + number / 99, joules=limit)
                journal.add(told)
        if ended:
            journal.add(Found(keys=keys_of(better), ended="2026-11-24T15:30:00Z"))
    return of


def trial(candidate: Candidate, speed: float, number: int | None) -> TriedCandidate:
    """One reading of a candidate."""
    off = 1 + 0.001 * (number or 0)
    figures = Figures(decode={"code": speed * off, "prose": speed}, prefill=speed * 10, runs=6)
    return TriedCandidate(keys=keys_of(candidate), figures=figures, seconds=10.0, round=number)
