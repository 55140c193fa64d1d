"""A host, inspected for what is unused on it, and cleared of that: one verb in one connection each."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.onhost import unused
from llamaherd.onhost.outcome import Outcome
from llamaherd.plan import Plan
from llamaherd.prune.unused import Thing, Things, things_of

_LOOK_SECONDS = 180
_REMOVE_SECONDS = 60
"""For each: a build has thousands of files, and Docker takes its time."""


def look_for_unused(plan: Plan, remote: Remote, keep: int) -> Things:
    """Return what lies on the rig's host, and who needs it: so many good releases among them. Raise RemoteError."""
    given = unused.LookInput(keep)
    return things_of(plan, query_verb(remote, "llamaherd.unused.look", given, unused.Things, _LOOK_SECONDS))


def clear(things: Things, remote: Remote, keep: int) -> Outcome:
    """Remove what can go and is still unused. Raise RemoteError where it is not known what has become of it."""
    seconds = _LOOK_SECONDS + _REMOVE_SECONDS * len(things.removals)
    return query_verb(remote, "llamaherd.unused.remove", remove_input(things.removals, keep), Outcome, seconds)


def remove_input(removals: Sequence[Thing], keep: int) -> unused.RemoveInput:
    """Return the input that removes things, if they are still unused."""

    def names(kind: unused.Kind) -> tuple[str, ...]:
        return tuple(each.name for each in removals if each.kind == kind)

    return unused.RemoveInput(
        builds=names("build"),
        images=names("image"),
        presets=names("preset"),
        sources=names("source"),
        work=names("work"),
        packages=bool(names("packages")),
        keep=keep,
    )
