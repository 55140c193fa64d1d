"""Bring a host to its plan, from packages to servers: `pyinfra inventory.py deploy.py`."""

from pyinfra import host

from llamaherd.deploy.operations import apply_role, finish, preflight, selected_roles
from llamaherd.fleet.drain import drained_for_change
from llamaherd.measure.trials.gate import judge_change
from llamaherd.plan import Plan
from llamaherd.role.changes import Services

plan = Plan.model_validate(host.data.plan)
services = Services(gate=judge_change, drain=drained_for_change)  # measure changed servers, drain running ones
roles = selected_roles()  # roles/__init__.py has their order; a fleet's own roles come before the servers

preflight(plan, roles)  # refuses a host that cannot be brought to its plan, before anything changes
for role in host.loop(roles):
    apply_role(role, plan, roles, services)
finish()  # records the release, and fails the host if a part of the run has failed
