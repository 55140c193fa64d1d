"""A server's gate in a run: what serves and what is declared are measured, and what is too slow is not let in."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.api.command import PyinfraCommand
from typing_extensions import override

from llamaherd.bench.arms.blocks import BlockDone, Blocks
from llamaherd.bench.arms.cells import conditions
from llamaherd.bench.arms.gate import GateArms, GateRow, gate_arms, gate_cells, gate_left, gate_rows
from llamaherd.bench.arms.host import ArmsHost, NotStartedError
from llamaherd.bench.arms.results import Pair, arm_result, measured_before
from llamaherd.bench.arms.units import arms_script
from llamaherd.bench.comparing.compare import Comparison, compare
from llamaherd.bench.results.result import Result
from llamaherd.bench.results.store import results_folder
from llamaherd.deploy.commands import RefuseCommand, ScriptCommand
from llamaherd.diagnostics.findings import UserError
from llamaherd.history.release import Origin
from llamaherd.inventory.keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline.history_ask import ask_past
from llamaherd.pipeline.rollback import NEWEST
from llamaherd.plan import GatePlan, Plan
from llamaherd.role.changes import Gated, RunScript
from llamaherd.text.terminal import plain
from llamaherd.text.units import show_seconds

_HOLDS = timedelta(days=1)
"""How long what was measured of the same two servers counts: a run that was cut off after it need not do it again."""

_WAY_OUT = "change the inventory, `gate` with it, or `herd up --retry` to have it as slow as it is"


class GateCommand(PyinfraCommand):
    """Measures both servers; fails its host where what is declared is too slow, and has the host remember it."""

    def __init__(self, gated: Gated) -> None:
        super().__init__()
        self.gated = gated

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        gate = self.gated.instance.gate
        assert gate
        try:
            slower = _Gate(host, self.gated, gate).slower()
        except (UserError, UnreadableKeyError) as error:
            return RefuseCommand([str(error)]).execute(state, host, connector_arguments)
        if not slower:
            return True
        name, why = self.gated.instance.name, f"it is slower than what serves: {'; '.join(map(str, slower))}"
        remember = RunScript(self.gated.refused(why))
        ScriptCommand(remember).execute(state, host, dict(connector_arguments))
        sentence = f"{name} serves as before, and not as declared: {why}\n  help: {_WAY_OUT}"
        return RefuseCommand([sentence]).execute(state, host, connector_arguments)


@dataclass(frozen=True)
class _Gate:
    """What is measured on one host."""

    host: Host
    gated: Gated
    gate: GatePlan

    def slower(self) -> tuple[GateRow, ...]:
        """The cells in which what is declared is too slow; none where it is let in. Raises UserError."""
        name = self.gated.instance.name
        was = self._was()
        if was is None:
            self._say(f"{name} is not measured by its gate: nothing is known here of what serves, {self.gated.was}")
            return ()
        arms = gate_arms(was, Plan.model_validate(self.host.data.plan), name)
        if arms.alike:
            return ()
        try:
            found = self._measured(arms)
        except NotStartedError as error:
            # What is declared shows in its switch why it does not start; what serves may be a GPU short by now.
            self._say(f"{name} is not measured by its gate: {error.message}")
            return ()
        rows = gate_rows(found, self.gate, spent=True)
        for row in rows:
            self._say(f"{name}: {row}: {row.verdict}")
        return tuple(row for row in rows if row.verdict == "slower")

    def _was(self) -> Plan | None:
        """The plan of what serves, as its host keeps it."""
        past = ask_past(self._connect, newest=NEWEST)
        name, was = self.gated.instance.name, self.gated.was
        plans = (past.plans[number] for number in sorted(past.plans, reverse=True))
        return next((plan for plan in plans for each in plan.instances if (each.name, each.spec) == (name, was)), None)

    def _measured(self, arms: GateArms) -> Comparison:
        now, session = datetime.now(UTC), token_hex(6)
        asked = conditions(gate_cells(self.gate), arms.context)

        def begun(name: str) -> Result:
            first = name == "A"
            plan, arm = (arms.plan_a, arms.a) if first else (arms.plan_b, arms.b)
            began = _stamp(now if first else now - timedelta(seconds=1))
            return arm_result(self.host.name, plan, arm, asked, session=session, began=began, declared=first)

        results = results_folder(Path(self.host.data.inventory))
        a, b = begun("A"), begun("B")
        if before := measured_before(results, a, b, now - _HOLDS):
            found = compare(*before)
            if not gate_left(found, self.gate, asked):
                self._say(f"{self.gated.instance.name}: both were measured at {before[0].began}")
                return found
        with closing(Pair(results, a, b)) as pair:
            self._blocks(arms, pair)
            pair.finish(_stamp(datetime.now(UTC)))
            return compare(pair.journals["A"].result, pair.journals["B"].result)

    def _blocks(self, arms: GateArms, pair: Pair) -> None:
        instance, budget = self.gated.instance, self.gate.seconds
        serves = next(each for each in arms.plan_a.instances if each.name == instance.name)
        self._say(
            f"{instance.name}: its gate measures what serves and what is declared, for {show_seconds(budget)} at most; "
            "what serves is stopped meanwhile, and comes back whatever ends this"
        )
        key = read_key(instance.endpoint.key) if instance.endpoint.key else None
        both = (arms.a, arms.b)
        by = Origin.model_validate(self.host.data.rig_origin)
        script = arms_script(both, (serves,), budget, f"{by.user} on {by.machine}")
        asked = [cell.condition for cell in pair.journals["A"].result.cells]
        names = {each.name: each for each in both}
        with ArmsHost(self._connect, script, names, dict.fromkeys(names, key), pair.session) as servers:
            Blocks(
                servers,
                pair.journals,
                asked,
                pair.session,
                budget,
                self._tell,
                lambda found: gate_left(found, self.gate, asked),
            ).measured()

    def _tell(self, done: BlockDone) -> None:
        known = "all is known" if not done.left else f"{done.left} not known yet"
        self._say(f"block {done.number + 1}, {' then '.join(done.order)}: {show_seconds(done.seconds)}; {known}")

    @property
    def _connect(self) -> Connect:
        return Connect.model_validate(self.host.data.rig_connect)

    def _say(self, line: str) -> None:
        logger.info(f"{self.host.print_prefix}{plain(line)}")


def _stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
