"""Hosts that are as planned but for one thing, and what is done to an instance there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from llamaherd.host.state import HostState
from llamaherd.onhost.servers import ServingState
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Change, Report
from roles.base.onhost import FolderFound
from roles.models import ModelSource, StoreState
from roles.serve.changes import server_changes
from tests.support.ours import parse_state
from tests.support.rigs import KEY, converged, cpu_rig, gpu_rig, planned
from tests.support.states import edited, updated, with_file, without

KEYS = {"chat": KEY, "drafter": KEY}
CPU = planned(cpu_rig())
GPU = planned(gpu_rig())
KEYED = planned(cpu_rig(), {"instances/drafter/api_key": {"env": "K"}})
CHAT, DRAFTER = CPU.instances
WATCHER = "0123456789abcdef"
Drift = Callable[[HostState], HostState]


def nowhere(_plan: Plan, _wanted: Sequence[str], _say: Report) -> list[ModelSource]:
    """No hub and no neighbour."""
    return []


def seen_of(plan: Plan, drift: Drift | None = None) -> HostState:
    """A host that is as planned, but for this drift."""
    seen = parse_state(converged(plan, KEYS))
    return drift(seen) if drift else seen


def together(*drifts: Drift) -> Drift:
    """Several drifts, one after the other."""
    return lambda seen: reduce(lambda state, drift: drift(state), drifts, seen)


def host(**facts: Any) -> Drift:
    """The host has these facts instead of its own."""
    return lambda seen: edited(seen, **facts)


def having(**entries: dict[Any, Any]) -> Drift:
    """The host has these entries of mappings."""
    return lambda seen: updated(seen, **entries)


def lacking(**keys: Any) -> Drift:
    """The host lacks these keys of mappings."""
    return lambda seen: without(seen, **keys)


def lost(path: str) -> Drift:
    """The host lacks a file."""
    return lambda seen: with_file(seen, path, None)


def switch(instance: InstancePlan, seen: HostState, key: str = KEY) -> list[Change]:
    """What is done to one instance."""
    return server_changes(instance, seen, key if instance.endpoint.key else None)


def folder(path: str, mode: int, owner: str) -> Drift:
    """A folder of ours is otherwise."""
    return having(folders={path: FolderFound(mode, owner)})


def edit(seen: HostState, path: str, **values: Any) -> HostState:
    """A file is otherwise."""
    return with_file(seen, path, replace(seen.files[path], **values))


def unit(**values: Any) -> Drift:
    """The unit of `chat` is otherwise."""
    return lambda seen: updated(seen, units={"llama-chat": replace(seen.servers.units["llama-chat"], **values)})


def container(**values: Any) -> Drift:
    """The container of `drafter` is otherwise."""
    name = "llama-drafter"
    return lambda seen: updated(seen, containers={name: replace(seen.servers.containers[name], **values)})


def changed(service: str, path: str) -> Drift:
    """What a server was started with is something else by now."""

    def drift(seen: HostState) -> HostState:
        before = seen.servers.serving.get(service, ServingState())
        return updated(seen, serving={service: replace(before, changed=(*before.changed, path))})

    return drift


def serving(service: str, **values: Any) -> Drift:
    """A server is otherwise."""
    return having(serving={service: ServingState(**values)})


def free_on_disk(size: int, models: int | None = None) -> Drift:
    """What is free; `models` where they have a disk of their own."""

    def drift(seen: HostState) -> HostState:
        disk = StoreState.of(seen).disk
        assert seen.system.free
        assert disk
        device = disk.device if models is None else "/dev/sdb1"
        disk = replace(disk, free=size if models is None else models, device=device)
        return edited(seen, free=("/var/lib/llamaherd", size, seen.system.free[2]), disk=disk)

    return drift


def store(**values: Any) -> Drift:
    """The store is otherwise."""

    def drift(seen: HostState) -> HostState:
        disk = StoreState.of(seen).disk
        assert disk
        return edited(seen, disk=replace(disk, **values))

    return drift
