"""Hosts that are as planned but for one thing, and what is done to an instance there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from llamaherd.host.state import FolderState, HostState
from llamaherd.onhost.servers import ServingState
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Change, Say
from roles.models.changes import ModelSource
from roles.serve.changes import project_changes, unit_changes
from tests.support.ours import parse_state
from tests.support.rigs import KEY, converged, cpu_rig, gpu_rig, planned

KEYS = {"chat": KEY, "drafter": KEY}
CPU = planned(cpu_rig())
GPU = planned(gpu_rig())
KEYED = planned(cpu_rig(), {"instances/drafter/api_key": {"env": "K"}})
CHAT, DRAFTER = CPU.instances
WATCHER = "0123456789abcdef"
Drift = Callable[[HostState], object]


def nowhere(_plan: Plan, _wanted: Sequence[str], _say: Say) -> list[ModelSource]:
    """No hub and no neighbour."""
    return []


def seen_of(plan: Plan, drift: Drift | None = None) -> HostState:
    """A host that is as planned, but for this drift."""
    seen = parse_state(converged(plan, KEYS))
    if drift:
        drift(seen)
    return seen


def together(*drifts: Drift) -> Drift:
    """Several drifts, one after the other."""

    def all_of_them(seen: HostState) -> None:
        for drift in drifts:
            drift(seen)

    return all_of_them


def host(**values: Any) -> Drift:
    """The host itself is otherwise."""

    def drift(seen: HostState) -> None:
        for name, value in values.items():
            setattr(seen, name, value)

    return drift


def switch(instance: InstancePlan, seen: HostState, key: str = KEY) -> list[Change]:
    """What is done to one instance."""
    return (unit_changes if instance.backend == "systemd" else project_changes)(
        instance, seen, key if instance.endpoint.key else None
    )


def folder(path: str, mode: int, owner: str) -> Drift:
    """A folder of ours is otherwise."""
    return lambda seen: seen.folders.update({path: FolderState(mode, owner)})


def edit(seen: HostState, path: str, **values: Any) -> None:
    """A file is otherwise."""
    seen.files[path] = replace(seen.files[path], **values)


def unit(**values: Any) -> Drift:
    """The unit of `chat` is otherwise."""
    return lambda seen: seen.units.update({"llama-chat": replace(seen.units["llama-chat"], **values)})


def container(**values: Any) -> Drift:
    """The container of `drafter` is otherwise."""
    return lambda seen: seen.containers.update({"llama-drafter": replace(seen.containers["llama-drafter"], **values)})


def changed(service: str, path: str) -> Drift:
    """What a server was started with is something else by now."""

    def drift(seen: HostState) -> None:
        before = seen.serving.get(service, ServingState())
        seen.serving[service] = replace(before, changed=(*before.changed, path))

    return drift


def serving(service: str, **values: Any) -> Drift:
    """A server is otherwise."""
    return lambda seen: seen.serving.update({service: ServingState(**values)})


def free_on_disk(size: int, models: int | None = None) -> Drift:
    """What is free; `models` where they have a disk of their own."""

    def drift(seen: HostState) -> None:
        assert seen.free
        assert seen.store
        seen.free = ("/var/lib/llamaherd", size, seen.free[2])
        device = seen.store.device if models is None else "/dev/sdb1"
        seen.store = replace(seen.store, free=size if models is None else models, device=device)

    return drift


def store(**values: Any) -> Drift:
    """The store is otherwise."""

    def drift(seen: HostState) -> None:
        assert seen.store
        seen.store = replace(seen.store, **values)

    return drift
