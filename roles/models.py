"""Models: fetched into the store, by revision, and let in by their hashes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyinfra import host
from pyinfra.api import deploy

from llamaherd.converge.models import missing_files, model_steps
from llamaherd.converge.steps import Send, Step
from llamaherd.hub import token_for
from llamaherd.observe import Seen
from llamaherd.operations import converge
from llamaherd.planned import ModelPlan, Plan


@deploy("models")
def apply(plan: Plan) -> None:
    """One model after the other: the line is what they share."""
    for model in host.loop(plan.models):
        converge(name=model.name, plan=plan, steps=partial(_bring, model))


def _bring(model: ModelPlan, seen: Seen) -> Sequence[Send | Step]:
    needs_token = model.url and missing_files(model, seen)
    return model_steps(model, seen, token=token_for(str(model.url)) if needs_token else None)
