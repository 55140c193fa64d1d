"""The flags that built engines on hosts list, kept in the inventory folder: `engines/RIG.json`, one file a rig."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from llamaherd.engines.flags.definitions import MOST_FLAGS, MOST_VALUES, SPELLINGS, flags_of_mapping
from llamaherd.inventory.schema import Engine, Rig
from llamaherd.lock.entries import Lock

FOLDER = "engines"
MOST_BUILDS, MOST_BYTES = 8, 256 << 10


def _spellings(text: str) -> str:
    if not SPELLINGS.fullmatch(text):
        raise ValueError("must be spellings of a flag")
    return text


class BuiltEngine(BaseModel):
    """One build: the commit or the hash of its source, and its flags, with the number of values of each."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    source: Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")]
    flags: Annotated[
        dict[
            Annotated[str, Field(max_length=800), AfterValidator(_spellings)],
            Annotated[int, Field(ge=0, le=MOST_VALUES, strict=True)],
        ],
        Field(min_length=1, max_length=MOST_FLAGS),
    ]


@cache
def _builds() -> TypeAdapter[dict[str, BuiltEngine]]:
    """Return the parser of a file; made when the first file is read."""
    return TypeAdapter(dict[Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,80}$")], BuiltEngine])


def read_built(folder: Path, rig: str) -> dict[str, BuiltEngine]:
    """Return the stored builds of a rig from an inventory's folder; none if the file is missing or damaged."""
    try:
        with (folder / FOLDER / f"{rig}.json").open("rb") as stream:
            text = stream.read(MOST_BYTES + 1)
        found = _builds().validate_json(text) if len(text) <= MOST_BYTES else {}
    except (OSError, ValidationError):
        return {}
    return found if len(found) <= MOST_BUILDS else {}


def keep_built(folder: Path, rig: str, builds: Mapping[str, BuiltEngine], planned: frozenset[str]) -> bool:
    """Keep these builds of a rig, and of those that are kept the planned ones. Return whether the file changed.

    A folder that cannot be written to is left as it is: the next run tries again.
    """
    before = read_built(folder, rig)
    after = {name: build for name, build in before.items() if name in planned} | dict(builds)
    if not builds or after == before or len(after) > MOST_BUILDS:
        return False
    data = {name: build.model_dump() for name, build in sorted(after.items())}
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    target = folder / FOLDER / f"{rig}.json"
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    with suppress(OSError):
        target.parent.mkdir(exist_ok=True)
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(target)
            return True
        finally:
            part.unlink(missing_ok=True)
    return False


def with_built(rig: Rig, lock: Lock | None, folder: Path) -> Rig:
    """Return the rig, whose engines have the flags that its host's builds of the same sources list."""
    flags = {build.source: flags_of_mapping(build.flags) for build in read_built(folder, rig.rig).values()}
    engines = {
        name: engine.with_built(flags[origin]) if (origin := _origin(engine, lock)) in flags else engine
        for name, engine in rig.engines.items()
    }
    return rig.model_copy(update={"engines": engines}) if flags else rig


def _origin(engine: Engine, lock: Lock | None) -> str:
    """Return the commit or the hash of an engine's source if it is known; else an empty string."""
    source = engine.source
    if source is None:
        return ""
    locked = lock.commit(str(source.git), source.ref) if lock and source.ref else None
    return source.commit or source.sha256 or locked or ""
