"""The gate of a change: measure the running and the declared server, and judge speed and divergence by limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Literal

from pydantic import ValidationError

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Connect
from llamaherd.layout import TRIALS_TEXT
from llamaherd.measure.client.requests import suite
from llamaherd.measure.results.comparison import Comparison, compare_results
from llamaherd.measure.results.metrics import DECODE, PREFILL, Metric
from llamaherd.measure.results.result import Condition, Recorded, Timestamp
from llamaherd.measure.results.store import names_in, read_file, results_folder, write_whole
from llamaherd.measure.statistics import Ratio
from llamaherd.measure.trials.divergence import LOGITS, Compared, compare_outputs, divergence_text
from llamaherd.measure.trials.pair import (
    PREFILL_CELL,
    JournalPair,
    Pair,
    begin_results,
    finished_results,
    run_blocks,
    trial_conditions,
)
from llamaherd.measure.trials.trial import (
    NotStartedError,
    Trial,
    TrialHost,
    Variant,
    program_unit,
    read_keys,
    server_at_port,
    server_with,
    trial_port,
)
from llamaherd.memory.divergence import Pass, Reading, compared_arguments, kept_arguments
from llamaherd.pipeline.history import NEWEST_RELEASES, Past, query_past
from llamaherd.plan import GatePlan, InstancePlan, Plan, digest
from llamaherd.role.changes import GateRefusal, GateRequest
from llamaherd.text.numbers import show_seconds, utc_stamp

WRITING = ("code", "prose")
"""Kinds of text for decode: one that suits a draft well, and one that does not."""

GateVerdict = Literal["held", "slower", "not known yet"]


@dataclass(frozen=True)
class GateRow:
    """One condition compared with its limit, the share of speed that a change may cost."""

    condition: Condition
    limit: float
    ratio: Ratio
    verdict: GateVerdict

    def __str__(self) -> str:
        what = "reading" if self.condition.prompt else f"writing {self.condition.kind}"
        return f"{what} {_change(self.ratio)}, and {-self.limit:+.1%} may be lost"


def gate_pair(connect: Connect, was: Plan, plan: Plan, name: str) -> Pair:
    """Return the running server as A, and the declared one as B; of a group, the instance alone.

    Raise UserError if their arguments do not contain where they listen.
    """
    port = trial_port(plan, name)
    a, b = (server_at_port(server_with(of, name), name, port) for of in (was, plan))
    return Pair(
        connect,
        Variant("A", f"what serves as {name}", a),
        Variant("B", f"what is declared as {name}", b),
        was,
        plan,
        (server_with(was, name),),
        changed=True,
    )


def has_same_speed(pair: Pair) -> bool:
    """Return whether nothing differs that the speed of both depends on."""
    return _speed_inputs(pair.a.instance) == _speed_inputs(pair.b.instance)


def gate_cells(gate: GatePlan) -> tuple[str, ...]:
    """Return the names of the conditions that a gate limits."""
    return (*(WRITING if gate.decode is not None else ()), *((PREFILL_CELL,) if gate.prefill is not None else ()))


def gate_rows(found: Comparison, gate: GatePlan, *, spent: bool = False) -> tuple[GateRow, ...]:
    """Return each measured condition with its limit. `spent` means that no more blocks follow.

    A condition is held if its whole interval is above the limit, and slower if the interval is below. In the end, it is
    also slower if it is certainly slower than A, and its estimate is below the limit.
    """
    return tuple(
        GateRow(row.condition, limit, row.ratio, _verdict(row.ratio, limit, spent))
        for row in found.rows
        if (limit := _limit_of(row.condition, row.metric, gate)) is not None
    )


def gate_left(found: Comparison, gate: GatePlan, conditions: Sequence[Condition]) -> int:
    """Return the number of inconclusive conditions; 0 as soon as one is slower, which decides."""
    rows = gate_rows(found, gate)
    if any(row.verdict == "slower" for row in rows):
        return 0
    return len(conditions) - sum(row.verdict == "held" for row in rows)


def _limit_of(condition: Condition, metric: Metric, gate: GatePlan) -> float | None:
    """Return the share of a metric that a change may cost; None without a limit."""
    if condition.prompt:
        return gate.prefill if metric is PREFILL else None
    return gate.decode if metric is DECODE else None


def _verdict(ratio: Ratio, limit: float, spent: bool) -> GateVerdict:
    if ratio.low is None or ratio.high is None:
        return "not known yet"
    if ratio.low > 1 - limit:
        return "held"
    beyond = ratio.high < 1 - limit
    return "slower" if beyond or (spent and ratio.value < 1 - limit and ratio.high < 1) else "not known yet"


def _change(ratio: Ratio) -> str:
    if ratio.ends is None:
        return f"{ratio.value - 1:+.1%}"
    low, high = ratio.ends
    return f"{ratio.value - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%}, {ratio.n} {ratio.unit}s)"


def _speed_inputs(instance: InstancePlan) -> tuple[object, ...]:
    """Return everything that the speed of a server depends on."""
    server = instance.server
    cards = server.gpus.at if server.gpus else ()
    return (server.program, server.arguments, server.environment, instance.model_path, cards, server.limits.cpus)


QualityVerdict = Literal["held", "beyond", "not known yet", "not judged"]

_SURE = 1.96
"""Standard errors to both sides of an interval of 95 %."""
_AGAIN = "fix the reported error, or run `herd up --retry` to skip the gate"
UNJUDGED = "`herd up --retry` skips the gate"


@dataclass(frozen=True)
class QualityRow:
    """The divergence of the declared server from the running one, and its limit."""

    most: float
    found: Compared
    way_out: str = _AGAIN
    """The help for a divergence that could not be measured."""

    @property
    def verdict(self) -> QualityVerdict:
        """The verdict by the error of the divergence; `not judged` without figures."""
        quality = self.found.quality
        if quality is None:
            return "not judged"
        error = _SURE * quality.kld.error
        if quality.kld.value - error > self.most:
            return "beyond"
        return "held" if quality.kld.value + error <= self.most else "not known yet"

    @property
    def lets_in(self) -> bool:
        """Return True if the gate accepts the divergence."""
        return self.verdict in ("held", "not known yet")

    def __str__(self) -> str:
        if self.found.quality is None:
            return f"it cannot be judged, where a mean KLD of {self.most:g} is the most: {self.found.says.rstrip(' ;')}"
        return f"{self.found.figures}, and a mean KLD of {self.most:g} is the most"


def has_same_output(pair: Pair) -> bool:
    """Return whether both have the same engine, model and numerics: then only their speed can differ."""
    a, b = pair.a.instance, pair.b.instance
    one, other = a.divergence, b.divergence
    same = one.says == other.says if one and other else a.server.arguments == b.server.arguments
    return same and _output_inputs(pair.plan_a, a) == _output_inputs(pair.plan_b, b)


def not_judged(pair: Pair, most: float) -> QualityRow | None:
    """Return why the outputs cannot be compared, by the plans; None if they can."""
    a, b, way_out = pair.a.instance.divergence, pair.b.instance.divergence, UNJUDGED
    if b is None:
        says = "its engine was built without a program that compares"
    elif a is None:
        says = "what serves was built without the program that compares, or planned by an earlier llamaherd"
        way_out = (
            "run `herd up` with only `gate` changed, then with the rest; or `herd up --retry`, which skips the gate"
        )
    elif not common_readings(pair):
        says = "no text can be read: memory has no room for it, or the vocabulary is not known"
    elif a.vocabulary != b.vocabulary:
        says = f"it has {b.vocabulary:,} kinds of tokens, and what serves {a.vocabulary:,}: it is another model"
    else:
        return None
    return QualityRow(most, Compared(says=says), way_out)


def common_readings(pair: Pair) -> tuple[Reading, ...]:
    """Return the ways to read the text that fit both, the best first: those of the server with less memory."""
    of = [each.divergence.readings if each.divergence else () for each in (pair.a.instance, pair.b.instance)]
    return min(of, key=lambda readings: readings[0].context if readings else 0)


def judged_variant(pair: Pair) -> Variant:
    """Return the server whose unit runs the tool for both: one with GPUs, if any has them."""
    a, b = pair.a.instance, pair.b.instance
    return Variant("C", pair.b.title, b if b.server.gpus or not a.server.gpus else a)


def quality_unit(pair: Pair, reading: Reading, seconds: int) -> str:
    """Render the unit that runs the tool for A and then B, each for at most some seconds."""
    own = judged_variant(pair)
    of = Pass(reading.context, reading.chunks, reading.batch, str(TRIALS_TEXT), LOGITS)
    a, b = pair.a.instance, pair.b.instance
    assert a.divergence
    assert b.divergence
    there = own.instance.server.environment
    runs = (
        (*_env(a, there), a.divergence.tool, *kept_arguments((*a.divergence.says, *a.divergence.more), of)),
        (*_env(b, there), b.divergence.tool, *compared_arguments((*b.divergence.says, *b.divergence.more), of)),
    )
    return program_unit(own, runs, seconds).text


def _env(instance: InstancePlan, there: Mapping[str, str]) -> tuple[str, ...]:
    """Return the `env` words that give a run the variables of its own server."""
    own = instance.server.environment
    if own == there:
        return ()
    gone = [word for name in there if name not in own for word in ("-u", name)]
    return ("/usr/bin/env", *gone, *(f"{name}={value}" for name, value in own.items()))


def output_hashes(pair: Pair) -> tuple[str, str]:
    """Return the hashes of A and B over everything that their outputs depend on."""
    a, b = pair.a.instance, pair.b.instance
    assert a.divergence
    assert b.divergence
    return (
        digest(a.divergence.says, _output_inputs(pair.plan_a, a)),
        digest(b.divergence.says, _output_inputs(pair.plan_b, b)),
    )


def _output_inputs(plan: Plan, instance: InstancePlan) -> str:
    """Return the hash of everything but the arguments that the output depends on. Build targets do not count."""
    build, server = next((each for each in plan.builds if each.id == instance.build), None), instance.server
    engine = (build.kind, build.source.model_dump(mode="json"), build.options, build.cuda) if build else server.program
    return digest(engine, server.environment, instance.model_path, [card.at for card in server.cards])


_JUDGEMENT_NAME = re.compile(r"kld-\d{8}T\d{6}Z\.json")
_MOST_BYTES = 1 << 16
_NEWEST = 50
"""Judgements of an instance that are read, the newest ones."""


class QualityJudgement(Recorded):
    """The saved divergence of B from A. `a`, `b` and `text` are hashes: of what outputs depend on, and of the text."""

    llamaherd: str
    rig: str
    instance: str
    began: Timestamp
    text: str
    a: str
    b: str
    found: Compared = Compared()

    def same(self, other: QualityJudgement) -> bool:
        """Return whether both judgements compare the same servers by the same text."""
        return (self.text, self.a, self.b) == (other.text, other.a, other.b)


def save_judgement(results: Path, judgement: QualityJudgement) -> Path:
    """Save a judgement, and return its path. Raise UserError."""
    began = judgement.began.replace("-", "").replace(":", "")
    path = results / judgement.rig / judgement.instance / f"kld-{began}.json"
    write_whole(path, judgement.model_dump_json(indent=2).encode() + b"\n")
    return path


def saved_judgement(results: Path, like: QualityJudgement, since: datetime) -> QualityJudgement | None:
    """Return the newest saved judgement of the same servers since then, with figures; None without a readable one."""
    folder = results / like.rig / like.instance
    whole = sorted((name for name in names_in(folder) if _JUDGEMENT_NAME.fullmatch(name)), reverse=True)
    for name in whole[:_NEWEST]:
        with suppress(UserError, ValidationError):
            found = QualityJudgement.model_validate_json(read_file(folder / name, _MOST_BYTES))
            if datetime.fromisoformat(found.began) >= since and found.same(like) and found.found.quality:
                return found
    return None


_HOLDS = timedelta(days=1)
"""How long measurements of the same two servers are valid: a run that resumes after them uses them."""


@dataclass(frozen=True)
class GateOutcome:
    """The outcome of a gate: the divergence, if it was measured, and the speed of each condition."""

    quality: QualityRow | None = None
    rows: tuple[GateRow, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each measurement, with its verdict."""
        return tuple(f"{each}: {each.verdict}" for each in (*((self.quality,) if self.quality else ()), *self.rows))

    @property
    def slower(self) -> tuple[GateRow, ...]:
        """The conditions in which B is too slow."""
        return tuple(row for row in self.rows if row.verdict == "slower")

    @property
    def lets_in(self) -> bool:
        """Return True if the gate accepts B."""
        return not self.slower and (self.quality is None or self.quality.lets_in)


