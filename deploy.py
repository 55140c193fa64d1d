"""From a plan to a serving host: `pyinfra inventory.py deploy.py`."""

from pyinfra import host

from llamaherd.deploy.roles import apply, check, settle, taking_part
from llamaherd.plan import Plan

plan = Plan.model_validate(host.data.plan)
roles = taking_part()  # roles/__init__.py has ours in their order, from packages to servers

check(plan, roles)
for role in host.loop(roles):
    apply(role, plan, roles)
settle()
