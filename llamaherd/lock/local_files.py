"""Files of this machine that complete a rig: hashes of models and archives, and the flags that builds list."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from llamaherd.diagnostics.findings import UserError
from llamaherd.engines.flags.definitions import MOST_FLAGS, MOST_VALUES, SPELLINGS, flags_of_mapping
from llamaherd.gguf.parse import GgufError
from llamaherd.gguf.shards import join_headers, read_header
from llamaherd.inventory.schema import Engine, Rig, Source
from llamaherd.lock.file import Lock, LockedLocal

_MOST_ARCHIVE, _SILENCE, _TOTAL = 4 << 30, 30.0, 1800.0
"""The limits of an archive that is fetched to hash it: bytes, and seconds."""


class LocalFileError(UserError):
    """A file that cannot be hashed or sized: one sentence, and a fix."""


@dataclass(frozen=True)
class HashedFile:
    """The sha256 and the size in bytes of a file."""

    sha256: str
    size: int


def name_in_lock(path: Path, folder: Path) -> str:
    """Return how the lock in a folder names a file: from the folder, from the home folder, or by its absolute path.

    So the lock of a fleet is valid on each machine that has the file at the same place.
    """
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home folder
        return str(path)
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)


def archive_in_lock(source: Source, folder: Path) -> str:
    """Return how the lock in a folder names the archive of a source: by its URL, or as other files."""
    local = source.local_archive
    return name_in_lock(local, folder) if local else str(source.archive)


def with_hashes(rig: Rig, lock: Lock | None, folder: Path) -> Rig:
    """Return the rig with the locked hashes of files and archives for which it declares none."""
    if lock is None or not (lock.files or lock.archives):
        return rig
    found = {
        name: sha256
        for name, model in rig.models.items()
        if model.file and model.sha256 is None and (sha256 := lock.file_hash(name_in_lock(model.file, folder)))
    }
    models = {
        name: model.model_copy(update={"sha256": found[name]}) if name in found else model
        for name, model in rig.models.items()
    }
    engines = {name: _with_hash(engine, lock, folder) for name, engine in rig.engines.items()}
    return rig.model_copy(update={"models": models, "engines": engines})


def _with_hash(engine: Engine, lock: Lock, folder: Path) -> Engine:
    source = engine.source
    if source is None or source.archive is None or source.sha256 is not None:
        return engine
    sha256 = lock.archive_hash(archive_in_lock(source, folder))
    return engine.model_copy(update={"source": source.model_copy(update={"sha256": sha256})}) if sha256 else engine


def has_secret(archive: str) -> bool:
    """Return whether a URL may contain a secret, which a lock would show: a user, a password or a query."""
    return re.match(r"https?://([^/?#]*@|[^?#]*[?#])", archive) is not None


def hash_file(path: Path) -> HashedFile:
    """Return the hash of a file of this machine. Raise LocalFileError."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            # Reading a pipe would wait, and a device has no end.
            raise LocalFileError(f"{path} is not a file", "name a file that is whole")
        with path.open("rb") as stream:
            return HashedFile(hashlib.file_digest(stream, "sha256").hexdigest(), path.stat().st_size)
    except (OSError, ValueError) as error:
        # ValueError: a name that no file can have.
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        raise LocalFileError(f"{path} cannot be read: {reason}", "copy it here and run `herd lock`") from None


def sized_file(path: Path, name: str, hashed: HashedFile) -> LockedLocal:
    """Return the entry of a model's file with its header. Raise LocalFileError."""
    try:
        header = read_header(path)
    except GgufError as error:
        raise LocalFileError(str(error), "name a GGUF file that is whole") from None
    return LockedLocal(
        file=name,
        sha256=hashed.sha256,
        size=hashed.size,
        data_offset=header.data_offset,
        header=join_headers((header,)),
    )


def hash_archive(source: Source) -> HashedFile:
    """Return the hash of a source's archive, which is fetched if it is a URL. Raise LocalFileError."""
    local = source.local_archive
    return hash_file(local) if local else _fetched_hash(str(source.archive))


def _fetched_hash(url: str) -> HashedFile:
    from llamaherd.bounded import BoundedClient, Bounds

    digest, size = hashlib.sha256(), 0
    with (
        _sentences(url),
        BoundedClient(Bounds(_MOST_ARCHIVE, _SILENCE, _TOTAL)) as client,
        client.stream("GET", url) as response,
    ):
        if response.status_code != 200:
            help_ = "check the URL; for an archive that only the host can fetch, add `sha256:`"
            raise LocalFileError(f"{url} cannot be fetched: status {response.status_code}", help_)
        for piece in response.iter_bytes():
            digest.update(piece)
            size += len(piece)
    return HashedFile(digest.hexdigest(), size)


@contextmanager
def _sentences(url: str) -> Iterator[None]:
    """Turn the client's exceptions into LocalFileError."""
    import httpx2

    from llamaherd.bounded import ExcessError

    help_ = "check the URL, the network and any proxy; for an archive that only the host can fetch, add `sha256:`"
    try:
        yield
    except ExcessError as error:
        raise LocalFileError(f"{url} cannot be fetched: its server {error}", help_) from None
    except (httpx2.RequestError, httpx2.InvalidURL) as error:
        reason = str(error) if isinstance(error, httpx2.ConnectError) else type(error).__name__
        raise LocalFileError(f"{url} cannot be fetched: {reason}", help_) from None


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
