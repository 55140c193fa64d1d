"""How long a server that is started anew will answer nobody, before it is done."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.onhost.serving import ServingState
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Away, Gated
from roles.serve.transaction import serves

_START_SECONDS = 2
_BYTES_A_SECOND = 1e9
"""Of a model, as an SSD of a home rig gives them: a guess, until there is a start to go by."""


def away(
    plan: Plan, instance: InstancePlan, state: HostState, beside: bool = False, gated: Gated | None = None
) -> Away | None:
    """As long as its last start took, if that read the same models, else by their bytes. None if it serves nobody.

    `beside`: what is new may be started beside it; whether there is room is known at its host alone, when it is done.
    `gated`: it is measured before.
    """
    if not serves(instance, state):
        return None
    gate = gated.instance.gate.seconds if gated and gated.instance.gate else 0
    last = state.serving.get(instance.service, ServingState()).loaded
    if last and set(last.folders) == set(instance.server.folders):
        return Away(last.seconds, measured=True, beside=beside, gate=gate)
    files = [(model, file) for model in plan.models if model.folder in instance.server.folders for file in model.files]
    there = (state.stored.get(model.folder, {}).get(file.name, (file.size or 0, 0))[0] for model, file in files)
    return Away(_START_SECONDS + sum(there) / _BYTES_A_SECOND, measured=False, beside=beside, gate=gate)
