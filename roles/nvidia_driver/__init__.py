"""NVIDIA's driver: its packages, their preferences, and the module that the kernel loads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from llamaherd.host.responses import ProbeOutputs, parse_pairs
from llamaherd.host.state import DRIVER_PACKAGES, DriverState, PackageState, Persistence, RefusedDriver
from llamaherd.layout import DRIVER_KEPT
from llamaherd.onhost.verification import Probe
from llamaherd.plan import DriverPlan, Estimate, Plan
from llamaherd.reference.packages import DriverSource
from llamaherd.role.apt import NVIDIA
from llamaherd.role.report import Check
from llamaherd.role.role import Inspection, Judging, Role, Task, Verified
from roles.nvidia_driver.changes import driver_changes, load_changes, reboot_changes, refusal_changes
from roles.nvidia_driver.onhost import Found, InspectInput
from roles.nvidia_driver.plan import plan
from roles.nvidia_driver.preflight import facts, refusals


def inspection_input(plan: Plan) -> InspectInput | None:
    """Return what to inspect."""
    return InspectInput(tuple(DRIVER_PACKAGES)) if plan.driver else None


def state_parts(found: Found) -> tuple[DriverState]:
    """Return the part of the host's state. Raise ValueError for an invalid refused driver."""
    unknown = "of an unknown version"
    driver = DriverState(
        packages={
            name: PackageState(version, _source(found.origins.get(name, ())))
            for name, version in found.packages.items()
        },
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
        refused=_refused(found.refused),
    )
    return (driver,)


def _source(origins: tuple[str, ...]) -> DriverSource | None:
    """Return whose repository has a version. Two may have the same; then it is unknown."""
    match origins:
        case ("nvidia",):
            return "nvidia"
        case ("distribution",):
            return "distribution"
        case _:
            return None


def _refused(fields: tuple[str, ...]) -> RefusedDriver | None:
    match fields:
        case ():
            return None
        case [_, _, _, _, _]:
            return RefusedDriver(*fields)
        case _:
            raise ValueError("a refused driver has five fields")


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
    return Verified(checks=tuple(Check(*each) for each in driver_checks(driver, judging.answers)) if driver else ())


def driver_checks(driver: DriverPlan, answers: ProbeOutputs) -> Iterator[tuple[str, bool, str]]:
    """Yield a name, whether it is as declared, and what was found: of the driver, its module, its daemon."""
    loaded = _loaded(answers.get(("driver", ""), ""))
    output = answers.get(("driver by its library", ""), "").strip().partition("\n")[0]
    library = output if re.fullmatch(r"\d{3}(\.\d+)+", output) else None
    if loaded is None:
        yield "driver", False, "no driver is loaded: `herd up`"
    elif not driver.wants(loaded):
        yield "driver", False, f"{loaded} is loaded, declared is {driver.wanted}: `herd up`"
    elif library != loaded:
        found = (
            f"its library is {library}"
            if library
            else f"nvidia-smi reports: {output.splitlines()[0] if output else 'nothing'}"
        )
        yield "driver", False, f"{loaded} is loaded, and {found}: `herd up`"
    else:
        yield "driver", True, f"{loaded} is loaded, and its library is of that version"
    disk = answers.get(("driver on disk", ""), "").strip()
    found = f"the running kernel has {disk or 'no module'} on disk"
    yield "module", disk == loaded is not None, found if disk == loaded else f"{found}, loaded is {loaded or 'none'}"
    unit = parse_pairs(answers.get(("persistence daemon", ""), ""))
    state, load = unit.get("ActiveState", "not there"), unit.get("LoadState", "not there")
    shown = state if load == "loaded" else "not there"
    yield "daemon", shown == "active", f"nvidia-persistenced is {shown}"


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
    refusals=refusals,
    facts=facts,
    tasks=tasks,
    probes=probes,
    judge=judge,
    section="driver",
    describe=describe,
)
