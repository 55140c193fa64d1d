"""A server's gate in a run: what serves and what is declared are measured, and what is too slow is not let in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.api.command import PyinfraCommand
from typing_extensions import override

from llamaherd.bench.arms.gate import GateRow, gate_arms, gate_rows
from llamaherd.bench.arms.host import NotStartedError
from llamaherd.bench.arms.measure import GateRun
from llamaherd.bench.results.store import results_folder
from llamaherd.deploy.commands import RefuseCommand, ScriptCommand
from llamaherd.diagnostics.findings import UserError
from llamaherd.history.release import Origin
from llamaherd.inventory.keys import UnreadableKeyError
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline.history_ask import ask_past
from llamaherd.pipeline.rollback import NEWEST
from llamaherd.plan import GatePlan, Plan
from llamaherd.role.changes import Gated, RunScript
from llamaherd.text.terminal import plain

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
        name, data = self.gated.instance.name, self.host.data
        was = self._was()
        if was is None:
            self._say(f"{name} is not measured by its gate: nothing is known here of what serves, {self.gated.was}")
            return ()
        plan = Plan.model_validate(data.plan)
        arms = gate_arms(was, plan, name)
        if arms.alike:
            return ()
        by, results = Origin.model_validate(data.rig_origin), results_folder(Path(data.inventory))
        run = GateRun(arms, self.gate, plan.rig, self._connect, results, by.who, self._say)
        try:
            found = run.measured()
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

    @property
    def _connect(self) -> Connect:
        return Connect.model_validate(self.host.data.rig_connect)

    def _say(self, line: str) -> None:
        logger.info(f"{self.host.print_prefix}{plain(line)}")
