"""The virtual address: keepalived is restarted where it runs by something else, which moves the address."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.layout import ADDRESS, ADDRESS_PROGRAM, ADDRESS_UNIT, ASK_USER, UNITS
from llamaherd.plan import Plan, TextFile
from llamaherd.render import render
from llamaherd.role.changes import Action, Change, RunScript, differences, put_files
from llamaherd.role.service import restart_reasons, unsettled
from roles.virtual_address.plan import unit_spec
from roles.virtual_address.state import AddressState

_KIND = "virtual address"


def address_changes(plan: Plan, state: HostState) -> list[Change]:
    """Make keepalived run as planned."""
    made = plan.virtual_address
    if made is None:
        return []
    unit = AddressState.of(state).unit
    restart = restart_reasons(unit, unit_spec(made))
    reasons = (*restart, *differences(made.files, state), *unsettled(unit))
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


def _staged(file: TextFile) -> TextFile:
    """The file in the folder where it is tried."""
    name = file.path.rpartition("/")[2]
    return file.model_copy(update={"path": f"{ADDRESS}.new/{name}"})
