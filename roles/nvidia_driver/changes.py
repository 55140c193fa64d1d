"""NVIDIA's driver: install, keep and load it, by the state of the host; reboot only if nothing less works."""

from __future__ import annotations

from typing import NamedTuple

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState, PackageState, RefusedDriver
from llamaherd.inventory.schema import Driver, Gpus, Rig
from llamaherd.inventory.schema.rig import LOCAL
from llamaherd.layout import (
    DRIVER_BEFORE,
    DRIVER_HELD,
    DRIVER_KEPT,
    DRIVER_LOADED,
    DRIVER_UNDO,
    DRIVER_UNDO_UNIT,
    DRIVER_WANTED,
    UNITS,
)
from llamaherd.onhost.verbs import NoInput
from llamaherd.plan import DriverPlan, Plan, TextFile
from llamaherd.reference.packages import (
    DESKTOP_DRIVER,
    DISTRIBUTIONS_OWN,
    DRIVER_FAMILIES,
    DRIVER_PARTS,
    DRIVER_TOOLS,
    NEVER_INSTALLED,
    OPEN_BY_DEFAULT,
    OPEN_ONLY,
    UNSUFFIXED,
    DriverSource,
    KernelModules,
    matches_package,
    upstream_version,
)
from llamaherd.reference.toolchains import BLACKWELL, TURING
from llamaherd.render import render
from llamaherd.role.apt import NVIDIA, nvidia_repository, repository_changes
from llamaherd.role.changes import Change, RebootHost, RunVerb, file_differences, written_files
from llamaherd.role.role import Planning, PlanPart
from roles.nvidia_driver.onhost import LoadInput, Names, RebootedInput, RebootInput
from roles.nvidia_driver.onhost.packages import VERSION, ComponentsInput, DriverInput, InstallInput
from roles.nvidia_driver.onhost.undo import DOCUMENT, DriverRollback, UndoInput

APT_SOURCES = "src:*nvidia*:any libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1 libxnvctrl0"
"""All of a driver's packages for preferences, as NVIDIA's own pinning packages name them, and by name those that a
repository which names no sources would hide. Patterns of names would do the same and make each call of apt on the host
two seconds slower, as it matches them with all packages (Debian 13)."""

HELD_PRIORITY = 1002
WANTED_PRIORITY = 1001
"""Above 1000 apt goes back to an older version where it must; what is kept comes before what is only of the branch."""


def plan(planning: Planning) -> PlanPart:
    """Return the driver, and its repository if it is not the distribution's."""
    driver = plan_driver(planning.rig)
    from_nvidia = driver is not None and driver.source == "nvidia"
    repositories = (nvidia_repository(planning.rig),) if from_nvidia else ()
    return PlanPart(repositories=repositories, fields={"driver": driver})


def plan_driver(rig: Rig) -> DriverPlan | None:
    """Return the driver of a rig; None without one, and under WSL, where the driver is Windows' own."""
    gpus = rig.gpus
    if gpus is None or gpus.driver is None or rig.host.wsl is not None:
        return None
    driver = gpus.driver
    modules = driver.modules or default_modules(gpus, driver)
    names = _names(rig.host.os, driver.from_, int(driver.branch), modules)
    # NVIDIA's own packages of preferences, the narrowest first: only one can be installed.
    from_nvidia, pinned = driver.from_ == "nvidia", (driver.version, driver.branch)
    return DriverPlan(
        branch=driver.branch,
        version=driver.version,
        source=driver.from_,
        modules=modules,
        pinning=tuple(f"nvidia-driver-pinning-{each}" for each in pinned if each) if from_nvidia else (),
        packages=names.packages,
        beside=names.beside,
        library=names.packages[0],
        prebuilt=names.prebuilt,
        components=_components(rig.host.os, driver.from_),
        files=(
            TextFile(path=str(DRIVER_WANTED), text=_head(rig.rig) + _preferences(rig.host.os, driver)),
            TextFile(path=str(DRIVER_HELD), text=_held(rig.rig, prebuilt=names.prebuilt is not None)),
            TextFile(path=str(DRIVER_LOADED), text=_head(rig.rig) + "nvidia\nnvidia_uvm\n"),
        ),
        reboot=driver.reboot and rig.connect.host != LOCAL,
        local=rig.connect.host == LOCAL,
    )


