"""Which files of a repository a pattern stands for: all shards of one model, its projector, or whatever matches."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from llamaherd.diagnostics.findings import HubError

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_MAX_COMPARED = 2000  # names that are compared with one that is not there
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf")


def projector_of(present: Sequence[RepoSibling], repo: str, mmproj: str) -> RepoSibling:
    """The one file that is the vision projector. Raises HubError."""
    matching = [file for file in present if fnmatchcase(file.rfilename, mmproj)]
    if not matching:
        known = sorted(file.rfilename for file in present if "mmproj" in file.rfilename.lower())
        there = (
            f"there is {_listed(known)}" if known else "it has no file with `mmproj` in its name: leave `mmproj` out"
        )
        raise HubError(f"no file of {repo} matches `mmproj: {mmproj}`", there)
    if len(matching) > 1:
        names = _listed(sorted(file.rfilename for file in matching))
        raise HubError(f"`mmproj: {mmproj}` matches {len(matching)} files of {repo}: {names}", "name one of them")
    return matching[0]


def all_matching(present: Sequence[RepoSibling], repo: str, files: str) -> list[RepoSibling]:
    """The files that match, whatever they are. Raises HubError."""
    matching = [file for file in present if fnmatchcase(file.rfilename, files)]
    if not matching:
        raise HubError(f"no file of {repo} matches `{files}`", "for a whole repository write `files: '*'`")
    return matching


def shards_of_one(there: Sequence[RepoSibling], repo: str, files: str) -> list[RepoSibling]:
    """The files that match, if they are all the shards of one model. Raises HubError."""
    present = {file.rfilename: file for file in there}
    matching = sorted(path for path in present if fnmatchcase(path, files))
    if not matching:
        raise HubError(f"no file of {repo} matches `{files}`", _nearest(files, list(present)))
    totals: dict[str, int] = {}
    for path in matching:
        shard = _SHARD.fullmatch(path)
        totals[f"{shard['stem']} in {int(shard['total'])} shards" if shard else path] = (
            int(shard["total"]) if shard else 1
        )
    if len(totals) > 1:
        raise HubError(
            f"`{files}` matches {len(totals)} things in {repo}, not one model: {_listed(list(totals))}",
            "make the pattern narrower, so that it matches one file or the shards of one model",
        )
    if shard := _SHARD.fullmatch(matching[0]):
        _refuse_gaps(repo, files, shard, set(matching), present.keys())
    return [present[path] for path in matching]


def _refuse_gaps(
    repo: str, files: str, shard: re.Match[str], matching: Collection[str], present: Collection[str]
) -> None:
    total = int(shard["total"])
    wanted = [f"{shard['stem']}-{number:05}-of-{shard['total']}.gguf" for number in range(1, total + 1)]
    absent = [path for path in wanted if path not in present]
    if absent:
        raise HubError(
            f"{repo} lacks {len(absent)} of {total} shards: {_listed(absent)}",
            "the upload may be unfinished: lock an earlier revision, or another quant",
        )
    unmatched = [path for path in wanted if path not in matching]
    if unmatched:
        raise HubError(
            f"`{files}` leaves out {len(unmatched)} of {total} shards: {_listed(unmatched)}",
            f"use `{shard['stem']}-*.gguf`",
        )


def _nearest(files: str, present: Sequence[str]) -> str:
    # Of a set of shards, its first stands for all.
    names = sorted(
        path
        for path in present
        if path.endswith(".gguf") and not ((shard := _SHARD.fullmatch(path)) and int(shard["number"]) != 1)
    )
    if not names:
        return "there is no GGUF file in it; choose a repository that has some, often named `…-GGUF`"
    names = names[:_MAX_COMPARED]
    other_case = [path for path in names if fnmatchcase(path.lower(), files.lower())]
    return f"nearest: {_listed(other_case or get_close_matches(files, names, n=5, cutoff=0.0))}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