@dataclass(frozen=True)
class GateRun:
    """A gate that measures A and B on their host. `report` prints progress; `drain` is that of `Trial`."""

    pair: Pair
    gate: GatePlan
    results: Path
    author: str
    report: Callable[[str], None]
    drain: Callable[[], AbstractContextManager[object]] = nullcontext
    speed: bool = True
    """Whether the speed counts, too."""

    def measure(self) -> GateOutcome:
        """Return what both limits come to; the divergence is measured first, as it takes less. Raise UserError."""
        quality = self._quality()
        if not self._cells or (quality and not quality.lets_in):
            return GateOutcome(quality)
        spent = quality.found.seconds if quality else 0.0
        return GateOutcome(quality, gate_rows(self._speed(self.gate.seconds - spent), self.gate, spent=True))

    @property
    def _cells(self) -> tuple[str, ...]:
        return gate_cells(self.gate) if self.speed else ()

    @property
    def _name(self) -> str:
        return self.pair.b.instance.name

    def _quality(self) -> QualityRow | None:
        """Return the divergence of B from A; None without a limit, or if the output cannot differ."""
        kld, pair = self.gate.kld, self.pair
        if kld is None or has_same_output(pair):
            return None
        if unable := not_judged(pair, kld):
            return unable
        now, (a, b), text = datetime.now(UTC), output_hashes(pair), suite().ref.sha256
        begun = QualityJudgement(
            llamaherd=__version__, rig=pair.rig, instance=self._name, began=utc_stamp(now), text=text, a=a, b=b
        )
        if before := saved_judgement(self.results, begun, now - _HOLDS):
            self.report(f"{self._name}: both were read at {before.began}")
            return QualityRow(kld, before.found.model_copy(update={"seconds": 0.0}))
        found = self._compare_outputs(self.gate.seconds // 2 if self._cells else self.gate.seconds)
        save_judgement(self.results, begun.model_copy(update={"found": found}))
        return QualityRow(kld, found)

    def _compare_outputs(self, seconds: int) -> Compared:
        self._announce("both read a text", seconds)
        trial = replace(self._trial(seconds, judged_variant(self.pair)), replaceable=True, text=divergence_text())
        with TrialHost(trial, token_hex(6)) as host:
            return compare_outputs(host, partial(quality_unit, self.pair), common_readings(self.pair), seconds)

    def _speed(self, seconds: float) -> Comparison:
        """Compare the speed of both: by results of the last day, if they are conclusive. Raise UserError."""
        pair, now = self.pair, datetime.now(UTC)
        conditions = trial_conditions(self._cells, pair.context)
        a, b = begin_results(pair, conditions, token_hex(6), now)

        def left(found: Comparison) -> int:
            return gate_left(found, self.gate, conditions)

        if before := finished_results(self.results, a, b, now - _HOLDS):
            found = compare_results(*before)
            if not left(found):
                self.report(f"{self._name}: both were measured at {before[0].began}")
                return found
        with closing(JournalPair(self.results, a, b)) as journals:
            self._announce("both are measured", seconds)
            # Both are the same server of the inventory, and have the key of today.
            key = read_keys((pair.b,))["B"]
            trial = replace(self._trial(seconds, pair.a, pair.b), keys={"A": key, "B": key})
            run_blocks(trial, journals, conditions, left)
            journals.finish(utc_stamp(datetime.now(UTC)))
            return compare_results(journals.journals["A"].result, journals.journals["B"].result)

    def _announce(self, what: str, seconds: float) -> None:
        self.report(
            f"{self._name}: {what}, for {show_seconds(seconds)} at most; "
            "the running server stops meanwhile, and is restored afterwards"
        )

    def _trial(self, seconds: float, *servers: Variant) -> Trial:
        pair = self.pair
        return Trial(pair.rig, pair.connect, servers, pair.declared, seconds, self.author, self.report, self.drain)


_SLOWER = "change the inventory, or its `gate`; or run `herd up --retry` to accept the speed"
_BEYOND = "change the inventory, or its `gate`; or run `herd up --retry` to accept the output"


def judge_change(request: GateRequest) -> GateRefusal | None:
    """Return why the gate rejects a changed server; None if it accepts the change. Raise UserError.

    The host does not keep the reason if nothing could be measured: the next run may be able to measure.
    """
    gate = request.gated.instance.gate
    assert gate
    found = _measure(request, gate)
    if found.lets_in:
        return None
    if found.slower:
        return GateRefusal(
            f"it is slower than the running server: {'; '.join(map(str, found.slower))}", _SLOWER, kept=True
        )
    assert found.quality
    if found.quality.verdict == "not judged":
        return GateRefusal(str(found.quality), found.quality.way_out, kept=False)
    return GateRefusal(f"its output differs from that of the running server: {found.quality}", _BEYOND, kept=True)


def _measure(request: GateRequest, gate: GatePlan) -> GateOutcome:
    """Return what is known of both servers; an empty outcome if nothing is measured."""
    gated, name, report = request.gated, request.gated.instance.name, request.report
    was = _plan_with_server(query_past(request.connect, newest=NEWEST_RELEASES), name, gated.was)
    if was is None:
        says = f"nothing is known of the running server, {gated.was}"
        if gate.kld is not None:
            return GateOutcome(QualityRow(gate.kld, Compared(says=says), UNJUDGED))
        report(f"{name} is not measured by its gate: {says}")
        return GateOutcome()
    pair = gate_pair(request.connect, was, request.plan, name)
    if has_same_speed(pair):
        return GateOutcome()
    results = results_folder(request.inventory)
    try:
        found = GateRun(pair, gate, results, request.user, report, speed=gated.speed).measure()
    except NotStartedError as error:
        # The switch shows why the declared server does not start; the running one may lack a GPU by now.
        report(f"{name} is not measured by its gate: {error.message}")
        return GateOutcome()
    for line in found.lines:
        report(f"{name}: {line}")
    return found


def _plan_with_server(past: Past, name: str, spec: str) -> Plan | None:
    """Return the newest plan of a host that has this server, by name and spec; None if the host keeps no such plan."""
    plans = (past.plans[number] for number in sorted(past.plans, reverse=True))
    return next((plan for plan in plans for each in plan.instances if (each.name, each.spec) == (name, spec)), None)
