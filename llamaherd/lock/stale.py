"""Declarations of an inventory that its lock lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines.prebuilt import describe_system, release_key
from llamaherd.inventory.schema import Model, Rig
from llamaherd.lock.entries import Lock
from llamaherd.lock.local_files import archive_in_lock, name_in_lock

PlaceOf = Callable[[tuple[str | int, ...]], Place]
"""Returns where the value at a path of a rig is."""


NOT_LOCKED = Rule(
    "LH031",
    "Something that the inventory declares is not in the lock.",
    why="""
    It is new, or has changed since: an engine's `ref` or `release`, an image's tag, a model's `hf`, `revision`,
    `quant` or `files`. Or it is the file of a model or a source archive, whose hash neither the inventory nor the
    lock has. `herd up` locks new names itself, unless you give `--locked`.
    """,
    example="""
    $ herd plan attic
    fleet/attic.yaml:12:13: error LH031: rig `attic`: engine `main` (llama.cpp at master) is not in the lock
      help: run `herd lock` and commit the lock
    """,
    language="console",
    fix="run `herd lock`, review what it wrote, and commit it.",
)


def stale(rig: Rig, lock: Lock, place: PlaceOf, command: str = "herd lock", folder: Path = Path()) -> Iterator[Finding]:
    """Yield what the lock in a folder lacks for a rig: errors (LH031), or a warning if only sizing lacks something
    (LH033).

    The rig has the locked hashes of its files. A declared hash that differs from the locked one is an error as well.
    """
    help_ = f"run `{command}` and commit the lock"
    for name, engine in rig.engines.items():
        source = engine.source
        if source and source.git and source.ref and lock.commit(source.git, source.ref) is None:
            message = f"rig `{rig.rig}`: engine `{name}` ({source.git} at {source.ref}) is not in the lock"
            yield NOT_LOCKED.at(place(("engines", name, *engine.version_key)), message, help_)
        elif (key := release_key(rig, name)) and lock.release(key) is None:
            message = f"rig `{rig.rig}`: release {engine.release} of engine `{name}` for {describe_system(key[2])} "
            yield NOT_LOCKED.at(place(("engines", name, "release")), f"{message}is not in the lock", help_)
        if source and source.archive:
            where = place(("engines", name, "source", "sha256" if source.sha256 else "archive"))
            locked = lock.archive_hash(archive_in_lock(source, folder))
            what = f"rig `{rig.rig}`: the archive of engine `{name}` ({source.archive})"
            yield from _stale_hash(what, source.sha256, locked, where, help_)
        if engine.image and not engine.digest and lock.digest(engine.image) is None:
            message = f"rig `{rig.rig}`: the image of engine `{name}` ({engine.image}) is not in the lock"
            yield NOT_LOCKED.at(place(("engines", name, "image")), message, help_)
    for name, model in rig.models.items():
        if model.hf is not None:
            yield from _stale_model(rig, name, model, lock, place, help_)
        elif model.file is not None:
            where = place(("models", name, "sha256" if model.sha256 else "file"))
            locked = lock.file_hash(name_in_lock(model.file, folder))
            yield from _stale_hash(
                f"rig `{rig.rig}`: the file of model `{name}` ({model.file})", model.sha256, locked, where, help_
            )


def _stale_hash(what: str, declared: str | None, locked: str | None, place: Place, help_: str) -> Iterator[Finding]:
    """Yield that a file has no hash, or another one in the lock than declared."""
    if declared is None:
        yield NOT_LOCKED.at(place, f"{what} has no hash in the lock", help_)
    elif locked not in (None, declared):
        message = f"{what} is declared with sha256 {declared[:12]}…, but was locked with {locked[:12]}…"
        yield NOT_LOCKED.at(place, message, f"correct `sha256:`, or {help_}")


WITHOUT_HEADER = Rule(
    "LH033",
    "A model is locked without its header.",
    why="""
    The lock is of an older llamaherd, or the header could not be read. The rig can be planned and deployed. Its memory
    is not calculated, and neither is the meaning of `experts_on_cpu`.
    """,
    example="""
    $ herd check
    fleet/attic.yaml:15:10: warning LH033: rig `attic`: model `35b` is locked without its header
      help: run `herd lock` and commit the lock
    """,
    language="console",
    fix="run `herd lock`. It reads the first few MB of each file by HTTP range, and no weights.",
    severity="warning",
)


def _stale_model(rig: Rig, name: str, model: Model, lock: Lock, place: PlaceOf, help_: str) -> Iterator[Finding]:
    locked = lock.model(model)
    where = place(("models", name, "hf"))
    if locked is None:
        files = f"{model.files} with {model.mmproj}" if model.mmproj else model.files
        message = f"model `{name}` ({model.hf} at {model.revision}, {files}) is not in the lock"
        yield NOT_LOCKED.at(where, f"rig `{rig.rig}`: {message}", help_)
    elif locked.header is None and locked.is_gguf:
        message = f"rig `{rig.rig}`: model `{name}` is locked without its header, so its memory cannot be calculated"
        yield WITHOUT_HEADER.at(where, message, help_)
