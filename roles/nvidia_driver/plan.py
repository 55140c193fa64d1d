"""Which driver a rig is to have, as packages, and what keeps it there. Pure, as all of the plan."""

from __future__ import annotations

from typing import NamedTuple

from llamaherd.inventory.schema import Driver, Gpus, Rig
from llamaherd.inventory.schema.rig import LOCAL
from llamaherd.layout import DRIVER_HELD, DRIVER_KEPT, DRIVER_LOADED, DRIVER_WANTED
from llamaherd.plan import DriverPlan, TextFile
from llamaherd.reference.packages import (
    DISTRIBUTIONS_OWN,
    DRIVER_FAMILIES,
    NEVER_INSTALLED,
    OPEN_BY_DEFAULT,
    OPEN_ONLY,
    UNSUFFIXED,
    DriverSource,
    KernelModules,
)
from llamaherd.reference.toolchains import BLACKWELL, TURING
from llamaherd.role.apt import nvidia_repository
from llamaherd.role.role import Planning, PlanPart

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
    return DriverPlan(
        branch=driver.branch,
        version=driver.version,
        source=driver.from_,
        modules=modules,
        pinning=_pinning(driver) if driver.from_ == "nvidia" else (),
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


def _pinning(driver: Driver) -> tuple[str, ...]:
    """Return NVIDIA's own packages of preferences, the narrowest first; only one can be installed."""
    exact = (f"nvidia-driver-pinning-{driver.version}",) if driver.version else ()
    return (*exact, f"nvidia-driver-pinning-{driver.branch}")


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
