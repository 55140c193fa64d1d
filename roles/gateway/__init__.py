"""Gateway: one address for people, before all servers of the fleet, by the distribution's HAProxy in a unit of ours."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.layout import GATEWAY
from llamaherd.plan import Plan
from llamaherd.role.role import Inspection, Role, Task
from roles.gateway.changes import gateway_changes, gateway_leftovers
from roles.gateway.config import CERTIFICATE, CONFIGURATION, SCRIPT
from roles.gateway.describe import describe
from roles.gateway.plan import plan
from roles.gateway.refusals import facts, refusals
from roles.gateway.state import GatewayState
from roles.gateway.state import question as state_question
from roles.gateway.verify import judge, probes

_PRIVATE = (CONFIGURATION, SCRIPT, CERTIFICATE, "keys.map", "streams.map", "models.map", "lists.map")


def tasks(plan: Plan) -> Iterator[Task]:
    """Before servers, of which people are told where one is not there yet. What fails keeps none from serving."""
    if plan.gateway:
        yield Task("one endpoint for people", lambda state, _: gateway_changes(plan, state), alone=True)


ROLE = Role(
    name="gateway",
    summary="People find all models at one address, each with a key of their own.",
    plan=plan,
    brings=lambda plan: (plan.gateway.unit, plan.gateway.talk) if plan.gateway else (),
    files=lambda plan: (str(GATEWAY / name) for name in _PRIVATE) if plan.gateway else (),
    inspection=Inspection("gateway.inspect", state_question, GatewayState, GatewayState.keep),
    refusals=refusals,
    facts=facts,
    leftovers=gateway_leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
