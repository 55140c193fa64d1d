"""Judge a change by the limits of a gate: speed, and divergence of the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from llamaherd.engines.divergence import Pass, Reading, compared_arguments, kept_arguments
from llamaherd.layout import ARMS_TEXT
from llamaherd.measure.results.comparison import Comparison
from llamaherd.measure.results.metrics import DECODE, PREFILL, Metric
from llamaherd.measure.results.result import Condition
from llamaherd.measure.statistics import Ratio
from llamaherd.measure.trials.blocks import PREFILL_CELL
from llamaherd.measure.trials.divergence import LOGITS, Compared
from llamaherd.measure.trials.units import Arm, arms_port, run_unit, server_at_port, server_with
from llamaherd.plan import GatePlan, InstancePlan, Plan, digest

WRITING = ("code", "prose")
"""Kinds of text that are written: one that a draft suits well, and one that it does not."""

GateVerdict = Literal["held", "slower", "not known yet"]


@dataclass(frozen=True)
class GateRow:
    """One cell beside its limit, which is the share that may be lost."""

    condition: Condition
    limit: float
    ratio: Ratio
    verdict: GateVerdict

    def __str__(self) -> str:
        what = "reading" if self.condition.prompt else f"writing {self.condition.kind}"
        return f"{what} {_change(self.ratio)}, and {-self.limit:+.1%} may be lost"


@dataclass(frozen=True)
class GateArms:
    """A serves, B is to take its place; each with the plan that it is of."""

    a: Arm
    b: Arm
    plan_a: Plan
    plan_b: Plan

    @property
    def context(self) -> int:
        """What each request has of it, in both."""
        return min(each.instance.context // max(1, each.instance.endpoint.streams) for each in (self.a, self.b))

    @property
    def alike(self) -> bool:
        """Whether both compute the same: then one cannot be slower."""
        return _speed_inputs(self.a.instance) == _speed_inputs(self.b.instance)


def gate_arms(was: Plan, plan: Plan, name: str) -> GateArms:
    """Both at the port of arms; of a group, the instance alone. Raises UserError where a port cannot be told."""
    port = arms_port(plan, name)
    a, b = (server_at_port(server_with(of, name), name, port) for of in (was, plan))
    return GateArms(
        Arm("A", f"what serves as {name}", a),
        Arm("B", f"what is declared as {name}", b),
        was,
        plan,
    )


def gate_cells(gate: GatePlan) -> tuple[str, ...]:
    """The names of the cells that it has limits for."""
    return (*(WRITING if gate.decode is not None else ()), *((PREFILL_CELL,) if gate.prefill is not None else ()))


def gate_rows(found: Comparison, gate: GatePlan, *, spent: bool = False) -> tuple[GateRow, ...]:
    """Each cell of which anything is known, beside its limit. `spent`: there will be no more.

    Held where the whole interval is above the limit, slower where it is below. In the end it is also slower where it is
    known to be slower at all, and by more than the limit as far as one can tell.
    """
    return tuple(
        gate_row(row.condition, limit, row.ratio, spent=spent)
        for row in found.rows
        if (limit := limit_of(row.condition, row.metric, gate)) is not None
    )


def gate_row(condition: Condition, limit: float, ratio: Ratio, *, spent: bool) -> GateRow:
    """One cell beside its limit, judged as above."""
    return GateRow(condition, limit, ratio, _verdict(ratio, limit, spent))


def gate_left(found: Comparison, gate: GatePlan, asked: Sequence[Condition]) -> int:
    """How many cells are not known yet: none where one is slower, as that decides."""
    rows = gate_rows(found, gate)
    if any(row.verdict == "slower" for row in rows):
        return 0
    return len(asked) - sum(row.verdict == "held" for row in rows)


def limit_of(condition: Condition, metric: Metric, gate: GatePlan) -> float | None:
    """What may be lost of a metric of a cell; None where a gate says nothing of it."""
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
    """All of a server that its speed can come from."""
    server = instance.server
    cards = server.gpus.at if server.gpus else ()
    return (server.program, server.arguments, server.environment, instance.model_path, cards, server.limits.cpus)


QualityVerdict = Literal["held", "beyond", "not known yet", "not judged"]

_SURE = 1.96
"""Standard errors to both sides: 95 %."""
_AGAIN = "mend what it says, or `herd up --retry` to have it unjudged"
UNJUDGED = "`herd up --retry` has it unjudged"


@dataclass(frozen=True)
class QualityRow:
    """What was told of what is declared beside what serves, and the most that it may be."""

    most: float
    found: Compared
    way_out: str = _AGAIN
    """Of what could not be judged."""

    @property
    def verdict(self) -> QualityVerdict:
        """Held or beyond where that is sure; a limit that nothing could be held to is not held."""
        quality = self.found.quality
        if quality is None:
            return "not judged"
        error = _SURE * quality.kld.error
        if quality.kld.value - error > self.most:
            return "beyond"
        return "held" if quality.kld.value + error <= self.most else "not known yet"

    @property
    def lets_in(self) -> bool:
        """Whether it may be served."""
        return self.verdict in ("held", "not known yet")

    def __str__(self) -> str:
        if self.found.quality is None:
            return f"it cannot be judged, where a mean KLD of {self.most:g} is the most: {self.found.says.rstrip(' ;')}"
        return f"{self.found.figures}, and a mean KLD of {self.most:g} is the most"


def has_same_output(arms: GateArms) -> bool:
    """Whether both compute the same by the same engine and model: all that they can differ in is how fast."""
    a, b = arms.a.instance, arms.b.instance
    one, other = a.divergence, b.divergence
    told = one.says == other.says if one and other else a.server.arguments == b.server.arguments
    return told and _output_inputs(arms.plan_a, a) == _output_inputs(arms.plan_b, b)


def not_judged(arms: GateArms, most: float) -> QualityRow | None:
    """Why both cannot be compared, as far as their plans tell; None where they may be."""
    a, b, way_out = arms.a.instance.divergence, arms.b.instance.divergence, UNJUDGED
    if b is None:
        says = "its engine was built without a program that compares"
    elif a is None:
        says = "what serves was built without the program that compares, or planned by an earlier llamaherd"
        way_out = "`herd up` with nothing but `gate` changed, then with the rest; or `herd up --retry`, unjudged"
    elif not reading_variants(arms):
        says = "no text can be read: memory has no room for it, or the vocabulary is not known"
    elif a.vocabulary != b.vocabulary:
        says = f"it has {b.vocabulary:,} kinds of tokens, and what serves {a.vocabulary:,}: it is another model"
    else:
        return None
    return QualityRow(most, Compared(says=says), way_out)


def reading_variants(arms: GateArms) -> tuple[Reading, ...]:
    """Ways in which both can read the text, the best one first: those of the one that has less room."""
    of = [each.divergence.readings if each.divergence else () for each in (arms.a.instance, arms.b.instance)]
    return min(of, key=lambda readings: readings[0].context if readings else 0)


def judged_arm(arms: GateArms) -> Arm:
    """The one whose unit both runs are: it has GPUs where one of both does."""
    a, b = arms.a.instance, arms.b.instance
    return Arm("C", arms.b.title, b if b.server.gpus or not a.server.gpus else a)


def quality_unit(arms: GateArms, reading: Reading, seconds: int) -> str:
    """The unit that reads the text as both, for so many seconds each."""
    own = judged_arm(arms)
    of = Pass(reading.context, reading.chunks, reading.batch, str(ARMS_TEXT), LOGITS)
    a, b = arms.a.instance, arms.b.instance
    assert a.divergence
    assert b.divergence
    there = own.instance.server.environment
    runs = (
        (*_env(a, there), a.divergence.tool, *kept_arguments((*a.divergence.says, *a.divergence.more), of)),
        (*_env(b, there), b.divergence.tool, *compared_arguments((*b.divergence.says, *b.divergence.more), of)),
    )
    return run_unit(own, runs, seconds).text


def _env(instance: InstancePlan, there: Mapping[str, str]) -> tuple[str, ...]:
    """What gives a run the variables of its own server in the unit of the other one."""
    own = instance.server.environment
    if own == there:
        return ()
    gone = [word for name in there if name not in own for word in ("-u", name)]
    return ("/usr/bin/env", *gone, *(f"{name}={value}" for name, value in own.items()))


def output_hashes(arms: GateArms) -> tuple[str, str]:
    """A and B by hashes of all that what they say can come from."""
    a, b = arms.a.instance, arms.b.instance
    assert a.divergence
    assert b.divergence
    return (
        digest(a.divergence.says, _output_inputs(arms.plan_a, a)),
        digest(b.divergence.says, _output_inputs(arms.plan_b, b)),
    )


def _output_inputs(plan: Plan, instance: InstancePlan) -> str:
    """The hash of all besides its arguments that what it says can come from; which programs were built is no part."""
    build, server = next((each for each in plan.builds if each.id == instance.build), None), instance.server
    engine = (build.kind, build.source.model_dump(mode="json"), build.options, build.cuda) if build else server.program
    return digest(engine, server.environment, instance.model_path, [card.at for card in server.cards])
