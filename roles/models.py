"""Models: fetched into the store, by revision, and let in by their hashes."""

from __future__ import annotations

import os
from functools import partial

from pyinfra import host
from pyinfra.api import deploy

from llamaherd.converge.models import model_steps
from llamaherd.operations import converge
from llamaherd.plan import Plan


@deploy("models")
def apply(plan: Plan) -> None:
    """The hub's token comes from the environment, as the hub's own tools have it."""
    token = os.environ.get("HF_TOKEN")
    for model in host.loop(plan.models):
        converge(name=model.name, plan=plan, steps=partial(model_steps, model, token=token))
