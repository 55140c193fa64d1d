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
    """Return what the gateways of these rigs do, or why a gateway could not be queried."""
    return _of_each(rigs, lambda rig: gateway_now(_run(rig, "status", StatusInput(), GatewayState)))


def drain(
    rigs: Mapping[str, Rig], server: str, seconds: int, undo: int | None = None
) -> dict[str, DrainState | RemoteError]:
    """Have these gateways send a server no new requests, and wait so long for its last ones.

    After `undo` seconds their hosts undo that, whatever has become of the run.
    """
    given = DrainInput(server, seconds, undo)
    return _of_each(rigs, lambda rig: _run(rig, "drain", given, DrainState, seconds))


def ready(rigs: Mapping[str, Rig], server: str) -> dict[str, RemoteError | None]:
    """Have these gateways send a server requests again. Return for each why it could not be done, if so."""
    found = _of_each(rigs, lambda rig: _run(rig, "ready", ReadyInput(server), Held))
    return {rig: each if isinstance(each, RemoteError) else None for rig, each in found.items()}


def give_back(rigs: Mapping[str, Rig], server: str) -> dict[str, bool | RemoteError]:
    """Undo a drain of a run. Return for each gateway whether it was still set: nothing else was set since."""
    return _of_each(rigs, lambda rig: _run(rig, "ready", ReadyInput(server, ours=True), Held).held)


def renew(rigs: Mapping[str, Rig], server: str) -> dict[str, bool | RemoteError]:
    """Have hosts wait as long again before they undo a drain. Return for each whether it was still set."""
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
