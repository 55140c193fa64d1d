"""NVIDIA's driver: its packages, their preferences, the module that the kernel loads, and its part of preflight."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from llamaherd.host.responses import ProbeOutputs, parse_pairs
from llamaherd.host.state import DRIVER_PACKAGES, DriverState, HostState, PackageState, Persistence, RefusedDriver
from llamaherd.layout import DRIVER_KEPT
from llamaherd.onhost.verification import Probe
from llamaherd.plan import DriverPlan, Estimate, Plan
from llamaherd.reference.packages import DRIVER_PARTS, DRIVER_TOOLS, DriverSource, matches_package
from llamaherd.role.apt import NVIDIA
from llamaherd.role.preflight import PreflightRow, Refusal, comma_list
from llamaherd.role.report import Check
from llamaherd.role.role import Inspection, Judging, Role, Task, Verified
from llamaherd.text.numbers import show_size
from roles.nvidia_driver.changes import (
    driver_changes,
    for_kernels,
    install_due,
    leftovers,
    load_changes,
    plan,
    reboot_changes,
    refusal_changes,
    refused_driver,
)
from roles.nvidia_driver.onhost import Found, InspectInput

ROOM = 3 * 10**9
"""Bytes that a driver takes of /: packages, their sources, a compiler, and what is unpacked (Debian 13: 1.6 GB)."""

BOOT_ROOM = 150 * 10**6
"""Bytes of /boot for one more initramfs."""

_SOURCES: Mapping[str, DriverSource] = {"nvidia": "nvidia", "distribution": "distribution"}


def driver_refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """Return why the driver cannot change as declared, before anything changes."""
    driver = plan.driver
    if driver is None:
        return []
    if state.driver.runfile:
        message = "a driver was installed here by NVIDIA's .run file, which packages would lie on top of"
        return [Refusal(message, "run `sudo nvidia-uninstall`, then this again")]
    if state.driver.judging:
        message = "this host was rebooted for a driver and still checks it, or rolls back"
        return [Refusal(message, "run again in a few minutes")]
    if refused_driver(driver, state) or not install_due(driver, state):
        return []
    return [*_mixed(driver, state), *_on_hold(driver, state), *_unsigned(plan, driver, state), *_no_room(state)]


def _mixed(driver: DriverPlan, state: HostState) -> Iterator[Refusal]:
    """Yield packages of the other source."""
    # Their owner must remove them: a desktop may stand on it.
    other = {
        name
        for name, package in state.driver.packages.items()
        if package.branch and matches_package(name, DRIVER_PARTS) and not matches_package(name, DRIVER_TOOLS)
        if package.source not in (None, driver.source)
    }
    if other:
        of, to = ("NVIDIA", "distribution") if driver.source == "distribution" else ("the distribution", "nvidia")
        message = f"this host has a driver of {of}'s, but the inventory declares `from: {to}`: {_some(other)}"
        help_ = f"run `sudo apt-get remove {' '.join(sorted(other))}`, or declare the other source; they do not mix"
        yield Refusal(message, help_)


def _on_hold(driver: DriverPlan, state: HostState) -> Iterator[Refusal]:
    held = {each.partition(":")[0] for each in state.system.machine.held}
    concerned = held & {*driver.packages, *driver.beside, *leftovers(driver, state), *for_kernels(driver, state)}
    if concerned:
        message = f"packages of the driver are on hold: {_some(concerned)}"
        yield Refusal(message, f"run `sudo apt-mark unhold {' '.join(sorted(concerned))}`, then this again")


def _unsigned(plan: Plan, driver: DriverPlan, state: HostState) -> Iterator[Refusal]:
    """Yield a key that must be enrolled."""
    # Only a person at the console can let a key of the host's own in.
    machine = state.system.machine
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
        f"{first}`sudo mokutil --import {path}`, choose a password, reboot, and choose `Enroll MOK` at the console "
        f"during boot; then run this again. Or switch Secure Boot off{other}",
    )


def _no_room(state: HostState) -> Iterator[Refusal]:
    for place, free, needed in (("/", state.driver.free, ROOM), ("/boot", state.system.machine.boot_free, BOOT_ROOM)):
        if free is not None and free < needed:
            message = f"{place} has {show_size(free)} free, and the driver needs up to {show_size(needed)}"
            yield Refusal(message, "make room: `sudo apt-get autoremove --purge` takes old kernels away")


def _some(names: Collection[str]) -> str:
    first = sorted(names)
    return ", ".join(first[:4]) + (f" and {len(first) - 4} more" if len(first) > 4 else "")


def facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield the rows about the driver, unless Windows manages it."""
    if plan.has_cards:
        yield from _driver(plan, state)
        yield _secure_boot(state)
        yield _headers(state)


