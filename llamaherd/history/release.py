"""`Release`: what one run changed on a host, on whose behalf, and what came of it. The host keeps it, with the plan."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from llamaherd.host.protocol import question_of, take_facts
from llamaherd.layout import KEPT as KEPT_SERVERS
from llamaherd.layout import RELEASES
from llamaherd.plan import Plan
from llamaherd.plan.base import Planned
from llamaherd.render import render
from llamaherd.text.numbers import parse_whole
from llamaherd.text.quoting import base64_lines

KEPT = 50
"""Releases that a host keeps: the oldest go first."""

MOST_PLAN = 8 << 20
"""Bytes of a plan, unpacked; one of four servers has some 40,000."""

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


def write_script(release: Release, plan: Plan) -> str:
    """The script that has the host keep a release under the next number. No secret is in either."""
    packed = gzip.compress(plan.model_dump_json().encode(), mtime=0)
    return render(
        "history/write.sh.j2",
        releases=RELEASES,
        release=base64_lines(release.model_dump_json()),
        plan=base64_lines(packed),
        most=KEPT,
    )


def needed_places(keep: int) -> dict[str, object]:
    """What `templates/history/needed.sh.j2` is given, to tell what so many releases need."""
    return {"releases": RELEASES, "kept": KEPT_SERVERS, "keep": keep, "most_plan": MOST_PLAN}


def read_script(newest: int = 0, number: int | None = None, *, texts: bool = False) -> str:
    """The question for all releases, and for plans: of so many of the newest, of so many good ones, and of a number.

    With `texts`, also for what has become of files that are made of keys.
    """
    places = {"releases": RELEASES, "most": KEPT}
    return question_of("history/read.sh.j2", **places, newest=newest, number=number or 0, texts=texts)


def past_of(lines: Iterable[str]) -> Past:
    """What the answer says. Raises UnaskedError. What we cannot read, as of a later version, is left out."""
    releases: dict[int, Release] = {}
    plans: dict[int, Plan] = {}
    texts: dict[str, bool] = {}

    def take(kind: str, fields: list[str]) -> bool:
        about, content = fields
        if kind == "release" and (release := _release(content)):
            releases[parse_whole(about)] = release
        elif kind == "planned" and (plan := _plan(content)):
            plans[parse_whole(about)] = plan
        elif kind == "text":
            texts[about] = content == "same"
        return kind in ("release", "planned", "text")

    take_facts(lines, take)
    return Past(dict(sorted(releases.items())), plans, texts)


def _release(content: str) -> Release | None:
    try:
        return Release.model_validate_json(base64.b64decode(content, validate=True))
    except ValidationError:
        return None


def _plan(content: str) -> Plan | None:
    """Unpacked no further than a plan can be long."""
    packed = base64.b64decode(content, validate=True)
    try:
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, MOST_PLAN)
        return Plan.model_validate_json(text)
    except (zlib.error, ValidationError):
        return None
