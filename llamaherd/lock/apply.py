"""A rig with every moving name replaced by its locked value."""

from __future__ import annotations

from llamaherd.engines import version_of
from llamaherd.engines.prebuilt import describe_system, release_key
from llamaherd.inventory.schema import Engine, Rig, Source, Version
from llamaherd.inventory.schema.software import PageArchive, ReleaseArchive
from llamaherd.lock.entries import Lock, ReleaseKey


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
