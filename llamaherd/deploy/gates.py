"""The gates of a run: measure servers before and after a change, and reject or revert one that costs too much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.api.command import PyinfraCommand
from typing_extensions import override

from llamaherd.deploy.commands import RebootHostCommand, RefuseCommand, VerbCommand
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.drain import drained
from llamaherd.inventory.api_keys import UnreadableKeyError
from llamaherd.inventory.schema import Connect
from llamaherd.measure.client.suite import suite
from llamaherd.measure.results.store import results_folder
from llamaherd.measure.trials.divergence import Compared
from llamaherd.measure.trials.gate import UNJUDGED, QualityRow, gate_arms
from llamaherd.measure.trials.gate_run import GateOutcome, GateRun
from llamaherd.measure.trials.host import NotStartedError
from llamaherd.measure.trials.restarts import BootReading, BootSide, ServerReading, parse_boot_reading
from llamaherd.pipeline.history import NEWEST_RELEASES, query_past
from llamaherd.pipeline.release import Origin, Past
from llamaherd.plan import GatePlan, InstancePlan, Plan
from llamaherd.role.changes import Gated, JudgedSince, MeasuredBefore
from llamaherd.text.numbers import utc_stamp
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
        except (UserError, UnreadableKeyError) as error:
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
        arms = gate_arms(was, plan, name)
        if arms.alike:
            return GateOutcome()
        by, results = Origin.model_validate(data.rig_origin), results_folder(Path(data.inventory))
        connect, speed = self._connect, self.gated.speed
        run = GateRun(arms, self.gate, plan.rig, connect, results, by.who, self._say, speed=speed)
        try:
            found = run.found()
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


_MOST_LETTERS = 600
"""Of why a driver went back."""


class MeasureBeforeCommand(PyinfraCommand):
    """Measures servers as they serve, and has their host keep it. What cannot be measured is said, and not judged."""

    def __init__(self, measured: MeasuredBefore) -> None:
        super().__init__()
        self.measured = measured

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        servers = tuple(_readings(_Measuring(host), self.measured))
        text = ""
        if servers:
            reading = BootReading(
                driver=self.measured.driver,
                at=utc_stamp(datetime.now(UTC)),
                suite=suite().ref.sha256,
                servers=servers,
            )
            text = reading.model_dump_json()
        keep = VerbCommand(self.measured.keep(text))
        done: bool = keep.execute(state, host, dict(connector_arguments))[0]
        return done


class JudgeDriverCommand(PyinfraCommand):
    """Measures servers again; takes their driver back where one is slower by it, or does not start any more.

    It fails its host then, and where they could not be measured, of which the next run hears.
    """

    def __init__(self, judged: JudgedSince) -> None:
        super().__init__()
        self.judged = judged

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        judged, measuring = self.judged, _Measuring(host)
        reading = parse_boot_reading(judged.reading)
        if reading is None or reading.driver != judged.before or reading.suite != suite().ref.sha256:
            measuring.say(f"driver {judged.driver} stays unjudged: what was measured before it is gone, or is no such")
            return True
        VerbCommand(judged.settled).execute(state, host, dict(connector_arguments))
        try:
            # The host keeps it in a field of a line.
            why = " ".join("; ".join(_slower(measuring, reading)).split())[:_MOST_LETTERS]
        except (UserError, UnreadableKeyError) as error:
            sentence = f"driver {judged.driver} is not judged yet: {error}"
            return RefuseCommand([sentence]).execute(state, host, connector_arguments)
        if not why:
            return True
        back = RebootHostCommand(judged.back(why), f"back to driver {judged.before}: {why}")
        return back.execute(state, host, connector_arguments)


@dataclass(frozen=True)
class _Measuring:
    """What is measured on one host."""

    host: Host

    def side(self, past: Past, name: str, spec: str) -> BootSide | None:
        """A server by the plan that its host keeps of it, and by the gate of today; None where one of both is none."""
        plan, declared = plan_with_server(past, name, spec), self._declared(name)
        if plan is None or declared is None or declared.gate is None:
            return None
        by = Origin.model_validate(self.host.data.rig_origin)
        aside = partial(drained, Path(self.host.data.inventory), plan, _instances_named(plan, name), self.say)
        return BootSide(plan, name, declared.gate, self.connect, by.who, self.say, aside)

    @property
    def connect(self) -> Connect:
        """The way to it."""
        return Connect.model_validate(self.host.data.rig_connect)

    def say(self, line: str) -> None:
        """Tell people."""
        logger.info(f"{self.host.print_prefix}{plain(line)}")

    def _declared(self, name: str) -> InstancePlan | None:
        plan = Plan.model_validate(self.host.data.plan)
        return next(iter(_instances_named(plan, name)), None)


def _instances_named(plan: Plan, name: str) -> tuple[InstancePlan, ...]:
    return tuple(each for each in plan.instances if each.name == name)


def _readings(measuring: _Measuring, measured: MeasuredBefore) -> Iterator[ServerReading]:
    """What is known of servers before; one that cannot be measured is said not to be judged."""
    try:
        past = query_past(measuring.connect, newest=NEWEST_RELEASES)
    except UserError as error:
        measuring.say(f"no driver is judged by servers' gates: {error.message}")
        return
    for instance, spec in measured.servers:
        side = measuring.side(past, instance.name, spec)
        if side is None:
            measuring.say(f"{instance.name} does not judge the driver: nothing is known here of what serves, {spec}")
            continue
        try:
            yield side.before()
        except (UserError, UnreadableKeyError) as error:
            measuring.say(f"{instance.name} does not judge the driver: {str(error).splitlines()[0]}")


def _slower(measuring: _Measuring, reading: BootReading) -> Iterator[str]:
    """Why the driver must go, of each server; all that was measured is said. Raises UserError, UnreadableKeyError."""
    past = query_past(measuring.connect, newest=NEWEST_RELEASES)
    for before in reading.servers:
        name = before.instance
        side = measuring.side(past, name, before.spec)
        if side is None:
            measuring.say(f"{name} does not judge the driver: it has no gate any more, or is not what was measured")
            continue
        try:
            rows = side.since(before)
        except NotStartedError as error:
            yield f"{name} does not start by it: {error.says}"
            continue
        for row in rows:
            measuring.say(f"{name}: {row}: {row.verdict}")
        if slower := [str(row) for row in rows if row.verdict == "slower"]:
            yield f"{name} is slower by it: {', '.join(slower)}"
