"""Key files that no server reads any more: removed, once nothing that runs here was started with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llamaherd.host.state import HostState, StatePart
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Change, RunVerb
from roles.serve.onhost.model import KeyRemovalInput


@dataclass
class KeysState(StatePart):
    """Names of the key files that lie here: each is that of its instance or group."""

    names: set[str] = field(default_factory=set)


def unread_key(instance: InstancePlan, state: HostState) -> list[Change]:
    """Remove the key of an instance that needs none. It comes after its switch: what serves until then reads it."""
    if instance.key_file or instance.name not in KeysState.of(state).names:
        return []
    return [_removal(instance.name, "its server asks for none any more")]


def stray_keys(plan: Plan, state: HostState, others: Sequence[str]) -> list[Change]:
    """Remove keys of which there is no server, unless this run is for others alone. `others` go with their own."""
    if not plan.whole("serve"):
        return []
    known = {*(instance.name for instance in plan.instances), *others}
    return [_removal(name, "no server has this name") for name in sorted(KeysState.of(state).names - known)]


def _removal(name: str, why: str) -> Change:
    how = RunVerb("serve.removal.remove_key", KeyRemovalInput(name), f"removing the key of {name}")
    return Change("remove", "key", name, (why,), how)
