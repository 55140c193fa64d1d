"""What was declared of the host under its servers, against what it says: the CUDA toolkit, Docker, cards for
containers. Pure.

The roles ask nvcc and Docker what they are; this has nvcc and the host's compiler read a file together, and looks into
containers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from llamaherd.host.answers import Answers, pairs
from llamaherd.plan import Plan

PREPROCESSED = "__CUDACC_VER_MAJOR__.__CUDACC_VER_MINOR__"
"""What nvcc has a compiler read: its own version comes out, unless it does not take that compiler."""


class MachineCheck(NamedTuple):
    """What was asked, whether it is as declared, and what was found."""

    name: str
    ok: bool
    detail: str


def machine_checks(plan: Plan, answers: Answers) -> Iterator[MachineCheck]:
    """A check of each that is planned."""
    if plan.toolkit:
        yield _toolkit(plan.toolkit.version, answers.get(("nvcc", ""), ""))
    if plan.runtime and ("Docker", "") in answers:
        yield _docker(pairs(answers["Docker", ""]))
    if plan.runtime and plan.runtime.toolkit:
        yield _container_toolkit(plan.runtime.toolkit.version, answers.get(("container toolkit", ""), ""))
        yield _cards(plan.runtime.toolkit.devices, answers.get(("cdi", ""), ""))


def _toolkit(version: str, said: str) -> MachineCheck:
    last = said.strip().splitlines()[-1:] or ["it does not run"]
    found = re.sub(r"\s", "", last[0])
    if found == version:
        return MachineCheck("CUDA", True, f"nvcc {version} takes the host's compiler")
    if re.fullmatch(r"\d+\.\d+", found):
        return MachineCheck("CUDA", False, f"nvcc is {found}, declared is {version}")
    wrong = next((line.strip() for line in said.splitlines() if "error" in line), last[0].strip())
    return MachineCheck("CUDA", False, f"nvcc {version} and the host's compiler do not go together: {wrong[:200]}")


def _docker(said: Mapping[str, str]) -> MachineCheck:
    """Its daemon, its own unit, and what that needs."""
    answers = said.get("Answers") == "yes"
    masked = said.get("Masked", "").split()
    if masked:
        which = f"{' and '.join(masked)} {'is' if len(masked) == 1 else 'are'} masked"
        now = "it answers" if answers else "it does not answer"
        return MachineCheck("Docker", False, f"{now}, and systemd may not start it, as {which}: see `herd preflight`")
    return MachineCheck("Docker", answers, "answers" if answers else "it does not answer: `herd up`")


def _container_toolkit(declared: str | None, said: str) -> MachineCheck:
    """Each program tells the version of its own package, and of the library that it has loaded."""
    told = pairs(said)
    versions = {name: told.get(name) or "not there" for name in ("nvidia-ctk", "nvidia-container-cli", "library")}
    found = set(versions.values())
    if len(found) > 1 or found == {"not there"}:
        return MachineCheck("toolkit", False, ", ".join(f"{name} {version}" for name, version in versions.items()))
    (version,) = found
    right = declared in (None, version)
    return MachineCheck("toolkit", right, version if right else f"{version}, declared is {declared}")


def _cards(devices: tuple[str, ...], said: str) -> MachineCheck:
    """What Docker would give comes from files, which the driver may have left behind."""
    told = pairs(said)
    described, missing = set(told.get("names", "").split()), told.get("missing", "").split()
    if lacking := [device for device in devices if device.rpartition("=")[2] not in described]:
        return MachineCheck("cards", False, f"no CDI file describes {', '.join(lacking)}: converge")
    if missing:
        return MachineCheck("cards", False, f"CDI names what is not there: {', '.join(missing)}: converge")
    return MachineCheck("cards", True, f"CDI describes {', '.join(devices)}, and all that it names is there")
