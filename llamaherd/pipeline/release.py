"""A release: what one run changed on a host, its origin and result, and the plan that the host stores with it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from llamaherd.onhost.releases import MOST_PLAN, Stored, WriteInput
from llamaherd.plan import InstancePlan, Only, Plan
from llamaherd.plan.base import Planned

_SENTENCES, _LETTERS = 100, 400
"""Of changes, and of what failed, as many are kept; and as many letters of each."""


class Origin(Planned):
    """Who asked for a run, and from what: a user, a machine, a commit of the inventory, a lock, and our version.

    `commit` is empty where the inventory is in no git repository, and ends in `+` where it held more than that commit.
    """

    user: str = ""
    machine: str = ""
    commit: str = ""
    lock: str = ""
    version: str = ""

    @property
    def who(self) -> str:
        """The user and the machine, for people."""
        return f"{self.user} on {self.machine}"


class Release(Planned):
    """One run that changed something. `at` is when it ended, in UTC. `back_to`: the release that it brought back.

    `only`: the instances and roles that it was for alone; all, where there is none.
    """

    at: str
    origin: Origin
    changes: tuple[str, ...]
    failed: tuple[str, ...] = ()
    back_to: int | None = None
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Past:
    """What a host remembers: releases by number, the oldest first, and the plans of those that were asked for."""

    releases: dict[int, Release]
    plans: dict[int, Plan]
    texts: Mapping[str, bool] = field(default_factory=dict)
    """Of files that are made of keys, whether they are as our last run wrote them; what no run noted is not in it."""

    @property
    def good(self) -> list[int]:
        """Those in which nothing failed, the newest first."""
        return [number for number, release in reversed(self.releases.items()) if not release.failed]

    @property
    def newest_plan(self) -> Plan | None:
        """What was planned last, whatever came of it."""
        return self.plans[max(self.plans)] if self.plans else None


def bounded_sentences(sentences: Iterable[str]) -> tuple[str, ...]:
    """As much of them as is kept."""
    return tuple(each[:_LETTERS] for each in list(sentences)[:_SENTENCES])


def write_input(release: Release, plan: Plan) -> WriteInput:
    """Return the input that has the host keep a release under the next number. Neither contains a secret."""
    return WriteInput(release.model_dump_json(), plan.model_dump_json())


def past_of(stored: Stored) -> Past:
    """Return what a host has stored. What this version cannot read, as of a later one, is left out."""
    releases = {each.number: release for each in stored.releases if (release := release_of(each.release))}
    plans = {each.number: plan for each in stored.releases if each.plan and (plan := _unpack_plan(each.plan))}
    return Past(dict(sorted(releases.items())), plans, stored.texts)


def release_of(text: str | bytes) -> Release | None:
    """Return a release from its text; None where this version cannot read it."""
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
"""Releases in which a server is looked for that runs and is not as in the newest."""

_EMPTY = ("packages", "files", "repositories", "builds", "models", "images", "instances", "windows_power")
_NONE = ("driver", "toolkit", "runtime", "power", "wsl")

T = TypeVar("T")


def merged_plan(past: Past, plan: Plan, running: Mapping[str, str]) -> Plan:
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
    """A plan of the same host of which nothing is known."""
    nothing = dict.fromkeys(_EMPTY, ()) | dict.fromkeys(_NONE)
    return plan.model_copy(update=nothing | {"parts": {}, "only": Only()})


def _both_parts(one: Only, other: Only) -> Only:
    return Only(instances=_union(one.instances, other.instances), roles=_union(one.roles, other.roles))


def _with_needs(before: Plan, needs: Plan) -> dict[str, Any]:
    """What instances need beside builds, models and images, in a plan that may have it already."""
    files = {file.path: file for file in (*before.files, *needs.files)}
    return {
        "packages": tuple(sorted({*before.packages, *needs.packages})),
        "files": tuple(files.values()),
        "repositories": _union(before.repositories, needs.repositories),
        "store": needs.store,
        "toolkit": needs.toolkit or before.toolkit,
        "runtime": before.runtime or needs.runtime,
    }


def _instances_before(past: Past, before: Plan, running: Mapping[str, str]) -> Iterator[InstancePlan]:
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


def _used_items(used: set[Any], key: Callable[[T], object], lists: Sequence[Sequence[T]]) -> tuple[T, ...]:
    """What is used of these, each once: as in the first list that has it."""
    found = {key(each): each for list_ in reversed(lists) for each in list_ if key(each) in used}
    return tuple(found.values())


def _newest_first(past: Past) -> list[Plan]:
    return [past.plans[number] for number in sorted(past.plans, reverse=True)]


def _union(first: Sequence[T], second: Sequence[T]) -> tuple[T, ...]:
    return (*first, *(each for each in second if each not in first))
