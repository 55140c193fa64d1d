"""From a plan to a serving host: `pyinfra inventory.py deploy.py`."""

from pyinfra import host

from llamaherd.planned import Plan
from roles import base, engines, models, preflight, serve

plan = Plan.model_validate(host.data.plan)

preflight.apply(plan=plan, _sudo=True)
base.apply(plan=plan, _sudo=True)
# The line works while the compiler does: a rebuild takes as long as the longer of the two.
models.begin(plan=plan, _sudo=True)
engines.apply(plan=plan, _sudo=True)
models.apply(plan=plan, _sudo=True)
serve.apply(plan=plan, _sudo=True)
