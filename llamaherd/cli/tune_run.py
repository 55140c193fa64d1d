"""Run the search of `herd tune`: check its GPUs, report each candidate, show the result, write it to the inventory."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from llamaherd import __version__
from llamaherd.checks.objectives import NO_ENERGY, NO_LIMITS, NO_POWER, NO_POWER_OPTION, OTHER_AIM, why_unlimited
from llamaherd.cli.common import FAILED, UNUSABLE, fail, measuring_or_exit, roles_of, say, usable_or_exit
from llamaherd.diagnostics.findings import InventoryError, Place, UserError
from llamaherd.host.ssh import RemoteError
from llamaherd.inventory.settings import text_with_settings, text_with_value
from llamaherd.inventory.yaml_file import parse_yaml
from llamaherd.measure.tune.candidate import Candidate, Outcome, settings_of
from llamaherd.measure.tune.energy import probe_energy, require_limits
from llamaherd.measure.tune.final_measurements import deeper_of, power_end
from llamaherd.measure.tune.journal import Search, candidate_of
from llamaherd.measure.tune.objective import Objective
from llamaherd.measure.tune.quality import Cost, Precision
from llamaherd.measure.tune.target import TuneTarget
from llamaherd.pipeline.fleet_files import survey_fleet
from llamaherd.pipeline.load import read_lock

if TYPE_CHECKING:
    from llamaherd.measure.trials.trial import TrialHost
    from llamaherd.measure.tune.energy import PowerSeries
    from llamaherd.measure.tune.evaluation import Evaluation
    from llamaherd.measure.tune.journal import Head, SearchJournal
    from llamaherd.measure.tune.objective import Purpose
    from llamaherd.measure.tune.search import Model


def require_gpus(tuned: TuneTarget, aim: Objective) -> None:
    """Raise InventoryError where an instance is on no GPU, and its aim is energy, or where none can be limited."""
    if aim.of_energy and not tuned.known.instance.on:
        raise _no_energy(tuned, "it is on no GPU, whose energy could be counted")
    if tuned.watts and (why := why_unlimited(tuned.rig, tuned.declared.name)):
        raise _no_limits(tuned, why)


def require_energy(tuned: TuneTarget, aim: Objective) -> None:
    """Raise InventoryError where its GPUs tell no energy, or do not take its power limits, and either is needed.

    Raises UserError where its host cannot be watched.
    """
    limits = tuned.watts
    if not aim.of_energy and not limits:
        return
    uuids, why = probe_energy(tuned.rig.connect, tuned.declared)
    if why:
        raise _no_energy(tuned, why) if aim.of_energy else _no_limits(tuned, why)
    try:
        if limits:
            require_limits(tuned.rig.connect, uuids, limits)
    except RemoteError:
        raise
    except UserError as error:
        raise _no_limits(tuned, error.message) from None


def _no_energy(tuned: TuneTarget, why: str) -> InventoryError:
    message = f"no energy of {tuned.rig.rig}/{tuned.declared.name} is known: {why}"
    return InventoryError([NO_ENERGY.at(_place(tuned, "for"), message, OTHER_AIM)])


def _no_limits(tuned: TuneTarget, why: str) -> InventoryError:
    message = f"power limits of {tuned.rig.rig}/{tuned.declared.name} cannot be tried: {why}"
    declared = tuned.watts == tuned.known.instance.tried_limits
    help_ = NO_POWER if declared else NO_POWER_OPTION
    return InventoryError([NO_LIMITS.at(_place(tuned, "power"), message, help_)])


def _place(tuned: TuneTarget, key: str) -> Place:
    """Where its inventory says so, or where it would."""
    document = survey_fleet(tuned.inventory, read_lock(tuned.inventory)).documents[tuned.rig.rig]
    return document.value(("instances", tuned.declared.name, "tune", key))


class SearchLines:
    """A line for each candidate."""

    def __init__(self, aim: Objective) -> None:
        self._aim = aim

    def began(self, number: int, seconds_left: float) -> None:
        """Nothing yet: it takes seconds."""
        self._head = f"{number:>3}  {_minutes_left(seconds_left)} left"

    def ended(self, candidate: Candidate, outcome: Outcome, best: float | None, cost: Cost | None) -> None:
        """What came of it. No speed stands without what it costs to say other things."""
        if outcome.why == "quality":
            came = "quality"
        elif outcome.score is None:
            came = f"{outcome.why}: {outcome.says}"[:60]
        elif cost and cost.judged is None:
            came = "not the best"
        else:
            came = self._aim.shown(outcome.score) + (" *" if outcome.score == best else "")
        say(f"{self._head}  {came:<16}  {candidate}{f'; {cost}' if cost else ''}", err=True)

    def judging(self, precision: Precision) -> None:
        """It takes minutes."""
        weights = "" if precision.model else ", with the same weights"
        say(f"judging {precision} beside {precision.exact}{weights}", err=True)

    def confirming(self, count: int, number: int) -> None:
        """The best ones are started once more."""
        say(f"round {number}: the best {count - 1} beside what is declared, in turns", err=True)

    def limiting(self, watts: int, number: int) -> None:
        """GPUs are held to another power limit."""
        say(f"power limits, round {number}: {watts} W", err=True)

    def deepening(self, candidate: Candidate, depth: int) -> None:
        """It takes as long as a whole context takes to be read."""
        say(f"{depth:,} tokens deep: {candidate}", err=True)


def _minutes_left(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


_DEEP_HELP = "write the lines by hand where requests are never that long, or declare less `context` and search again"


def write_result(search: Search, tuned: TuneTarget) -> None:
    """Write the keys into the file that declares the instance, and a power limit of its GPUs.

    Ends the program where it cannot.
    """
    assert search.found
    found = candidate_of(search.found.keys)
    settings = settings_of(found, tuned.start)
    power = power_end(search)
    watts = power.proposed if power else None
    if not settings and watts is None:
        return
    deeper = deeper_of(search, tuned.start, found)
    if deeper and deeper.doubt:
        say(f"error: not written: {deeper.doubt}\n  help: {_DEEP_HELP}", err=True)
        sys.exit(FAILED)
    file = _file_of(tuned)
    try:
        text = file.read_text(encoding="utf-8")
        if settings:
            text = text_with_settings(text, file, tuned.declared.name, settings)
        if power and watts is not None:
            text = _limited(text, file, power.gpus, watts)
        _replace(file, text)
    except OSError as error:
        say(f"error: cannot write {file}: {error.strerror}\n  help: check its mode and its disk", err=True)
        sys.exit(FAILED)
    except UserError as error:
        fail(error, FAILED)
    say(f"written into {file}; `herd diff {tuned.rig.rig}` shows what `herd up` would do", err=True)


def _limited(text: str, file: Path, gpus: Sequence[str], watts: int) -> str:
    """The text in which GPUs are held to so many watts. Raises UserError where it does not declare them itself."""
    declared = parse_yaml(file, text).data.get("gpus")
    cards = declared.get("cards") if isinstance(declared, dict) else None
    for name in gpus:
        if not isinstance(cards, dict) or not isinstance(cards.get(name), dict):
            raise UserError(f"{file} does not declare GPU `{name}` itself", "write `power_limit` where it is declared")
        text = text_with_value(text, file, ("gpus", "cards", name, "power_limit"), f"{watts}W")
    return text


def _file_of(tuned: TuneTarget) -> Path:
    """Where a link to it leads: the link stays."""
    return survey_fleet(tuned.inventory, read_lock(tuned.inventory)).documents[tuned.rig.rig].file.resolve()


def _replace(file: Path, text: str) -> None:
    """All of the file at once, with the mode that it had."""
    part = file.with_name(f".{file.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.chmod(file.stat().st_mode & 0o777)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


_BUDGET = 45 * 60
"""Seconds that a search takes at most, where nobody says."""


@dataclass(frozen=True)
class SearchOptions:
    """What was asked for beside the instance; no purpose, no budget and no power limits: as its inventory says."""

    purpose: str
    budget: int
    watts: tuple[int, ...]
    apply: bool
    again: bool
    yes: bool
    lock_wait: int
    as_json: bool


def run_search(inventory: Path | None, rig: str, instance: str | None, wanted: SearchOptions) -> None:
    """Search, and print what was found. Ends the program where it cannot."""
    from llamaherd.inventory.schema import Tune
    from llamaherd.measure.results.store import results_folder
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
        write_result(search, tuned)


def _tuned(path: Path, inventory: Path | None, rig: str, instance: str | None, watts: tuple[int, ...]) -> TuneTarget:
    from llamaherd.measure.tune.target import tune_target

    roles = roles_of(inventory)
    return usable_or_exit(lambda: tune_target(path, roles, rig, instance, watts))


def _searched(results: Path, tuned: TuneTarget, wanted: SearchOptions, inventory: Path | None) -> Search:
    """The search at its end: an earlier one, where it was the same."""
    from llamaherd.measure.tune.journal import SearchJournal, read_search, same_search

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


def _head(tuned: TuneTarget, wanted: SearchOptions) -> Head:
    from llamaherd.measure.tune.journal import Head, keys_of
    from llamaherd.measure.tune.objective import Objective

    streams = max(1, tuned.declared.endpoint.streams)
    return Head(
        llamaherd=__version__,
        rig=tuned.rig.rig,
        instance=tuned.declared.name,
        began=_stamp(),
        identity=tuned.identity,
        kind=tuned.kind,
        likeness=tuned.likeness,
        aim=Objective(purpose=cast("Purpose", wanted.purpose), streams=streams),
        declared=keys_of(tuned.start),
        quality=tuned.limits,
        finest=tuned.known.finest,
        gpus=tuned.known.instance.on,
        watts=tuned.watts,
    )


def _require_there(tuned: TuneTarget, inventory: Path | None) -> None:
    """Raise UserError where the host lacks what is to be started."""
    from llamaherd.host.remote import Remote
    from llamaherd.pipeline.history import keyless, missing_on_host
    from llamaherd.pipeline.inspection import inspect_host
    from llamaherd.plan import Only
    from llamaherd.store.files import missing_files

    roles = roles_of(inventory)
    state = inspect_host(Remote(tuned.rig.connect), keyless(tuned.plan), roles)
    part = tuned.plan.model_copy(update={"only": Only(instances=(tuned.server.name,))})
    gone = list(missing_on_host(part, state))
    gone += [f"model {each.name}" for each in tuned.others if missing_files(each, state)]
    if tuned.server.service not in state.units:
        gone.append(f"unit {tuned.server.service}")
    if gone:
        raise UserError(f"the host has no {', no '.join(gone)}", "`herd up` brings what the inventory declares")


def _ask_first(tuned: TuneTarget, aim: Objective, wanted: SearchOptions, *, going_on: bool) -> None:
    """Say what will be done, and what it costs; and ask, where somebody is there to answer."""
    from llamaherd.text.numbers import show_seconds

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


def _judged(tuned: TuneTarget) -> str:
    finest = tuned.known.finest
    return f"what says other things than model={finest} with kv=f16 is" if finest else "a coarser kv is"


def _search(journal: SearchJournal, tuned: TuneTarget, wanted: SearchOptions) -> None:
    from llamaherd.deploy.origin import origin
    from llamaherd.fleet.drain import drained
    from llamaherd.measure.trials.trial import Trial, TrialHost, locked_host, read_keys

    who, rig, connect = origin(tuned.inventory).who, tuned.rig.rig, tuned.rig.connect
    stops = (tuned.server,)
    drain = partial(drained, tuned.inventory, tuned.plan, stops, _report)
    with locked_host(rig, connect, who, _report, wanted.lock_wait):
        first = tuned.arm(tuned.start, None)
        keys = read_keys((first,))
        trial = Trial(
            rig, connect, (first,), stops, wanted.budget, who, _report, drain, keys, replaceable=True, text=tuned.text
        )
        with TrialHost(trial, journal.search.head.identity) as host:
            _tuning(journal, tuned, wanted, host)


def _report(line: str) -> None:
    say(line, err=True)


def _tuning(journal: SearchJournal, tuned: TuneTarget, wanted: SearchOptions, servers: TrialHost) -> None:
    from llamaherd.measure.tune.energy import watch_gpus
    from llamaherd.measure.tune.evaluation import Evaluation
    from llamaherd.measure.tune.journal import found_by_twins
    from llamaherd.measure.tune.space import DRAFTER, HEAD
    from llamaherd.measure.tune.tuning import Tuning

    def drafts(candidate: Candidate) -> bool:
        return candidate[HEAD] is not None or candidate[DRAFTER] is not None

    head = journal.search.head
    aim = head.aim
    hints = [tuned.hinted(each) for each in found_by_twins(journal.path.parents[2], head)]
    if hints:
        say(f"tried early, as a search of this kind has found it: {'; '.join(map(str, hints))}", err=True)
    evaluation = Evaluation(servers, tuned.arm, aim, tuned.context, drafts, wanted.budget, climb=servers.climb)
    evaluation.gauge = partial(watch_gpus, tuned.rig.connect) if aim.of_energy else None
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
        partial(tuned.judge, servers) if tuned.limits else None,
        _limiting(journal, tuned, evaluation, lines),
    ).found()


def _limiting(
    journal: SearchJournal, tuned: TuneTarget, evaluation: Evaluation, lines: SearchLines
) -> PowerSeries | None:
    """What tries power limits in the end; none where none are wanted."""
    from llamaherd.measure.tune.energy import PowerSeries, limit_gpus

    if not tuned.watts:
        return None
    return PowerSeries(evaluation, journal, tuned.watts, partial(limit_gpus, tuned.rig.connect, tuned.watts), lines)


def _model() -> Model | None:
    """What proposes after the first pass; without Optuna there is none, which is said."""
    try:
        from llamaherd.measure.tune.optuna_model import parzen
    except ImportError:
        say("note: without Optuna the search ends after one pass; `llamaherd[tune]` has it", err=True)
        return None
    return parzen


def _show(search: Search, tuned: TuneTarget, wanted: SearchOptions) -> None:
    from llamaherd.measure.tune.analysis import optuna_shares
    from llamaherd.measure.tune.result import result_json, search_result
    from llamaherd.measure.tune.show import print_result
    from llamaherd.store.show import console

    if wanted.as_json:
        end = search_result(search, tuned.start, optuna_shares())
        click.echo(json.dumps({"identity": search.head.identity} | result_json(end)))
    else:
        name = tuned.declared.name
        print_result(search_result(search, tuned.start), name, console())
        say(f"`herd report {tuned.rig.rig}/{name}` shows all that was tried, and which keys mattered", err=True)


def _stamp() -> str:
    from llamaherd.text.numbers import utc_stamp

    return utc_stamp(datetime.now(UTC))
