"""The virtual address: keepalived is restarted where it runs by something else, which moves the address."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.layout import ADDRESS, ADDRESS_PROGRAM, ADDRESS_UNIT, ASK_USER, UNITS
from llamaherd.plan import Plan, TextFile, VirtualAddressPlan
from llamaherd.render import render
from llamaherd.role.changes import Action, Change, RunScript, differences, put_files
from roles.virtual_address.plan import unit_spec
from roles.virtual_address.state import AddressState, UnitState

_KIND = "virtual address"


def address_changes(plan: Plan, state: HostState) -> list[Change]:
    """Make keepalived run as planned."""
    made = plan.virtual_address
    if made is None:
        return []
    unit = AddressState.of(state).unit
    restart = _restart(made, unit)
    reasons = (*restart, *differences(made.files, state), *_unsettled(unit))
    if not reasons:
        return []
    script = render(
        "virtual_address/apply.sh.j2",
        folder=ADDRESS,
        program=ADDRESS_PROGRAM,
        unit=ADDRESS_UNIT,
        user=ASK_USER,
        restart=bool(restart),
        stage=put_files(_staged(file) for file in (made.config, made.program)),
        put=put_files(made.files),
    )
    action: Action = "create" if unit is None else "restart" if restart else "update"
    says = RunScript(script, "starting what gives the gateway its virtual address")
    return [Change(action, _KIND, made.address, reasons, says)]


def address_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Take it away where the fleet has none, or has it elsewhere."""
    if plan.virtual_address or AddressState.of(state).unit is None:
        return []
    script = render("virtual_address/remove.sh.j2", unit=UNITS / ADDRESS_UNIT, folder=ADDRESS, program=ADDRESS_PROGRAM)
    why = ("this rig has no virtual address any more",)
    return [Change("remove", _KIND, ADDRESS_UNIT, why, RunScript(script, "ending the virtual address"))]


def _restart(made: VirtualAddressPlan, unit: UnitState | None) -> list[str]:
    """Why its process must be started anew."""
    if unit is None:
        return ["there is no such unit"]
    if unit.active != "active":
        return [f"it is {unit.active}"]
    wanted = unit_spec(made)
    return [] if unit.spec == wanted else [f"spec {unit.spec or 'of nothing'} runs, not {wanted}"]


def _unsettled(unit: UnitState | None) -> list[str]:
    """What else is not as it must be."""
    why = []
    if unit and unit.enabled != "enabled":
        why.append(f"it is {unit.enabled or 'not enabled'}")
    if unit and unit.needs_reload:
        why.append("systemd has not read its file anew")
    return why


def _staged(file: TextFile) -> TextFile:
    """The file in the folder where it is tried."""
    name = file.path.rpartition("/")[2]
    return file.model_copy(update={"path": f"{ADDRESS}.new/{name}"})
