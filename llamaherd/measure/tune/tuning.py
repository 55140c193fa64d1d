"""Search on a host: the instance that is tuned, its candidates, and the run from the declared keys to the result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any, Protocol

from llamaherd import __version__
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.engines import TRAITS, flags_of
from llamaherd.gguf.header import Header
from llamaherd.inventory.exact_edits import Setting, with_settings
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import Document
from llamaherd.layout import TRIALS_TEXT
from llamaherd.measure.client.requests import suite
from llamaherd.measure.statistics import FEWEST_BLOCKS
from llamaherd.measure.trials.divergence import LOGITS, UnitHost, compare_outputs, divergence_text
from llamaherd.measure.trials.trial import Variant, program_unit, trial_port, unit_of, variant_instance
from llamaherd.measure.tune.candidate import (
    MODEL,
    Candidate,
    Cost,
    Judged,
    Limits,
    Objective,
    Outcome,
    Outcomes,
    Precision,
    Purpose,
    settings_of,
    with_keys,
)
from llamaherd.measure.tune.evaluation import Evaluation, HoldLimits, PowerSeries
from llamaherd.measure.tune.final_measurements import (
    MARGIN,
    Standing,
    best_of,
    depth_left_out,
    depth_of,
    depth_seconds,
    standings,
)
from llamaherd.measure.tune.journal import (
    Fingerprint,
    Found,
    Head,
    SearchJournal,
    TriedCandidate,
    candidate_of,
    fingerprint_of,
    keys_of,
)
from llamaherd.measure.tune.search import Model, SearchedInstance, Space, search, space_of
from llamaherd.memory.divergence import (
    BASE,
    Pass,
    Reading,
    compared_arguments,
    kept_arguments,
    readings,
    words_as_served,
    words_with_cache,
)
from llamaherd.pipeline.fleet_files import local_headers
from llamaherd.pipeline.load import plans, read_lock
from llamaherd.plan import InstancePlan, ModelPlan, Plan
from llamaherd.plan.plan import instance_name_error, instance_names
from llamaherd.role.role import Role
from llamaherd.text.numbers import show_seconds


@dataclass(frozen=True)
class TuneTarget:
    """An instance, and everything that a search may change. `start` contains its declared keys.

    `server` is the running unit, which stops for the search: that of the instance, or of its group. `watts` are power
    limits that are measured in the end.
    """

    inventory: Path
    roles: tuple[Role, ...]
    known: SearchedInstance
    plan: Plan
    server: InstancePlan
    declared: InstancePlan
    space: Space
    start: Candidate
    watts: tuple[int, ...] = ()
    header: Header | None = None

    @property
    def rig(self) -> Rig:
        """The declared rig."""
        return self.known.rig

    @property
    def limits(self) -> Limits | None:
        """The limits of quality for coarser caches and other weights; None if none is tried."""
        quality = self.known.instance.quality
        return Limits(kld=quality.kld, same_top=quality.same_top) if quality else None

    @property
    def text(self) -> str:
        """The text that quality is measured on; empty if it is not measured."""
        return divergence_text() if self.limits else ""

    @property
    def context(self) -> int:
        """The context of each request."""
        return self.declared.context // max(1, self.declared.endpoint.streams)

    @property
    def identity(self) -> str:
        """The hash of everything that measurements depend on: server, GPUs, host, requests and space."""
        space = [(axis.key, axis.values) for axis in self.space.axes]
        machine = [self.rig.host.model_dump_json(), self.rig.gpus.model_dump_json() if self.rig.gpus else None]
        limits = [self.limits.model_dump()] if self.limits else []
        watts = [self.watts] if self.watts else []
        others = [_files(self.others)] if self.others else []
        facts = [self.declared.build, self._files, self.declared.spec, suite().sha256, space, machine, *limits, *watts]
        return _hash([*facts, *others])

    def head(self, purpose: Purpose, began: str) -> Head:
        """Return the first line of the journal of a search."""
        streams = max(1, self.declared.endpoint.streams)
        return Head(
            llamaherd=__version__,
            rig=self.rig.rig,
            instance=self.declared.name,
            began=began,
            identity=self.identity,
            kind=self.kind,
            likeness=self.likeness,
            aim=Objective(purpose=purpose, streams=streams),
            declared=keys_of(self.start),
            quality=self.limits,
            finest=self.known.finest,
            gpus=self.known.instance.on,
            watts=self.watts,
        )

    @property
    def others(self) -> list[ModelPlan]:
        """The models that may replace the declared one."""
        return [each for each in self.plan.models if each.name in self.known.instance.tried_models]

    @property
    def _files(self) -> list[str]:
        """The hashes of the files of its model and its draft model."""
        folders = {self.declared.model_folder, self.declared.draft_folder}
        return _files(each for each in self.plan.models if each.folder in folders)

    @property
    def kind(self) -> str:
        """The hash that similar instances share on any rig: engine, model, GPUs, cores and context."""
        rig, instance = self.rig, self.rig.instances[self.declared.name]
        cards = rig.gpus.cards if rig.gpus else {}
        gpus = [(cards[name].model, cards[name].memory_bytes) for name in instance.on]
        engine = rig.engines[instance.engine].kind
        return _hash([engine, self._files, gpus, rig.host.cpu.cores, instance.context, instance.parallel])

    @property
    def likeness(self) -> Fingerprint:
        """The same facts as readable values, for commands without the rig."""
        return fingerprint_of(self.rig, self.declared.name, self.header)

    def hinted(self, other: Candidate) -> Candidate:
        """Return the keys that another search has found, as far as this space contains them."""
        values = {axis.key: axis.values for axis in self.space.axes}
        return self.start.with_keys({key: value for key, value in other.keys if value in values.get(key, ())})

    def variant(self, candidate: Candidate, load_seconds: int | None) -> Variant:
        """Plan a candidate as a tried server, with a limit for its load. Raise UserError and InventoryError."""
        rig, name = self.rig.rig, self.declared.name
        port = trial_port(self.plan, name)
        settings = settings_of(candidate, self.start)
        if load_seconds is not None:
            settings = (*settings, Setting(("load_timeout",), load_seconds, f"load_timeout={load_seconds}"))

        def edit(whole: Document) -> Document:
            return with_settings(whole, name, settings) if whole.data.get("rig") == rig else whole

        plan = plans(self.inventory, self.roles, (rig,), edit=edit)[rig][1]
        return Variant("C", f"{rig}/{name}", variant_instance(plan, rig, name, port, load_seconds))

    def readings(self, candidate: Candidate, precision: Precision) -> Sequence[Reading]:
        """Return the ways to read a text that measures a candidate's quality, the best first.

        For other weights, these are the ways of the weights with less memory.
        """
        known, exact = self.known, self._exact(candidate, precision)
        if exact is None:
            return []
        instances = [with_keys(known.instance, each) for each in dict.fromkeys((candidate, exact))]
        ways = [list(readings(known.facts, known.name, each)) for each in instances]
        return min(ways, key=lambda each: each[0].context if each else 0)

    def _exact(self, candidate: Candidate, precision: Precision) -> Candidate | None:
        """Return the reference of a candidate: itself, or the finest weights, as far as they fit on the GPUs."""
        if not precision.model:
            return candidate
        return self.space.pack(candidate.with_keys({MODEL: precision.reference}))

    def judge_unit(self, candidate: Candidate, precision: Precision, reading: Reading, seconds: int) -> str:
        """Render the unit that measures the quality of a candidate, in two runs of some seconds. Raise UserError."""
        variant, reference = self.variant(candidate, None), self._exact(candidate, precision)
        if reference is None:
            raise UserError(f"the reference `{precision.reference}` does not fit into memory", "name a smaller one")
        exact = self.variant(reference, None) if precision.model else variant
        self._require_one_vocabulary(precision)
        engine = self.rig.engines[variant.instance.engine]
        flags, tool, server = flags_of(engine), TRAITS[engine.kind].divergence, variant.instance.server
        if flags is None or tool is None or server.program is None:
            raise UserError(
                f"engine `{variant.instance.engine}` has no program that compares caches", "leave `kv` as it is"
            )
        of = Pass(reading.context, reading.chunks, reading.batch, str(TRIALS_TEXT), LOGITS)
        program = str(PurePosixPath(server.program).with_name(tool))
        kept = words_with_cache(flags, exact.instance.server.arguments, BASE)
        if precision.kv:
            words = words_with_cache(flags, server.arguments, precision.kv)
        else:
            words = words_as_served(flags, server.arguments)[0]
        runs = ((program, *kept_arguments(kept, of)), (program, *compared_arguments(words, of)))
        return program_unit(variant, runs, seconds).text

    def judge(self, host: UnitHost, candidate: Candidate, precision: Precision, seconds: float) -> Judged:
        """Measure the quality of a candidate on a host within some seconds.

        Raise UserError if the connection to the host ends: then nothing is known of the candidate.
        """
        ways = self.readings(candidate, precision)
        found = compare_outputs(host, partial(self.judge_unit, candidate, precision), ways, seconds)
        return Judged.of(precision, found)

    def _require_one_vocabulary(self, precision: Precision) -> None:
        other, finest = (self.known.headers.get(each) for each in (precision.model, precision.reference))
        if other and finest and other.vocabulary != finest.vocabulary:
            many = f"{other.vocabulary:,} kinds of tokens, and `{precision.reference}` has {finest.vocabulary:,}"
            raise UserError(f"`{precision.model}` has {many}: they are two models", "leave it out of `models`")


def tune_target(
    inventory: Path, roles: Sequence[Role], rig: str, instance: str | None, watts: tuple[int, ...] = ()
) -> TuneTarget:
    """Return the target: an instance, or the only one. `watts` replace its declared power limits.

    Raise UserError and InventoryError.
    """
    usual: list[Finding] = []
    declared, plan = plans(inventory, roles, (rig,), doubtful=usual.extend)[rig]
    names = instance_names(plan)
    if instance is None and len(names) != 1:
        raise instance_name_error(plan, None)
    name = instance or names[0]
    server = unit_of(plan, rig, name)
    chosen = variant_instance(plan, rig, name, trial_port(plan, name))
    locked = read_lock(inventory)
    models = declared.models.items()
    headers = {name: header for name, model in models if (header := locked.header(model))}
    sizes = {name: size for name, model in models if (size := locked.projector_size(model))}
    known = SearchedInstance(declared, chosen.name, headers | local_headers(declared, locked).headers, sizes)
    space, start = space_of(known, judged=known.instance.quality is not None)
    limits = watts or known.instance.tried_limits
    return TuneTarget(inventory, tuple(roles), known, plan, server, chosen, space, start, limits, known.header)


def _files(models: Iterable[ModelPlan]) -> list[str]:
    return sorted(file.sha256 or file.name for each in models for file in each.files)


def _hash(facts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


ROUNDS, _MOST_ROUNDS = FEWEST_BLOCKS, 12
"""Restarts of each finalist and of the declared keys; and the most of the best one while it is inconclusive."""
_FINALISTS = 5
_FEWEST = 2
"""The declared keys, and one candidate."""
_SHARE, _MOST = 0.4, 0.7
"""Shares of the budget for the final rounds: of all finalists, and of the fewest."""
_PROBED, _CONFIRMED = 2, 3
"""Rounds of requests of a promising candidate, and of a finalist after each restart."""
_LEAST_JUDGING, _MOST_JUDGING = 300, 1800
"""The least and the most seconds for one measurement of quality, whatever is left of the budget."""
Judge = Callable[[Candidate, Precision, float], Judged]
"""Measures the quality of a candidate with a precision, within some seconds."""
_DEEP, _LIMITS = 0.2, 0.4
"""The most of the budget that is reserved for the full depth, and for power limits. What takes longer gets the rest."""
_NEAR = 0.85
"""The share of the best score below which one round of requests is enough: the candidate is no finalist."""


class Progress(Protocol):
    """Reports the progress of a search."""

    def began(self, number: int, seconds_left: float) -> None:
        """Report that a candidate is measured."""
        ...

    def ended(self, candidate: Candidate, outcome: Outcome, best: float | None, cost: Cost | None) -> None:
        """Report the outcome of a candidate, the best score so far, and the loss of quality, if any."""
        ...

    def judging(self, precision: Precision) -> None:
        """Report that the quality of a cache type, or of other weights, is measured, which takes minutes."""
        ...

    def confirming(self, count: int, number: int) -> None:
        """Report a round, in which `count` candidates are measured again."""
        ...

    def deepening(self, candidate: Candidate, depth: int) -> None:
        """Report that a candidate is measured at the full depth of its context."""
        ...

    def limiting(self, watts: int, number: int) -> None:
        """Report that a power limit is measured, in a round."""
        ...


@dataclass
class Tuning:
    """One search. `budget` is in seconds, and includes those of an earlier run that was interrupted.

    Without a `judge`, `space` contains no cache type that is coarser than the declared one, and no other weights.
    Without `limited`, no power limits are measured.
    """

    evaluation: Evaluation
    journal: SearchJournal
    space: Space
    start: Candidate
    budget: float
    progress: Progress
    now: Callable[[], str]
    model: Model | None = None
    hints: Sequence[Candidate] = ()
    judge: Judge | None = None
    limited: HoldLimits | None = None
    _best: float | None = field(default=None, init=False)
    _trials: Outcomes = field(default_factory=Outcomes, init=False)

    def run(self) -> Found:
        """Search until the budget is spent or nothing is left, measure the best ones again, and return the result."""
        self._trials = self.journal.search.known
        self._best = self._best_score()
        self._require_judged(lambda: self._trials.best(1))
        through = search(self.space, self.start, self._trials, self._evaluate, self._more, self.model, self.hints)
        cut = "" if through else self._cut_off()
        self._require_judged(self._finalists)
        finalists = self._finalists()
        if finalists:
            self._confirm(finalists)
        chosen = best_of(self.standings(), self.start)
        shallow = self._deepen(chosen)
        unlimited = self._limit(chosen)
        found = Found(keys=keys_of(chosen), ended=self.now(), cut=cut, shallow=shallow, unlimited=unlimited)
        self.journal.add(found)
        return found

    def standings(self) -> list[Standing]:
        """Return the finalists compared with the declared keys, best first."""
        return standings(self.journal.search, self.start)

    def _evaluate(self, candidate: Candidate) -> Outcome:
        known = self.journal.search
        self.progress.began(len(known.trials) + 1, self.budget - known.seconds)

        def worth(trial: TriedCandidate) -> bool:
            *_, (_, outcome) = known.read(trial)
            score = outcome.score
            return self._best is None or (score is not None and score >= _NEAR * self._best)

        refused = known.refused(candidate)
        if refused:
            trial = TriedCandidate(keys=keys_of(candidate), why="quality", says=refused)
        else:
            trial = self._measured(candidate, _PROBED, worth)
        self.journal.add(trial)
        outcome = known.known.outcomes[candidate]
        if outcome.score is not None and (self._best is None or outcome.score > self._best):
            self._require_judged(lambda: [candidate])
            outcome = known.known.outcomes[candidate]
        if outcome.score is not None:
            self._best = max(outcome.score, self._best or 0.0)
        self.progress.ended(candidate, outcome, self._best, known.cost(candidate))
        return outcome

    def _require_judged(self, leading: Callable[[], Sequence[Candidate]]) -> None:
        """Measure the quality of the leading candidates, each precision once, and exclude those that lose too much."""
        known = self.journal.search
        while self.judge:
            costs = [(each, cost) for each in leading() if (cost := known.cost(each)) and cost.judged is None]
            if not costs:
                return
            candidate, cost = costs[0]
            self.progress.judging(cost.precision)
            seconds = min(_MOST_JUDGING, max(_LEAST_JUDGING, self.budget - known.seconds))
            self.journal.add(self.judge(candidate, cost.precision, seconds))
            for each, _ in list(self._trials):
                if refused := known.refused(each):
                    self._trials.add(each, Outcome(None, why="quality", says=refused))
            self._best = self._best_score()

    def _best_score(self) -> float | None:
        return max((each.score for _, each in self._trials if each.score is not None), default=None)

    def _measured(
        self, candidate: Candidate, rounds: int, worth: Callable[[TriedCandidate], bool] = lambda _: True
    ) -> TriedCandidate:
        sized = self.evaluation.sizes = self.evaluation.sizes or self.journal.search.sizes
        trial = self.evaluation.measure(candidate, rounds, worth)
        if sized is None and (sizes := self.evaluation.sizes):
            self.journal.add(sizes)
        return trial

    def _more(self) -> bool:
        """Return whether one more candidate and the final rounds fit into the budget."""
        known = self.journal.search
        if any(each.round is not None for each in known.trials):
            return False
        until = self._until
        if len(known.known) < _FEWEST:
            # What is declared may be many times slower than all others, and tells nothing of their time. What comes
            # next is that packed onto its GPUs, which promises most.
            return known.seconds < until
        end = max(self._end(_FEWEST), min(self._end(_FINALISTS + 1), _SHARE * until))
        return known.seconds + self._mean() + min(end, _MOST * until) < until

    def _cut_off(self) -> str:
        """Return why the budget did not suffice for the first pass."""
        each, end = (show_seconds(round(seconds)) for seconds in (self._mean(), self._end(_FEWEST)))
        return f"a candidate takes about {each} here, and {_FEWEST} of them in the rounds of the end {end}"

    def _mean(self) -> float:
        """Return the expected seconds of the next candidate: the mean of the better half, as it varies the best one."""
        known = self.journal.search
        taken = {candidate_of(each.keys): each.seconds for each in known.trials if each.seconds and each.round is None}
        better = [taken[each] for each in known.known.best(max(1, (len(taken) + 1) // 2)) if each in taken]
        return fmean(better or taken.values() or [0.0])

    def _end(self, count: int) -> float:
        """Return the expected seconds of the final rounds with this many candidates."""
        return ROUNDS * count * self._requests / _PROBED * self._each(count)

    def _each(self, count: int) -> float:
        """Return the mean seconds that a finalist or the declared keys took."""
        known = self.journal.search
        chosen = {self.start, *known.known.best(count)}
        whole = [
            each.seconds
            for each in known.trials
            if not each.why and each.round is None and candidate_of(each.keys) in chosen
        ]
        return fmean(whole) if whole else 0.0

    def _taken(self, candidate: Candidate, requests: int) -> float:
        """Return the expected seconds of a candidate in a final round: as in the last round, or as in the search."""
        own = [each for each in self.journal.search.trials if candidate_of(each.keys) == candidate and each.seconds]
        if not own:
            return self._mean()
        return own[-1].seconds * (1 if own[-1].round is not None else requests / _PROBED)

    @property
    def _requests(self) -> int:
        """Rounds of requests after each restart of the end: fewer if the declared server is too slow."""
        whole = ROUNDS * _FEWEST / _PROBED * self._each(_FEWEST)
        return next((many for many in range(_CONFIRMED, 1, -1) if many * whole <= _MOST * self._until), 1)

    def _finalists(self) -> Sequence[Candidate]:
        """Return the declared keys and the best candidates that the budget allows; nothing if none is better."""
        known = self.journal.search
        trials = known.known
        if self.start not in trials.outcomes or trials.outcomes[self.start].failed:
            best = trials.best(1)
            return [*best] if best else []
        count = _FINALISTS
        # The same ones when it is gone on with in the middle of a round.
        spent = sum(each.seconds for each in known.trials if each.round is None)
        while count > 1 and spent + self._end(count + 1) > self._until:
            count -= 1
        least = _NEAR * max((each.score or 0.0 for _, each in trials), default=0.0)
        near = [each for each in trials.best(count + 1) if (trials.outcomes[each].score or 0.0) >= least]
        others = [each for each in near if each != self.start][:count]
        return [self.start, *others] if others else []

    def _confirm(self, finalists: Sequence[Candidate]) -> None:
        """Measure each finalist once a round, in random order; then the best one until its verdict is conclusive."""
        search_, requests = self.journal.search, self._requests
        for number in range(_MOST_ROUNDS):
            chosen = finalists if number < ROUNDS else self._undecided()
            if not chosen:
                return
            self.progress.confirming(len(chosen), number + 1)
            done = search_.round_of(number)
            for candidate in _shuffled(chosen, f"{search_.head.identity}:{number}"):
                if candidate in done:
                    continue
                if search_.seconds + self._taken(candidate, requests) > self._until:
                    return
                trial = self._measured(candidate, requests)
                self.journal.add(trial.model_copy(update={"round": number}))

    @property
    def _until(self) -> float:
        """Seconds of the budget without those reserved for the full depth and for power limits."""
        parts = ((self._deep_seconds(), _DEEP), (self._power and self._power.seconds, _LIMITS))
        return self.budget - sum(seconds for seconds, most in parts if seconds and seconds <= most * self.budget)

    def _deep_seconds(self) -> float | None:
        """Return the expected seconds of the full depth by the first measurement: a resumed search expects the same."""
        known = self.journal.search
        if self.evaluation.climb is None or not known.trials:
            return None
        figures = known.trials[0].figures
        return depth_seconds(depth_of(self.evaluation.context), known.sizes, figures, figures.load or 0.0)

    def _deepen(self, chosen: Candidate) -> str:
        """Measure the result and the declared keys at the full depth. Return why it was left out; empty if not."""
        known, depth = self.journal.search, depth_of(self.evaluation.context)
        if self.evaluation.climb is None or chosen == self.start or not known.round_of(0).get(self.start):
            return ""
        both = _shuffled((self.start, chosen), f"{known.head.identity}:depth")
        left = [each for each in both if each not in known.deep]
        if left == both and (why := depth_left_out(depth, self._deep_seconds(), self.budget - known.seconds)):
            return why
        for each in left:
            self.progress.deepening(each, depth)
            self.journal.add(self.evaluation.measure_depth(each, depth))
        return ""

    def _limit(self, chosen: Candidate) -> str:
        """Measure the result under power limits. Return why that was left out; empty if it was not."""
        outcome = self._trials.outcomes.get(chosen)
        if self._power is None or outcome is None or outcome.failed:
            return ""
        return self._power.measure(chosen, self.budget - self.journal.search.seconds)

    @property
    def _power(self) -> PowerSeries | None:
        if self.limited is None:
            return None
        return PowerSeries(self.evaluation, self.journal, self.limited, self.progress.limiting)

    def _undecided(self) -> Sequence[Candidate]:
        """Return the declared keys and the best candidate, if its lead exceeds the margin and is inconclusive."""
        best = next((each for each in self.standings() if each.candidate != self.start), None)
        if best is None or best.ratio is None or best.ratio.value < 1 + MARGIN:
            return []
        known = best.judgement is not None and best.judgement.verdict != "not known yet"
        return [] if known else [self.start, best.candidate]


def _shuffled(candidates: Sequence[Candidate], seed: str) -> list[Candidate]:
    """Return candidates in a random order, which the seed determines."""
    return sorted(candidates, key=lambda each: hashlib.sha256(f"{seed}:{each}".encode()).digest())
