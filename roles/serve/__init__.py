"""The role `serve`: run instances as systemd units and Compose projects, as the plan declares them."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.preflight import PreflightRow, comma_list
from llamaherd.role.role import Inspection, Role, Verification
from roles.serve.describe import describe
from roles.serve.onhost.model import InspectedServers
from roles.serve.onhost.model import VerifiedServers as Verified
from roles.serve.plan import plan
from roles.serve.ports import addresses_missing, between_holders, ports_taken
from roles.serve.state import inspection_input, state_parts
from roles.serve.tasks import tasks
from roles.serve.verify import healthy_names, judge_servers, verification_input


def port_facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield the row about ports."""
    if plan.instances:
        ports = sorted(instance.endpoint.port for instance in plan.instances)
        ours = [port for port in ports if port in state.system.listening]
        yield PreflightRow("ports", f"{comma_list(ours)} in use" if ours else "free", comma_list(ports))


ROLE = Role(
    name="serve",
    summary="Every instance runs as planned, answers, and does so again after a boot.",
    for_instances=True,
    plan=plan,
    files=lambda plan: (
        *(instance.file.path for instance in plan.instances),
        *(instance.key_file for instance in plan.instances if instance.key_file),
    ),
    texts=lambda plan: (instance.file for instance in plan.instances),
    inspection=Inspection("serve.inspection.inspect", inspection_input, InspectedServers, state_parts),
    refusals=lambda plan, state: (*addresses_missing(plan, state), *ports_taken(plan, state)),
    facts=port_facts,
    unsettled=between_holders,
    tasks=tasks,
    verification=Verification("serve.verification.verify", verification_input, Verified, healthy_names),
    judge=judge_servers,
    describe=describe,
)