def default_modules(gpus: Gpus, driver: Driver) -> KernelModules:
    """Return the modules for all GPUs: open ones if possible, unless the branch is older than they are."""
    numbers = [int(gpu.cuda_architecture.rstrip("af")) for gpu in gpus.cards.values()]
    if int(driver.branch) >= OPEN_ONLY or any(number >= BLACKWELL for number in numbers):
        return "open"
    all_new = all(number >= TURING for number in numbers)
    return "open" if all_new and int(driver.branch) >= OPEN_BY_DEFAULT else "proprietary"


def version_hold(version: str) -> TextFile:
    """Return the preferences that keep the installed version, whatever newer ones the branch has."""
    text = (
        "# Written by llamaherd when it installed the driver. To move to another version, declare it.\n"
        f"Package: {APT_SOURCES}\nPin: version {version}*\nPin-Priority: {HELD_PRIORITY}\n"
    )
    return TextFile(path=str(DRIVER_KEPT), text=text)


class _Names(NamedTuple):
    """`packages`, whose first has the driver's version; what may not exist stands in `beside`."""

    packages: tuple[str, ...]
    beside: tuple[str, ...] = ()
    prebuilt: str | None = None


def _names(os: str, source: DriverSource, branch: int, modules: KernelModules) -> _Names:
    """Compute only: no desktop, no metapackage that follows the newest branch (NVIDIA's driver installation guide; the
    package lists of Debian and Ubuntu)."""
    is_open = modules == "open"
    match os.partition("-")[0], source:
        case "debian", "nvidia":
            dkms = "nvidia-kernel-open-dkms" if is_open else "nvidia-kernel-dkms"
            return _Names(("nvidia-driver-cuda", dkms, "dkms"), ("nvidia-persistenced",))
        case "debian", _:
            dkms = "nvidia-open-kernel-dkms" if is_open else "nvidia-kernel-dkms"
            return _Names(("libcuda1", dkms, "dkms", "nvidia-persistenced", "nvidia-smi"))
        case _, "nvidia" if branch >= UNSUFFIXED:
            dkms = "nvidia-dkms-open" if is_open else "nvidia-dkms"
            beside = ("nvidia-compute-utils", "nvidia-persistenced", "nvidia-utils")
            return _Names(("libnvidia-compute", dkms, "dkms"), beside)
        case _, "nvidia":
            dkms = f"nvidia-dkms-{branch}-open" if is_open else f"nvidia-dkms-{branch}"
            packages = (f"libnvidia-compute-{branch}", dkms, "dkms", f"nvidia-utils-{branch}")
            return _Names(packages, (f"nvidia-compute-utils-{branch}", "nvidia-persistenced"))
        case _:
            ending = "-open" if is_open else ""
            driver = (f"libnvidia-compute-{branch}", f"nvidia-headless-no-dkms-{branch}{ending}")
            utilities = (f"nvidia-compute-utils-{branch}", f"nvidia-utils-{branch}")
            return _Names((*driver, *utilities), prebuilt=f"linux-modules-nvidia-{branch}{ending}")


def _components(os: str, source: DriverSource) -> tuple[str, ...]:
    """Return components of the distribution's own repository that are needed besides the usual ones."""
    if os.startswith("ubuntu"):
        return ("restricted", "multiverse") if source == "distribution" else ()
    return ("contrib", "non-free", "non-free-firmware") if source == "distribution" else ("contrib",)


def _head(rig: str) -> str:
    return f"# Written by llamaherd for rig `{rig}`: change the inventory, not this file.\n"


def _preferences(os: str, driver: Driver) -> str:
    """Return apt's preferences."""
    # The first entry that matches a version decides: what must not come, then the branch.
    distribution = "Debian" if os.startswith("debian") else "Ubuntu"
    if driver.from_ == "nvidia":
        other, of = " ".join(DISTRIBUTIONS_OWN), f"release o={distribution}"
    else:
        other, of = " ".join(DRIVER_FAMILIES), "release o=NVIDIA"
    version = f"{driver.version}*" if driver.version else f"{driver.branch}.*"
    entries = (
        ("Metapackages that bring a driver of their own choice.", " ".join(NEVER_INSTALLED), "version *", -1),
        ("The other source of drivers: two are never mixed.", other, of, -1),
        ("What is declared.", APT_SOURCES, f"version {version}", WANTED_PRIORITY),
    )
    return "\n".join(
        f"# {why}\nPackage: {packages}\nPin: {pin}\nPin-Priority: {priority}\n"
        for why, packages, pin, priority in entries
    )


