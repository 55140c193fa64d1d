"""Inspect NVIDIA's driver, load it, by a reboot where nothing less does, and read what apt would do to its packages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

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
from llamaherd.onhost.apt import LOG, AptProgress, installed_versions
from llamaherd.onhost.clients import systemctl, unit_properties
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.services import journal, locked, show_units
from llamaherd.onhost.system import NOT_STARTED, Ended, FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

BEFORE, ARMED = str(DRIVER_BEFORE), str(DRIVER_ARMED)
UNIT_FILE = f"{UNITS}/{DRIVER_UNDO_UNIT}"
WRITTEN = (str(DRIVER_KEPT), str(DRIVER_WANTED), str(DRIVER_HELD))
"""What is restored besides packages."""
PERSISTENCE = "nvidia-persistenced.service"
SMI_SECONDS, MODPROBE_SECONDS = 30, 60
_INSTALL_SECONDS = 43_200
"""A package manager or a compiler that is killed leaves things half-way: this ends only one that hangs."""


_SMI_SECONDS, _APT_SECONDS = 12, 30
_COMPONENTS = ("apt-get", "indextargets", "--format", "$(COMPONENT)", "Created-By: Packages")
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
    packages = installed_versions(system, given.packages)
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
        components=tuple(sorted({*system.run(_COMPONENTS, seconds=_APT_SECONDS).out.split()})),
        free=system.free("/"),
        # While the mark is there, the reboot that the note is of has not come.
        tried="" if system.entry(str(REBOOT_MARK)) else note,
        kept=kept,
        judging=is_judged(system),
        refused=_refused(system),
    )


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


def _refused(system: System) -> tuple[str, ...]:
    line = (system.read(str(DRIVER_REFUSED)) or "").partition("\n")[0]
    # Earlier versions also refused slow drivers: they wrote a sixth field, which was empty for other reasons.
    fields = line.removesuffix("\t").split("\t")
    return tuple(fields) if len(fields) == 5 else ()


_LINE = re.compile(r"(Inst|Remv|Purg) (\S+)(?: (\[))?[^(]*(?:\((\S+))?")
_DRIVER = re.compile(r"[0-9]{3}\.[0-9]")


@dataclass(frozen=True)
class Names:
    """Patterns of names of packages, as shells match them."""

    parts: tuple[str, ...]
    """Of a driver."""
    desktop: tuple[str, ...]
    """Of these, what a desktop needs."""
    never: tuple[str, ...]
    """Packages that bring a driver of their own choice."""
    tools: tuple[str, ...]
    """Parts that work with any driver."""


@dataclass(frozen=True)
class Action:
    """What would be done with one package: `Inst`, `Remv` or `Purg`, and the version that would come."""

    what: str
    name: str
    is_installed: bool
    version: str = ""


def parse_simulation(output: str) -> list[Action]:
    """Return what apt would do."""
    found = filter(None, map(_LINE.match, output.splitlines()))
    return [Action(each[1], each[2], each[1] != "Inst" or bool(each[3]), upstream(each[4] or "")) for each in found]


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches one of some patterns."""
    return any(fnmatchcase(name, each) for each in patterns)


def find_problems(actions: Sequence[Action], names: Names, branch: str) -> Iterator[str]:
    """Return what apt would do besides moving to a branch of the driver."""
    for each in actions:
        if each.what == "Inst":
            yield from _problems_of_new(each, names, branch)
        elif is_named(each.name, names.desktop):
            yield f"would remove {each.name}, which a desktop may stand on"
        elif not is_named(each.name, names.parts):
            yield f"would remove {each.name}, which is no part of a driver"


def _problems_of_new(action: Action, names: Names, branch: str) -> Iterator[str]:
    if is_named(action.name, names.never):
        yield f"would bring {action.name}, which brings a driver of its own choice"
    is_driver = is_named(action.name, names.parts) and not is_named(action.name, names.tools)
    if is_driver and not action.version.startswith(f"{branch}.") and _DRIVER.match(action.version):
        yield f"would bring {action.name} of driver {action.version}"


def replaced_parts(actions: Sequence[Action], names: Names) -> list[str]:
    """Return the parts of a driver that are installed now, and would be replaced or removed."""
    return [each.name for each in actions if each.is_installed and is_named(each.name, names.parts)]


