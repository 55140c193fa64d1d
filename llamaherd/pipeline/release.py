"""A release: what one run changed on a host, its origin and result, and the plan that the host stores with it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from llamaherd.onhost.releases import MOST_PLAN, Stored, WriteInput
from llamaherd.plan import InstancePlan, Only, Plan
from llamaherd.plan.artifacts import Planned

_SENTENCES, _LETTERS = 100, 400
"""The most changes and failures that are kept, and the most letters of each."""


class Origin(Planned):
    """The origin of a run: its user, machine, commit of the inventory, lock, and version of llamaherd.

    `commit` is empty if the inventory is in no git repository, and ends in `+` if it has uncommitted changes.
    """

    user: str = ""
    machine: str = ""
    commit: str = ""
    lock: str = ""
    version: str = ""

    @property
    def who(self) -> str:
        """The user and the machine, as text."""
        return f"{self.user} on {self.machine}"


class Release(Planned):
    """One run that changed something. `at` is its end, in UTC. A rollback restored the release `back_to`.

    `only` are the instances and roles that the run was limited to; empty for all.
    """

    at: str
    origin: Origin
    changes: tuple[str, ...]
    failed: tuple[str, ...] = ()
    back_to: int | None = None
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Past:
    """The releases of a host by number, the oldest first, and the plans of the requested ones."""

    releases: dict[int, Release]
    plans: dict[int, Plan]
    texts: Mapping[str, bool] = field(default_factory=dict)
    """By file that is made of keys, whether it is as the last run wrote it; only files that a run recorded."""

    @property
    def good(self) -> list[int]:
        """The releases without a failure, the newest first."""
        return [number for number, release in reversed(self.releases.items()) if not release.failed]

    @property
    def newest_plan(self) -> Plan | None:
        """The plan of the last run, even if the run failed."""
        return self.plans[max(self.plans)] if self.plans else None


def bounded_sentences(sentences: Iterable[str]) -> tuple[str, ...]:
    """Return as many sentences, and as many letters of each, as a release keeps."""
    return tuple(each[:_LETTERS] for each in list(sentences)[:_SENTENCES])


def settling_release(unsettled: str, origin: Origin, at: str) -> Release:
    """Return the release of a run that found nothing to do, though the newest release has not the host's state."""
    return Release(at=at, origin=origin, changes=(f"confirm plan: the host matches it, after {unsettled}",))


def write_input(release: Release, plan: Plan) -> WriteInput:
    """Return the input with which the host stores a release under the next number. It contains no secret."""
    return WriteInput(release.model_dump_json(), plan.model_dump_json())


def past_of(stored: Stored) -> Past:
    """Return the releases that a host has stored. Releases that only a later version can read are left out."""
    releases = {each.number: release for each in stored.releases if (release := release_of(each.release))}
    plans = {each.number: plan for each in stored.releases if each.plan and (plan := _unpack_plan(each.plan))}
    return Past(dict(sorted(releases.items())), plans, stored.texts)


def release_of(text: str | bytes) -> Release | None:
    """Return a release from its text; None if this version cannot read it."""
    try:
        return Release.model_validate_json(text)
    except ValueError:
        return None


def _unpack_plan(content: str) -> Plan | None:
    """Return a plan, unpacked no further than a plan can be long."""
    try:
        packed = base64.b64decode(content, validate=True)
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, MOST_PLAN)
        return Plan.model_validate_json(text)
    except (ValueError, zlib.error):
        return None


RECENT = 10
"""The releases that are searched for a server that runs with another spec than in the newest."""

_EMPTY = ("packages", "files", "repositories", "builds", "models", "images", "instances", "windows_power")
_NONE = ("driver", "toolkit", "runtime", "power", "wsl")

T = TypeVar("T")


def merged_plan(past: Past, plan: Plan, running: Mapping[str, str]) -> Plan:
    """Return the plan of a host after this plan was applied there; `running` are specs of its servers, by service.

    If the host has no release, it is the plan of the part alone, with `only`.
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
        others = (each for each in _instances_before(past, before, running) if each.name not in only.instances)
        instances = tuple(sorted((*others, *plan.chosen), key=lambda each: each.name))
    plans = (plan, before, *_newest_first(past))
    folders = {folder for each in instances for folder in each.server.folders}
    update |= {
        "instances": instances,
        "builds": _used_items(
            {each.build for each in instances}, lambda build: build.id, [each.builds for each in plans]
        ),
        "models": _used_items(folders, lambda model: model.folder, [each.models for each in plans]),
        "images": _used_items(
            {each.server.image for each in instances}, lambda i: i.tag, [each.images for each in plans]
        ),
    }
    return before.model_copy(update=update)


def _nothing(plan: Plan) -> Plan:
    """Return an empty plan of the same host."""
    nothing = dict.fromkeys(_EMPTY, ()) | dict.fromkeys(_NONE)
    return plan.model_copy(update=nothing | {"parts": {}, "only": Only()})


def _both_parts(one: Only, other: Only) -> Only:
    return Only(instances=union(one.instances, other.instances), roles=union(one.roles, other.roles))


def _with_needs(before: Plan, needs: Plan) -> dict[str, Any]:
    """Return what instances need in addition to builds, models and images, merged with a plan."""
    files = {file.path: file for file in (*before.files, *needs.files)}
    return {
        "packages": tuple(sorted({*before.packages, *needs.packages})),
        "files": tuple(files.values()),
        "repositories": union(before.repositories, needs.repositories),
        "store": needs.store,
        "toolkit": needs.toolkit or before.toolkit,
        "runtime": before.runtime or needs.runtime,
    }


def _instances_before(past: Past, before: Plan, running: Mapping[str, str]) -> Iterator[InstancePlan]:
    """Yield each instance as it was planned last; if another spec runs, as in the last release with that spec.

    The last run may have failed without changing the instance.
    """
    last = {each.name: each for each in before.instances}
    runs = {
        each.name: each
        for plan in reversed(_newest_first(past))
        for each in plan.instances
        if running.get(each.service) == each.spec
    }
    yield from (last | runs).values()


def _used_items(used: set[Any], key: Callable[[T], object], lists: Sequence[Sequence[T]]) -> tuple[T, ...]:
    """Return the used items, each once: as in the first list that contains it."""
    found = {key(each): each for list_ in reversed(lists) for each in list_ if key(each) in used}
    return tuple(found.values())


def _newest_first(past: Past) -> list[Plan]:
    return [past.plans[number] for number in sorted(past.plans, reverse=True)]


def union(first: Sequence[T], second: Sequence[T]) -> tuple[T, ...]:
    """Return the items of both, each of the second only if the first lacks it."""
    return (*first, *(each for each in second if each not in first))
