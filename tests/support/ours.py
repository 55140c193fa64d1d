"""The verbs with the roles that come along, as every command has them that is given no fleet of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from llamaherd.gguf.header import Header
from llamaherd.host.program import request
from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.lock import Lock
from llamaherd.onhost.document import encode
from llamaherd.onhost.system import System
from llamaherd.onhost.verification import Probe, VerifyInput
from llamaherd.onhost.verification import verify as run_probes
from llamaherd.pipeline import inspection, load, preview, verify
from llamaherd.pipeline import plan as pipeline_plan
from llamaherd.pipeline import plan as planning
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.plan import Estimate, Plan, TextFile
from llamaherd.role.changes import SendFile
from llamaherd.role.preflight import Refusal
from llamaherd.role.reach import Reach
from llamaherd.role.report import Check, Report
from llamaherd.role.role import Role
from roles import ROLES
from roles.serve.onhost.model import VerifiedServers as ServersFound
from tests.support.host_lines import inspected


def plan(
    declared: Rig,
    lock: Lock,
    rigs: Mapping[str, Rig] = MappingProxyType({}),
    unlocked: Mapping[str, Header] = MappingProxyType({}),
    fleet: FleetFile | None = None,
    measured: Mapping[str, float] = MappingProxyType({}),
) -> Plan:
    """The plan."""
    return planning.plan(locked_facts(declared, lock, unlocked), lock, ROLES, rigs, fleet=fleet, measured=measured)


def plans(inventory: Path, names: Iterable[str] = (), **options: Any) -> dict[str, tuple[Rig, Plan]]:
    """The plans of an inventory."""
    return load.plans(inventory, ROLES, names, **options)


def show_plan(made: Plan, asked: Mapping[str, Estimate | str] | None = None) -> str:
    """A plan for people."""
    return pipeline_plan.show_plan(made, ROLES, asked)


def inspect_scripts(made: Plan, roles: Sequence[Role]) -> Mapping[str, str]:
    """Return the scripts with which a fleet's roles inspect a host, by role."""
    return inspection.inspect_input(made, roles).scripts


def inspect_text(made: Plan, roles: Sequence[Role] = ROLES) -> str:
    """Return all that a host is sent to inspect it."""
    return inspection.inspect_request(made, roles).decode()


def queried(lines: Iterable[str]) -> object:
    """Return what an inspection of a host in this state returns, as JSON has it."""
    return encode(inspected(lines))


def parse_state(lines: Iterable[str], roles: Sequence[Role] = ROLES) -> HostState:
    """Return the state of a host in the notation of tests."""
    return inspection.state_of(queried(lines), roles)


def tasks(made: Plan) -> list[str]:
    """The tasks of a run, as people see them."""
    return [f"{role.name} | {task.name}" for role in ROLES for task in role.tasks(made)]


def refusals(made: Plan, state: HostState, local_sizes: Mapping[str, int]) -> list[Refusal]:
    """What stands in the way."""
    return preview.refusals(made, state, ROLES, local_sizes)


def survey(made: Plan, state: HostState, local_sizes: Mapping[str, int]) -> preview.Preflight:
    """Preflight's table."""
    return preview.survey_host(made, state, ROLES, local_sizes)


def sends(made: Plan, state: HostState) -> list[SendFile]:
    """What would be sent."""
    return preview.files_to_send(made, state, ROLES)


def probes_text(made: Plan, roles: Sequence[Role] = ROLES) -> str:
    """Return all that a host is sent to verify it."""
    return request("verify", verify.verify_input(made, roles)).decode()


def probed(probes: Iterable[Probe], system: System) -> ProbeOutputs:
    """Return what probes print on a host."""
    return verify.facts_of(encode(run_probes(VerifyInput(tuple(probes)), system)), ROLES).outputs


def judge(
    rig: Rig,
    made: Plan,
    outputs: ProbeOutputs,
    reached: Mapping[str, Reach] | None = None,
    found: ServersFound | None = None,
) -> Report:
    """Return what follows from what probes printed, and from what was found of servers."""
    facts = verify.HostFacts(outputs, {ServersFound: found} if found else {})
    return verify.judge_host(rig, made, ROLES, facts, reached)


def brought_files(made: Plan) -> dict[str, TextFile]:
    """What lies on a host beside its servers."""
    return verify.shipped_files(made, ROLES)


def brought_places(made: Plan) -> list[str]:
    """Where it is looked for."""
    return verify.shipped_paths(made, ROLES)


def brought_checks(made: Plan, outputs: ProbeOutputs) -> list[Check]:
    """Whether it is as we brought it."""
    return list(verify.shipped_checks(made, ROLES, outputs))
