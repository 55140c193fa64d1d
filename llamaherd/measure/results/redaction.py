"""Redact a result for publication: no hosts, users, addresses, UUIDs or paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pydantic import StringConstraints

from llamaherd.measure.results.document import with_id
from llamaherd.measure.results.result import Around, Recorded, Result

HIDDEN = "…"

_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?i)\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+",  # URLs, with hosts, users and ports
        r"[\w.+-]+@[\w.-]+",  # addresses of mail, and users at hosts
        r"(?i)\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",  # UUIDs
        r"(?i)\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b",  # MAC addresses
        r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",  # IPv4
        r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}[0-9a-f]{0,4}(?![\w:])|(?i:(?<![\w:])[0-9a-f:]*::[0-9a-f:]*)",  # IPv6
        r"(?i)\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:lan|local|localdomain|home|internal|intranet|fritz\.box|home\.arpa)\b",
        r"(?<![\w.])(?:~\w*|[A-Za-z]:)?[/\\][^\s\"'|;,=]+",  # paths
    )
)
_HOME = re.compile(r"(?i)(?:/home/|/Users/|\\Users\\)([^\s/\\\"'|;,=:]+)")
_SHORTEST = 3
"""Letters of a name, below which it stands in too many words by chance."""


def redact_result(result: Result) -> Result:
    """The result without what only its owner is to know, and with an id of its own.

    Names of hosts and users are taken out wherever they stand as a word; rig and instance are called after what they
    are. Hashes of models and builds stay: these say what was measured.
    """
    origin = result.provenance
    around = Around(
        instances=("another",) * len(origin.around.instances),
        processes=("another",) * len(origin.around.processes),
        load=origin.around.load,
    )
    provenance = origin.model_copy(
        update={
            "host": origin.host.model_copy(update={"name": None}),
            "gpus": tuple(gpu.model_copy(update={"uuid": None, "address": None}) for gpu in origin.gpus),
            "server": origin.server.model_copy(update={"user": None}),
            "around": around,
        }
    )
    starts = tuple(
        each.model_copy(update={"process": str(number) if each.process else None})
        for number, each in enumerate(result.starts)
    )
    bare = {"rig": "rig", "instance": "instance", "shared": True, "starts": starts, "provenance": provenance}
    return with_id(_scrubbed(result.model_copy(update=bare), _private_words(result)))


def redact_text(text: str, private: Iterable[str] = ()) -> str:
    """One text without addresses, UUIDs and paths, nor these words."""
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    for word in private:
        text = re.sub(rf"(?i)(?<![^\W_]){re.escape(word)}(?![^\W_])", HIDDEN, text)
    return text


def _private_words(result: Result) -> tuple[str, ...]:
    """Names of the host, of the rig and of users, the longest first."""
    host, user = result.provenance.host.name or "", result.provenance.server.user or ""
    homes = set(_HOME.findall("\n".join(_texts(result.model_dump(mode="json")))))
    words = {host, host.partition(".")[0], user, result.rig, *homes}
    return tuple(sorted((word for word in words if len(word) >= _SHORTEST), key=len, reverse=True))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _texts(each)


def free_texts(model: type[Recorded]) -> frozenset[str]:
    """The fields of a model that may hold any text: not those of a fixed form, in which nobody's name can stand."""
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if field.annotation in _FREE and not any(isinstance(each, StringConstraints) for each in field.metadata)
    )


_FREE = (str, str | None, tuple[str, ...], dict[str, str])
M = TypeVar("M", bound=Recorded)


def _scrubbed(model: M, private: tuple[str, ...]) -> M:
    free = free_texts(type(model))
    return model.model_copy(
        update={
            name: _deep(each, private) if name in free else _parts(each, private)
            for name in type(model).model_fields
            if isinstance(each := getattr(model, name), str | tuple | dict | Recorded)
        }
    )


def _parts(value: Any, private: tuple[str, ...]) -> Any:
    if isinstance(value, Recorded):
        return _scrubbed(value, private)
    return tuple(_parts(each, private) for each in value) if isinstance(value, tuple) else value


def _deep(value: Any, private: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact_text(value, private)
    if isinstance(value, dict):
        return {redact_text(key, private): redact_text(each, private) for key, each in value.items()}
    return tuple(redact_text(each, private) for each in value)
