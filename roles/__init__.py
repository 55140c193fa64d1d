"""Roles, in the order in which a host needs them. Each makes one thing true; its folder has everything about it."""

from roles import (
    base,
    chat_page,
    container_runtime,
    cuda_toolkit,
    engines,
    gateway,
    gpus,
    models,
    monitoring,
    nvidia_driver,
    power,
    serve,
    suspend,
    virtual_address,
    wake,
    wsl,
)

ROLES = (
    base.ROLE,
    wsl.ROLE,
    gpus.ROLE,
    nvidia_driver.ROLE,
    cuda_toolkit.ROLE,
    container_runtime.ROLE,
    models.BEGIN,  # the line works while the compiler does: a rebuild takes as long as the longer of the two
    engines.ROLE,
    models.ROLE,
    power.ROLE,
    wake.ROLE,
    gateway.ROLE,
    virtual_address.ROLE,
    serve.ROLE,
    suspend.ROLE,
    chat_page.ROLE,
    monitoring.ROLE,  # last: what it watches serves by then, so that no alert fires for a rig that is being set up
)
