"""GPUs: those that are declared are in the host. Nothing is done for that; a host that lacks one is refused."""

from __future__ import annotations

from llamaherd.role.role import Inspection, Role
from roles.gpus.onhost import Found
from roles.gpus.plan import plan
from roles.gpus.preflight import facts
from roles.gpus.refusals import refusals
from roles.gpus.state import question, take

ROLE = Role(
    name="gpus",
    summary="The GPUs that are declared are in the host.",
    for_instances=True,
    plan=plan,
    inspection=Inspection("gpus.inspect", question, Found, take),
    refusals=refusals,
    facts=facts,
)
