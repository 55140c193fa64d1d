"""Why a host cannot be ours at all: another system, no systemd, accounts that share a number."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.refusal import Refusal
from llamaherd.wsl import wslconf


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """What everything else stands on."""
    if state.os != plan.os:
        yield Refusal(
            f"this host runs {state.os}, the inventory says {plan.os}", "correct `host.os` in the inventory", "system"
        )
    if not state.systemd and not _starts_systemd(plan, state):
        yield Refusal(
            "systemd does not run here, and builds and servers are its units",
            "boot with systemd; under WSL, where wsl.conf says so, `wsl --terminate NAME` in Windows and start it",
            "systemd",
        )
    yield from _twins(plan, state)


def _starts_systemd(plan: Plan, state: HostState) -> bool:
    if plan.wsl is None or state.wsl is None:
        return False
    file = state.wsl.files.get(wslconf.WSL_CONF)
    return wslconf.starts_systemd(file.content if file else None)


def _twins(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Which of both is to have another number is not for us to choose, and one that is in use cannot be changed."""
    for name, other in sorted(state.twins.items()):
        if name in plan.accounts:
            yield Refusal(
                f"users {name} and {other} have one number on this host: each may do what the other may",
                f"give {name} a number of its own (`vipw`, or `userdel {name}` while its server is stopped: "
                "`herd up` makes it anew)",
            )
