"""NVIDIA's driver: installed, kept and loaded, by what the host is now; a reboot only where nothing less does."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from llamaherd.converge.disks import Refusal
from llamaherd.converge.machine import CONTAINERS
from llamaherd.converge.repositories import repository_steps
from llamaherd.converge.steps import RebootHost, RunScript, differs, put_files
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.looks.driver import PackageState
from llamaherd.host.state import HostState
from llamaherd.layout import DRIVER_KEPT, REBOOT_MARK, REBOOT_NOTE
from llamaherd.plan import DriverPlan, Plan
from llamaherd.planner.driver import kept
from llamaherd.planner.repositories import NVIDIA
from llamaherd.reference.drivers import DESKTOP, NEVER, PARTS, TOOLS, named, upstream
from llamaherd.text.quoting import base64_lines
from llamaherd.text.render import render
from llamaherd.text.units import show_size

ROOM = 3 * 10**9
"""Bytes that a driver takes of /: packages, their sources, a compiler, and what is unpacked (Debian 13: 1.6 GB)."""

BOOT_ROOM = 150 * 10**6
"""Bytes that one more initramfs may take of /boot."""

BOOTS = frozenset({"enabled", "static", "enabled-runtime", "alias", "indirect", "generated"})
"""Of a unit that is started without anybody's doing; Ubuntu's udev starts the persistence daemon, which is static."""


def driver_refusals(plan: Plan, seen: HostState) -> list[Refusal]:
    """Why the driver cannot become as declared: found before anything is changed."""
    driver = plan.driver
    if driver is None:
        return []
    if seen.nvidia.runfile:
        message = "a driver was installed here by NVIDIA's .run file, which packages would lie on top of"
        return [Refusal(message, "run `sudo nvidia-uninstall`, then this again")]
    if not _install_due(driver, seen):
        return []
    return [*_mixed(driver, seen), *_on_hold(driver, seen), *_unsigned(plan, driver, seen), *_no_room(seen)]


def driver_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Bring its packages and what keeps them, where one is missing, or of another branch or version."""
    driver = plan.driver
    if driver is None or not _install_due(driver, seen):
        return []
    steps = []
    if missing := [each for each in driver.components if each not in seen.nvidia.components]:
        script = render("steps/components.sh.j2", components=missing)
        steps.append(RunScript(script, f"adding {', '.join(missing)} to what apt knows of the distribution"))
    if driver.source == "nvidia":
        steps += [step for each in plan.repositories if each.name == NVIDIA for step in repository_steps(each, seen)]
    script = render(
        "steps/driver.sh.j2",
        d=driver,
        packages=[*driver.packages, *_for_kernels(driver, seen)],
        headers=_headers(driver, seen),
        leftovers=_of_another(driver, seen),
        # What is there already stays as it is, if it is as declared.
        moves=not driver.wants(seen.nvidia.version(driver.library) or ""),
        in_container=seen.machine.virtual in CONTAINERS,
        families=PARTS,
        desktop=DESKTOP,
        never=NEVER,
        tools=TOOLS,
        wanted=base64_lines(driver.files[0].text),
        put=put_files(driver.files),
        keep=put_files([kept("@VERSION@")]),
        kept_path=DRIVER_KEPT,
        source="NVIDIA's repository" if driver.source == "nvidia" else "the distribution",
    )
    return [*steps, RunScript(script, f"bringing driver {driver.wanted}: {', '.join(driver.packages)}")]


