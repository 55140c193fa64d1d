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

VariantName = Literal["A", "B", "C"]
"""A and B of a comparison; C is the current candidate of a search."""

LISTEN = "127.0.0.1"
_PORTS = range(60_900, 61_000)
"""Above Linux' range of ephemeral ports, and below the ports of candidates in a switch."""

SCRATCH = "/var/tmp"
"""Where a unit may write: its own one, on the disk (PrivateTmp), which systemd removes when it is stopped, and of units
of an earlier boot when the system starts (tmp.conf of its tmpfiles.d)."""


@dataclass(frozen=True)
class Variant:
    """A server to try: an instance, planned at the port of trials, and its title in messages."""

    name: VariantName
    title: str
    instance: InstancePlan

    @property
    def service(self) -> str:
        """The name of its systemd unit."""
        return arm_of(self.instance.name, self.name)


def trial_port(plan: Plan, name: str) -> int:
    """Return the port of the tried servers of an instance: always the same, and not a declared one."""
    declared = {each.endpoint.port for each in plan.instances}
    first = zlib.crc32(name.encode()) % len(_PORTS)
    turned: tuple[int, ...] = (*_PORTS[first:], *_PORTS[:first])
    return next(port for port in turned if port not in declared)


def variant_unit(arm: Variant, longest: int) -> TextFile:
    """Render the unit of a tried server: the declared unit under another name, for at most `longest` seconds."""
    server = arm.instance.server.model_copy(update={"service": arm.service})
    text = render("bench/arm.service.j2", unit=Written(render_unit(server, arm.instance.spec).text), longest=longest)
    return TextFile(path=str(BESIDE_UNITS / f"{arm.service}.service"), text=text)


def program_unit(arm: Variant, runs: Sequence[Sequence[str]], seconds: int) -> TextFile:
    """Render the unit of a tried server that runs these programs, one after the other, instead of the server.

    Each may take some seconds. The unit has the rights and limits of the server, and its own SCRATCH, which is removed
    with the unit.
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
    """Return the instances of a server: those of a group one by one."""
    return tuple(each.name for each in server.members) or (server.name,)


def server_with(plan: Plan, name: str) -> InstancePlan:
    """Return the server of an instance: its own, or that of its group."""
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
    """Return the instance as a unit with one model, at this port of the host itself, and with this time to start.

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
    """Return the systemd server of an instance: its own, or that of its group. Raise UserError."""
    found = next((each for each in plan.instances if name in unit_instances(each)), None)
    if found is None:
        group = next((each for each in plan.instances if each.name == name), None)
        if group:
            there = ", ".join(instance_names(plan))
            raise UserError(f"{rig}/{name} is a group, and a trial runs one model", f"name one of {there}")
        raise instance_name_error(plan, name)
    if found.backend != "systemd":
        raise UserError(
            f"{rig}/{name} is a container, and a trial runs units of systemd",
            "declare `backend: systemd` for it to compare it so, or compare two results of `herd bench`",
        )
    return found


def variant_instance(plan: Plan, rig: str, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """Return an instance of a plan as a tried server at this port. Raise UserError."""
    return server_at_port(unit_of(plan, rig, name), name, port, start_seconds)
