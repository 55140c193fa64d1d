"""Gateways, asked what they do, and told what becomes of a server: one connection to each host, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from llamaherd.gateway.now import Drained, GatewayNow, parse_drained, parse_held, parse_now, parse_ready
from llamaherd.host.protocol import ask_host, question_of
from llamaherd.host.remote import AT_ONCE, Remote, RemoteError
from llamaherd.inventory.schema import Rig
from llamaherd.layout import ADDRESS_PROGRAM, GATEWAY_TALK
from llamaherd.text.quoting import Written

T = TypeVar("T")

_SECONDS = 60
_TIMERS = "llamaherd-ready-"
"""How the names of timers begin which have a server sent requests again."""


def ask_gateways(rigs: Mapping[str, Rig]) -> dict[str, GatewayNow | RemoteError]:
    """What the gateways of these rigs do; or why one could not be asked."""
    return _of_each(rigs, lambda rig: parse_now(_told(rig, ask_script("status"))))


def drain(
    rigs: Mapping[str, Rig], server: str, seconds: int, undo: int | None = None
) -> dict[str, Drained | RemoteError]:
    """Have these gateways send a server nothing new, and wait so long until it has nothing left to answer.

    After `undo` seconds their hosts take it back, whatever has become of who asked for it.
    """
    script = ask_script("drain", server, str(seconds), undo=undo)
    return _of_each(rigs, lambda rig: parse_drained(_told(rig, script, seconds)))


def ready(rigs: Mapping[str, Rig], server: str) -> dict[str, RemoteError | None]:
    """Have these gateways send a server requests again."""
    return _of_each(rigs, lambda rig: parse_ready(_told(rig, ask_script("ready", server))))


def give_back(rigs: Mapping[str, Rig], server: str) -> dict[str, bool | RemoteError]:
    """Have them send it requests again as a run asked them to stop; whether nobody has said otherwise since."""
    return _of_each(rigs, lambda rig: parse_held(_told(rig, ask_script("ready", server, ours=True))))


def renew(rigs: Mapping[str, Rig], server: str) -> dict[str, bool | RemoteError]:
    """Have their hosts wait as long again before they take back a drain; whether they still would."""
    return _of_each(rigs, lambda rig: parse_held(_told(rig, ask_script("renew", server))))


def ask_script(verb: str, *words: str, undo: int | None = None, ours: bool = False) -> Written:
    """The script that has a host's program do this. What is said of a server ends what a timer would do to it.

    With `ours`, only where such a timer is there. `renew` is for no program: it has the timer begin anew.
    """
    return question_of("gateway/ask.sh.j2", **ask_values(verb, *words, undo=undo, ours=ours))


def ask_values(verb: str, *words: str, undo: int | None = None, ours: bool = False) -> dict[str, Any]:
    """What the template of that script is given, where a question has more in it."""
    timer = f"{_TIMERS}{words[0]}" if verb in ("drain", "ready", "renew") else ""
    told = {"talk": GATEWAY_TALK, "shared": ADDRESS_PROGRAM, "verb": verb, "words": words, "undo": undo}
    return told | {"timers": _TIMERS, "timer": timer, "ours": ours, "renewed": verb == "renew"}


def _told(rig: Rig, script: str, seconds: int = 0) -> Sequence[str]:
    return ask_host(Remote(rig.connect), script, _SECONDS + seconds)


def _of_each(rigs: Mapping[str, Rig], ask: Callable[[Rig], T]) -> dict[str, T | RemoteError]:
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(rigs)))) as pool:
        return dict(zip(rigs, pool.map(partial(_or_why, ask), rigs.values()), strict=True))


def _or_why(ask: Callable[[Rig], T], rig: Rig) -> T | RemoteError:
    try:
        return ask(rig)
    except RemoteError as error:
        return error
