"""Models: fetched into the store, by revision, and let in by their hashes."""

from __future__ import annotations

import secrets
from functools import partial

from pyinfra.api import deploy

from llamaherd.converge.models import begin_steps, model_steps
from llamaherd.deploy.operations import converge
from llamaherd.pipeline.origins import places
from llamaherd.plan import Plan

_WATCHER = secrets.token_hex(8)
"""What this run of `herd up` is called by the hosts where it waits for a fetch."""


@deploy("models")
def begin(plan: Plan) -> None:
    """Begin to fetch, in a unit of its own that goes on beside what follows."""
    if any(model.url for model in plan.models):
        converge(
            name="begin to fetch",
            plan=plan,
            steps=partial(begin_steps, plan, places=places, watcher=_WATCHER),
            _ignore_errors=True,
        )


@deploy("models")
def apply(plan: Plan) -> None:
    """Wait for what is fetched, and let all that has arrived into the store."""
    if plan.models:
        converge(
            name="in the store",
            plan=plan,
            steps=partial(model_steps, plan, places=places, watcher=_WATCHER),
            _ignore_errors=True,  # what needs a model that did not come is left as it is; the rest goes on
            _continue_on_error=True,
        )