def load_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Load what is installed, where a kernel has no other driver and can take it as it runs."""
    nvidia = seen.nvidia
    version = nvidia.version(plan.driver.library) if plan.driver else None
    if version is None:
        return []
    loadable = nvidia.loaded is None and not seen.machine.nouveau and nvidia.disk.get(seen.machine.kernel) == version
    works = nvidia.uvm and nvidia.persistence is not None and nvidia.persistence.active == "active"
    if not loadable and (nvidia.loaded != version or (works and not nvidia.tried)):
        return []
    script = render("steps/load-driver.sh.j2", version=version, note=REBOOT_NOTE)
    return [RunScript(script, f"loading driver {version}")]


def reboot_steps(plan: Plan, seen: HostState) -> list[RebootHost]:
    """The reboot that brings the driver into the kernel, if only that does. Raises UserError where it may not be, or
    would bring nothing."""
    version = seen.nvidia.version(plan.driver.library) if plan.driver else None
    if plan.driver is None or version is None or seen.nvidia.loaded == version:
        return []
    kernel = seen.machine.next_kernel
    if seen.nvidia.disk.get(kernel) != version:
        message = f"kernel {kernel}, which the next boot starts, has no module of driver {version}"
        raise UserError(message, "`dkms status` and /var/lib/dkms/nvidia*/*/build/make.log on the host say why")
    why = _why(version, seen)
    if seen.nvidia.tried == f"{version} {kernel}":
        message = f"this host was rebooted for driver {version} already, and {why}"
        raise UserError(message, "`sudo modprobe nvidia` and `sudo dmesg | grep -iE 'nvrm|nvidia|lockdown'` say why")
    if not plan.driver.reboot:
        may_not = "it is the one that herd runs on" if plan.driver.local else "the inventory says `reboot: false`"
        raise UserError(
            f"this host must be rebooted, and {may_not}: {why}",
            "run `sudo systemctl reboot` there, then `herd up` again",
        )
    down = _servers(seen)
    return [RebootHost(version, kernel, f"{why}; {', '.join(down)} will be down" if down else why)]


def reboot_script(reboot: RebootHost) -> str:
    """The script that asks for it."""
    return render("steps/reboot.sh.j2", mark=REBOOT_MARK, note=REBOOT_NOTE, driver=reboot.driver, kernel=reboot.kernel)


def after_reboot_script(reboot: RebootHost) -> str:
    """The script that tells whether it did what it was for."""
    return render("steps/after-reboot.sh.j2", note=REBOOT_NOTE, driver=reboot.driver)


def _install_due(driver: DriverPlan, seen: HostState) -> bool:
    nvidia = seen.nvidia
    version = nvidia.version(driver.library)
    if version is None or not driver.wants(version) or _leftovers(driver, seen):
        return True
    if any(name not in nvidia.packages for name in (*driver.packages, *_for_kernels(driver, seen))):
        return True
    if any(differs(file, seen) for file in (*driver.files, kept(version))):
        return True
    if nvidia.persistence is None or nvidia.persistence.enabled not in BOOTS:
        return True
    # A container's kernel is another's to equip.
    lent = nvidia.loaded == version and seen.machine.virtual in CONTAINERS
    return not lent and nvidia.disk.get(seen.machine.next_kernel) != version


def _for_kernels(driver: DriverPlan, seen: HostState) -> list[str]:
    """Packages that go with the kernels that this host follows: it has modules after their next update too."""
    flavours = [name.removeprefix("linux-image-") for name in sorted(seen.nvidia.packages) if _follows(name)]
    if driver.prebuilt is None:
        return [f"linux-headers-{flavour}" for flavour in flavours]
    return [f"{driver.prebuilt}-{flavour}" for flavour in flavours or ["generic"]]


def _follows(package: str) -> bool:
    """Whether a package stands for the newest kernel of its kind: `linux-image-amd64`, `linux-image-generic`."""
    return package.startswith("linux-image-") and not package.endswith("-dbg")


def _headers(driver: DriverPlan, seen: HostState) -> list[str]:
    """Kernels that modules are to be compiled for, and cannot be yet; the one that boots next comes first."""
    machine = seen.machine
    kernels = dict.fromkeys((machine.next_kernel, machine.kernel))
    return [] if driver.prebuilt else [each for each in kernels if each and each not in machine.headers]


def _of_another(driver: DriverPlan, seen: HostState) -> list[str]:
    """What is installed of a driver of another branch or version."""
    packages = sorted(seen.nvidia.packages.items())
    return [name for name, package in packages if named(name, PARTS) and _other(driver, name, package)]


def _leftovers(driver: DriverPlan, seen: HostState) -> list[str]:
    """The same without tools, which may be newer than their driver."""
    return [name for name in _of_another(driver, seen) if not named(name, TOOLS)]


def _other(driver: DriverPlan, name: str, package: PackageState) -> bool:
    if name.startswith("nvidia-driver-pinning-"):
        return name not in driver.pinning
    return package.branch is not None and not driver.wants(upstream(package.version))


def _mixed(driver: DriverPlan, seen: HostState) -> Iterator[Refusal]:
    """What is of the other source goes by its owner's hand: a desktop may stand on it."""
    other = {
        name
        for name, package in seen.nvidia.packages.items()
        if package.branch and named(name, PARTS) and not named(name, TOOLS)
        if package.source not in (None, driver.source)
    }
    if other:
        of, to = ("NVIDIA", "distribution") if driver.source == "distribution" else ("the distribution", "nvidia")
        message = f"this host has a driver of {of}'s, and the inventory says `from: {to}`: {_some(other)}"
        help_ = f"run `sudo apt-get remove {' '.join(sorted(other))}`, or declare the other source; they do not mix"
        yield Refusal(message, help_)


