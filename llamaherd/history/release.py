"""`Release`: what one run changed on a host, on whose behalf, and what came of it. The host keeps it, with the plan."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llamaherd.onhost.releases import MOST_PLAN, Stored, WriteInput
from llamaherd.plan import Plan
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


def bounded(sentences: Iterable[str]) -> tuple[str, ...]:
    """As much of them as is kept."""
    return tuple(each[:_LETTERS] for each in list(sentences)[:_SENTENCES])


def write_input(release: Release, plan: Plan) -> WriteInput:
    """Return the input that has the host keep a release under the next number. Neither contains a secret."""
    return WriteInput(release.model_dump_json(), plan.model_dump_json())


def past_of(stored: Stored) -> Past:
    """Return what a host has stored. What this version cannot read, as of a later one, is left out."""
    releases = {each.number: release for each in stored.releases if (release := release_of(each.release))}
    plans = {each.number: plan for each in stored.releases if each.plan and (plan := _plan(each.plan))}
    return Past(dict(sorted(releases.items())), plans, stored.texts)


def release_of(text: str | bytes) -> Release | None:
    """Return a release from its text; None where this version cannot read it."""
    try:
        return Release.model_validate_json(text)
    except ValueError:
        return None


def _plan(content: str) -> Plan | None:
    """Return a plan, unpacked no further than a plan can be long."""
    try:
        packed = base64.b64decode(content, validate=True)
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, MOST_PLAN)
        return Plan.model_validate_json(text)
    except (ValueError, zlib.error):
        return None
