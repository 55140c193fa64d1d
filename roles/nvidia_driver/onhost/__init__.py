"""Inspect NVIDIA's driver: its packages, modules and GPUs, and the files that a change leaves."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llamaherd.layout import (
    DRIVER_ARMED,
    DRIVER_BEFORE,
    DRIVER_HELD,
    DRIVER_KEPT,
    DRIVER_REFUSED,
    DRIVER_UNDO_UNIT,
    DRIVER_WANTED,
    REBOOT_MARK,
    REBOOT_NOTE,
    UNITS,
)
from llamaherd.onhost.apt import LOG, AptProgress
from llamaherd.onhost.clients import systemctl, unit_properties
from llamaherd.onhost.services import show_units
from llamaherd.onhost.system import NOT_STARTED, Ended, System
from llamaherd.onhost.verbs import Verb

BEFORE, ARMED = str(DRIVER_BEFORE), str(DRIVER_ARMED)
UNIT_FILE = f"{UNITS}/{DRIVER_UNDO_UNIT}"
WRITTEN = (str(DRIVER_KEPT), str(DRIVER_WANTED), str(DRIVER_HELD))
"""What is restored besides packages."""
PERSISTENCE = "nvidia-persistenced.service"
SMI_SECONDS, MODPROBE_SECONDS = 30, 60
_INSTALL_SECONDS = 43_200
"""A package manager or a compiler that is killed leaves things half-way: this ends only one that hangs."""


_SMI_SECONDS, _APT_SECONDS = 12, 30
_NO_PREFERENCES = ("-o", "Dir::Etc::preferences=/dev/null", "-o", "Dir::Etc::preferencesparts=/dev/null")


def run_admin(system: System, argv: Sequence[str], seconds: float = SMI_SECONDS) -> Ended:
    """Run a program that may be in sbin, without prompts."""
    return system.run([*_as_admin(), *argv], seconds=seconds)


def run_logged(system: System, *argv: str) -> Ended:
    """Run a program that installs or compiles. Its output goes to the log, and is returned."""
    heard = AptProgress(system).hear if argv[0] == "apt-get" else None
    return system.run_logged([*_as_admin(), *argv], LOG, seconds=_INSTALL_SECONDS, heard=heard)


def _as_admin() -> tuple[str, ...]:
    path = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
    return ("env", f"PATH={path}", "DEBIAN_FRONTEND=noninteractive")


def loaded_version(system: System) -> str:
    """Return the version of the driver in the kernel; empty where none is loaded."""
    return (system.read("/sys/module/nvidia/version") or "").strip()


def module_version(system: System, kernel: str) -> str:
    """Return the version of the driver's module that a kernel has on disk; empty where it has none."""
    return run_admin(system, ["modinfo", "-k", kernel, "-F", "version", "nvidia"]).out.strip()


def load_modules(system: System, seconds: float = MODPROBE_SECONDS) -> Ended:
    """Load the driver, and what CUDA needs of it. Return how the last modprobe ended."""
    ended = run_admin(system, ["modprobe", "nvidia"], seconds)
    return run_admin(system, ["modprobe", "nvidia_uvm"], seconds) if ended.ok else ended


def list_gpus(system: System) -> Ended:
    """Query the driver for its GPUs."""
    return system.run(["nvidia-smi", "-L"], seconds=SMI_SECONDS)


def gpus_in(listed: Ended) -> int:
    """Return the number of GPUs in a list."""
    return sum(line.startswith("GPU ") for line in listed.out.splitlines())


def responds(system: System) -> bool:
    """Return whether the driver responds."""
    return list_gpus(system).ok


def running_kernel(system: System) -> str:
    """Return the version of the running kernel."""
    return system.run(["uname", "-r"]).out.strip()


def next_kernel(system: System) -> str:
    """Return the version of the kernel that the next boot starts."""
    for link in ("/boot/vmlinuz", "/vmlinuz"):
        place = system.run(["readlink", "-f", link]).out.strip()
        entry = system.entry(place) if place else None
        if entry and entry.kind == "file":
            return place.rpartition("/vmlinuz-")[2]
    kernels = [each.removeprefix("vmlinuz-") for each in system.names("/boot") if each.startswith("vmlinuz-")]
    return max(kernels, key=version_order, default="") or running_kernel(system)


def compile_modules(system: System, kernel: str, version: str) -> None:
    """Let dkms compile the modules for a kernel, where it does not have those of a version."""
    if module_version(system, kernel) != version:
        run_logged(system, "dkms", "autoinstall", "-k", kernel)


def purge_pinning(system: System) -> None:
    """Remove the configuration of NVIDIA's pinning packages that were removed: apt's preferences are part of it."""
    status = "${Package} ${db:Status-Status}\n"
    found = system.run(["dpkg-query", "-W", "-f", status, "nvidia-driver-pinning-*"]).out.splitlines()
    removed = [name for name, _, state in (line.partition(" ") for line in found) if state == "config-files"]
    if removed:
        run_logged(system, "dpkg", "--purge", *removed)


def is_judged(system: System) -> bool:
    """Return whether this boot is just finding out whether a driver responds, or is going back."""
    if not system.entry(BEFORE) or system.entry(ARMED):
        return False
    unit = unit_properties(system, DRIVER_UNDO_UNIT, "ActiveState", "Job")
    return unit.get("ActiveState") == "activating" or unit.get("Job", "0") not in ("", "0")


def disarm(system: System) -> None:
    """Remove what was kept of the driver before, and the unit that goes back to it."""
    # At once: without its folder the unit does nothing, and with half of it, it could go back to nothing.
    system.remove(f"{BEFORE}.new")
    if system.entry(BEFORE):
        system.rename(BEFORE, f"{BEFORE}.new")
    systemctl(system, "-q", "disable", DRIVER_UNDO_UNIT)
    for path in (UNIT_FILE, f"{BEFORE}.new", ARMED):
        system.remove(path)


def sync(system: System) -> None:
    """Write what is in memory to disks: the power may go."""
    system.run(["sync"], seconds=300)


def upstream(version: str) -> str:
    """Return `580.95.05` for `1:580.95.05-0ubuntu1`: the driver's own version of a package's."""
    return re.sub(r"^[0-9]*:", "", version).partition("-")[0]


def version_order(version: str) -> list[tuple[bool, int, str]]:
    """Return what versions are sorted by: numbers in them count as numbers."""
    pieces = re.findall(r"[0-9]+|[^0-9]+", version)
    return [(each.isdigit(), int(each) if each.isdigit() else 0, each) for each in pieces]


def first_line(text: str) -> str:
    """Return the first line that is not empty."""
    return next((line for line in text.splitlines() if line.strip()), "")


@dataclass(frozen=True)
class InspectInput:
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
    """Components of repositories in apt's sources."""
    free: int | None = None
    """Bytes free in /."""
    tried: str = ""
    kept: str = ""
    judging: bool = False
    refused: tuple[str, ...] = ()
    """The fields of the record of a driver that was refused."""


def inspect(given: InspectInput, system: System) -> Found:
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
    line = (system.read(str(DRIVER_REFUSED)) or "").partition("\n")[0]
    # Earlier versions also refused slow drivers: they wrote a sixth field, which was empty for other reasons.
    fields = line.removesuffix("\t").split("\t")
    return tuple(fields) if len(fields) == 5 else ()


VERBS = {"inspect": Verb(InspectInput, inspect)}
