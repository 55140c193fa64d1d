"""Hosts, asked what was done to them, and what of it does not hold any more: one connection for each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from llamaherd.history.merged import merged
from llamaherd.history.release import Past, past_of
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import AT_ONCE, Remote, RemoteError
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.onhost.releases import ReadInput, Stored
from llamaherd.pipeline.drift import Causes, causes
from llamaherd.pipeline.inspect import inspect_host
from llamaherd.pipeline.outlook import Outlook, outlook
from llamaherd.pipeline.outlook_ask import RAISED
from llamaherd.pipeline.rollback import keyless
from llamaherd.plan import Plan
from llamaherd.role.role import Role

_SECONDS = 60


def ask_past(connect: Connect, newest: int = 0, number: int | None = None, *, texts: bool = False) -> Past:
    """Return the releases of a host, and the plans of so many of the newest, of as many good ones, and of a number.

    With `texts`, also what has become of files that are made of keys. Raise RemoteError.
    """
    given = ReadInput(newest, number or 0, texts)
    return past_of(query_verb(Remote(connect), "llamaherd.releases.read", given, Stored, _SECONDS))


def ask_pasts(rigs: Mapping[str, Rig]) -> dict[str, Past | RemoteError]:
    """The releases of many at once; or why one could not be asked."""

    def ask(rig: Rig) -> Past | RemoteError:
        try:
            return ask_past(rig.connect)
        except RemoteError as error:
            return error

    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(rigs)))) as pool:
        return dict(zip(rigs, pool.map(ask, rigs.values()), strict=True))


def ask_causes(
    planned: Mapping[str, tuple[Rig, Plan]], found: Mapping[str, Outlook], roles: Sequence[Role]
) -> dict[str, tuple[Causes, ...]]:
    """The causes of each change on each rig, where a run has left a release there that can be asked for.

    Where that had another plan, the host is looked at once more, with the eyes of that plan.
    """

    def ask(name: str) -> tuple[Causes, ...]:
        (rig, plan), each = planned[name], found[name]
        try:
            past = ask_past(rig.connect, newest=1, texts=True)
            last = past.newest_plan
            if last is None or not _tells_of(last, plan):
                return ()
            if last == merged(past, plan, {}):
                return causes(each, each, past.texts)
            seen = inspect_host(Remote(rig.connect), last, roles)
            return causes(each, outlook(keyless(last), roles, seen, rig.connect, {}), past.texts)
        except (RemoteError, *RAISED):
            return ()  # it is a remark, and no reason to end

    names = [name for name, each in found.items() if each.changes]
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(names)))) as pool:
        return dict(zip(names, pool.map(ask, names), strict=True))


def _tells_of(last: Plan, plan: Plan) -> bool:
    """Whether the last plan has all that this one is for: on a host where only a part was ever done, it has that."""
    return last.only is None or (plan.only is not None and set(plan.only.names) <= set(last.only.names))
