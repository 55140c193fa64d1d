"""A driver's gate in a run: servers are measured before it is changed and after, and one that slows them goes back."""

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

from llamaherd.bench.arms.boot_measure import BootSide
from llamaherd.bench.arms.boots import BootReading, ServerReading, read_reading
from llamaherd.bench.arms.host import NotStartedError
from llamaherd.bench.asking.suite import suite
from llamaherd.deploy.commands import RebootHostCommand, RefuseCommand, VerbCommand
from llamaherd.deploy.gating import plan_of
from llamaherd.diagnostics.findings import UserError
from llamaherd.gateway.aside import measured_aside
from llamaherd.history.release import Origin, Past
from llamaherd.inventory.keys import UnreadableKeyError
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline.history_ask import ask_past
from llamaherd.pipeline.rollback import NEWEST
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import JudgedSince, MeasuredBefore
from llamaherd.text.terminal import plain
from llamaherd.text.units import utc_stamp

_LETTERS = 600
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
        reading = read_reading(judged.reading)
        if reading is None or reading.driver != judged.before or reading.suite != suite().ref.sha256:
            measuring.say(f"driver {judged.driver} stays unjudged: what was measured before it is gone, or is no such")
            return True
        VerbCommand(judged.settled).execute(state, host, dict(connector_arguments))
        try:
            # The host keeps it in a field of a line.
            why = " ".join("; ".join(_slower(measuring, reading)).split())[:_LETTERS]
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
        plan, declared = plan_of(past, name, spec), self._declared(name)
        if plan is None or declared is None or declared.gate is None:
            return None
        by = Origin.model_validate(self.host.data.rig_origin)
        aside = partial(measured_aside, Path(self.host.data.inventory), plan, _named(plan, name), self.say)
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
        return next(iter(_named(plan, name)), None)


def _named(plan: Plan, name: str) -> tuple[InstancePlan, ...]:
    return tuple(each for each in plan.instances if each.name == name)


def _readings(measuring: _Measuring, measured: MeasuredBefore) -> Iterator[ServerReading]:
    """What is known of servers before; one that cannot be measured is said not to be judged."""
    try:
        past = ask_past(measuring.connect, newest=NEWEST)
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
    past = ask_past(measuring.connect, newest=NEWEST)
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
