"""Apply a lock to a rig: its locked values in place of moving names, and the declarations that the lock lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines import version_of
from llamaherd.engines.prebuilt import describe_system, release_key
from llamaherd.inventory.schema import Engine, Model, Rig, Source, Version
from llamaherd.inventory.schema.software import PageArchive, ReleaseArchive
from llamaherd.lock.entries import Lock, ReleaseKey
from llamaherd.lock.local_files import archive_in_lock, name_in_lock


class NotLockedError(Exception):
    """A declaration of the rig is not resolved yet: `what` is not in the lock."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} is not in the lock")


def pinned(rig: Rig, lock: Lock) -> Rig:
    """Return the rig with commits for refs and digests for tags, of those engines that it uses.

    Raise NotLockedError, also for a file or an archive without a hash.
    """
    for name, model in rig.models.items():
        if model.file is not None and model.sha256 is None:
            raise NotLockedError(f"model `{name}` ({model.file})")
    used = {instance.engine for instance in rig.instances.values()}
    engines = {name: _engine(rig, name, lock) if name in used else engine for name, engine in rig.engines.items()}
    return rig.model_copy(update={"engines": engines})


def _engine(rig: Rig, name: str, lock: Lock) -> Engine:
    engine = rig.engines[name]
    if engine.source and engine.source.archive and engine.source.sha256 is None:
        raise NotLockedError(f"engine `{name}` ({engine.source.archive})")
    # A commit or a digest no longer contains the release that a ref or a tag names.
    if engine.source and engine.source.ref:
        source = _source(name, engine.source, lock)
        flags = None if source.build_number else version_of(engine)
        built = engine.model_copy(update={"source": source, "flags": engine.flags or flags})
        if key := release_key(rig, name):
            return built.with_archives(_archives(name, key, lock))
        locked = lock.ref(str(engine.source.git), engine.source.ref)
        page = locked.page if locked else None
        return built.with_page(PageArchive(page.url, page.sha256)) if page else built
    if engine.image and not engine.digest:
        image = pinned_image(engine.image, lock, f"engine `{name}`")
        return engine.model_copy(update={"image": image, "flags": version_of(engine)})
    return engine


def _archives(name: str, key: ReleaseKey, lock: Lock) -> tuple[ReleaseArchive, ...]:
    locked = lock.release(key)
    if locked is None:
        raise NotLockedError(f"engine `{name}` (release {key[1]} for {describe_system(key[2])})")
    return tuple(ReleaseArchive(each.url, each.sha256, each.size) for each in locked.archives)


def pinned_image(image: str, lock: Lock, what: str) -> str:
    """Return an image by the digest of its tag. Raise NotLockedError."""
    digest = lock.digest(image)
    if digest is None:
        raise NotLockedError(f"{what} ({image})")
    return f"{_without_tag(image)}@{digest}"


def _source(name: str, source: Source, lock: Lock) -> Source:
    """Return the source at its commit.

    A ref such as `b11434` also gives the build its name: one commit has no history to count.
    """
    commit = lock.commit(str(source.git), str(source.ref))
    if commit is None:
        raise NotLockedError(f"engine `{name}` ({source.git} at {source.ref})")
    number = source.build_number
    version = source.version or (Version(number=number, commit=commit[:9]) if number else None)
    return source.model_copy(update={"commit": commit, "ref": None, "version": version})


def _without_tag(image: str) -> str:
    """Return an image's name without its tag; a registry's port stays."""
    name, _, last = image.rpartition("/")
    last = last.partition(":")[0]
    return f"{name}/{last}" if name else last


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
