"""States of hosts for tests: facts by the names of their fields, whichever part of the state has them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from llamaherd.host.state import (
    EnginesState,
    FileState,
    GpusState,
    HostState,
    ModelsState,
    ServersState,
    StatePart,
    SystemState,
)
from roles.base import BaseState
from roles.engines import BuiltState
from roles.models import StoreState
from roles.serve.state import ServeState

_PARTS: tuple[type[StatePart], ...] = (
    SystemState,
    GpusState,
    EnginesState,
    ModelsState,
    ServersState,
    BaseState,
    BuiltState,
    StoreState,
    ServeState,
)
_PART_OF: dict[str, type[StatePart]] = {each.name: part for part in _PARTS for each in fields(part)}


def host_with(**facts: Any) -> HostState:
    """Return the state of a host of which only these facts are known."""
    return edited(HostState(), **facts)


def edited(state: HostState, **facts: Any) -> HostState:
    """Return a state with these facts instead of its own."""
    for name, value in facts.items():
        part: Any = _PART_OF[name].of(state)
        state = state.with_parts(replace(part, **{name: value}))
    return state


def updated(state: HostState, **entries: dict[Any, Any]) -> HostState:
    """Return a state with these entries of its mappings."""
    return edited(
        state, **{name: {**getattr(_PART_OF[name].of(state), name), **each} for name, each in entries.items()}
    )


def without(state: HostState, **keys: Any) -> HostState:
    """Return a state without these keys of its mappings."""
    for name, key in keys.items():
        kept = {each: value for each, value in getattr(_PART_OF[name].of(state), name).items() if each != key}
        state = edited(state, **{name: kept})
    return state


def with_file(state: HostState, path: str, file: FileState | None) -> HostState:
    """Return a state in which a file is as given; without the file if it is None."""
    others = {each: have for each, have in state.files.items() if each != path}
    return replace(state, files=others if file is None else {**others, path: file})


def with_driver(state: HostState, **facts: Any) -> HostState:
    """Return a state with these facts of the driver."""
    return state.with_parts(replace(state.driver, **facts))
