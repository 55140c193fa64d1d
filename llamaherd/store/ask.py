"""The store of a host, asked and cleared: one script in one connection each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llamaherd.host.remote import Remote, RemoteError, Result
from llamaherd.layout import FETCH_RUN, FETCH_UNIT, INCOMING, PROJECTS, UNITS
from llamaherd.plan import Plan
from llamaherd.store.holdings import LEFT, Holdings, Removal
from llamaherd.store.judge import judge
from llamaherd.store.state import parse
from llamaherd.text.render import render

_LOOK_SECONDS = 120
_REMOVE_SECONDS = 30
"""For each folder: a large file takes seconds to go, and every time the host looks who uses it."""


@dataclass(frozen=True)
class Outcome:
    """What was removed, and what was not and why. `fetch` says how far a fetch is because of which nothing was done."""

    removed: tuple[str, ...]
    kept: dict[str, str]
    fetch: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all went that was to go."""
        return not self.kept and self.fetch is None


def look(plan: Plan, remote: Remote) -> Holdings:
    """What lies in the rig's store. Raises RemoteError where its host cannot be asked."""
    result = remote.run(look_script(plan.store.path), _LOOK_SECONDS)
    seen = parse(result.out)
    if seen is None:
        raise _broken_off(result)
    return judge(plan, seen)


def remove(holdings: Holdings, remote: Remote) -> Outcome:
    """Remove what can go and is still unused. Raises RemoteError where it is not known what has become of it."""
    seconds = _LOOK_SECONDS + _REMOVE_SECONDS * len(holdings.removals)
    result = remote.run(prune_script(holdings.store, holdings.removals), seconds)
    return outcome(result)


def outcome(result: Result) -> Outcome:
    """What the script said of its removals. Raises RemoteError if it did not come to its end."""
    lines = [line.split("\t") for line in result.out.split("\n")]
    fetch = next((fields[1] for fields in lines if fields[0] == "fetching"), None)
    if fetch is None and ["end"] not in lines:
        raise _broken_off(result)
    return Outcome(
        removed=tuple(fields[1] for fields in lines if fields[0] == "removed"),
        kept={fields[1]: fields[2] for fields in lines if fields[0] == "kept"},
        fetch=fetch,
    )


def _broken_off(result: Result) -> RemoteError:
    said = result.err.strip().splitlines()[-1:] or ["it said nothing"]
    return RemoteError(f"the host stopped answering halfway: {said[0]}", "try again; nothing that is used was touched")


def look_script(store: str) -> str:
    """The script that asks a host what is in its store."""
    return render("store-look.sh.j2", **places(store))


def prune_script(store: str, removals: Iterable[Removal]) -> str:
    """The script that removes folders, files and parts, if they are still unused."""
    removals = list(removals)
    parts = [each for each in removals if each.what.startswith(".incoming/")]
    sent = [each.what for each in removals if each.what.startswith(f"{INCOMING}/")]
    return render(
        "store-prune.sh.j2",
        items=[
            {"folder": each.what, "files": each.files, "keep": each.keep}
            for each in removals
            if each not in parts and each.what != LEFT and each.what not in sent
        ],
        uploads=sent,
        parts=[each.what.removeprefix(".incoming/") for each in parts],
        **places(store),
    )


def places(store: str) -> dict[str, object]:
    """Where the scripts find what on a host."""
    progress = FETCH_RUN / "progress"
    return {
        "store": store,
        "units": UNITS,
        "projects": PROJECTS,
        "unit": FETCH_UNIT,
        "progress": str(progress),
        "sent": str(INCOMING),
    }
