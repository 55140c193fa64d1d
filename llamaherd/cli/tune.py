"""`herd tune`: search for settings that make an instance faster, print the result, and write it to the inventory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import click

from llamaherd.checks.serving import NO_ENERGY, NO_LIMITS, NO_POWER, NO_POWER_OPTION, OTHER_AIM, why_unlimited
from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    confirm_or_exit,
    echo,
    exit_on_error,
    fail,
    inventory_option,
    json_option,
    lock_wait_option,
    measuring_or_exit,
    read_or_exit,
    report,
    yes_option,
)
from llamaherd.cli.compare import parse_budget
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import roles_or_exit
from llamaherd.cli.targets import rig_or_target_argument, second_word_argument, split_words
from llamaherd.deploy.origin import origin
from llamaherd.diagnostics.findings import InventoryError, Place, UserError
from llamaherd.fleet.drain import drained
from llamaherd.host.remote import Remote
from llamaherd.host.ssh import RemoteError
from llamaherd.installation import install_command
from llamaherd.inventory.exact_edits import text_with_settings, text_with_value
from llamaherd.inventory.file_writer import write_atomically
from llamaherd.inventory.schema import MOST_LIMITS, Tune
from llamaherd.inventory.yaml_file import parse_yaml
from llamaherd.measure.bench.selection import parse_watts
from llamaherd.measure.results.store import results_folder
from llamaherd.measure.trials.trial import Trial, TrialHost, locked_host, read_keys
from llamaherd.measure.tune.candidate import Candidate, Cost, Objective, Outcome, Precision, Purpose, settings_of
from llamaherd.measure.tune.evaluation import Evaluation, limit_gpus, probe_energy, require_limits, watch_gpus
from llamaherd.measure.tune.final_measurements import deeper_of, power_end
from llamaherd.measure.tune.journal import Search, SearchJournal, candidate_of, found_by_twins, read_search, same_search
from llamaherd.measure.tune.result import optuna_shares, result_json, search_result
from llamaherd.measure.tune.search import DRAFTER, HEAD, Model
from llamaherd.measure.tune.show import print_result
from llamaherd.measure.tune.tuning import TuneTarget, Tuning, tune_target
from llamaherd.pipeline.fleet_files import survey_fleet
from llamaherd.pipeline.history import keyless, missing_on_host
from llamaherd.pipeline.inspection import inspect_host
from llamaherd.pipeline.load import inventory_path, read_lock
from llamaherd.plan import Only
from llamaherd.store.files import missing_files
from llamaherd.store.show import console
from llamaherd.text.numbers import show_seconds, utc_stamp

_BUDGET = 45 * 60
"""The default longest duration of a search, in seconds."""
_DEEP_HELP = "write the lines by hand if requests are never that long, or declare less `context` and search again"


def _parse_power(_context: click.Context, _parameter: click.Parameter, word: str | None) -> tuple[int, ...]:
    """Return power limits in watts; none without the option."""
    try:
        return () if word is None else parse_watts(word, MOST_LIMITS)
    except UserError as error:
        raise click.BadParameter(f"{error.message}; {error.help}") from None


@dataclass(frozen=True)
class TuneOptions:
    """The options of `herd tune`. Purpose, budget and power limits default to `tune` of the instance."""

    inventory: Path | None
    rig: str
    instance: str | None
    purpose: str | None
    budget: int | None
    watts: tuple[int, ...]
    applying: bool
    again: bool
    yes: bool
    lock_wait: int
    as_json: bool


@click.command()
@rig_or_target_argument
@second_word_argument
@click.option(
    "--for",
    "purpose",
    type=click.Choice(("turn", "decode", "throughput", "efficiency")),
    help="The objective: an agent's turn, one response, parallel responses, or energy. Default: turn.",
)
@click.option("--budget", metavar="TIME", callback=parse_budget, help="The longest duration, 30s to 6h. Default: 45m.")
@click.option(
    "--power",
    "watts",
    metavar="LIMITS",
    callback=_parse_power,
    help="At the end, also measure these power limits: `200W..350W/25W`.",
)
@click.option("--apply", "applying", is_flag=True, help="Write the best settings to the inventory.")
@click.option("--again", is_flag=True, help="Search again, even if the same search is finished.")
@yes_option("Do not prompt.")
@lock_wait_option
@inventory_option
@json_option
@click.pass_obj
def tune(inventory: Path | None, /, **options: Any) -> None:
    """Search for settings that make an instance faster.

    The result is printed as lines of YAML. The search tries keys of the inventory: threads, ubatch, lossless cache
    types, the number of drafted tokens, the split between GPUs. The share of the model on GPUs is computed for each
    candidate, and candidates that cannot fit are skipped. The search varies one key after another, then uses a model of
    all results (Optuna, `llamaherd[tune]`). At the end, the best candidates and the declared settings are restarted
    three times each, interleaved. If the budget allows it, the winner is compared once more at full context depth. If
    it is slower there, the result reports that, and --apply does not write it.

    With `--for efficiency`, the objective is the energy that all its GPUs use for one request, by their energy counters
    or their power. If no GPU reports either, the search does not start.

    With --power, or `tune: {power: {max: 300W}}` of the instance, the winner is measured under each power limit at the
    end. The previous limits are restored, also if the search is interrupted.

    Lossy cache types are tried only if `tune: {quality: {}}` of the instance limits their cost, and other weights only
    if it lists them in `models`. Each of these candidates is checked before it can lead: llama-perplexity on the host
    computes its KL divergence from f16, or from the largest of the models.

    Each candidate runs as a unit of its own. The declared server is stopped meanwhile. Its host starts it again, also
    if the search is interrupted. Gateways that have other servers of the model send it no new requests. Results are
    saved as they arrive. Run the same command again to resume; a finished search prints its result at once. The
    inventory is changed only by --apply, and the server only by the next `herd up`.

    `tune` of the instance sets the defaults of --for, --budget and --power.

    Exit codes: 0 finished, whatever the result; 1 not measured; 2 a file cannot be read.

    \b
    Examples:
      herd tune duo/chat
      herd tune duo/chat --for decode --budget 10m
      herd tune duo/chat --for efficiency
      herd tune six/coder --power 200W..350W/25W
      herd tune duo/chat --apply && herd plan duo
    """
    options["rig"], options["instance"] = split_words(inventory, options["rig"], options["instance"])
    _tune(TuneOptions(inventory, **options))


def _tune(run: TuneOptions) -> None:
    """Search, print the result, and write it with `--apply`. Print errors and end the program if that fails."""
    with exit_on_error(UNUSABLE):
        roles = roles_or_exit(run.inventory)
        path = inventory_path(run.inventory)
        tuned = read_or_exit(lambda: tune_target(path, roles, run.rig, run.instance, run.watts))
    declared = tuned.rig.instances[tuned.declared.name].tune or Tune()
    purpose, budget = run.purpose or declared.for_, run.budget or declared.budget or _BUDGET
    with measuring_or_exit():
        search = _run_search(results_folder(path), tuned, replace(run, purpose=purpose, budget=budget), budget)
    _print_search(search, tuned, as_json=run.as_json)
    if run.applying:
        write_result(search, tuned)


def _run_search(results: Path, tuned: TuneTarget, run: TuneOptions, budget: int) -> Search:
    """Return the finished search: an earlier one if it is the same."""
    head = tuned.head(cast("Purpose", run.purpose), _stamp())
    path = None if run.again else same_search(results, head)
    if path and (finished := read_search(path)).found:
        echo(f"the result of {path}; use `--again` to search again", err=True)
        return finished
    require_gpus(tuned, head.aim)
    _require_on_host(tuned, run.inventory)
    require_energy(tuned, head.aim)
    _confirm(tuned, head.aim, budget, run.yes, resumed=path is not None)
    journal = SearchJournal.resume(path) if path else SearchJournal.begin(results, head)
    with journal:
        _hold_host(journal, tuned, budget, run.lock_wait)
        echo(f"saved to {journal.path}", err=True)
        return journal.search


def _require_on_host(tuned: TuneTarget, inventory: Path | None) -> None:
    """Raise UserError if the host lacks something that the candidates need."""
    state = inspect_host(Remote(tuned.rig.connect), keyless(tuned.plan), roles_or_exit(inventory))
    part = tuned.plan.model_copy(update={"only": Only(instances=(tuned.server.name,))})
    missing = list(missing_on_host(part, state))
    missing += [f"model {each.name}" for each in tuned.others if missing_files(each, state)]
    if tuned.server.service not in state.servers.units:
        missing.append(f"unit {tuned.server.service}")
    if missing:
        raise UserError(f"the host has no {', no '.join(missing)}", "run `herd up` to install it")


def _confirm(tuned: TuneTarget, aim: Objective, budget: int, yes: bool, *, resumed: bool) -> None:
    """Print what is tried and how long that takes, and ask on a terminal."""
    keys = ", ".join(dict.fromkeys([*(axis.key for axis in tuned.space.axes), *tuned.space.packed]))
    name = f"{tuned.rig.rig}/{tuned.declared.name}"
    before = "resuming the previous search; " if resumed else ""
    echo(f"{before}tuning {name} for {aim}; for at most {show_seconds(budget)}", err=True)
    echo(f"keys: {keys}", err=True)
    if tuned.watts:
        watts = ", ".join(map(str, tuned.watts))
        echo(f"power limits at the end: {watts} W, interleaved; the previous limits are restored", err=True)
    if tuned.limits:
        finest = tuned.known.finest
        which = f"candidates that differ from model={finest} with kv=f16" if finest else "candidates with a lossy kv"
        echo(f"{which} are checked for quality before they lead: {tuned.limits}", err=True)
    echo(f"{tuned.server.service} is stopped meanwhile, and starts again whatever ends this", err=True)
    confirm_or_exit(yes, "nothing was measured")


def _hold_host(journal: SearchJournal, tuned: TuneTarget, budget: int, lock_wait: int) -> None:
    """Search while holding the host's lock and with the declared server stopped."""
    user, rig, connect = origin(tuned.inventory).author, tuned.rig.rig, tuned.rig.connect
    stops = (tuned.server,)
    drain = partial(drained, tuned.inventory, tuned.plan, stops, report)
    with locked_host(rig, connect, user, report, lock_wait):
        first = tuned.variant(tuned.start, None)
        keys = read_keys((first,))
        trial = Trial(
            rig, connect, (first,), stops, budget, user, report, drain, keys, replaceable=True, text=tuned.text
        )
        with TrialHost(trial, journal.search.head.identity) as host:
            _search_candidates(journal, tuned, budget, host)


