"""Render each server of a trial as its own systemd unit."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llamaherd.diagnostics.findings import UserError
from llamaherd.layout import BESIDE_UNITS, arm_of
from llamaherd.plan import InstancePlan, Plan, TextFile
from llamaherd.plan.backends import render_unit, server_definition
from llamaherd.plan.plan import instance_name_error, instance_names, instances_of
from llamaherd.render import render
from llamaherd.text.quoting import Written

ArmName = Literal["A", "B", "C"]
"""A and B of a comparison; C is whichever candidate a search tries just then."""

LISTEN = "127.0.0.1"
_PORTS = range(60_900, 61_000)
"""Above the ports that Linux gives away by itself, and below those of servers that are tried in a switch."""

SCRATCH = "/var/tmp"
"""Where a unit may write: its own one, on the disk (PrivateTmp), which systemd removes when it is stopped, and of units
of an earlier boot when the system starts (tmp.conf of its tmpfiles.d)."""


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: an instance as it is planned at the port of the arms, and what people call it."""

    name: ArmName
    title: str
    instance: InstancePlan

    @property
    def service(self) -> str:
        """Its name to systemd."""
        return arm_of(self.instance.name, self.name)


def arms_port(plan: Plan, name: str) -> int:
    """Where both arms listen: the same port each time, and no declared one."""
    declared = {each.endpoint.port for each in plan.instances}
    first = zlib.crc32(name.encode()) % len(_PORTS)
    turned: tuple[int, ...] = (*_PORTS[first:], *_PORTS[:first])
    return next(port for port in turned if port not in declared)


def arm_unit(arm: Arm, longest: int) -> TextFile:
    """The unit of an arm: as the declared one is, under another name, and for so many seconds at most."""
    server = arm.instance.server.model_copy(update={"service": arm.service})
    text = render("bench/arm.service.j2", unit=Written(render_unit(server, arm.instance.spec).text), longest=longest)
    return TextFile(path=str(BESIDE_UNITS / f"{arm.service}.service"), text=text)


def run_unit(arm: Arm, runs: Sequence[Sequence[str]], seconds: int) -> TextFile:
    """The unit of an arm that runs these programs with their arguments, one after the other, instead of a server.

    Each may take so many seconds. It has all that the server has, and its own SCRATCH, which goes with the unit.
    """
    server = arm.instance.server.model_copy(update={"service": arm.service})
    text = render(
        "bench/arm-run.service.j2",
        unit=Written(render_unit(server, arm.instance.spec).text),
        runs=runs,
        seconds=seconds,
    )
    return TextFile(path=str(BESIDE_UNITS / f"{arm.service}.service"), text=text)


def unit_instances(server: InstancePlan) -> tuple[str, ...]:
    """The instances that a server is: those of a group one by one."""
    return tuple(each.name for each in server.members) or (server.name,)


def server_with(plan: Plan, name: str) -> InstancePlan:
    """The server that an instance is, or is one of."""
    return next(each for each in plan.instances if name in unit_instances(each))


def server_at_port(server: InstancePlan, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """Return an instance of a server as it is planned, but for its own host alone and at this port.

    It is placed after the plan: an inventory with another `listen` would be another fleet, with other keys. Raises
    UserError where its arguments do not contain where it listens.
    """
    if server.members:
        return standalone_server(server, name, port, start_seconds)
    places = {"--host": LISTEN, "--port": str(port)}
    if missing := next((flag for flag in places if flag not in server.server.arguments[:-1]), None):
        raise UserError(f"the arguments of {name} have no `{missing}`", "let `listen` and `port` set it")
    update = {
        "arguments": _with_addresses(server.server.arguments, places),
        "endpoint": server.endpoint.model_copy(update={"listen": LISTEN, "port": port}),
    }
    return server.model_copy(update={"server": server.server.model_copy(update=update)})


def standalone_server(group: InstancePlan, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """The instance as a unit that has that one model, at this port of the host itself, which may take so long to start.

    It runs as the group's user, on its GPUs, with its key.
    """
    one = next(each for each in instances_of(group) if each.name == name)
    server = one.server.model_copy(
        update={
            "arguments": _with_addresses(one.server.arguments, {"--host": LISTEN, "--port": str(port)}),
            "endpoint": one.endpoint.model_copy(update={"listen": LISTEN, "port": port, "swaps": False}),
            "folders": tuple(each for each in (one.model_folder, one.draft_folder) if each),
            "start_seconds": start_seconds or one.server.start_seconds,
        }
    )
    spec, unit = server_definition("systemd", server)
    return one.model_copy(update={"server": server, "spec": spec, "file": unit, "preset": None})


def _with_addresses(arguments: tuple[str, ...], places: dict[str, str]) -> tuple[str, ...]:
    before = (None, *arguments)
    return tuple(places.get(flag or "", word) for flag, word in zip(before, arguments, strict=False))


def unit_of(plan: Plan, rig: str, name: str) -> InstancePlan:
    """The unit of systemd that has an instance: its own, or that of its group. Raises UserError."""
    found = next((each for each in plan.instances if name in unit_instances(each)), None)
    if found is None:
        group = next((each for each in plan.instances if each.name == name), None)
        if group:
            there = ", ".join(instance_names(plan))
            raise UserError(f"{rig}/{name} is a group, and arms have one model each", f"name one of {there}")
        raise instance_name_error(plan, name)
    if found.backend != "systemd":
        raise UserError(
            f"{rig}/{name} is a container, and arms are units of systemd",
            "declare `backend: systemd` for it to compare it so, or compare two results of `herd bench`",
        )
    return found


def arm_instance(plan: Plan, rig: str, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """An instance of a plan as an arm that listens at this port. Raises UserError."""
    return server_at_port(unit_of(plan, rig, name), name, port, start_seconds)
