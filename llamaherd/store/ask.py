"""The store of a host, asked and cleared: one script in one connection each."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.history.release import needed_places
from llamaherd.host.protocol import ask_host, question_of
from llamaherd.host.remote import Remote
from llamaherd.layout import FETCH_RUN, FETCH_UNIT, IN_REACH, INCOMING, PROJECTS, UNITS
from llamaherd.plan import Plan
from llamaherd.store.holdings import LEFT, Holdings, Removal
from llamaherd.store.judge import judge_store
from llamaherd.store.outcome import Outcome, outcome
from llamaherd.store.state import parse_store

_LOOK_SECONDS = 120
_REMOVE_SECONDS = 30
"""For each folder: a large file takes seconds to go, and every time the host looks who uses it."""


def look_into(plan: Plan, remote: Remote, keep: int = IN_REACH) -> Holdings:
    """What lies in the rig's store; so many good releases are among those who use it. Raises RemoteError."""
    return judge_store(plan, parse_store(ask_host(remote, look_script(plan.store.path, keep), _LOOK_SECONDS)))


def remove(holdings: Holdings, remote: Remote, keep: int = IN_REACH) -> Outcome:
    """Remove what can go and is still unused. Raises RemoteError where it is not known what has become of it."""
    seconds = _LOOK_SECONDS + _REMOVE_SECONDS * len(holdings.removals)
    return outcome(ask_host(remote, prune_script(holdings.store, holdings.removals, keep), seconds))


def look_script(store: str, keep: int = IN_REACH) -> str:
    """The script that asks a host what is in its store."""
    return question_of("store/look.sh.j2", **store_places(store, keep))


def prune_script(store: str, removals: Iterable[Removal], keep: int = IN_REACH) -> str:
    """The script that removes folders, files and parts, if they are still unused."""
    removals = list(removals)
    parts = [each for each in removals if each.what.startswith(".incoming/")]
    sent = [each.what for each in removals if each.what.startswith(f"{INCOMING}/")]
    return question_of(
        "store/prune.sh.j2",
        items=[
            {"folder": each.what, "files": each.files, "keep": each.keep}
            for each in removals
            if each not in parts and each.what != LEFT and each.what not in sent
        ],
        uploads=sent,
        parts=[each.what.removeprefix(".incoming/") for each in parts],
        **store_places(store, keep),
    )


def store_places(store: str, keep: int = IN_REACH) -> dict[str, object]:
    """Where the scripts find what on a host, and how many releases they ask what those need."""
    progress = FETCH_RUN / "progress"
    return {
        "store": store,
        "units": UNITS,
        "projects": PROJECTS,
        "unit": FETCH_UNIT,
        "progress": str(progress),
        "sent": str(INCOMING),
        **needed_places(keep),
    }