def _search_candidates(journal: SearchJournal, tuned: TuneTarget, budget: int, servers: TrialHost) -> None:
    def drafts(candidate: Candidate) -> bool:
        return candidate[HEAD] is not None or candidate[DRAFTER] is not None

    head = journal.search.head
    hints = [tuned.hinted(each) for each in found_by_twins(journal.path.parents[2], head)]
    if hints:
        echo(f"tried early, from the results of similar searches: {'; '.join(map(str, hints))}", err=True)
    evaluation = Evaluation(servers, tuned.variant, head.aim, tuned.context, drafts, climb=servers.climb)
    evaluation.gauge = partial(watch_gpus, tuned.rig.connect) if head.aim.of_energy else None
    Tuning(
        evaluation,
        journal,
        tuned.space,
        tuned.start,
        budget,
        SearchLines(head.aim),
        _stamp,
        _model(),
        hints,
        judge=partial(tuned.judge, servers) if tuned.limits else None,
        limited=partial(limit_gpus, tuned.rig.connect, tuned.watts) if tuned.watts else None,
    ).run()


def _model() -> Model | None:
    """Return the model that proposes candidates after the first pass. Print a note if Optuna is not installed."""
    try:
        from llamaherd.measure.tune.optuna_model import parzen
    except ImportError:
        echo("note: without Optuna, the search ends after one pass", err=True)
        echo(f"  help: run `{install_command('tune')}`", err=True)
        return None
    return parzen


