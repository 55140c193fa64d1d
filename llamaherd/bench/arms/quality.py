"""How far what is declared may be from what serves in what it says: by a gate's limit, and the engine's own tool. Pure.

It reads our text once as what serves, and keeps its logits; and once as what is declared, which is compared with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from llamaherd.bench.arms.divergence import Compared
from llamaherd.bench.arms.gate import GateArms
from llamaherd.bench.arms.reading import LOGITS
from llamaherd.bench.arms.units import Arm, run_unit
from llamaherd.engines.divergence import Pass, compared_arguments, kept_arguments
from llamaherd.layout import ARMS_TEXT
from llamaherd.plan import InstancePlan, Plan, Reading, digest

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


def says_the_same(arms: GateArms) -> bool:
    """Whether both compute the same by the same engine and model: all that they can differ in is how fast."""
    a, b = arms.a.instance, arms.b.instance
    one, other = a.divergence, b.divergence
    told = one.says == other.says if one and other else a.server.arguments == b.server.arguments
    return told and _computes(arms.plan_a, a) == _computes(arms.plan_b, b)


def not_judged(arms: GateArms, most: float) -> QualityRow | None:
    """Why both cannot be compared, as far as their plans tell; None where they may be."""
    a, b, way_out = arms.a.instance.divergence, arms.b.instance.divergence, UNJUDGED
    if b is None:
        says = "its engine was built without a program that compares"
    elif a is None:
        says = "what serves was built without the program that compares, or planned by an earlier llamaherd"
        way_out = "`herd up` with nothing but `gate` changed, then with the rest; or `herd up --retry`, unjudged"
    elif not ways(arms):
        says = "no text can be read: memory has no room for it, or the vocabulary is not known"
    elif a.vocabulary != b.vocabulary:
        says = f"it has {b.vocabulary:,} kinds of tokens, and what serves {a.vocabulary:,}: it is another model"
    else:
        return None
    return QualityRow(most, Compared(says=says), way_out)


def ways(arms: GateArms) -> tuple[Reading, ...]:
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


def identities(arms: GateArms) -> tuple[str, str]:
    """A and B by hashes of all that what they say can come from."""
    a, b = arms.a.instance, arms.b.instance
    assert a.divergence
    assert b.divergence
    return (
        digest(a.divergence.says, _computes(arms.plan_a, a)),
        digest(b.divergence.says, _computes(arms.plan_b, b)),
    )


def _computes(plan: Plan, instance: InstancePlan) -> str:
    """The hash of all besides its arguments that what it says can come from; which programs were built is no part."""
    build, server = next((each for each in plan.builds if each.id == instance.build), None), instance.server
    engine = (build.kind, build.source.model_dump(mode="json"), build.options, build.cuda) if build else server.program
    return digest(engine, server.environment, instance.model_path, [card.at for card in server.cards])
