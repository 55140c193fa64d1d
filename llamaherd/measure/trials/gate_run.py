"""Run a gate on its host: measure both servers, judge them, and save the judgement."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex

from pydantic import ValidationError

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.engines.divergence import Reading
from llamaherd.inventory.api_keys import read_key
from llamaherd.inventory.schema import Connect
from llamaherd.measure.client.suite import suite
from llamaherd.measure.results.comparison import Comparison, compare_results
from llamaherd.measure.results.result import Condition, Recorded, Result, Timestamp
from llamaherd.measure.results.store import MOST_FILES, read_file, write_whole
from llamaherd.measure.trials.blocks import BlockDone, Blocks, trial_conditions
from llamaherd.measure.trials.divergence import Compared, Reader, divergence_text
from llamaherd.measure.trials.gate import (
    GateArms,
    GateRow,
    QualityRow,
    gate_cells,
    gate_left,
    gate_rows,
    has_same_output,
    judged_arm,
    not_judged,
    output_hashes,
    quality_unit,
    reading_variants,
)
from llamaherd.measure.trials.host import ArmsHost
from llamaherd.measure.trials.pair import JournalPair, arm_result, finished_results
from llamaherd.measure.trials.units import ArmName, arms_input, server_with
from llamaherd.plan import GatePlan, InstancePlan
from llamaherd.text.numbers import show_seconds, utc_stamp

_NAME = re.compile(r"kld-\d{8}T\d{6}Z\.json")
_MOST_BYTES = 1 << 16
_LOOKED_AT = 50
"""Of an instance's, the newest."""


class QualityJudgement(Recorded):
    """B beside A. Both are known by hashes of all that what they say can come from, `text` by that of what was read."""

    llamaherd: str
    rig: str
    instance: str
    began: Timestamp
    text: str
    a: str
    b: str
    found: Compared = Compared()

    def same(self, other: QualityJudgement) -> bool:
        """Whether the same was asked."""
        return (self.text, self.a, self.b) == (other.text, other.a, other.b)


def save_judgement(results: Path, judgement: QualityJudgement) -> Path:
    """Write it down. Raises UserError."""
    began = judgement.began.replace("-", "").replace(":", "")
    path = results / judgement.rig / judgement.instance / f"kld-{began}.json"
    write_whole(path, judgement.model_dump_json(indent=2).encode() + b"\n")
    return path


def saved_judgement(results: Path, like: QualityJudgement, since: datetime) -> QualityJudgement | None:
    """The newest of the same that has figures and has begun since then; what cannot be read is none."""
    folder = results / like.rig / like.instance
    try:
        with os.scandir(folder) as there:
            names = [each.name for _, each in zip(range(MOST_FILES), there, strict=False)]
    except OSError:
        return None
    whole = sorted((name for name in names if _NAME.fullmatch(name)), reverse=True)
    for name in whole[:_LOOKED_AT]:
        with suppress(UserError, ValidationError):
            found = QualityJudgement.model_validate_json(read_file(folder / name, _MOST_BYTES))
            if datetime.fromisoformat(found.began) >= since and found.same(like) and found.found.quality:
                return found
    return None


_HOLDS = timedelta(days=1)
"""How long what was measured of the same two servers counts: a run that was cut off after it need not do it again."""


@dataclass(frozen=True)
class GateOutcome:
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

    def found(self) -> GateOutcome:
        """What is known in the end: first of what it says, which takes less. Raises UserError, UnreadableKeyError."""
        quality = self._judged()
        if not self._cells or (quality and not quality.lets_in):
            return GateOutcome(quality)
        spent = quality.found.seconds if quality else 0.0
        return GateOutcome(quality, gate_rows(self.measured(spent), self.gate, spent=True))

    @property
    def _cells(self) -> tuple[str, ...]:
        return gate_cells(self.gate) if self.speed else ()

    @property
    def _serves(self) -> InstancePlan:
        return server_with(self.arms.plan_a, self.arms.b.instance.name)

    def _judged(self) -> QualityRow | None:
        """What B says beside A; None where no limit is declared, or nothing that it says can be different."""
        kld, name = self.gate.kld, self.arms.b.instance.name
        if kld is None or has_same_output(self.arms):
            return None
        if unable := not_judged(self.arms, kld):
            return unable
        now, (a, b), text = datetime.now(UTC), output_hashes(self.arms), suite().ref.sha256
        begun = QualityJudgement(
            llamaherd=__version__, rig=self.rig, instance=name, began=utc_stamp(now), text=text, a=a, b=b
        )
        if before := saved_judgement(self.results, begun, now - _HOLDS):
            self.say(f"{name}: both were read at {before.began}")
            return QualityRow(kld, before.found.model_copy(update={"seconds": 0.0}))
        found = self._read()
        save_judgement(self.results, begun.model_copy(update={"found": found}))
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
        given = arms_input((arm,), (self._serves,), seconds, self.who, others=True, text=divergence_text())

        def unit(reading: Reading, longest: int) -> str:
            return quality_unit(self.arms, reading, longest)

        with ArmsHost(self.connect, given, {"C": arm}, {"C": None}, token_hex(6), self.aside()) as host:
            return Reader(host, unit, reading_variants(self.arms)).compared(seconds)

    def measured(self, spent: float = 0.0) -> Comparison:
        """How fast both are, by what is left: from results of today, where they say it.

        Raises UserError, UnreadableKeyError.
        """
        now, session = datetime.now(UTC), token_hex(6)
        asked = trial_conditions(self._cells, self.arms.context)
        a, b = (self._begun(name, asked, session, now) for name in ("A", "B"))
        if before := finished_results(self.results, a, b, now - _HOLDS):
            found = compare_results(*before)
            if not gate_left(found, self.gate, asked):
                self.say(f"{a.instance}: both were measured at {before[0].began}")
                return found
        with closing(JournalPair(self.results, a, b)) as pair:
            self._blocks(pair, asked, self.gate.seconds - spent)
            pair.finish(utc_stamp(datetime.now(UTC)))
            return compare_results(pair.journals["A"].result, pair.journals["B"].result)

    def _begun(self, name: str, asked: tuple[Condition, ...], session: str, now: datetime) -> Result:
        """A result without runs. A is the newer one, as it is what serves."""
        first = name == "A"
        plan, arm = (self.arms.plan_a, self.arms.a) if first else (self.arms.plan_b, self.arms.b)
        began = utc_stamp(now if first else now - timedelta(seconds=1))
        return arm_result(self.rig, plan, arm, asked, session=session, began=began, declared=first)

    def _blocks(self, pair: JournalPair, asked: tuple[Condition, ...], seconds: float) -> None:
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
