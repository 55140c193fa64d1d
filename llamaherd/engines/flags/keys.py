"""Convert the arguments of a server to the keys of an instance that mean the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from llamaherd.engines.flags.definitions import Catalogue, catalogues
from llamaherd.inventory.schema.key_flags import KEY_FLAGS, KeyFlag, Settings, Spelling

Keys = dict[str, Any]


class ParsedKeys(NamedTuple):
    """The keys of an instance that arguments mean, and what has no key."""

    keys: Keys
    model: str
    """The path or the repository of the model."""
    name: str
    """The name by which clients request the model; empty where it is not set."""
    gpus: int | None
    """The number of GPUs; None where it is not set."""
    rest: list[str]
    """Arguments without a key, as they are written."""


class _Carrier(NamedTuple):
    """A flag of the table that carries a key."""

    row: KeyFlag
    spelling: Spelling
    flag: str


@cache
def managed_flags(kind: str) -> Mapping[str, str]:
    """Return the key of an instance by each flag that carries it with any value."""
    return {
        flag: row.top
        for row, spelling in _spellings(kind)
        for flag in spelling.flags
        if row.key and flag not in spelling.partial
    }


@cache
def written_flags(kind: str) -> Mapping[str, str]:
    """Return the key of an instance by each flag that a server may get; `engine` for what every server gets."""
    return {flag: row.top or "engine" for row, spelling in _spellings(kind) for flag in spelling.flags}


@cache
def wired_flags(kind: str) -> Mapping[str, str]:
    """Return the reasons why flags in `extra_args` break a rig, also where their key is not set."""
    return {flag: row.wired for row, spelling in _spellings(kind) if row.wired for flag in spelling.flags}


@cache
def limited_flags(kind: str) -> Mapping[str, str]:
    """Return the key by each flag that no other check compares with the version of an engine."""
    return {flag: row.top for row, spelling in _spellings(kind) if row.limited for flag in spelling.flags}


def _spellings(kind: str) -> Iterator[tuple[KeyFlag, Spelling]]:
    return ((row, spelling) for row in KEY_FLAGS if (spelling := row.spelled.get(kind)))


@cache
def _carriers(kind: str) -> Mapping[str, _Carrier]:
    """Return the flags that carry keys by each of their spellings, in all known versions of an engine."""
    found: dict[str, _Carrier] = {}
    for row, spelling in _spellings(kind):
        for flag in spelling.flags:
            names = {flag, *(name for known in catalogues(kind) for name in _same_meaning(known, flag))}
            found |= dict.fromkeys(names, _Carrier(row, spelling, flag)) | found
    return found


def _same_meaning(known: Catalogue, flag: str) -> tuple[str, ...]:
    """Return the spellings of a flag in one version, without its negations."""
    found = known.find(flag)
    if found is None:
        return ()
    return found.negated if flag in found.negated else found.spellings


def keys_from_arguments(arguments: Iterable[str], kind: str) -> ParsedKeys:
    """Return the keys that these arguments of an engine mean."""
    found, rest, drafting, serving = Settings(), list[str](), list[str](), list[str]()
    words = list(arguments)
    while words:
        if not words[0].startswith("-") and "model" not in found and not rest:
            found["model"] = words.pop(0)  # as `vllm serve` takes it
            continue
        name, value, length = _next_option(words, kind)
        carrier = _carriers(kind).get(name)
        if carrier and carrier.flag in carrier.spelling.switches:
            value, length = None, 1
        settings = _settings(carrier, value) if carrier else None
        if settings is None:
            rest += words[:length]
        elif carrier and carrier.row.key == "draft":
            drafting += words[:length]
        elif carrier and carrier.row.key in ("serve", "pooling"):
            serving += words[:length]
        found |= settings or {}
        del words[:length]
    model, alias, gpus = (found.pop(key, None) for key in ("model", "model.name", "on"))
    keys = _nested(found)
    if resolved := _resolved_draft(keys.pop("draft", {}), rest):
        keys["draft"] = resolved
    else:
        rest += drafting  # another way to draft has no key
    task, pools = keys.pop("serve", {}), keys.pop("pooling", None)
    if not task.get("embeds"):
        rest += serving  # a chat server that pools has no key
    elif task.get("ranks"):
        keys["serve"] = "rerank"
        rest += ["--pooling", pools] if pools else []
    else:
        keys |= {"serve": "embeddings"} | ({"pooling": pools} if pools else {})
    return ParsedKeys(keys, model or "", alias or "", gpus, rest)


def _next_option(words: list[str], kind: str) -> tuple[str, str | None, int]:
    """Return the first flag as catalogues spell it, its first value, and the number of words."""
    known = next(reversed(catalogues(kind)), None)
    name = words[0]
    if known and known.dashes and name.startswith("--"):
        bare, equals, value = name.partition("=")
        name = bare.replace("_", "-")
        if equals:
            return (name, value, 1) if known.equals else (words[0], None, 1)
    flag = known.find(name) if known else None
    most = len(words) if flag and flag.many else 2
    values = list(takewhile(_is_value, words[1:most]))
    return name, next(iter(values), None), 1 + len(values)


def _settings(carrier: _Carrier, value: str | None) -> Settings | None:
    """Return the values by key that a flag means; None where no key can express it."""
    spelling, flag = carrier.spelling, carrier.flag
    if flag in spelling.switches:
        meaning = spelling.switches[flag]
    elif value is None:
        return Settings()  # it lacks its value
    else:
        meaning = spelling.values[flag](value)
    if meaning is None or isinstance(meaning, Settings):
        return meaning
    return Settings({carrier.row.key: meaning})


def _is_value(word: str) -> bool:
    return not word.startswith("-") or _NEGATIVE.fullmatch(word) is not None


_NEGATIVE = re.compile(r"-(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def _nested(settings: Settings) -> Keys:
    keys: Keys = {}
    for path, value in settings.items():
        key, _, inner = path.partition(".")
        if inner:
            keys.setdefault(key, {})[inner] = value
        else:
            keys[key] = value
    return keys


def _resolved_draft(parts: Keys, rest: list[str]) -> Keys:
    """Return the key `draft`; empty where it cannot express how the server drafts."""
    path, count = parts.get("path"), parts.get("count")
    model = {"model": slug(PurePosixPath(path).name)} if path else {}
    p_min = {"p_min": parts["p_min"]} if "p_min" in parts else {}
    if parts.get("own"):
        return {"mtp": 3 if count is None else count} | model | p_min  # the default of llama.cpp, common/arg.cpp:4150
    if path and "--spec-type" not in rest:
        return model | ({} if count is None else {"max": count}) | p_min
    return {}


def slug(name: str) -> str:
    """Return a name of an inventory for a model's file."""
    bare = re.sub(r"(?:-\d{5}-of-\d{5})?\.gguf$", "", name.lower())
    return re.sub(r"[^a-z0-9._-]+", "-", bare)[:40].strip("-._")
