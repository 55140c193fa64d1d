"""A gate's two servers, judged and measured on their host until it is known whether the gate lets B in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex

from llamaherd import __version__
from llamaherd.bench.arms.alone import server_of
from llamaherd.bench.arms.blocks import BlockDone, Blocks
from llamaherd.bench.arms.cells import conditions
from llamaherd.bench.arms.divergence import Compared
from llamaherd.bench.arms.gate import GateArms, GateRow, gate_cells, gate_left, gate_rows
from llamaherd.bench.arms.host import ArmsHost
from llamaherd.bench.arms.judgements import Judgement, keep, kept
from llamaherd.bench.arms.quality import (
    QualityRow,
    identities,
    judged_arm,
    not_judged,
    quality_unit,
    says_the_same,
    ways,
)
from llamaherd.bench.arms.reading import Reader, read_text
from llamaherd.bench.arms.results import Pair, arm_result, measured_before
from llamaherd.bench.arms.units import ArmName, arms_input
from llamaherd.bench.asking.suite import suite
from llamaherd.bench.comparing.compare import Comparison, compare
from llamaherd.bench.results.result import Condition, Result
from llamaherd.inventory.keys import read_key
from llamaherd.inventory.schema import Connect
from llamaherd.plan import GatePlan, InstancePlan, Reading
from llamaherd.text.units import show_seconds, utc_stamp

_HOLDS = timedelta(days=1)
"""How long what was measured of the same two servers counts: a run that was cut off after it need not do it again."""


@dataclass(frozen=True)
class GateFound:
    """What is known in the end: of what B says, where that was judged, and of how fast it is."""

    quality: QualityRow | None = None
    rows: tuple[GateRow, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """A line for people of each, with its verdict."""
        return tuple(f"{each}: {each.verdict}" for each in (*((self.quality,) if self.quality else ()), *self.rows))

    @property
    def slower(self) -> tuple[GateRow, ...]:
        """The cells in which it is too slow."""
        return tuple(row for row in self.rows if row.verdict == "slower")

    @property
    def lets_in(self) -> bool:
        """Whether B may be served."""
        return not self.slower and (self.quality is None or self.quality.lets_in)


@dataclass(frozen=True)
class GateRun:
    """What is measured, where, and for whom. `say` tells people how it goes; `aside` makes what `ArmsHost` takes."""

    arms: GateArms
    gate: GatePlan
    rig: str
    connect: Connect
    results: Path
    who: str
    say: Callable[[str], None]
    aside: Callable[[], AbstractContextManager[object]] = nullcontext
    speed: bool = True
    """Whether how fast it is counts as well."""

    def found(self) -> GateFound:
        """What is known in the end: first of what it says, which takes less. Raises UserError, UnreadableKeyError."""
        quality = self._judged()
        if not self._cells or (quality and not quality.lets_in):
            return GateFound(quality)
        spent = quality.found.seconds if quality else 0.0
        return GateFound(quality, gate_rows(self.measured(spent), self.gate, spent=True))

    @property
    def _cells(self) -> tuple[str, ...]:
        return gate_cells(self.gate) if self.speed else ()

    @property
    def _serves(self) -> InstancePlan:
        return server_of(self.arms.plan_a, self.arms.b.instance.name)

    def _judged(self) -> QualityRow | None:
        """What B says beside A; None where no limit is declared, or nothing that it says can be different."""
        kld, name = self.gate.kld, self.arms.b.instance.name
        if kld is None or says_the_same(self.arms):
            return None
        if unable := not_judged(self.arms, kld):
            return unable
        now, (a, b), text = datetime.now(UTC), identities(self.arms), suite().ref.sha256
        begun = Judgement(llamaherd=__version__, rig=self.rig, instance=name, began=utc_stamp(now), text=text, a=a, b=b)
        if before := kept(self.results, begun, now - _HOLDS):
            self.say(f"{name}: both were read at {before.began}")
            return QualityRow(kld, before.found.model_copy(update={"seconds": 0.0}))
        found = self._read()
        keep(self.results, begun.model_copy(update={"found": found}))
        return QualityRow(kld, found)

    def _read(self) -> Compared:
        """What the host's own tool tells of both."""
        name = self.arms.b.instance.name
        seconds = self.gate.seconds // 2 if self._cells else self.gate.seconds
        self.say(
            f"{name}: a text is read as both, for {show_seconds(seconds)} at most; "
            "what serves is stopped meanwhile, and comes back whatever ends this"
        )
        arm = judged_arm(self.arms)
        given = arms_input((arm,), (self._serves,), seconds, self.who, others=True, text=read_text())

        def unit(reading: Reading, longest: int) -> str:
            return quality_unit(self.arms, reading, longest)

        with ArmsHost(self.connect, given, {"C": arm}, {"C": None}, token_hex(6), self.aside()) as host:
            return Reader(host, unit, ways(self.arms)).compared(seconds)

    def measured(self, spent: float = 0.0) -> Comparison:
        """How fast both are, by what is left: from results of today, where they say it.

        Raises UserError, UnreadableKeyError.
        """
        now, session = datetime.now(UTC), token_hex(6)
        asked = conditions(self._cells, self.arms.context)
        a, b = (self._begun(name, asked, session, now) for name in ("A", "B"))
        if before := measured_before(self.results, a, b, now - _HOLDS):
            found = compare(*before)
            if not gate_left(found, self.gate, asked):
                self.say(f"{a.instance}: both were measured at {before[0].began}")
                return found
        with closing(Pair(self.results, a, b)) as pair:
            self._blocks(pair, asked, self.gate.seconds - spent)
            pair.finish(utc_stamp(datetime.now(UTC)))
            return compare(pair.journals["A"].result, pair.journals["B"].result)

    def _begun(self, name: str, asked: tuple[Condition, ...], session: str, now: datetime) -> Result:
        """A result without runs. A is the newer one, as it is what serves."""
        first = name == "A"
        plan, arm = (self.arms.plan_a, self.arms.a) if first else (self.arms.plan_b, self.arms.b)
        began = utc_stamp(now if first else now - timedelta(seconds=1))
        return arm_result(self.rig, plan, arm, asked, session=session, began=began, declared=first)

    def _blocks(self, pair: Pair, asked: tuple[Condition, ...], seconds: float) -> None:
        name = self.arms.b.instance.name
        self.say(
            f"{name}: both are measured for {show_seconds(seconds)} at most; "
            "what serves is stopped meanwhile, and comes back whatever ends this"
        )
        both = (self.arms.a, self.arms.b)
        place = self.arms.b.instance.endpoint.key
        key = read_key(place) if place else None
        keys: dict[ArmName, str | None] = {"A": key, "B": key}
        given = arms_input(both, (self._serves,), seconds, self.who)
        arms = {each.name: each for each in both}
        with ArmsHost(self.connect, given, arms, keys, pair.session, self.aside()) as servers:
            blocks = Blocks(servers, pair.journals, asked, pair.session, seconds, self._tell)
            blocks.left = lambda found: gate_left(found, self.gate, asked)
            blocks.measured()

    def _tell(self, done: BlockDone) -> None:
        known = "all is known" if not done.left else f"{done.left} not known yet"
        self.say(f"block {done.number + 1}, {' then '.join(done.order)}: {show_seconds(done.seconds)}; {known}")
