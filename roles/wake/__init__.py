"""Wake: a gateway's host can send wake-on-LAN packets to rigs that sleep, by a socket of systemd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState, StatePart
from llamaherd.layout import GATEWAY_USER, UNITS, WAKE_PROGRAM, WAKE_RUN, WAKE_SOCKET, WAKE_TABLE, WAKE_UNIT
from llamaherd.onhost.verbs import NoInput
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Estimate, GatewayPlan, Plan, TextFile
from llamaherd.render import render
from llamaherd.role.changes import Action, Change, RunVerb, file_differences, file_differs, written_files
from llamaherd.role.report import Check, service_check, service_probe
from llamaherd.role.role import Inspection, Role, Task, Verified
from roles.wake.onhost import ApplyInput, Found


@dataclass(frozen=True)
class WakeState(Found, StatePart):
    """The socket through which the gateway requests packets."""


def wake_files(made: GatewayPlan | None) -> tuple[TextFile, ...]:
    """Return the units, the program and its table; nothing without a rig that can be woken."""
    if made is None or not made.wakes:
        return ()
    socket = render("wake/wake.socket.j2", rig=made.rig, socket=WAKE_RUN, user=GATEWAY_USER)
    service = render("wake/wake.service.j2", rig=made.rig, program=WAKE_PROGRAM)
    table = "".join(f"{each.rig} {each.mac}\n" for each in made.wakes)
    return (
        TextFile(path=str(UNITS / WAKE_SOCKET), text=socket),
        TextFile(path=str(UNITS / WAKE_UNIT), text=service),
        TextFile(path=str(WAKE_PROGRAM), text=render("wake/wake.py"), mode="0755"),
        TextFile(path=str(WAKE_TABLE), text=table),
    )


def wake_changes(plan: Plan, state: HostState) -> list[Change]:
    """Return the change that applies the planned units, program and table."""
    files = wake_files(plan.gateway)
    if not files:
        return []
    socket = WakeState.of(state).socket
    restart = socket != "active" or file_differs(files[0], state)
    stopped = () if socket in ("", "active") else (f"its socket is {socket}",)
    reasons = (*file_differences(files, state), *stopped)
    if not reasons and not restart:
        return []
    given = ApplyInput(files=written_files(files), restart=restart)
    action: Action = "update" if socket else "create"
    how = RunVerb("wake.apply", given, "applying what wakes rigs")
    return [Change(action, "wake", "rigs that sleep", reasons or ("it is not there",), how)]


def wake_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Return the change that removes it where no rig can be woken any more."""
    if wake_files(plan.gateway) or not WakeState.of(state).socket:
        return []
    how = RunVerb("wake.remove", NoInput(), "removing what wakes rigs")
    return [Change("remove", "wake", WAKE_SOCKET, ("no rig of this fleet is woken any more",), how)]


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield the probe of the socket."""
    if wake_files(plan.gateway):
        yield service_probe("wake socket", WAKE_SOCKET)


def wake_checks(plan: Plan, outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield the check of the socket, without which the gateway wakes no rig."""
    if wake_files(plan.gateway):
        yield service_check("wake", outputs.get(("wake socket", ""), ""), WAKE_SOCKET)


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """Yield the rigs that this gateway wakes."""
    for each in plan.gateway.wakes if plan.gateway else ():
        yield f"  wakes      {each.rig} ({each.mac}), by a wake-on-LAN packet"


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield the task, before the gateway's. If it fails, all others go on: no rig is woken then."""
    if wake_files(plan.gateway):
        yield Task("wake rigs that sleep", lambda state, _: wake_changes(plan, state), alone=True)


ROLE = Role(
    name="wake",
    summary="The gateway can wake rigs that sleep.",
    brings=lambda plan: wake_files(plan.gateway),
    # Also where none is declared any more: what an earlier run has left is removed.
    inspection=Inspection("wake.inspect", lambda plan: NoInput() if plan.of_fleet else None, WakeState),
    leftovers=wake_leftovers,
    tasks=tasks,
    probes=probes,
    judge=lambda judging: Verified(tuple(wake_checks(judging.plan, judging.outputs))),
    describe=describe,
)