def _print_search(search: Search, tuned: TuneTarget, *, as_json: bool) -> None:
    if as_json:
        end = search_result(search, tuned.start, optuna_shares())
        row = {"rig": search.head.rig, "instance": search.head.instance, "identity": search.head.identity}
        print_envelope(Envelope(True, [row | result_json(end)]))
    else:
        name = tuned.declared.name
        print_result(search_result(search, tuned.start), name, console())
        echo(f"run `herd report {tuned.rig.rig}/{name}` to see all candidates and which keys matter", err=True)


def _stamp() -> str:
    return utc_stamp(datetime.now(UTC))


class SearchLines:
    """Prints a line for each candidate."""

    def __init__(self, aim: Objective) -> None:
        self._aim = aim

    def began(self, number: int, seconds_left: float) -> None:
        """Store the number and the time left of a candidate, for its line."""
        self._head = f"{number:>3}  {_minutes_left(seconds_left)} left"

    def ended(self, candidate: Candidate, outcome: Outcome, best: float | None, cost: Cost | None) -> None:
        """Print the result of a candidate. A lossy candidate's speed always comes with its cost in quality."""
        if outcome.why == "quality":
            result = "quality"
        elif outcome.score is None:
            result = f"{outcome.why}: {outcome.says}"[:60]
        elif cost and cost.judged is None:
            result = "not the best"
        else:
            result = self._aim.shown(outcome.score) + (" *" if outcome.score == best else "")
        echo(f"{self._head}  {result:<16}  {candidate}{f'; {cost}' if cost else ''}", err=True)

    def judging(self, precision: Precision) -> None:
        """Print which quality is measured now: it takes minutes."""
        weights = "" if precision.model else ", with the same weights"
        echo(f"comparing the quality of {precision} with {precision.exact}{weights}", err=True)

    def confirming(self, count: int, number: int) -> None:
        """Print that the best candidates are restarted."""
        echo(f"round {number}: the best {count - 1} and the declared settings, interleaved", err=True)

    def limiting(self, watts: int, number: int) -> None:
        """Print the power limit that is measured now."""
        echo(f"power limits, round {number}: {watts} W", err=True)

    def deepening(self, candidate: Candidate, depth: int) -> None:
        """Print which depth is measured now: it takes as long as the prefill of a whole context."""
        echo(f"{depth:,} tokens deep: {candidate}", err=True)


