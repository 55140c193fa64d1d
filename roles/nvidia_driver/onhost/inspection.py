"""Inspect NVIDIA's driver: packages, modules on disk and in the kernel, library, and what a reboot was for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from llamaherd.layout import DRIVER_READING, DRIVER_REFUSED, REBOOT_MARK, REBOOT_NOTE
from llamaherd.onhost.system import NOT_STARTED, System
from llamaherd.onhost.units import show_units
from llamaherd.onhost.verbs import Verb
from roles.nvidia_driver.onhost.driver import (
    ANSWERED,
    BEFORE,
    PERSISTENCE,
    is_judged,
    loaded_version,
    module_version,
    next_kernel,
    running_kernel,
)

MOST_READING = 1 << 16
"""Bytes of what was measured that are returned."""
_SMI_SECONDS, _APT_SECONDS = 12, 30
_NO_PREFERENCES = ("-o", "Dir::Etc::preferences=/dev/null", "-o", "Dir::Etc::preferencesparts=/dev/null")


@dataclass(frozen=True)
class Question:
    """The names of packages to inspect, as patterns of dpkg."""

    packages: tuple[str, ...]


@dataclass(frozen=True)
class PersistenceFound:
    """The unit of NVIDIA's persistence daemon, as systemd reports it."""

    active: str
    enabled: str


@dataclass(frozen=True)
class Found:
    """The driver; what is absent is empty or None."""

    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of those that are installed."""
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By installed package: whose repositories have its version, `nvidia` or `distribution`."""
    loaded: str | None = None
    """The version of the module in the kernel; empty where it does not report it."""
    uvm: bool = False
    disk: Mapping[str, str] = field(default_factory=dict)
    """By kernel, the running one and the next: the version of the module that it would load."""
    library: str = ""
    problem: str = ""
    """Why nvidia-smi lists nothing."""
    runfile: bool = False
    """Whether a driver was installed by NVIDIA's .run file, past the packages."""
    persistence: PersistenceFound | None = None
    components: tuple[str, ...] = ()
    """Parts of repositories that apt knows."""
    free: int | None = None
    """Bytes free in /."""
    tried: str = ""
    kept: str = ""
    judging: bool = False
    answered: bool = False
    reading: str = ""
    refused: tuple[str, ...] = ()
    """The fields of the record of a driver that was refused."""


def inspect(given: Question, system: System) -> Found:
    """Inspect the driver."""
    packages = _installed(given.packages, system)
    kept = (system.read(f"{BEFORE}/from") or "").strip()
    note = (system.read(str(REBOOT_NOTE)) or "").partition("\n")[0]
    kernels = sorted({running_kernel(system), next_kernel(system)})
    versions = {kernel: module_version(system, kernel) for kernel in kernels}
    return Found(
        packages=packages,
        origins=_origins(tuple(packages), system) if packages else {},
        loaded=loaded_version(system) if system.entry("/sys/module/nvidia") else None,
        uvm=system.entry("/sys/module/nvidia_uvm") is not None,
        disk={kernel: version for kernel, version in versions.items() if version},
        library=_library(system),
        problem=_problem(system),
        runfile=_is_runfile(system),
        persistence=_persistence(system),
        components=_components(system),
        free=system.free("/"),
        # While the mark is there, the reboot that the note is of has not come.
        tried="" if system.entry(str(REBOOT_MARK)) else note,
        kept=kept,
        judging=is_judged(system),
        answered=system.entry(ANSWERED) is not None,
        reading=system.read(str(DRIVER_READING), MOST_READING) or "",
        refused=_refused(system),
    )


def _installed(names: tuple[str, ...], system: System) -> dict[str, str]:
    listed = system.run(["dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${db:Status-Status}\\n", *names]).out
    rows = (line.split("\t") for line in listed.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "installed"}


def _origins(names: tuple[str, ...], system: System) -> dict[str, tuple[str, ...]]:
    """Return whose repositories have the versions that are installed.

    NVIDIA's repositories are flat, and no distribution's are. Preferences take seconds to be matched with all packages.
    """
    policy = system.run(["apt-cache", *_NO_PREFERENCES, "policy", *names], seconds=_APT_SECONDS).out
    found: dict[str, set[str]] = {}
    name, here = "", False
    for line in policy.splitlines():
        words = line.split()
        if line[:1] not in ("", " "):
            name, here = line.rstrip().removesuffix(":"), False
        elif line.startswith(" *** "):
            here = True
        elif re.match(" {5}[^ ]", line):
            here = False
        elif here and line.startswith("        ") and len(words) > 2:
            found.setdefault(name, set()).add("nvidia" if len(words) == 3 else "distribution")
    return {name: tuple(sorted(sources)) for name, sources in found.items() if name in names}


def _library(system: System) -> str:
    for folder in system.names("/usr/lib"):
        path = f"/usr/lib/{folder}/libnvidia-ml.so.1"
        if system.entry(path):
            return system.resolved(path).partition(".so.")[2]
    return ""


def _problem(system: System) -> str:
    # A driver that hangs must not hang this.
    ended = system.run(["nvidia-smi", "-L"], seconds=_SMI_SECONDS)
    if ended.ok or ended.code == NOT_STARTED:
        return ""
    return next((line.replace("\t", " ") for line in (ended.out + ended.err).splitlines() if line.strip()), "")


def _is_runfile(system: System) -> bool:
    uninstall = "/usr/bin/nvidia-uninstall"
    found = system.entry(uninstall)
    return found is not None and not system.run(["dpkg", "-S", uninstall]).ok


def _persistence(system: System) -> PersistenceFound | None:
    unit = show_units([PERSISTENCE], ("LoadState", "ActiveState", "UnitFileState"), system).get(PERSISTENCE, {})
    if unit.get("LoadState") != "loaded":
        return None
    return PersistenceFound(unit.get("ActiveState", ""), unit.get("UnitFileState", ""))


def _components(system: System) -> tuple[str, ...]:
    targets = ["apt-get", "indextargets", "--format", "$(COMPONENT)", "Created-By: Packages"]
    return tuple(sorted({*system.run(targets, seconds=_APT_SECONDS).out.split()}))


def _refused(system: System) -> tuple[str, ...]:
    fields = (system.read(str(DRIVER_REFUSED)) or "").partition("\n")[0].split("\t")
    return tuple(fields) if len(fields) in (5, 6) else ()


VERBS = {"inspect": Verb(Question, inspect)}
