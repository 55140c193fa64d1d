"""Which of a release's archives a rig takes, by the names that the authors of llama.cpp give them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.software import UPSTREAM
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
    cuda, machine = _parts(system)
    return f"Linux {_WORDS.get(machine, machine)}{f' with CUDA {cuda}' if cuda else ''}"


def _parts(system: str) -> tuple[str, str]:
    before, _, machine = system.rpartition("-")
    return before.removeprefix("cuda-"), machine
