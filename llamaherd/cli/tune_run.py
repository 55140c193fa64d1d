"""`herd tune`, once it is known what is wanted: the search on its host, and what is told of it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from llamaherd import __version__
from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    fail,
    measuring_or_exit,
    roles_of,
    say,
    usable_or_exit,
)
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.bench.arms.host import ArmsHost
    from llamaherd.cli.tune_lines import SearchLines
    from llamaherd.tune.aim import Aim, Purpose
    from llamaherd.tune.candidate import Candidate
    from llamaherd.tune.evaluate import Evaluation
    from llamaherd.tune.journal import Search, SearchJournal
    from llamaherd.tune.limiting import Limiting
    from llamaherd.tune.lines import Head
    from llamaherd.tune.planned import Tuned
    from llamaherd.tune.search import Model

_BUDGET = 45 * 60
"""Seconds that a search takes at most, where nobody says."""


@dataclass(frozen=True)
class Wanted:
    """What was asked for beside the instance; no purpose, no budget and no power limits: as its inventory says."""

    purpose: str
    budget: int
    watts: tuple[int, ...]
    apply: bool
    again: bool
    yes: bool
    lock_wait: int
    as_json: bool


def run_search(inventory: Path | None, rig: str, instance: str | None, wanted: Wanted) -> None:
    """Search, and print what was found. Ends the program where it cannot."""
    from llamaherd.bench.results.store import results_folder
    from llamaherd.inventory.schema import Tune
    from llamaherd.pipeline.load import inventory_path

    path = inventory_path(inventory)
    results = results_folder(path)
    try:
        tuned = _tuned(path, inventory, rig, instance, wanted.watts)
    except UserError as error:
        fail(error, UNUSABLE)
    says = tuned.rig.instances[tuned.declared.name].tune or Tune()
    wanted = replace(wanted, purpose=wanted.purpose or says.for_, budget=wanted.budget or says.budget or _BUDGET)
    with measuring_or_exit():
        search = _searched(results, tuned, wanted, inventory)
    _show(search, tuned, wanted)
    if wanted.apply:
        from llamaherd.cli.tune_apply import apply

        apply(search, tuned)


def _tuned(path: Path, inventory: Path | None, rig: str, instance: str | None, watts: tuple[int, ...]) -> Tuned:
    from llamaherd.tune.planned import tuned

    roles = roles_of(inventory)
    return usable_or_exit(lambda: tuned(path, roles, rig, instance, watts))


def _searched(results: Path, tuned: Tuned, wanted: Wanted, inventory: Path | None) -> Search:
    """The search at its end: an earlier one, where it was the same."""
    from llamaherd.cli.tune_energy import require_energy, require_gpus
    from llamaherd.tune.journal import SearchJournal, read_search, same_search

    head = _head(tuned, wanted)
    path = None if wanted.again else same_search(results, head)
    if path and (known := read_search(path)).found:
        say(f"known from {path}; `--again` searches anew", err=True)
        return known
    require_gpus(tuned, head.aim)
    _require_there(tuned, inventory)
    require_energy(tuned, head.aim)
    _ask_first(tuned, head.aim, wanted, going_on=path is not None)
    journal = SearchJournal.resume(path) if path else SearchJournal.begin(results, head)
    with journal:
        _search(journal, tuned, wanted)
        say(f"kept in {journal.path}", err=True)
        return journal.search


def _head(tuned: Tuned, wanted: Wanted) -> Head:
    from llamaherd.tune.aim import Aim
    from llamaherd.tune.lines import Head, keys_of

    streams = max(1, tuned.declared.endpoint.streams)
    return Head(
        llamaherd=__version__,
        rig=tuned.rig.rig,
        instance=tuned.declared.name,
        began=_stamp(),
        identity=tuned.identity,
        kind=tuned.kind,
        likeness=tuned.likeness,
        aim=Aim(purpose=cast("Purpose", wanted.purpose), streams=streams),
        declared=keys_of(tuned.start),
        quality=tuned.limits,
        finest=tuned.known.finest,
        gpus=tuned.known.instance.on,
        watts=tuned.watts,
    )


def _require_there(tuned: Tuned, inventory: Path | None) -> None:
    """Raise UserError where the host lacks what is to be started."""
    from llamaherd.host.remote import Remote
    from llamaherd.pipeline.inspect import inspect_host
    from llamaherd.pipeline.rollback import keyless, lacks
    from llamaherd.plan import Only
    from llamaherd.store.missing import missing_files

    roles = roles_of(inventory)
    state = inspect_host(Remote(tuned.rig.connect), keyless(tuned.plan), roles)
    part = tuned.plan.model_copy(update={"only": Only(instances=(tuned.server.name,))})
    gone = list(lacks(part, state))
    gone += [f"model {each.name}" for each in tuned.others if missing_files(each, state)]
    if tuned.server.service not in state.units:
        gone.append(f"unit {tuned.server.service}")
    if gone:
        raise UserError(f"the host has no {', no '.join(gone)}", "`herd up` brings what the inventory declares")


def _ask_first(tuned: Tuned, aim: Aim, wanted: Wanted, *, going_on: bool) -> None:
    """Say what will be done, and what it costs; and ask, where somebody is there to answer."""
    from llamaherd.text.units import show_seconds

    keys = ", ".join(dict.fromkeys([*(axis.key for axis in tuned.space.axes), *tuned.space.packed]))
    name = f"{tuned.rig.rig}/{tuned.declared.name}"
    goes_on = "going on with what was measured before; " if going_on else ""
    say(f"{goes_on}tuning {name} for {aim}; for {show_seconds(wanted.budget)} at most", err=True)
    say(f"tried: {keys}", err=True)
    if tuned.watts:
        said = ", ".join(map(str, tuned.watts))
        say(f"in the end its GPUs are held to {said} W each, in turns; what they are held to now comes back", err=True)
    if tuned.limits:
        say(f"{_judged(tuned)} judged before it leads: {tuned.limits}", err=True)
    say(f"{tuned.server.service} is stopped meanwhile, and comes back whatever ends this", err=True)
    if not wanted.yes and sys.stdin.isatty() and sys.stderr.isatty() and not click.confirm("Go on?", err=True):
        say("nothing was measured", err=True)
        sys.exit(FAILED)


def _judged(tuned: Tuned) -> str:
    finest = tuned.known.finest
    return f"what says other things than model={finest} with kv=f16 is" if finest else "a coarser kv is"


def _search(journal: SearchJournal, tuned: Tuned, wanted: Wanted) -> None:
    from llamaherd.bench.arms.host import ArmsHost
    from llamaherd.bench.arms.units import arms_input
    from llamaherd.deploy.origin import origin
    from llamaherd.gateway.aside import measured_aside
    from llamaherd.host.turn import Turn

    who = origin(tuned.inventory).who
    turn = Turn(tuned.rig.rig, tuned.rig.connect, who)
    turn.take(lambda line: say(line, err=True), wanted.lock_wait)
    try:
        first = tuned.arm(tuned.start, None)
        given = arms_input((first,), (tuned.server,), wanted.budget, who, others=True, text=tuned.text)
        salts = journal.search.head.identity
        aside = measured_aside(tuned.inventory, tuned.plan, (tuned.server,), lambda line: say(line, err=True))
        host = ArmsHost(tuned.rig.connect, given, {"C": first}, {"C": _key(tuned)}, salts, aside)
        try:
            with host:
                _tuning(journal, tuned, wanted, host)
        finally:
            _tell_back(tuned, host.back)
    finally:
        turn.give_back()


def _tuning(journal: SearchJournal, tuned: Tuned, wanted: Wanted, servers: ArmsHost) -> None:
    from llamaherd.cli.tune_lines import SearchLines
    from llamaherd.tune.axes import DRAFTER, HEAD
    from llamaherd.tune.energy import watched
    from llamaherd.tune.evaluate import Evaluation
    from llamaherd.tune.journal import found_by_twins
    from llamaherd.tune.judging import Judging
    from llamaherd.tune.tuning import Tuning

    def drafts(candidate: Candidate) -> bool:
        return candidate[HEAD] is not None or candidate[DRAFTER] is not None

    head = journal.search.head
    aim = head.aim
    hints = [tuned.hinted(each) for each in found_by_twins(journal.path.parents[2], head)]
    if hints:
        say(f"tried early, as a search of this kind has found it: {'; '.join(map(str, hints))}", err=True)
    evaluation = Evaluation(servers, tuned.arm, aim, tuned.context, drafts, wanted.budget, climb=servers.climb)
    evaluation.gauge = partial(watched, tuned.rig.connect) if aim.of_energy else None
    judging = Judging(servers, tuned.judge_unit, tuned.readings) if tuned.limits else None
    lines = SearchLines(aim)
    Tuning(
        evaluation,
        journal,
        tuned.space,
        tuned.start,
        wanted.budget,
        lines,
        _stamp,
        _model(),
        hints,
        judging.judged if judging else None,
        _limiting(journal, tuned, evaluation, lines),
    ).found()


def _limiting(journal: SearchJournal, tuned: Tuned, evaluation: Evaluation, lines: SearchLines) -> Limiting | None:
    """What tries power limits in the end; none where none are wanted."""
    from llamaherd.tune.energy import limited
    from llamaherd.tune.limiting import Limiting

    if not tuned.watts:
        return None
    return Limiting(evaluation, journal, tuned.watts, partial(limited, tuned.rig.connect, tuned.watts), lines)


def _model() -> Model | None:
    """What proposes after the first pass; without Optuna there is none, which is said."""
    try:
        from llamaherd.tune.model import parzen
    except ImportError:
        say("note: without Optuna the search ends after one pass; `llamaherd[tune]` has it", err=True)
        return None
    return parzen


def _key(tuned: Tuned) -> str | None:
    from llamaherd.inventory.keys import UnreadableKeyError, read_key

    secret = tuned.declared.endpoint.key
    try:
        return read_key(secret) if secret else None
    except UnreadableKeyError as error:
        raise UserError(str(error), "put the key there, or name its place in the inventory") from None


def _tell_back(tuned: Tuned, seconds: float | None) -> None:
    name, rig = tuned.server.service, tuned.rig.rig
    if seconds is None:
        say(f"the host brings {name} back by itself; `herd verify {rig}` says whether it has", err=True)
    else:
        say(f"{name} is as before, after {seconds:.1f} s", err=True)


def _show(search: Search, tuned: Tuned, wanted: Wanted) -> None:
    from llamaherd.store.show import console
    from llamaherd.tune.ending import ending
    from llamaherd.tune.importance import optuna_shares
    from llamaherd.tune.show import print_ending
    from llamaherd.tune.written import ending_json

    if wanted.as_json:
        end = ending(search, tuned.start, optuna_shares())
        click.echo(json.dumps({"identity": search.head.identity} | ending_json(end)))
    else:
        name = tuned.declared.name
        print_ending(ending(search, tuned.start), name, console())
        say(f"`herd report {tuned.rig.rig}/{name}` shows all that was tried, and which keys mattered", err=True)


def _stamp() -> str:
    from llamaherd.text.units import utc_stamp

    return utc_stamp(datetime.now(UTC))
