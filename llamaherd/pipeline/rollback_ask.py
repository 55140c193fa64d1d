"""A host, asked what going back to a release would do there: what it remembers, and then how it looks.

Where no person is asked first, its lock is taken before the look: what was seen holds until something is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import query_host
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.host.state import HostState
from llamaherd.host.turn import Turn
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.history_ask import ask_past
from llamaherd.pipeline.inspect import INSPECT_SECONDS, inspect_request, program_for, state_of
from llamaherd.pipeline.outlook import Outlook, outlook
from llamaherd.pipeline.rollback import NEWEST, ROLES, lacks, plan_of, to_release
from llamaherd.plan import Plan
from llamaherd.role.role import Role


@dataclass(frozen=True)
class WayBack:
    """A release, its plan, and what going back to it would do on a host that was seen to be so.

    `seen_at`: when, in seconds, where nobody but us has changed it since; else None.
    """

    number: int
    plan: Plan
    outlook: Outlook
    seen: HostState
    seen_at: float | None


def ask_way_back(
    rig: Rig,
    roles: Sequence[Role],
    instance: str | None,
    number: int | None,
    turn: Turn | None,
    clock: Callable[[], float],
) -> WayBack:
    """What it takes to go back, with one instance or all. Raises RemoteError, and UserError where there is no way.

    The host is logged in to for its look while it still says what it remembers. The turn, if there is one, is taken
    before that look, unless it is another run's just now. `clock` says when that was.
    """
    document: Future[bytes] = Future()
    pool = ThreadPoolExecutor(2)
    inspected = pool.submit(query_host, Remote(rig.connect), program_for(roles), document.result, INSPECT_SECONDS)
    taken = pool.submit(_is_taken, turn)
    try:
        past = ask_past(rig.connect, NEWEST, number)
        chosen = to_release(past, rig.rig, instance, number)
        plan = plan_of(past, chosen, instance)
        ours = taken.result()
        seen_at = clock() if ours else None
        document.set_result(inspect_request(plan, roles))
        logged_in = pool.submit(_log_in, turn if ours else None)
        seen = state_of(inspected.result(), roles)
        logged_in.result()
    finally:
        document.cancel()  # a thread that still waits for it sends no request
        pool.shutdown(wait=False)
    if gone := list(lacks(plan, seen)):
        raise UserError(
            f"release {chosen} cannot come back: the host has no {', no '.join(gone)} any more",
            "declare what you want in the inventory, and `herd up` brings what it needs",
        )
    taking_part = tuple(role for role in roles if role.name in ROLES)
    would = outlook(plan, taking_part, seen, rig.connect, {}, retry=True)
    return WayBack(chosen, plan, would, seen, seen_at)


def _log_in(turn: Turn | None) -> None:
    """For the first script, while the host is looked at. Where it fails, the next try is told why."""
    with suppress(RemoteError):
        if turn:
            turn.log_in()


def _is_taken(turn: Turn | None) -> bool:
    """Whether it is ours now. Another run is waited for by who has said what is to be done, and not here."""
    try:
        return turn is not None and turn.take(lambda _: None, wait=0)
    except UserError:
        return False