def new_parts(actions: Sequence[Action], names: Names) -> list[str]:
    """Return the parts of a driver that would be new, without tools."""
    new = [each.name for each in actions if not each.is_installed and is_named(each.name, names.parts)]
    return [each for each in new if not is_named(each, names.tools)]


_MARK, _NOTE = str(REBOOT_MARK), str(REBOOT_NOTE)
_LINES = 5
_RETRY = "declare another branch or version, or `herd up --retry` to try the same again"


@dataclass(frozen=True)
class LoadInput:
    """The installed driver."""

    version: str


@dataclass(frozen=True)
class RebootInput:
    """A driver, and the kernel that the next boot starts."""

    driver: str
    kernel: str


@dataclass(frozen=True)
class RebootedInput:
    """The driver that a host was rebooted for."""

    driver: str


def load(given: LoadInput, system: System) -> None:
    """Load the driver without a reboot. What a kernel refuses here, the next step judges."""
    with locked(system, "loading the driver"):
        loaded = load_modules(system)
        output = (loaded.out + loaded.err).splitlines()
        if loaded_version(system) != given.version:
            last = next((line for line in reversed(output) if line.strip()), "")
            system.report(f"the module does not load as it is: {last}")
            return
        if not system.entry("/sys/module/nvidia_uvm"):
            raise FailedError(f"driver {given.version} is loaded, and nvidia_uvm does not load", log=output)
        system.remove(_NOTE)
        systemctl(system, "reset-failed", PERSISTENCE)
        if not systemctl(system, "start", PERSISTENCE).ok:
            message = f"driver {given.version} is loaded, and nvidia-persistenced, which keeps it so, does not start"
            raise FailedError(message, log=journal(system, [PERSISTENCE], _LINES))


def reboot(given: RebootInput, system: System) -> None:
    """Restart the host. The mark is gone afterwards, as all of /run; the note stays until the driver is loaded."""
    try:
        system.write(_MARK, "", mode=0o644)
        system.write(_NOTE, f"{given.driver} {given.kernel}\n", mode=0o644)
    except OSError as error:
        raise cannot_write(error) from error
    sync(system)
    # A moment later: this connection ends in order.
    timer = ["systemd-run", "-q", "--on-active=2s", "--timer-property=AccuracySec=100ms"]
    ended = system.run([*timer, "systemctl", "reboot"])
    if not ended.ok:
        system.remove(_MARK)
        system.remove(_NOTE)
        raise FailedError("systemd does not schedule the reboot", log=ended.err.splitlines())


def require_booted(_: NoInput, system: System) -> None:
    """Raise FailedError until the host is back for good: it may boot once more, to go back to the driver before."""
    if system.entry(_MARK) or is_judged(system):
        raise FailedError("this host is not back from its reboot yet")


def require_driver(given: RebootedInput, system: System) -> None:
    """Raise FailedError unless the kernel has the driver that the host was rebooted for."""
    modules = load_modules(system)
    loaded = loaded_version(system)
    refused = (system.read(str(DRIVER_REFUSED)) or "").partition("\n")[0].split("\t")
    if len(refused) > 4 and refused[0] == given.driver:
        before, why = refused[3], refused[4]
        message = f"driver {given.driver} did not come up ({why}), and {before}"
        if loaded == before and responds(system):
            raise FailedError(f"{message} serves again: this host went back to it by itself", _RETRY)
        raise FailedError(f"{message}, which was here before, does not respond either", _RETRY)
    if loaded == given.driver:
        system.remove(_NOTE)
        return
    log = []
    if system.entry("/sys/module/nouveau"):
        log = ["nouveau is loaded before it is kept out (`grep -r nouveau /etc/modprobe.d /lib/modprobe.d` shows why)"]
    log += [line for line in (modules.out + modules.err).splitlines() if line.strip()][-3:]
    kernel_log = system.run(["dmesg"]).out.splitlines()
    log += [line for line in kernel_log if re.search("nvrm|nvidia|lockdown", line, re.IGNORECASE)][-_LINES:]
    has = loaded or "no driver"
    raise FailedError(f"this host was rebooted, and its kernel has {has}, where {given.driver} is installed", log=log)


VERBS = {
    "inspect": Verb(InspectInput, inspect),
    "load": Verb(LoadInput, load),
    "reboot": Verb(RebootInput, reboot),
    "require_booted": Verb(NoInput, require_booted),
    "require_driver": Verb(RebootedInput, require_driver),
}
