"""A gate's two servers, measured on their host until it is known whether the gate lets B in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex

from llamaherd.bench.arms.blocks import BlockDone, Blocks
from llamaherd.bench.arms.cells import conditions
from llamaherd.bench.arms.gate import GateArms, gate_cells, gate_left
from llamaherd.bench.arms.host import ArmsHost
from llamaherd.bench.arms.results import Pair, arm_result, measured_before
from llamaherd.bench.arms.units import ArmName, arms_script
from llamaherd.bench.comparing.compare import Comparison, compare
from llamaherd.bench.results.result import Condition, Result
from llamaherd.inventory.keys import read_key
from llamaherd.inventory.schema import Connect
from llamaherd.plan import GatePlan
from llamaherd.text.units import show_seconds, utc_stamp

_HOLDS = timedelta(days=1)
"""How long what was measured of the same two servers counts: a run that was cut off after it need not do it again."""


@dataclass(frozen=True)
class GateRun:
    """What is measured, where, and for whom. `say` tells people how it goes; `aside` is as of `ArmsHost`."""

    arms: GateArms
    gate: GatePlan
    rig: str
    connect: Connect
    results: Path
    who: str
    say: Callable[[str], None]
    aside: AbstractContextManager[object] | None = None

    def measured(self) -> Comparison:
        """What is known in the end: from results of today, where they say it. Raises UserError, UnreadableKeyError."""
        now, session = datetime.now(UTC), token_hex(6)
        asked = conditions(gate_cells(self.gate), self.arms.context)
        a, b = (self._begun(name, asked, session, now) for name in ("A", "B"))
        if before := measured_before(self.results, a, b, now - _HOLDS):
            found = compare(*before)
            if not gate_left(found, self.gate, asked):
                self.say(f"{a.instance}: both were measured at {before[0].began}")
                return found
        with closing(Pair(self.results, a, b)) as pair:
            self._blocks(pair, asked)
            pair.finish(utc_stamp(datetime.now(UTC)))
            return compare(pair.journals["A"].result, pair.journals["B"].result)

    def _begun(self, name: str, asked: tuple[Condition, ...], session: str, now: datetime) -> Result:
        """A result without runs. A is the newer one, as it is what serves."""
        first = name == "A"
        plan, arm = (self.arms.plan_a, self.arms.a) if first else (self.arms.plan_b, self.arms.b)
        began = utc_stamp(now if first else now - timedelta(seconds=1))
        return arm_result(self.rig, plan, arm, asked, session=session, began=began, declared=first)

    def _blocks(self, pair: Pair, asked: tuple[Condition, ...]) -> None:
        name, seconds = self.arms.b.instance.name, self.gate.seconds
        serves = next(each for each in self.arms.plan_a.instances if each.name == name)
        self.say(
            f"{name}: both are measured for {show_seconds(seconds)} at most; "
            "what serves is stopped meanwhile, and comes back whatever ends this"
        )
        both = (self.arms.a, self.arms.b)
        place = self.arms.b.instance.endpoint.key
        key = read_key(place) if place else None
        keys: dict[ArmName, str | None] = {"A": key, "B": key}
        script = arms_script(both, (serves,), seconds, self.who)
        arms = {each.name: each for each in both}
        with ArmsHost(self.connect, script, arms, keys, pair.session, self.aside) as servers:
            blocks = Blocks(servers, pair.journals, asked, pair.session, seconds, self._tell)
            blocks.left = lambda found: gate_left(found, self.gate, asked)
            blocks.measured()

    def _tell(self, done: BlockDone) -> None:
        known = "all is known" if not done.left else f"{done.left} not known yet"
        self.say(f"block {done.number + 1}, {' then '.join(done.order)}: {show_seconds(done.seconds)}; {known}")
