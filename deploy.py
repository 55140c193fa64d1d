"""From a plan to a serving host: `pyinfra inventory.py deploy.py`."""

from pyinfra import host

from llamaherd.plan import Plan
from roles import (
    base,
    container_runtime,
    cuda_toolkit,
    engines,
    gpu_power,
    models,
    nvidia_driver,
    preflight,
    serve,
    wsl,
)

plan = Plan.model_validate(host.data.plan)

preflight.apply(plan=plan, _sudo=True)
base.apply(plan=plan, _sudo=True)
wsl.apply(plan=plan, _sudo=True)
nvidia_driver.apply(plan=plan, _sudo=True)
cuda_toolkit.apply(plan=plan, _sudo=True)
container_runtime.apply(plan=plan, _sudo=True)
# The line works while the compiler does: a rebuild takes as long as the longer of the two.
models.begin(plan=plan, _sudo=True)
engines.apply(plan=plan, _sudo=True)
models.apply(plan=plan, _sudo=True)
gpu_power.apply(plan=plan, _sudo=True)
serve.apply(plan=plan, _sudo=True)
