"""Whether the driver that runs is the declared one: asked of the kernel and the library, and judged here."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.host.answers import Answers, pairs
from llamaherd.onhost.verification import Probe
from llamaherd.plan import DriverPlan, Plan
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified


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
    """The driver."""
    driver = judging.plan.driver
    return Verified(checks=tuple(Check(*each) for each in driver_checks(driver, judging.answers)) if driver else ())


def driver_checks(driver: DriverPlan, answers: Answers) -> Iterator[tuple[str, bool, str]]:
    """A name, whether it is as declared, and what was found: of the driver, its file for the kernel, its daemon."""
    loaded = _loaded(answers.get(("driver", ""), ""))
    said = answers.get(("driver by its library", ""), "").strip().partition("\n")[0]
    library = said if re.fullmatch(r"\d{3}(\.\d+)+", said) else None
    if loaded is None:
        yield "driver", False, "no driver is loaded: `herd up`"
    elif not driver.wants(loaded):
        yield "driver", False, f"{loaded} is loaded, declared is {driver.wanted}: `herd up`"
    elif library != loaded:
        found = (
            f"its library is {library}"
            if library
            else f"nvidia-smi says: {said.splitlines()[0] if said else 'nothing'}"
        )
        yield "driver", False, f"{loaded} is loaded, and {found}: `herd up`"
    else:
        yield "driver", True, f"{loaded} is loaded, and its library is of that version"
    disk = answers.get(("driver on disk", ""), "").strip()
    found = f"the running kernel has {disk or 'no module'} on disk"
    yield "module", disk == loaded is not None, found if disk == loaded else f"{found}, loaded is {loaded or 'none'}"
    unit = pairs(answers.get(("persistence daemon", ""), ""))
    state, load = unit.get("ActiveState", "not there"), unit.get("LoadState", "not there")
    shown = state if load == "loaded" else "not there"
    yield "daemon", shown == "active", f"nvidia-persistenced is {shown}"


def _loaded(version: str) -> str | None:
    """The version in what /proc/driver/nvidia/version says, behind `NVRM version: NVIDIA UNIX … Kernel Module`."""
    found = re.search(r"^NVRM version:.*?\b(\d{3}(?:\.\d+)+)\b", version, re.MULTILINE)
    return found[1] if found else None
