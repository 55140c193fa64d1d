"""Place a planned server where arms listen: for its own host alone, and one of a group as a server of its own. Pure."""

from __future__ import annotations

from llamaherd.backends import definition
from llamaherd.bench.arms.units import LISTEN
from llamaherd.diagnostics.findings import UserError
from llamaherd.plan import InstancePlan, Plan
from llamaherd.plan.loaded import instances_of


def names_in(server: InstancePlan) -> tuple[str, ...]:
    """The instances that a server is: those of a group one by one."""
    return tuple(each.name for each in server.members) or (server.name,)


def server_of(plan: Plan, name: str) -> InstancePlan:
    """The server that an instance is, or is one of."""
    return next(each for each in plan.instances if name in names_in(each))


def at_port(server: InstancePlan, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """Return an instance of a server as it is planned, but for its own host alone and at this port.

    It is placed after the plan: an inventory with another `listen` would be another fleet, with other keys. Raises
    UserError where its arguments do not contain where it listens.
    """
    if server.members:
        return alone(server, name, port, start_seconds)
    places = {"--host": LISTEN, "--port": str(port)}
    if missing := next((flag for flag in places if flag not in server.server.arguments[:-1]), None):
        raise UserError(f"the arguments of {name} have no `{missing}`", "let `listen` and `port` set it")
    update = {
        "arguments": _placed(server.server.arguments, places),
        "endpoint": server.endpoint.model_copy(update={"listen": LISTEN, "port": port}),
    }
    return server.model_copy(update={"server": server.server.model_copy(update=update)})


def alone(group: InstancePlan, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """The instance as a unit that has that one model, at this port of the host itself, which may take so long to start.

    It runs as the group's user, on its GPUs, with its key.
    """
    one = next(each for each in instances_of(group) if each.name == name)
    server = one.server.model_copy(
        update={
            "arguments": _placed(one.server.arguments, {"--host": LISTEN, "--port": str(port)}),
            "endpoint": one.endpoint.model_copy(update={"listen": LISTEN, "port": port, "swaps": False}),
            "folders": tuple(each for each in (one.model_folder, one.draft_folder) if each),
            "start_seconds": start_seconds or one.server.start_seconds,
        }
    )
    spec, unit = definition("systemd", server)
    return one.model_copy(update={"server": server, "spec": spec, "file": unit, "preset": None})


def _placed(arguments: tuple[str, ...], places: dict[str, str]) -> tuple[str, ...]:
    before = (None, *arguments)
    return tuple(places.get(flag or "", word) for flag, word in zip(before, arguments, strict=False))
