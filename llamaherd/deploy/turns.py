"""Whose turn it is on each host of a run: from its first change on no other run changes that host.

Two runs over the same hosts must not wait for each other: whoever waits for one host gives back those on which nothing
is done just now, and takes its turn there again later.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api import Host

from llamaherd.diagnostics.findings import UserError
from llamaherd.history.release import Origin
from llamaherd.host.remote import RemoteError
from llamaherd.host.state import HostState
from llamaherd.host.turn import Turn
from llamaherd.inventory.schema import Connect
from llamaherd.text.terminal import plain


@dataclass(frozen=True)
class Held:
    """A host on which a run has its turn before it begins: how it looked under it, and when, in seconds."""

    turn: Turn
    seen: HostState
    at: float


@dataclass
class _Turns:
    """The turns of this process. `busy`: hosts on which something is done. `waiting`: hosts that are waited for."""

    of: WeakKeyDictionary[Host, Turn] = field(default_factory=WeakKeyDictionary)
    busy: set[Host] = field(default_factory=set)
    waiting: set[Host] = field(default_factory=set)


_turns = _Turns()


def log_in_for_turn(host: Host) -> None:
    """Log in for the turn that is taken next. Where that fails, whoever takes it is told so."""
    with suppress(RemoteError):
        _turn(host).log_in()


def take_turn(host: Host) -> bool:
    """Wait until no other run changes this host. Whether one may have since it was looked at: not, if it was ours.

    Raises UserError where one goes on for too long, RemoteError where the host cannot be asked.
    """

    def wait(line: str) -> None:
        logger.info(f"{host.print_prefix}{plain(line)}")
        _turns.waiting.add(host)
        for other in {*_turns.of} - _turns.busy:
            give_turn_back(other)

    turn = _turn(host)
    _turns.busy.add(host)
    try:
        return turn.take(wait, host.data.rig_lock_wait)
    except UserError:
        give_turn_back(host)
        raise
    finally:
        _turns.waiting.discard(host)


def _turn(host: Host) -> Turn:
    if host not in _turns.of and (held := host.data.rig_held):
        _turns.of[host] = held.turn
    elif host not in _turns.of:
        by = Origin.model_validate(host.data.rig_origin)
        connect = Connect.model_validate(host.data.rig_connect)
        _turns.of[host] = Turn(host.name, connect, by.who)
    return _turns.of[host]


def is_ours(host: Host) -> bool:
    """Whether it is our turn on this host, so that more is to be done there."""
    return host in _turns.of


def pause_turn(host: Host) -> None:
    """Nothing is done to this host just now. It stays ours, unless another one is waited for."""
    _turns.busy.discard(host)
    if _turns.waiting:
        give_turn_back(host)


def give_turn_back(host: Host) -> None:
    """Let the next run change this host."""
    _turns.busy.discard(host)
    if turn := _turns.of.pop(host, None):
        turn.give_back()