def _on_hold(driver: DriverPlan, seen: HostState) -> Iterator[Refusal]:
    held = {each.partition(":")[0] for each in seen.machine.held}
    concerned = held & {*driver.packages, *driver.beside, *_leftovers(driver, seen), *_for_kernels(driver, seen)}
    if concerned:
        message = f"somebody has put packages of the driver on hold: {_some(concerned)}"
        yield Refusal(message, f"run `sudo apt-mark unhold {' '.join(sorted(concerned))}`, then this again")


def _unsigned(plan: Plan, driver: DriverPlan, seen: HostState) -> Iterator[Refusal]:
    """Only a person at the console can let a key of the host's own in."""
    machine = seen.machine
    if driver.prebuilt or not machine.secure_boot or machine.mok:
        return
    if plan.os.startswith("ubuntu"):
        make, key = "sudo apt-get install shim-signed mokutil && sudo update-secureboot-policy --new-key", "ubuntu"
        other = ", or write `from: distribution`, whose modules Canonical has signed"
    else:
        make, key = "sudo apt-get install dkms mokutil && sudo dkms generate_mok", "debian"
        other = ""
    path = {"ubuntu": "/var/lib/shim-signed/mok/MOK.der", "debian": "/var/lib/dkms/mok.pub"}[key]
    first = f"run `{make}`, then " if machine.mok is None else "run "
    yield Refusal(
        "Secure Boot is on, and the key that this host signs modules with is not enrolled: they would not load",
        f"{first}`sudo mokutil --import {path}`, choose a password, reboot, and choose `Enroll MOK` at the console, "
        f"which asks for it; then run this again. Or switch Secure Boot off{other}",
    )


def _no_room(seen: HostState) -> Iterator[Refusal]:
    for place, free, needed in (("/", seen.nvidia.free, ROOM), ("/boot", seen.machine.boot_free, BOOT_ROOM)):
        if free is not None and free < needed:
            message = f"{place} has {show_size(free)} free, and the driver needs up to {show_size(needed)}"
            yield Refusal(message, "make room: `sudo apt-get autoremove --purge` takes old kernels away")


def _why(version: str, seen: HostState) -> str:
    loaded, says = seen.nvidia.loaded, seen.nvidia.says
    if loaded is None:
        return f"no driver is loaded, {version} is installed" + (", nouveau is loaded" if seen.machine.nouveau else "")
    told = f" (nvidia-smi: {says})" if says else ""
    return f"the kernel runs driver {loaded}, its libraries are {seen.nvidia.library or version}{told}"


def _servers(seen: HostState) -> list[str]:
    running = [name for name, unit in seen.units.items() if unit.active in {"active", "activating"}]
    return sorted([*running, *(name for name, each in seen.containers.items() if each.status == "running")])


def _some(names: Collection[str]) -> str:
    first = sorted(names)
    return ", ".join(first[:4]) + (f" and {len(first) - 4} more" if len(first) > 4 else "")
