"""A gate: what serves and what is to take its place, and whether that is too slow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llamaherd.bench.arms.alone import at_port, server_of
from llamaherd.bench.arms.cells import PREFILL_CELL
from llamaherd.bench.arms.units import Arm, arms_port
from llamaherd.bench.comparing.compare import Comparison
from llamaherd.bench.results.metrics import DECODE, PREFILL, Metric
from llamaherd.bench.results.result import Condition
from llamaherd.bench.statistics.intervals import Ratio
from llamaherd.plan import GatePlan, InstancePlan, Plan

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
        return _computes(self.a.instance) == _computes(self.b.instance)


def gate_arms(was: Plan, plan: Plan, name: str) -> GateArms:
    """Both at the port of arms; of a group, the instance alone. Raises UserError where a port cannot be told."""
    port = arms_port(plan, name)
    a, b = (at_port(server_of(of, name), name, port) for of in (was, plan))
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


def _computes(instance: InstancePlan) -> tuple[object, ...]:
    """All of a server that its speed can come from."""
    server = instance.server
    cards = server.gpus.at if server.gpus else ()
    return (server.program, server.arguments, server.environment, instance.model_path, cards, server.limits.cpus)
