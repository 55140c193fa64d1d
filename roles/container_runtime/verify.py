"""Whether Docker answers, and containers are given GPUs: by means of its own, judged here. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llamaherd.host.answers import Answers, pairs
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified


def question(plan: Plan) -> str:
    """Ask Docker whether it answers, and for what describes GPUs to containers."""
    return render("container_runtime/verify.sh.j2", plan=plan) if plan.runtime else ""


def judge(judging: Judging) -> Verified:
    """Docker, and GPUs for its containers."""
    return Verified(checks=tuple(runtime_checks(judging.plan, judging.answers)))


def runtime_checks(plan: Plan, answers: Answers) -> Iterator[Check]:
    """A check of each that is planned."""
    if plan.runtime and ("Docker", "") in answers:
        yield _docker(pairs(answers["Docker", ""]))
    if plan.runtime and plan.runtime.toolkit:
        yield _container_toolkit(plan.runtime.toolkit.version, answers.get(("container toolkit", ""), ""))
        yield _gpus(plan.runtime.toolkit.devices, answers.get(("cdi", ""), ""))


def _docker(said: Mapping[str, str]) -> Check:
    """Its daemon, its own unit, and what that needs."""
    answers = said.get("Answers") == "yes"
    masked = said.get("Masked", "").split()
    if masked:
        which = f"{' and '.join(masked)} {'is' if len(masked) == 1 else 'are'} masked"
        now = "it answers" if answers else "it does not answer"
        return Check("Docker", False, f"{now}, and systemd may not start it, as {which}: see `herd preflight`")
    return Check("Docker", answers, "answers" if answers else "it does not answer: `herd up`")


def _container_toolkit(declared: str | None, said: str) -> Check:
    """Each program tells the version of its own package, and of the library that it has loaded."""
    told = pairs(said)
    versions = {name: told.get(name) or "not there" for name in ("nvidia-ctk", "nvidia-container-cli", "library")}
    found = set(versions.values())
    if len(found) > 1 or found == {"not there"}:
        return Check("toolkit", False, ", ".join(f"{name} {version}" for name, version in versions.items()))
    (version,) = found
    right = declared in (None, version)
    return Check("toolkit", right, version if right else f"{version}, declared is {declared}")


def _gpus(devices: tuple[str, ...], said: str) -> Check:
    """What Docker would give comes from files, which the driver may have left behind."""
    told = pairs(said)
    described, missing = set(told.get("names", "").split()), told.get("missing", "").split()
    if lacking := [device for device in devices if device.rpartition("=")[2] not in described]:
        return Check("GPUs", False, f"no CDI file describes {', '.join(lacking)}: `herd up`")
    if missing:
        return Check("GPUs", False, f"CDI names what is not there: {', '.join(missing)}: `herd up`")
    return Check("GPUs", True, f"CDI describes {', '.join(devices)}, and all that it names is there")
