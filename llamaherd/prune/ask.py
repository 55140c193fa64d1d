"""A host, asked what is of no use on it, and cleared of that: one script in one connection each."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.protocol import ask_host, question_of
from llamaherd.host.remote import Remote
from llamaherd.layout import APT_ARCHIVES, BUILDS, CACHE, PRESETS, WORK
from llamaherd.plan import Plan
from llamaherd.prune.unused import Thing, Things, things_of
from llamaherd.store.ask import store_places
from llamaherd.store.outcome import Outcome, outcome

_LOOK_SECONDS = 180
_REMOVE_SECONDS = 60
"""For each: a build has thousands of files, and Docker takes its time."""


def look_for_unused(plan: Plan, remote: Remote, keep: int) -> Things:
    """What lies on the rig's host, and who needs it: so many of its good releases among them. Raises RemoteError."""
    return things_of(plan, ask_host(remote, look_script(keep), _LOOK_SECONDS))


def clear(things: Things, remote: Remote, keep: int) -> Outcome:
    """Remove what can go and is still unused. Raises RemoteError where it is not known what has become of it."""
    seconds = _LOOK_SECONDS + _REMOVE_SECONDS * len(things.removals)
    return outcome(ask_host(remote, remove_script(things.removals, keep), seconds))


def look_script(keep: int) -> str:
    """The script that asks what lies there."""
    return question_of("prune/look.sh.j2", archives=APT_ARCHIVES, **_places(keep))


def remove_script(removals: Sequence[Thing], keep: int) -> str:
    """The script that removes things, if they are still unused."""

    def names(kind: str) -> list[str]:
        return [each.name for each in removals if each.kind == kind]

    sources, work = CACHE / "sources", WORK
    return question_of(
        "prune/remove.sh.j2",
        builds=names("build"),
        images=names("image"),
        preset_files=names("preset"),
        files=[
            *((str(sources / name), f"source {name}") for name in names("source")),
            *((str(work / name), f"work {name}") for name in names("work")),
        ],
        packages=bool(names("packages")),
        **_places(keep),
    )


def _places(keep: int) -> dict[str, object]:
    return store_places(str(BUILDS), keep) | {"work": WORK, "sources": CACHE / "sources", "presets": PRESETS}
