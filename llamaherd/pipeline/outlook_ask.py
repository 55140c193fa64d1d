"""Hosts, asked whether there is anything to do: one script in one connection each, all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.protocol import ask_host
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.inventory.keys import UnreadableKeyError, unreadable
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.inspect import inspect_script, parse_state
from llamaherd.pipeline.outlook import Outlook, outlook
from llamaherd.pipeline.preflight import sends
from llamaherd.pipeline.preflight_ask import LOOK_SECONDS, local_sizes
from llamaherd.plan import Plan
from llamaherd.role.role import Role

AT_ONCE = 16
"""Hosts that are asked at the same time: each is an ssh client, which waits more than it works."""


def ask_outlooks(planned: Mapping[str, tuple[Rig, Plan]], roles: Sequence[Role]) -> dict[str, Outlook | RemoteError]:
    """What a run would do to each rig, or why it cannot be asked."""
    pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(planned))))
    try:
        found = dict(zip(planned, pool.map(partial(_ask, roles), planned.values()), strict=True))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)  # who is interrupted waits for no host
        raise
    pool.shutdown()
    return found


def _ask(roles: Sequence[Role], rig_and_plan: tuple[Rig, Plan]) -> Outlook | RemoteError:
    """As for one rig. What roles raise, the run itself says."""
    rig, plan = rig_and_plan
    try:
        script = inspect_script(plan, roles)
        seen = parse_state(ask_host(Remote(rig.connect, note_key=True), script, LOOK_SECONDS), roles)
        if any(unreadable(each.endpoint.key) for each in plan.instances if each.endpoint.key):
            return Outlook(open=True)
        return outlook(plan, roles, seen, rig.connect, local_sizes(sends(plan, seen, roles)))
    except RemoteError as error:
        return error
    except (UserError, InventoryError, UnreadableKeyError):
        return Outlook(open=True)
