"""What we bring to a host beside its servers: the fetcher, gates, what holds GPUs, settings; against what lies there.

The roles compare fingerprints; this has every file hashed, and compares it with the plan's text. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from llamaherd.host.answers import Answers
from llamaherd.layout import FETCHER
from llamaherd.plan import Plan, TextFile
from llamaherd.role.programs import programs
from llamaherd.role.report import Check
from llamaherd.role.role import Role
from llamaherd.text.numbers import parse_mode

_NAMED = 3
"""Files that are named in one sentence."""


def brought(plan: Plan, roles: Sequence[Role]) -> dict[str, TextFile]:
    """Every such file by its path. What may be somebody else's, such as a repository's entry, is not among them."""
    return {file.path: file for file in (*(file for role in roles for file in role.brings(plan)), *programs())}


def places(plan: Plan, roles: Sequence[Role]) -> list[str]:
    """Where a host is to look for them: all of the fetcher's folder, in which nothing else may lie."""
    inside = f"{FETCHER}/"
    return [inside, *(path for path in brought(plan, roles) if not path.startswith(inside))]


def brought_checks(plan: Plan, roles: Sequence[Role], answers: Answers) -> Iterator[Check]:
    """One check of all of them."""
    if ("shipped", "") not in answers:
        return
    files = brought(plan, roles)
    wrong = list(_wrong(files, answers["shipped", ""], answers.get(("shipped sums", ""), "")))
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    named = f"{'; '.join(wrong[:_NAMED])}{more}: `herd up` mends that"
    yield Check("programs", not wrong, named if wrong else f"{len(files)} files beside servers are as planned")


def _wrong(files: dict[str, TextFile], stats: str, sums: str) -> Iterator[str]:
    """Each line of `stats` is octal mode, owner, path; each of `sums` a sha256, two blanks, path."""
    rows = (line.split("\t", 2) for line in stats.split("\n"))
    there = {path: (mode, owner) for mode, owner, path in (row for row in rows if len(row) == 3)}
    hashes = {path: sha256 for sha256, _, path in (line.partition("  ") for line in sums.split("\n"))}
    for path, file in files.items():
        if path not in there:
            yield f"{path} is not there"
        elif hashes.get(path) != hashlib.sha256(file.text.encode()).hexdigest():
            yield f"{path} is not as planned"
        elif (parse_mode(there[path][0]), there[path][1]) != (int(file.mode, 8), file.owner):
            mode, owner = there[path]
            yield f"{path} has mode {mode} and is {owner}'s, not {int(file.mode, 8):o} and {file.owner}'s"
    yield from (f"{path} is not in the plan" for path in there if path not in files)
