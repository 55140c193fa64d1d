"""The gates of a run: measure a changed server and the running one, and reject a change that costs too much."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.api.command import PyinfraCommand
from typing_extensions import override

from llamaherd.deploy.commands import RefuseCommand, VerbCommand
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Connect
from llamaherd.measure.results.store import results_folder
from llamaherd.measure.trials.divergence import Compared
from llamaherd.measure.trials.gate import UNJUDGED, GateOutcome, GateRun, QualityRow, gate_pair, has_same_speed
from llamaherd.measure.trials.trial import NotStartedError
from llamaherd.pipeline.history import NEWEST_RELEASES, query_past
from llamaherd.pipeline.release import Origin, Past
from llamaherd.plan import GatePlan, Plan
from llamaherd.role.changes import Gated
from llamaherd.text.terminal import plain

_SLOWER = "change the inventory, `gate` with it, or `herd up --retry` to have it as slow as it is"
_BEYOND = "change the inventory, `gate` with it, or `herd up --retry` to have it as it is"


class GateCommand(PyinfraCommand):
    """Measures both servers; fails its host where what is declared costs too much, and has the host remember it.

    What could not be judged is not remembered: the next run may be able to.
    """

    def __init__(self, gated: Gated) -> None:
        super().__init__()
        self.gated = gated

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        gate = self.gated.instance.gate
        assert gate
        try:
            found = _Gate(host, self.gated, gate).found()
        except UserError as error:
            return RefuseCommand([str(error)]).execute(state, host, connector_arguments)
        if found.lets_in:
            return True
        why, way_out, remembered = _gate_refusal(found)
        if remembered:
            VerbCommand(self.gated.refused(why)).execute(state, host, dict(connector_arguments))
        sentence = f"{self.gated.instance.name} serves as before, and not as declared: {why}\n  help: {way_out}"
        return RefuseCommand([sentence]).execute(state, host, connector_arguments)


def plan_with_server(past: Past, name: str, spec: str) -> Plan | None:
    """The newest plan of a host with this server, by its name and its spec; None where the host keeps none."""
    plans = (past.plans[number] for number in sorted(past.plans, reverse=True))
    return next((plan for plan in plans for each in plan.instances if (each.name, each.spec) == (name, spec)), None)


def _gate_refusal(found: GateOutcome) -> tuple[str, str, bool]:
    """Why it is not let in, what a person can do, and whether the host is to remember it."""
    if found.slower:
        return f"it is slower than what serves: {'; '.join(map(str, found.slower))}", _SLOWER, True
    assert found.quality
    if found.quality.verdict == "not judged":
        return str(found.quality), found.quality.way_out, False
    return f"it says other things than what serves: {found.quality}", _BEYOND, True


@dataclass(frozen=True)
class _Gate:
    """What is measured on one host."""

    host: Host
    gated: Gated
    gate: GatePlan

    def found(self) -> GateOutcome:
        """What is known of both; nothing where neither is measured. Raises UserError."""
        name, data = self.gated.instance.name, self.host.data
        was = self._was()
        if was is None:
            says = f"nothing is known here of what serves, {self.gated.was}"
            if self.gate.kld is not None:
                return GateOutcome(QualityRow(self.gate.kld, Compared(says=says), UNJUDGED))
            self._say(f"{name} is not measured by its gate: {says}")
            return GateOutcome()
        plan = Plan.model_validate(data.plan)
        pair = gate_pair(self._connect, was, plan, name)
        if has_same_speed(pair):
            return GateOutcome()
        by, results = Origin.model_validate(data.rig_origin), results_folder(Path(data.inventory))
        try:
            found = GateRun(pair, self.gate, results, by.who, self._say, speed=self.gated.speed).measure()
        except NotStartedError as error:
            # What is declared shows in its switch why it does not start; what serves may be a GPU short by now.
            self._say(f"{name} is not measured by its gate: {error.message}")
            return GateOutcome()
        for line in found.told:
            self._say(f"{name}: {line}")
        return found

    def _was(self) -> Plan | None:
        """The plan of what serves, as its host keeps it."""
        past = query_past(self._connect, newest=NEWEST_RELEASES)
        return plan_with_server(past, self.gated.instance.name, self.gated.was)

    @property
    def _connect(self) -> Connect:
        return Connect.model_validate(self.host.data.rig_connect)

    def _say(self, line: str) -> None:
        logger.info(f"{self.host.print_prefix}{plain(line)}")
