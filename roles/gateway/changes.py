"""The gateway: restarted where its unit is another, reloaded where its configuration is, and only told where users
are."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.state import HostState
from llamaherd.layout import GATEWAY_UNIT
from llamaherd.plan import GatewayPlan, Plan, TextFile
from llamaherd.role.changes import Action, Change, RunVerb, differences, differs, reads_otherwise, written_files
from llamaherd.role.service import restart_reasons, unsettled
from roles.gateway.config import GatewayKeys, certificate, configuration, maps, reader, spec_of
from roles.gateway.keys import read_keys
from roles.gateway.onhost import ApplyInput, How, RemoveInput
from roles.gateway.plan import unit_spec
from roles.gateway.state import GatewayState


def gateway_changes(plan: Plan, state: HostState) -> list[Change]:
    """Make the gateway run as planned. Raises UserError where a key cannot be read."""
    return changes_with(plan.gateway, state, read_keys(plan.gateway)) if plan.gateway else []


def changes_with(plan: GatewayPlan, state: HostState, keys: GatewayKeys) -> list[Change]:
    """The same with these keys."""
    config, people = configuration(plan, keys), list(maps(plan, keys))
    reloaded = [config, reader(), *certificate(keys)]
    private = [*reloaded, *people]
    spec = spec_of(config.text)
    gateway = GatewayState.of(state)
    # It ends its streams.
    restart = restart_reasons(gateway.unit, unit_spec(plan))
    reload = [] if restart else _reload(gateway, spec, reloaded, state)
    told = [] if restart or reload else _told(gateway, people, state)
    changed = [file for file in (*private, plan.unit, plan.talk) if differs(file, state)]
    reasons = (*dict.fromkeys((*restart, *reload, *told, *differences(changed, state), *_unsettled(gateway))),)
    if not reasons:
        return []
    how: How = "restart" if restart else "reload" if reload else "maps"
    given = ApplyInput(
        files=written_files(private),
        outside=written_files([plan.unit, plan.talk]),
        spec=spec,
        how=how,
        idle_own=gateway.idle_own,
    )
    action: Action = "create" if gateway.unit is None else "restart" if restart else "update"
    name = GATEWAY_UNIT.removesuffix(".service")
    return [Change(action, "gateway", name, reasons, RunVerb("gateway.apply", given, _SAYS[how]))]


def gateway_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Take it away where the fleet has its gateway elsewhere, or none."""
    if plan.gateway or GatewayState.of(state).unit is None:
        return []
    why = ("this rig is no gateway any more",)
    how = RunVerb("gateway.remove", RemoveInput(), "ending the gateway")
    return [Change("remove", "gateway", GATEWAY_UNIT, why, how)]


_SAYS = {
    "restart": "starting the gateway",
    "reload": "reloading the gateway",
    "maps": "telling the gateway who may use it",
}


def _reload(gateway: GatewayState, spec: str, files: Sequence[TextFile], state: HostState) -> list[str]:
    """Why it must read its configuration anew, which cuts no stream."""
    why = [f"{file.path} has another text" for file in files if reads_otherwise(file, state)]
    if gateway.running is None:
        return [*why, "it does not say what it has read"]
    running = f"{gateway.running.spec}/{gateway.running.port}"
    # What has another text says already that it must read anew.
    return why if why or running == spec else [f"it has read {running}, not {spec}"]


def _told(gateway: GatewayState, people: Sequence[TextFile], state: HostState) -> list[str]:
    """Why it must be told of users."""
    why = [f"{file.path} has another text" for file in people if reads_otherwise(file, state)]
    if gateway.running and not gateway.running.maps_are_read:
        why.append("it has read other users than those of its files")
    return why


def _unsettled(gateway: GatewayState) -> list[str]:
    """What else is not as it must be."""
    why = ["the distribution's own haproxy.service runs beside it, and serves nobody"] if gateway.idle_own else []
    return [*why, *unsettled(gateway.unit)]