def _minutes_left(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


def require_gpus(tuned: TuneTarget, aim: Objective) -> None:
    """Raise InventoryError if the objective needs a GPU and the instance uses none, or no GPU can be limited."""
    if aim.of_energy and not tuned.known.instance.on:
        raise _no_energy(tuned, "the instance uses no GPU")
    if tuned.watts and (why := why_unlimited(tuned.rig, tuned.declared.name)):
        raise _no_limits(tuned, why)


def require_energy(tuned: TuneTarget, aim: Objective) -> None:
    """Raise InventoryError if GPUs do not report energy or accept power limits, and the search needs it.

    Raise UserError if the host cannot be watched.
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
    message = f"cannot measure the energy of {tuned.rig.rig}/{tuned.declared.name}: {why}"
    return InventoryError([NO_ENERGY.at(_place(tuned, "for"), message, OTHER_AIM)])


def _no_limits(tuned: TuneTarget, why: str) -> InventoryError:
    message = f"cannot set power limits for {tuned.rig.rig}/{tuned.declared.name}: {why}"
    declared = tuned.watts == tuned.known.instance.tried_limits
    help_ = NO_POWER if declared else NO_POWER_OPTION
    return InventoryError([NO_LIMITS.at(_place(tuned, "power"), message, help_)])


def _place(tuned: TuneTarget, key: str) -> Place:
    """Return the place of a key of `tune` in the inventory, or where it would be."""
    document = survey_fleet(tuned.inventory, read_lock(tuned.inventory)).documents[tuned.rig.rig]
    return document.value(("instances", tuned.declared.name, "tune", key))


def write_result(search: Search, tuned: TuneTarget) -> None:
    """Write the best settings, and a power limit, to the inventory. End the program if that fails."""
    assert search.found
    found = candidate_of(search.found.keys)
    settings = settings_of(found, tuned.start)
    power = power_end(search)
    watts = power.proposed if power else None
    if not settings and watts is None:
        return
    deeper = deeper_of(search, tuned.start, found)
    if deeper and deeper.doubt:
        fail(UserError(f"not written: {deeper.doubt}", _DEEP_HELP), FAILED)
    file = _file_of(tuned)
    try:
        text = file.read_text(encoding="utf-8")
        if settings:
            text = text_with_settings(text, file, tuned.declared.name, settings)
        if power and watts is not None:
            text = _text_with_limit(text, file, power.gpus, watts)
        write_atomically(file, text, file.stat().st_mode & 0o777)
    except OSError as error:
        fail(UserError(f"cannot write {file}: {error.strerror}", "check its mode and its disk"), FAILED)
    except UserError as error:
        fail(error, FAILED)
    echo(f"written to {file}; run `herd plan {tuned.rig.rig}` to see what `herd up` would change", err=True)


def _text_with_limit(text: str, file: Path, gpus: Sequence[str], watts: int) -> str:
    """Return the file's text with a power limit for GPUs. Raise UserError if the file does not declare the GPUs."""
    declared = parse_yaml(file, text).data.get("gpus")
    cards = declared.get("cards") if isinstance(declared, dict) else None
    for name in gpus:
        if not isinstance(cards, dict) or not isinstance(cards.get(name), dict):
            raise UserError(f"{file} does not declare GPU `{name}`", "write `power_limit` where it is declared")
        text = text_with_value(text, file, ("gpus", "cards", name, "power_limit"), f"{watts}W")
    return text


def _file_of(tuned: TuneTarget) -> Path:
    """Return the file that declares the rig, with links resolved: a link stays."""
    return survey_fleet(tuned.inventory, read_lock(tuned.inventory)).documents[tuned.rig.rig].file.resolve()
