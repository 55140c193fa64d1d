"""The catalogues that llamaherd brings, read when first asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from llamaherd.engines.flags.model import Catalogue, Flag, Value
from llamaherd.reference import releases

DATE = re.compile(r"\d{4}-\d\d-\d\d")
COMMIT = re.compile(r"[0-9a-f]{7,40}")
RELEASE = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})+)")
_FOLDER = files("llamaherd.engines.flags").joinpath("catalogues")


def catalogue(kind: str, version: str) -> Catalogue | None:
    """The flags of an engine: of that very version, or else of the newest known before it (`exact` is false then).

    llama.cpp is asked for by build number (`b11434`) or release (`v1.0.0`), vLLM by release, ik_llama.cpp by commit,
    by date (`2026-08-15`) or by the way it spells MTP (`mtp`, `spec-stage`, `spec-type`).
    None for what is older than all, or not to be placed: an unknown commit tells nothing about its age.
    """
    if very := _brought(kind, version):
        return very
    known = catalogues(kind)
    same = [one for one in known if version in (one.version, one.dialect) or _same_commit(one, version)]
    if same:
        return same[-1]
    asked = _order(kind, version)
    if asked is None:
        return None
    older = [one for one in known if _age(one) <= asked]
    if not older:
        return None
    if kind != "ik_llama.cpp" and _age(older[-1]) == asked:
        return older[-1]
    following = known[len(older)] if len(older) < len(known) else None
    return replace(older[-1], exact=False, asked=version, following=following)


@cache
def assumed(kind: str, version: str | None) -> Catalogue | None:
    """The flags to go by for a version: of what is older than all, the oldest; of what is not to be placed, the newest.

    The latter may have more flags, and is not `complete`. None for an engine without catalogues.
    """
    found = catalogue(kind, version) if version else None
    known = () if found else catalogues(kind)
    if found or not known:
        return found
    asked = _order(kind, version) if version else None
    if asked:
        return replace(known[0], exact=False)
    return replace(known[-1], exact=False, complete=False)


@cache
def catalogues(kind: str) -> tuple[Catalogue, ...]:
    """All known catalogues of an engine, the oldest first."""
    return tuple(sorted((_read(kind, name) for name in _names(kind)), key=_age))


@cache
def _names(kind: str) -> tuple[str, ...]:
    """What the files of an engine's catalogues are called: by version, or by the beginning of a commit."""
    files = [path.name for path in _FOLDER.iterdir() if path.name.startswith(f"{kind}-")]
    return tuple(name.removeprefix(f"{kind}-").removesuffix(".json") for name in files)


def _brought(kind: str, version: str) -> Catalogue | None:
    """The catalogue of this very version, without a look at any other: a run asks for one, and there are many."""
    commit = COMMIT.fullmatch(version)
    same = [
        name
        for name in _names(kind)
        if name == version or (commit and COMMIT.fullmatch(name) and version.startswith(name))
    ]
    return _read(kind, same[0]) if same else None


@cache
def _read(kind: str, name: str) -> Catalogue:
    """A catalogue from its file; one with a `base` says only how it differs from that other one."""
    data = json.loads(_FOLDER.joinpath(f"{kind}-{name}.json").read_text(encoding="utf-8"))
    base = _brought(kind, data["base"]) if "base" in data else None
    flags = dict(base.flags) if base else {}
    for one in data["flags"]:
        flag = _flag(one)
        flags |= dict.fromkeys((*flag.spellings, *flag.negated), flag)
    about = {name: value for name, value in data.items() if name not in ("flags", "base", "source")}
    for name in ("environment", "booleans"):
        about[name] = frozenset(data.get(name, getattr(base, name, ())))
    about["environment"] |= {flag.env for flag in flags.values() if flag.env}
    return Catalogue(flags=flags, **about)


def _flag(data: Mapping[str, Any]) -> Flag:
    values = tuple(Value(**(one | {"choices": tuple(one.get("choices", ()))})) for one in data.get("values", ()))
    names = {name: tuple(data.get(name, ())) for name in ("spellings", "negated")}
    return Flag(**(dict(data) | names | {"values": values}))


def _same_commit(one: Catalogue, version: str) -> bool:
    both = COMMIT.fullmatch(version) and COMMIT.fullmatch(one.version)
    return bool(both) and (version.startswith(one.version) or one.version.startswith(version))


def _age(one: Catalogue) -> tuple[int, ...]:
    """What catalogues of one engine are sorted by."""
    order = _order(one.kind, one.date if one.kind == "ik_llama.cpp" else one.version)
    assert order is not None, f"{one} has no place among the others"
    return order


def _order(kind: str, version: str) -> tuple[int, ...] | None:
    """A version as numbers; None if it is of no form that tells its age."""
    if kind == "ik_llama.cpp":
        return tuple(int(part) for part in version.split("-")) if DATE.fullmatch(version) else None
    if kind == "llama.cpp":
        return releases.order(version)
    found = RELEASE.fullmatch(version)
    return tuple(int(part) for part in found[1].split(".")) if found else None