def _held(rig: str, *, prebuilt: bool) -> str:
    """Return the starts of names that unattended-upgrades skips."""
    # Modules that come with a kernel hold that too.
    starts = ("nvidia-", "libnvidia-", "libcuda1", "libnvcuvid1", "xserver-xorg-video-nvidia", "firmware-nvidia-gsp")
    kernel = ("linux-modules-nvidia-", "linux-generic", "linux-image-", "linux-headers-", "linux-modules-")
    names = "".join(f'    "{start}";\n' for start in (*starts, "cuda-drivers", *(kernel if prebuilt else ())))
    return (
        f"// Written by llamaherd for rig `{rig}`: change the inventory, not this file.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{names}}};\n"
    )


JUDGING_SECONDS = 3600
"""How long the judging may take at most: apt may be held for ten minutes, and modules are compiled."""

BACK_SECONDS = 1800
"""How much longer a host is waited for that may go back: modules are compiled, and it boots once more."""


def way_back(driver: DriverPlan) -> DriverRollback:
    """Return how the next boot goes back to the driver that works."""
    (unit,) = written_files([undo_file()])
    return DriverRollback(UndoInput(driver.kind, driver.reboot), unit)


def undo_file() -> TextFile:
    """Return the unit that judges at the next boot."""
    text = render(
        "nvidia_driver/driver-undo.service.j2",
        before=DRIVER_BEFORE,
        program=DRIVER_UNDO,
        document=DOCUMENT,
        most_seconds=JUDGING_SECONDS,
    )
    return TextFile(path=str(UNITS / DRIVER_UNDO_UNIT), text=text)


def rollback_note(driver: DriverPlan, state: HostState) -> str:
    """Return what happens to a host whose new driver does not come up, in words."""
    nvidia = state.driver
    before = nvidia.kept or (nvidia.loaded if nvidia.loaded and not nvidia.problem else "")
    if not before:
        return "no driver responds now, so the host cannot roll back"
    return f"the host restores {before} if {driver.wanted} does not respond"


def refused_driver(driver: DriverPlan, state: HostState) -> RefusedDriver | None:
    """Return the declared driver's earlier attempt that was rolled back; None if there is none."""
    tried, installed = state.driver.refused, state.driver.version(driver.library)
    if tried is None or tried.kind != driver.kind or not driver.wants(tried.version):
        return None
    return None if installed and driver.wants(installed) else tried


NAMES = Names(parts=DRIVER_PARTS, desktop=DESKTOP_DRIVER, never=NEVER_INSTALLED, tools=DRIVER_TOOLS)

BOOTS = frozenset({"enabled", "static", "enabled-runtime", "alias", "indirect", "generated"})
"""States of a unit that starts by itself; Ubuntu's udev starts the persistence daemon, which is static."""


def refusal_changes(plan: Plan, state: HostState, *, retry: bool) -> list[Change]:
    """Return no change. Raise UserError if the declared driver was rolled back, unless by `retry`."""
    tried = refused_driver(plan.driver, state) if plan.driver else None
    if tried is None or retry:
        return []
    stays = f", and {tried.before} serves as before" if state.driver.loaded == tried.before else ""
    raise UserError(
        f"driver {tried.version} was tried on {tried.when}, and did not come up ({tried.why}){stays}",
        "declare another branch or version, or `herd up --retry` to try the same again",
    )


