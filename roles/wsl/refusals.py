"""Why a host is not the distribution under WSL that is declared, or its files are better left alone."""

from __future__ import annotations

from dataclasses import replace

from llamaherd.host.state import HostState
from llamaherd.plan import Plan, WslPlan
from llamaherd.role.refusal import Refusal
from llamaherd.wsl import wslconf
from llamaherd.wsl.merge import MergeError
from llamaherd.wsl.state import WslState
from roles.wsl.changes import content_of, merged, profile_of


def refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """All of it, in the row of what kind of host this is."""
    return [replace(problem, about="kind") for problem in wsl_refusals(plan, state)]


def wsl_refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """A host that is not what is declared, a Windows user who cannot be found, and files that are better left alone."""
    if plan.wsl is None:
        if state.wsl is None:
            return []
        message = "this host is a distribution under WSL, and the inventory does not say so"
        return [Refusal(message, "add `wsl: {}` to `host:`: the driver of its GPUs is Windows' own, for one thing")]
    if state.wsl is None:
        message = "the inventory says that this host is a distribution under WSL 2, and it is none"
        return [Refusal(message, "take `wsl:` out of `host:`, or correct `connect:`")]
    if state.wsl.release.endswith("-Microsoft"):
        message = "this distribution is under WSL 1, which has no systemd and lends no GPU"
        return [Refusal(message, "`wsl --set-version NAME 2` in Windows changes that")]
    problems = []
    profile = profile_of(plan.wsl, state.wsl)
    if profile is None:
        problems.append(_not_found(plan.wsl, state.wsl))
    try:
        wslconf.merge_wslconf(content_of(state.wsl, wslconf.WSL_CONF))
        if profile is not None:
            merged(plan.wsl, state.wsl, profile)
    except MergeError as error:
        problems.append(Refusal(error.message, error.help))
    return problems


def _not_found(planned: WslPlan, seen: WslState) -> Refusal:
    if planned.profile:
        message = f"there is no folder {planned.profile}, which the inventory says is the Windows user's"
        return Refusal(
            message, "correct `host: wsl: windows_profile:`; `ls /mnt/c/Users` on the host shows which there are"
        )
    if seen.profiles:
        message = f"which Windows user WSL belongs to cannot be told: there are {', '.join(sorted(seen.profiles))}"
        return Refusal(message, f"say it with `host: wsl: windows_profile: {min(seen.profiles)}`, or another of them")
    message = "the Windows user's folder cannot be found: no disk of Windows is mounted that has one which WSL can open"
    return Refusal(
        message, "say it with `host: wsl: windows_profile: /mnt/c/Users/NAME`, and see `automount` in /etc/wsl.conf"
    )
