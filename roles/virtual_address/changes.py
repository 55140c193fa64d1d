"""The virtual address: keepalived is restarted where it runs by something else, which moves the address."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.layout import ADDRESS_UNIT
from llamaherd.plan import Plan
from llamaherd.role.changes import Action, Change, RunVerb, differences, written_files
from llamaherd.role.service import restart_reasons, unsettled
from roles.virtual_address.onhost import ApplyInput, RemoveInput
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
    config, program, unit_file = written_files([made.config, made.program, made.unit])
    given = ApplyInput(config=config, program=program, unit=unit_file, restart=bool(restart))
    action: Action = "create" if unit is None else "restart" if restart else "update"
    how = RunVerb("virtual_address.apply", given, "starting what gives the gateway its virtual address")
    return [Change(action, _KIND, made.address, reasons, how)]


def address_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Take it away where the fleet has none, or has it elsewhere."""
    if plan.virtual_address or AddressState.of(state).unit is None:
        return []
    why = ("this rig has no virtual address any more",)
    how = RunVerb("virtual_address.remove", RemoveInput(), "ending the virtual address")
    return [Change("remove", _KIND, ADDRESS_UNIT, why, how)]
