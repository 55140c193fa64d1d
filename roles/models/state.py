"""Models' part of a host's state: what lies in the store, and what is on its way."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from roles.models.onhost.inspection import Found, Question


def question(plan: Plan) -> Question:
    """Return what to inspect."""
    return Question(plan.store.path, tuple(dict.fromkeys(model.folder for model in plan.models)))


def take(state: HostState, found: Found) -> None:
    """Add what was found to the host's state."""
    state.store = found.store
    for folder, files in found.verified.items():
        state.verified[folder] = {each.name: (each.size, each.written, each.sha256) for each in files}
    for folder, stored in found.stored.items():
        state.stored[folder] = {each.name: (each.size, each.written) for each in stored}
    state.incoming.update(found.incoming)
    state.kept.update(found.kept)
    state.fetch = found.fetch
