"""Virtual address: one that two gateways have in turn, by the distribution's keepalived in a unit of ours."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.plan import Plan
from llamaherd.role.role import Inspection, Role, Task
from roles.virtual_address.changes import address_changes, address_leftovers
from roles.virtual_address.describe import describe
from roles.virtual_address.plan import plan
from roles.virtual_address.refusals import facts, refusals
from roles.virtual_address.state import AddressState
from roles.virtual_address.state import question as state_question
from roles.virtual_address.verify import judge, probes


def tasks(plan: Plan) -> Iterator[Task]:
    """After the gateway, which it asks. What fails keeps nothing else from being done."""
    if plan.virtual_address:
        yield Task("an address that moves", lambda state, _: address_changes(plan, state), alone=True)


ROLE = Role(
    name="virtual_address",
    summary="Where one of two gateways does not answer, the other one has its address.",
    plan=plan,
    brings=lambda plan: plan.virtual_address.files if plan.virtual_address else (),
    inspection=Inspection("virtual_address.inspect", state_question, AddressState, AddressState.keep),
    refusals=refusals,
    facts=facts,
    leftovers=address_leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