def _driver(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield the driver in the kernel, the installed one, and the planned one; and nvidia-smi's output."""
    bound = sorted({gpu.driver for gpu in state.system.machine.cards if gpu.driver})
    shown = (
        f"nvidia-smi shows {len(state.gpus.shown)}" if state.gpus.shown else state.driver.problem or state.gpus.problem
    )
    installed = state.driver.version(plan.driver.library) if plan.driver else None
    signs = (
        f"{state.driver.loaded} is loaded" if state.driver.loaded else "",
        f"{installed} is installed" if installed else "",
        f"GPUs are bound to {comma_list(bound)}" if bound else "",
        shown,
    )
    found = "; ".join(filter(None, signs)) or "none"
    wanted = f"{plan.driver.wanted}, {plan.driver.modules}" if plan.driver else "nvidia"
    if not state.system.machine.nouveau or "nvidia" in bound:
        yield PreflightRow("driver", found, wanted)
        return
    help_ = "the packages of NVIDIA's driver keep it from being loaded, from the next boot on"
    yield PreflightRow(
        "driver", found, wanted, "note", "nouveau is loaded, and NVIDIA's driver cannot load with it", help_
    )


def _secure_boot(state: HostState) -> PreflightRow:
    machine = state.system.machine
    if machine.secure_boot is None:
        return PreflightRow("Secure Boot", "no UEFI")
    if not machine.secure_boot:
        return PreflightRow("Secure Boot", "off")
    if machine.mok:
        return PreflightRow("Secure Boot", "on, the key for modules is enrolled")
    key = "the key for modules is not enrolled" if machine.mok is False else "no enrolled key for modules is known"
    help_ = (
        "`mokutil --import` its certificate and enrol it at the console, at the next boot; or switch Secure Boot off"
    )
    return PreflightRow(
        "Secure Boot",
        f"on, {key}",
        "",
        "note",
        "with Secure Boot, modules that are compiled here are loaded only once the key that signs them is enrolled",
        f"take modules that the distribution has signed (`from: distribution` on Ubuntu), or {help_}",
    )


def _headers(state: HostState) -> PreflightRow:
    machine = state.system.machine
    kernels = [each for each in dict.fromkeys((machine.kernel, machine.next_kernel)) if each]
    lacking = [each for each in kernels if each not in machine.headers]
    # In a container the kernel and its modules are the host's.
    if not lacking or machine.in_container:
        return PreflightRow("kernel headers", comma_list(sorted(machine.headers)) or "none")
    return PreflightRow(
        "kernel headers",
        comma_list(sorted(machine.headers)) or "none",
        comma_list(kernels),
        "note",
        f"there are no headers for {comma_list(lacking)}, without which modules cannot be compiled for it",
        f"`apt-get install {' '.join(f'linux-headers-{each}' for each in lacking)}`, unless modules come compiled",
    )


def inspection_input(plan: Plan) -> InspectInput | None:
    """Return what to inspect."""
    return InspectInput(tuple(DRIVER_PACKAGES)) if plan.driver else None


def state_parts(found: Found) -> tuple[DriverState]:
    """Return the part of the host's state. Raise ValueError for an invalid refused driver."""
    if found.refused and len(found.refused) != 5:
        raise ValueError("a refused driver has five fields")
    unknown = "of an unknown version"
    # Two repositories may have the same version; then its source is unknown.
    sources = {name: _SOURCES.get(of[0]) for name, of in found.origins.items() if len(of) == 1}
    driver = DriverState(
        packages={name: PackageState(version, sources.get(name)) for name, version in found.packages.items()},
        loaded=None if found.loaded is None else found.loaded or unknown,
        uvm=found.uvm,
        disk=found.disk,
        library=found.library,
        problem=found.problem,
        runfile=found.runfile,
        persistence=Persistence(found.persistence.active, found.persistence.enabled) if found.persistence else None,
        components={name.rpartition("/")[2] for name in found.components},
        free=found.free,
        tried=found.tried,
        kept=found.kept,
        judging=found.judging,
        refused=RefusedDriver(*found.refused) if found.refused else None,
    )
    return (driver,)


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of the kernel, the library, the disk and the daemon."""
    if plan.driver is None:
        return
    library = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    daemon = ("systemctl", "show", "-p", "LoadState", "-p", "ActiveState", "nvidia-persistenced.service")
    yield Probe("driver", "", ("cat", "/proc/driver/nvidia/version"))
    yield Probe("driver by its library", "", library, errors=True)
    # An account's PATH may lack the folder of modinfo.
    modinfo = ("env", "PATH=/usr/sbin:/sbin:/usr/bin:/bin", "modinfo", "-F", "version", "nvidia")
    yield Probe("driver on disk", "", modinfo)
    yield Probe("persistence daemon", "", daemon, errors=True)


def judge(judging: Judging) -> Verified:
    """Return the checks of the driver."""
    driver = judging.plan.driver
    return Verified(checks=tuple(driver_checks(driver, judging.outputs)) if driver else ())


def driver_checks(driver: DriverPlan, outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield the checks of the driver, its module and its daemon."""
    loaded = _loaded(outputs.get(("driver", ""), ""))
    output = outputs.get(("driver by its library", ""), "").strip().partition("\n")[0]
    library = output if re.fullmatch(r"\d{3}(\.\d+)+", output) else None
    if loaded is None:
        yield Check("driver", False, "no driver is loaded: `herd up`")
    elif not driver.wants(loaded):
        yield Check("driver", False, f"{loaded} is loaded, declared is {driver.wanted}: `herd up`")
    elif library != loaded:
        found = f"its library is {library}" if library else f"nvidia-smi reports: {output or 'nothing'}"
        yield Check("driver", False, f"{loaded} is loaded, and {found}: `herd up`")
    else:
        yield Check("driver", True, f"{loaded} is loaded, and its library is of that version")
    disk = outputs.get(("driver on disk", ""), "").strip()
    found = f"the running kernel has {disk or 'no module'} on disk"
    detail = found if disk == loaded else f"{found}, loaded is {loaded or 'none'}"
    yield Check("module", disk == loaded is not None, detail)
    unit = parse_pairs(outputs.get(("persistence daemon", ""), ""))
    state, load = unit.get("ActiveState", "not there"), unit.get("LoadState", "not there")
    shown = state if load == "loaded" else "not there"
    yield Check("daemon", shown == "active", f"nvidia-persistenced is {shown}")


def _loaded(version: str) -> str | None:
    """Return the version in /proc/driver/nvidia/version, behind `NVRM version: NVIDIA UNIX … Kernel Module`."""
    found = re.search(r"^NVRM version:.*?\b(\d{3}(?:\.\d+)+)\b", version, re.MULTILINE)
    return found[1] if found else None


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Return the packages, their source, and what keeps their version."""
    driver = plan.driver
    if driver is None:
        return []
    origin = next((each.url for each in plan.repositories if each.name == NVIDIA), "the distribution")
    signed = f" {driver.prebuilt}-<kernel>" if driver.prebuilt else ""
    wanted = f"version {driver.version}" if driver.version else f"the newest of branch {driver.branch}, then kept"
    reboot = "where only that loads it" if driver.reboot else "never"
    return [
        f"  driver     {driver.branch}, {driver.modules} modules: {wanted}",
        f"             {' '.join(driver.packages)}{signed}",
        f"             from {origin if driver.source == 'nvidia' else 'the distribution'}",
        *(f"             pinned by {file.path}" for file in driver.files[:1]),
        f"             rebooted {reboot}",
    ]


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield tasks with an inspection each: the result of one decides on the next."""
    if plan.driver:
        # Alone: what was there before goes on, and so does the rest of the run.
        again = "not one that did not come up"
        yield Task(again, lambda state, run: refusal_changes(plan, state, retry=run.retry), alone=True)
        yield Task("packages", lambda state, run: driver_changes(plan, state, retry=run.retry))
        yield Task("loaded", lambda state, _: load_changes(plan, state))
        yield Task("reboot, if only that loads it", lambda state, _: reboot_changes(plan, state))


ROLE = Role(
    name="nvidia_driver",
    summary="The declared driver is installed, stays as it is, and is in the kernel.",
    plan=plan,
    brings=lambda plan: plan.driver.files if plan.driver else (),
    files=lambda plan: (str(DRIVER_KEPT),) if plan.driver else (),
    inspection=Inspection("nvidia_driver.inspect", inspection_input, Found, state_parts),
    refusals=lambda plan, state: [replace(each, about="driver") for each in driver_refusals(plan, state)],
    facts=facts,
    tasks=tasks,
    probes=probes,
    judge=judge,
    section="driver",
    describe=describe,
)
