"""Apply a lock to a rig: its locked values in place of moving names, and the declarations that the lock lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines import version_of
from llamaherd.inventory.schema import Engine, Model, Rig, Source, Version
from llamaherd.inventory.schema.software import UPSTREAM, PageArchive, ReleaseArchive
from llamaherd.lock.file import Lock, ReleaseKey
from llamaherd.lock.local_files import archive_in_lock, name_in_lock
from llamaherd.reference.cards import on_arm

# Names of b11026 to b12110: `llama-b11434-bin-ubuntu-cuda-12.8-x64.tar.gz`, and with CUDA's own libraries
# `cudart-llama-b11434-bin-ubuntu-cuda-12.8-x64.tar.gz`. Archives for the CPU have no part `cuda-12.8-`.
_ARCHIVE = re.compile(
    r"(?P<libraries>cudart-)?llama-[A-Za-z0-9._-]+-bin-ubuntu-(?:cuda-(?P<major>\d{1,3})\.(?P<minor>\d{1,3})-)?"
    r"(?P<machine>x64|arm64)\.tar\.gz"
)
_WORDS = {"x64": "x86-64", "arm64": "ARM64"}


@dataclass(frozen=True)
class ArchiveName:
    """The parts of an archive's name: its system, the minor version of CUDA, and whether it has CUDA's libraries."""

    system: str
    minor: int
    libraries: bool


def parse_name(name: str) -> ArchiveName | None:
    """Return the parts of the name of a release's file; None if it is no archive of programs for Linux."""
    found = _ARCHIVE.fullmatch(name)
    if found is None or (found["libraries"] and not found["major"]):
        return None
    cuda = f"cuda-{int(found['major'])}-" if found["major"] else ""
    return ArchiveName(f"{cuda}{found['machine']}", int(found["minor"] or 0), found["libraries"] is not None)


def choose_names(names: Iterable[str], system: str) -> tuple[str, ...]:
    """Return the archives for a system: the programs, and CUDA's libraries if it has CUDA. Nothing if one is missing.

    Of several minor versions of CUDA, the newest that has both.
    """
    found: dict[tuple[int, bool], str] = {}
    for name in sorted(names):
        about = parse_name(name)
        if about and about.system == system:
            found[about.minor, about.libraries] = name
    with_libraries = system.startswith("cuda-")
    for minor in sorted({minor for minor, libraries in found if not libraries}, reverse=True):
        if not with_libraries:
            return (found[minor, False],)
        if (minor, True) in found:
            return found[minor, False], found[minor, True]
    return ()


def systems_of(names: Iterable[str]) -> list[str]:
    """Return the systems for which a release has archives."""
    known = {about.system for about in map(parse_name, names) if about}
    return sorted(each for each in known if choose_names(names, each))


def archive_system(rig: Rig, engine: str) -> str:
    """Return the system whose archive an engine of a rig takes: `x64`, or `cuda-13-x64` for instances on GPUs.

    The major version of CUDA is that of `gpus: cuda:`; drivers run programs of any minor version of theirs.
    """
    cards = rig.gpus.cards if rig.gpus else {}
    machine = "arm64" if any(on_arm(each.cuda_architecture) for each in cards.values()) else "x64"
    if rig.gpus is None or not _on_gpus(rig, engine):
        return machine
    return f"cuda-{rig.gpus.cuda.partition('.')[0]}-{machine}"


def release_key(rig: Rig, name: str) -> tuple[str, str, str] | None:
    """Return what the lock has the archives of an engine's release by; None for an engine without a release."""
    engine = rig.engines[name]
    return (UPSTREAM[engine.kind], engine.release, archive_system(rig, name)) if engine.release else None


def _on_gpus(rig: Rig, engine: str) -> set[str]:
    """Return the GPUs of an engine's instances. An engine without any may be tried in place of the others."""
    own = [each for each in rig.instances.values() if each.engine == engine]
    return {gpu for each in own or rig.instances.values() for gpu in each.on}


def describe_system(system: str) -> str:
    """Return a system in words: `Linux x86-64 with CUDA 13`."""
    cuda, machine = _system_parts(system)
    return f"Linux {_WORDS.get(machine, machine)}{f' with CUDA {cuda}' if cuda else ''}"


def _system_parts(system: str) -> tuple[str, str]:
    before, _, machine = system.rpartition("-")
    return before.removeprefix("cuda-"), machine


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
