"""Gateways: their state, and which servers they send requests to. One connection to each host, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from llamaherd.gateway.now import GatewayNow, gateway_now
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import AT_ONCE, Remote, RemoteError
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.gateway import DrainInput, DrainState, GatewayState, Held, ReadyInput, RenewInput, StatusInput

T = TypeVar("T")

_SECONDS = 60


def ask_gateways(rigs: Mapping[str, Rig]) -> dict[str, GatewayNow | RemoteError]:
    """Return the state of each gateway of these rigs, or why a gateway could not be queried."""
    return _of_each(rigs, lambda rig: gateway_now(_run(rig, "status", StatusInput(), GatewayState)))


def drain(
    rigs: Mapping[str, Rig], server: str, seconds: int, undo: int | None = None
) -> dict[str, DrainState | RemoteError]:
    """Drain a server at these gateways, and wait so many seconds for its last requests.

    After `undo` seconds their hosts undo the drain, even if the run has ended.
    """
    given = DrainInput(server, seconds, undo)
    return _of_each(rigs, lambda rig: _run(rig, "drain", given, DrainState, seconds))


def ready(rigs: Mapping[str, Rig], server: str) -> dict[str, RemoteError | None]:
    """Let these gateways send a server requests again. Return by gateway why that failed, if it did."""
    found = _of_each(rigs, lambda rig: _run(rig, "ready", ReadyInput(server), Held))
    return {rig: each if isinstance(each, RemoteError) else None for rig, each in found.items()}


def give_back(rigs: Mapping[str, Rig], server: str) -> dict[str, bool | RemoteError]:
    """Undo a drain of a run. Return by gateway whether the drain was still set, unchanged since."""
    return _of_each(rigs, lambda rig: _run(rig, "ready", ReadyInput(server, ours=True), Held).held)


def renew(rigs: Mapping[str, Rig], server: str) -> dict[str, bool | RemoteError]:
    """Restart the time until hosts undo a drain. Return by gateway whether the drain was still set."""
    return _of_each(rigs, lambda rig: _run(rig, "renew", RenewInput(server), Held).held)


def _run(rig: Rig, verb: str, given: object, kind: type[T], seconds: int = 0) -> T:
    return query_verb(Remote(rig.connect), f"llamaherd.gateway.{verb}", given, kind, _SECONDS + seconds)


def _of_each(rigs: Mapping[str, Rig], ask: Callable[[Rig], T]) -> dict[str, T | RemoteError]:
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(rigs)))) as pool:
        return dict(zip(rigs, pool.map(partial(_or_why, ask), rigs.values()), strict=True))


def _or_why(ask: Callable[[Rig], T], rig: Rig) -> T | RemoteError:
    try:
        return ask(rig)
    except RemoteError as error:
        return error
