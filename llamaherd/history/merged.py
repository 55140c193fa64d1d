"""The plan that a release keeps of a run that was for a part alone: that part, and what was planned of the rest before.

Nobody has carried out what the inventory says of the rest. Who goes back to such a release, or asks what has moved
since, must not take it for done. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from llamaherd.history.release import Past
from llamaherd.plan import InstancePlan, Only, Plan

RECENT = 10
"""Releases in which a server is looked for that runs and is not as in the newest."""

_EMPTY = ("packages", "files", "repositories", "builds", "models", "images", "instances", "windows_power")
_NONE = ("driver", "toolkit", "runtime", "power", "wsl")

T = TypeVar("T")


def merged(past: Past, plan: Plan, running: Mapping[str, str]) -> Plan:
    """What is planned of a host once this plan was carried out there; `running` are specs of its servers, by service.

    Where nothing is remembered, it is the part alone, and says so.
    """
    only = plan.only
    if only is None:
        return plan
    before = past.newest_plan or _nothing(plan)
    update: dict[str, Any] = {name: getattr(plan, name) for name in only.fields}
    update["parts"] = before.parts | {role: plan.parts[role] for role in only.roles if role in plan.parts}
    update["only"] = _both_parts(before.only, only) if before.only else None
    if only.needs:
        update |= _with_needs(before.model_copy(update=update), only.needs)
    instances = plan.instances
    if not plan.whole("serve"):
        others = (each for each in _before(past, before, running) if each.name not in only.instances)
        instances = tuple(sorted((*others, *plan.chosen), key=lambda each: each.name))
    plans = (plan, before, *_newest_first(past))
    folders = {folder for each in instances for folder in each.server.folders}
    update |= {
        "instances": instances,
        "builds": _used({each.build for each in instances}, lambda build: build.id, [each.builds for each in plans]),
        "models": _used(folders, lambda model: model.folder, [each.models for each in plans]),
        "images": _used({each.server.image for each in instances}, lambda i: i.tag, [each.images for each in plans]),
    }
    return before.model_copy(update=update)


def _nothing(plan: Plan) -> Plan:
    """A plan of the same host of which nothing is known."""
    nothing = dict.fromkeys(_EMPTY, ()) | dict.fromkeys(_NONE)
    return plan.model_copy(update=nothing | {"parts": {}, "only": Only()})


def _both_parts(one: Only, other: Only) -> Only:
    return Only(instances=_both(one.instances, other.instances), roles=_both(one.roles, other.roles))


def _with_needs(before: Plan, needs: Plan) -> dict[str, Any]:
    """What instances need beside builds, models and images, in a plan that may have it already."""
    files = {file.path: file for file in (*before.files, *needs.files)}
    return {
        "packages": tuple(sorted({*before.packages, *needs.packages})),
        "files": tuple(files.values()),
        "repositories": _both(before.repositories, needs.repositories),
        "store": needs.store,
        "toolkit": needs.toolkit or before.toolkit,
        "runtime": before.runtime or needs.runtime,
    }


def _before(past: Past, before: Plan, running: Mapping[str, str]) -> Iterator[InstancePlan]:
    """Each instance as it was planned last; one of which another spec runs, as in the last release that had that.

    The last run may have failed, and have left it as it was.
    """
    last = {each.name: each for each in before.instances}
    runs = {
        each.name: each
        for plan in reversed(_newest_first(past))
        for each in plan.instances
        if running.get(each.service) == each.spec
    }
    yield from (last | runs).values()


def _used(used: set[Any], key: Callable[[T], object], lists: Sequence[Sequence[T]]) -> tuple[T, ...]:
    """What is used of these, each once: as in the first list that has it."""
    found = {key(each): each for list_ in reversed(lists) for each in list_ if key(each) in used}
    return tuple(found.values())


def _newest_first(past: Past) -> list[Plan]:
    return [past.plans[number] for number in sorted(past.plans, reverse=True)]


def _both(first: Sequence[T], second: Sequence[T]) -> tuple[T, ...]:
    return (*first, *(each for each in second if each not in first))