def driver_changes(plan: Plan, state: HostState, *, retry: bool = False) -> list[Change]:
    """Install the driver's packages and their pins if one is missing or has another branch or version."""
    driver = plan.driver
    if driver is None or not (why := install_due(driver, state)):
        return []
    if refused_driver(driver, state) and not retry:
        return []
    if _goes_back(driver, state):
        why = (*why, rollback_note(driver, state))
    changes = []
    if missing := [each for each in driver.components if each not in state.driver.components]:
        names = ", ".join(missing)
        add = ComponentsInput(tuple(missing))
        how = RunVerb("nvidia_driver.packages.add_components", add, f"adding {names} of the distribution to apt")
        changes.append(Change("update", "repository", names, ("apt has no source of it",), how))
    if driver.source == "nvidia":
        known = [each for each in plan.repositories if each.name == NVIDIA]
        changes += [change for each in known for change in repository_changes(each, state)]
    given = _install(driver, state)
    says = f"bringing driver {driver.wanted}: {', '.join(driver.packages)}"
    how = RunVerb("nvidia_driver.packages.install", given, says)
    return [*changes, Change("install", "driver", driver.wanted, why, how)]


def _install(driver: DriverPlan, state: HostState) -> InstallInput:
    wanted, *files = written_files(driver.files)
    (kept,) = written_files([version_hold(VERSION)])
    return InstallInput(
        driver=DriverInput(
            branch=driver.branch,
            version=driver.version,
            library=driver.library,
            beside=driver.beside,
            pinning=driver.pinning,
            prebuilt=driver.prebuilt is not None,
            source="NVIDIA's repository" if driver.source == "nvidia" else "the distribution",
        ),
        packages=(*driver.packages, *for_kernels(driver, state)),
        headers=tuple(_headers(driver, state)),
        leftovers=tuple(_of_another(driver, state)),
        names=NAMES,
        wanted=wanted,
        files=tuple(files),
        kept=kept,
        # What is there already stays as it is, if it is as declared.
        moves=_moves(driver, state),
        way_back=way_back(driver) if _goes_back(driver, state) else None,
        in_container=state.system.machine.in_container,
    )


def _moves(driver: DriverPlan, state: HostState) -> bool:
    """Return whether the version changes."""
    return not driver.wants(state.driver.version(driver.library) or "")


def _goes_back(driver: DriverPlan, state: HostState) -> bool:
    """Return whether the next boot judges the new driver. A container boots with another host's kernel."""
    return _moves(driver, state) and not state.system.machine.in_container


def load_changes(plan: Plan, state: HostState) -> list[Change]:
    """Load what is installed, where a kernel has no other driver and can take it as it runs."""
    nvidia = state.driver
    version = nvidia.version(plan.driver.library) if plan.driver else None
    if version is None:
        return []
    loadable = (
        nvidia.loaded is None
        and not state.system.machine.nouveau
        and nvidia.disk.get(state.system.machine.kernel) == version
    )
    works = nvidia.uvm and nvidia.persistence is not None and nvidia.persistence.active == "active"
    if not loadable and (nvidia.loaded != version or (works and not nvidia.tried)):
        return []
    why = "no driver is loaded" if nvidia.loaded is None else "it is loaded, and what goes with it is not"
    how = RunVerb("nvidia_driver.load", LoadInput(version), f"loading driver {version}")
    return [Change("load", "driver", version, (why,), how)]


def reboot_changes(plan: Plan, state: HostState) -> list[Change]:
    """Return the reboot that loads the driver, if only a reboot does. Raise UserError if it is forbidden or useless."""
    version = state.driver.version(plan.driver.library) if plan.driver else None
    if plan.driver is None or version is None or state.driver.loaded == version:
        return []
    kernel = state.system.machine.next_kernel
    if state.driver.disk.get(kernel) != version:
        message = f"kernel {kernel}, which the next boot starts, has no module of driver {version}"
        raise UserError(message, "`dkms status` and /var/lib/dkms/nvidia*/*/build/make.log on the host show why")
    why = _why(version, state)
    if state.driver.tried == f"{version} {kernel}":
        message = f"this host was rebooted for driver {version} already, and {why}"
        raise UserError(message, "`sudo modprobe nvidia` and `sudo dmesg | grep -iE 'nvrm|nvidia|lockdown'` show why")
    if not plan.driver.reboot:
        may_not = "it is the one that herd runs on" if plan.driver.local else "the inventory contains `reboot: false`"
        raise UserError(
            f"this host must be rebooted, and {may_not}: {why}",
            "run `sudo systemctl reboot` there, then `herd up` again",
        )
    running = [name for name, unit in state.servers.units.items() if unit.active in {"active", "activating"}]
    running += [name for name, each in state.servers.containers.items() if each.status == "running"]
    down = sorted(running)
    reasons = (why, f"{', '.join(down)} will be down") if down else (why,)
    return [Change("reboot", "host", plan.rig, reasons, reboot(version, kernel, kept=bool(state.driver.kept)))]


