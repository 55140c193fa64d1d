"""The CUDA toolkit's part of the program on hosts: inspect it, and install it without any part of a driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from llamaherd.onhost import apt
from llamaherd.onhost.files import disk_of, resolve
from llamaherd.onhost.services import last_lines, locked
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb

_QUERY_SECONDS = 600
"""For a question to apt, which reads the lists of all packages."""
_NVCC_SECONDS = 300
_VERSION_SECONDS = 10
_LINES = 8
_FOLDER, _ARCHIVES = "/usr/local", "/var/cache/apt/archives"
_BLOCK = 512
_RELEASE = re.compile(r"release ([0-9.]+),")
_TOOLKIT = re.compile(r"cuda-toolkit-([0-9]{1,4})-([0-9]{1,4})")


@dataclass(frozen=True)
class InstallInput:
    """The planned toolkit. Others, and links to them, are left alone."""

    version: str
    package: str
    compiler: str
    """The package of its compiler."""
    nvcc: str
    driver: tuple[str, ...]
    """Patterns of names of packages that belong to a driver, or bring one."""


def install(given: InstallInput, system: System) -> None:
    """Install the toolkit. Raise FailedError where apt cannot, or would do more than that."""
    with locked(system, f"CUDA {given.version}"):
        apt.refresh(system)
        if not system.run(["apt-cache", "madison", given.package], seconds=_QUERY_SECONDS).out.strip():
            raise _no_such_toolkit(given, system)
        options, packages = [], [given.package]
        status = system.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", given.compiler])
        if status.out == "installed":
            # Its compiler does not run: another program has removed what is in the package.
            options, packages = ["--reinstall"], [given.package, given.compiler]
        _require_toolkit_alone(given, system, [*options, *packages])
        apt.install(system, packages, f"apt could not install {given.package}", *options)
        if not system.run_logged([given.nvcc, "--version"], apt.LOG, seconds=_NVCC_SECONDS).ok:
            message = f"{given.package} is installed, and there is no {given.nvcc} that runs"
            raise FailedError(message, f"run `{given.nvcc} --version` on the host to see why")


def _no_such_toolkit(given: InstallInput, system: System) -> FailedError:
    """Return the failure for a toolkit that no repository has, with those that there are."""
    names = system.run(["apt-cache", "pkgnames", "cuda-toolkit-"], seconds=_QUERY_SECONDS).out.splitlines()
    found = [(int(each[1]), int(each[2])) for name in names if (each := _TOOLKIT.fullmatch(name))]
    versions = " ".join(f"{major}.{minor}" for major, minor in sorted(found))
    there = versions or "none at all: is `gpus: repository:` right?"
    message = f"none of this host's repositories has {given.package}"
    return FailedError(message, f"write another `cuda:`; there is {there}")


def _require_toolkit_alone(given: InstallInput, system: System, words: Sequence[str]) -> None:
    """Raise FailedError where apt would remove something, or bring a part of a driver."""
    planned = system.run(["apt-get", "-q", "-s", "install", "--no-install-recommends", *words], seconds=_QUERY_SECONDS)
    if not planned.ok:
        message = f"apt cannot install {given.package} here; its reasons are above"
        raise FailedError(message, log=last_lines(planned, _LINES))
    if problems := "; ".join(_problems(planned.out, given.driver)):
        raise FailedError(
            f"{given.package} was not installed: with it, {problems}",
            "a toolkit brings no driver and takes nothing away; "
            f"see why with `apt-get -s install {given.package}` on the host",
        )


def _problems(planned: str, driver: Sequence[str]) -> Iterator[str]:
    for line in planned.splitlines():
        what, _, rest = line.partition(" ")
        name = rest.partition(" ")[0]
        if what == "Remv":
            yield f"{name} would go"
        elif what == "Inst" and any(fnmatchcase(name, each) for each in driver):
            yield f"{name} would come"


@dataclass(frozen=True)
class InspectInput:
    """The planned toolkit, and its compiler."""

    version: str
    nvcc: str


@dataclass(frozen=True)
class RoomState:
    """The folder that toolkits are installed in, bytes free there, its device, and bytes of an unfinished toolkit."""

    folder: str
    free: int
    device: str
    begun: int


@dataclass(frozen=True)
class Found:
    """The version that the compiler prints, empty if it does not run; without a compiler, the room for a toolkit."""

    version: str | None = None
    room: RoomState | None = None


def inspect(given: InspectInput, system: System) -> Found:
    """Inspect the planned toolkit, no matter which program has installed it."""
    nvcc = resolve(given.nvcc, system)
    if nvcc and nvcc.mode & 0o111:
        ended = system.run([given.nvcc, "--version"], seconds=_VERSION_SECONDS)
        release = _RELEASE.search(ended.out)
        return Found(version=release[1] if release else "")
    disk = disk_of(_FOLDER, system)
    return Found(room=RoomState(_FOLDER, disk.free, disk.device, _begun_bytes(given.version, system)))


def _begun_bytes(version: str, system: System) -> int:
    """Return the bytes on disk that an earlier run has fetched: of the toolkit, and of packages to install."""
    folder = f"{_FOLDER}/cuda-{version}"
    archive = f"-{version.replace('.', '-')}_"
    entries = [system.entry(folder), *(found for _, found in system.tree(folder))]
    packages = [each for each in system.names(_ARCHIVES) if archive in each and each.endswith(".deb")]
    entries += [system.entry(f"{_ARCHIVES}/{each}") for each in packages]
    return sum(found.blocks for found in entries if found) * _BLOCK


VERBS = {"install": Verb(InstallInput, install), "inspect": Verb(InspectInput, inspect)}
