"""The store of a host, inspected and cleared: one verb in one connection each."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.layout import IN_REACH, INCOMING
from llamaherd.onhost.outcome import Outcome
from llamaherd.onhost.store import Item, LookInput, PruneInput, StoreState
from llamaherd.plan import Plan
from llamaherd.store.holdings import LEFT, Holdings, Removal
from llamaherd.store.judge import judge_store

_LOOK_SECONDS = 120
_REMOVE_SECONDS = 30
"""For each folder: a large file takes seconds to go, and every time the host inspects who uses it."""


def look_into(plan: Plan, remote: Remote, keep: int = IN_REACH) -> Holdings:
    """Return what lies in the rig's store; so many good releases are among those who use it. Raise RemoteError."""
    given = LookInput(plan.store.path, keep)
    return judge_store(plan, query_verb(remote, "llamaherd.store.look", given, StoreState, _LOOK_SECONDS))


def remove(holdings: Holdings, remote: Remote, keep: int = IN_REACH) -> Outcome:
    """Remove what can go and is still unused. Raise RemoteError where it is not known what has become of it."""
    seconds = _LOOK_SECONDS + _REMOVE_SECONDS * len(holdings.removals)
    given = prune_input(holdings.store, holdings.removals, keep)
    return query_verb(remote, "llamaherd.store.prune", given, Outcome, seconds)


def prune_input(store: str, removals: Iterable[Removal], keep: int = IN_REACH) -> PruneInput:
    """Return the input that removes folders, files and parts, if they are still unused."""
    removals = list(removals)
    parts = [each for each in removals if each.what.startswith(".incoming/")]
    sent = [each for each in removals if each.what.startswith(f"{INCOMING}/")]
    items = [each for each in removals if each not in (*parts, *sent) and each.what != LEFT]
    return PruneInput(
        store=store,
        items=tuple(Item(each.what, each.files, each.keep) for each in items),
        parts=tuple(each.what.removeprefix(".incoming/") for each in parts),
        uploads=tuple(each.what for each in sent),
        keep=keep,
    )