def reboot(driver: str, kernel: str, *, kept: bool) -> RebootHost:
    """Return a reboot into the next kernel, which loads the driver. `kept`: it may take two boots."""
    return RebootHost(
        ask=RunVerb("nvidia_driver.reboot", RebootInput(driver, kernel)),
        back=RunVerb("nvidia_driver.require_booted", NoInput()),
        after=RunVerb("nvidia_driver.require_driver", RebootedInput(driver)),
        extra=BACK_SECONDS if kept else 0,
    )


def install_due(driver: DriverPlan, state: HostState) -> tuple[str, ...]:
    """Return why packages, or their preferences, must be installed; empty if all are."""
    nvidia = state.driver
    version = nvidia.version(driver.library)
    if version is None:
        return (f"{driver.library} is not installed",)
    if not driver.wants(version):
        return (f"{version} is installed",)
    wanted = (*driver.packages, *for_kernels(driver, state))
    why = [f"{name} is installed, of another driver" for name in leftovers(driver, state)]
    why += [f"{name} is not installed" for name in wanted if name not in nvidia.packages]
    why += file_differences((*driver.files, version_hold(version)), state)
    if nvidia.persistence is None or nvidia.persistence.enabled not in BOOTS:
        why.append("the persistence daemon does not start at boot")
    # A container's kernel is another's to equip.
    lent = nvidia.loaded == version and state.system.machine.in_container
    if not lent and nvidia.disk.get(state.system.machine.next_kernel) != version:
        why.append(f"kernel {state.system.machine.next_kernel}, which boots next, has no module of it")
    return tuple(why)


def for_kernels(driver: DriverPlan, state: HostState) -> list[str]:
    """Return packages of the kernels that this host follows: modules are there after their next update, too."""
    # Such as `linux-image-amd64` and `linux-image-generic`, which depend on the newest kernel of their kind.
    images = [name for name in sorted(state.driver.packages) if name.startswith("linux-image-")]
    flavours = [name.removeprefix("linux-image-") for name in images if not name.endswith("-dbg")]
    if driver.prebuilt is None:
        return [f"linux-headers-{flavour}" for flavour in flavours]
    return [f"{driver.prebuilt}-{flavour}" for flavour in flavours or ["generic"]]


def _headers(driver: DriverPlan, state: HostState) -> list[str]:
    """Return kernels that modules must be compiled for, and lack headers; the next kernel comes first."""
    machine = state.system.machine
    kernels = dict.fromkeys((machine.next_kernel, machine.kernel))
    return [] if driver.prebuilt else [each for each in kernels if each and each not in machine.headers]


def _of_another(driver: DriverPlan, state: HostState) -> list[str]:
    """Return installed packages of a driver of another branch or version."""
    packages = sorted(state.driver.packages.items())
    return [name for name, package in packages if matches_package(name, DRIVER_PARTS) and _other(driver, name, package)]


def leftovers(driver: DriverPlan, state: HostState) -> list[str]:
    """Return the same without tools, which may be newer than their driver."""
    return [name for name in _of_another(driver, state) if not matches_package(name, DRIVER_TOOLS)]


def _other(driver: DriverPlan, name: str, package: PackageState) -> bool:
    if name.startswith("nvidia-driver-pinning-"):
        return name not in driver.pinning
    return package.branch is not None and not driver.wants(upstream_version(package.version))


def _why(version: str, state: HostState) -> str:
    loaded, problem = state.driver.loaded, state.driver.problem
    if loaded is None:
        nouveau = ", nouveau is loaded" if state.system.machine.nouveau else ""
        return f"no driver is loaded, {version} is installed{nouveau}"
    printed = f" (nvidia-smi: {problem})" if problem else ""
    return f"the kernel runs driver {loaded}, its libraries are {state.driver.library or version}{printed}"
