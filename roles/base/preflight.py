"""Base's rows of preflight's table: the system, the machine under it, and who holds its packages."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.facts import Row, listed
from llamaherd.text.units import show_size

_LEAST_RAM, _MOST_RAM = 0.9, 1.25
"""Of the RAM that is declared: below and above, the host has another amount. Linux shows some 97 % of what is there,
and 192 GiB are often written as 192GB."""

_BOOT = 200 * 10**6
"""Bytes: another kernel and its initrd seldom fit into less, and the old ones stay until the new ones are written."""

_DRIVERS = ("nvidia", "libnvidia", "cuda", "linux-")
"""How packages begin that driver and kernel come from."""


def facts(plan: Plan, state: HostState) -> Iterator[Row]:
    """What the host is."""
    yield Row("system", f"{state.os} {state.arch}", plan.os)
    yield Row("systemd", "runs" if state.systemd else "does not run", "runs")
    yield _kernel(state)
    yield Row("kind", state.kind or "not known", "WSL" if plan.wsl else "")
    yield _ram(plan, state)
    if plan.amx != state.machine.amx:
        yield _amx(state)
    if state.machine.boot_free is not None and plan.has_cards and not state.machine.in_container:
        yield _boot(state.machine.boot_free)
    yield _packages(plan, state)


def _kernel(state: HostState) -> Row:
    running, following = state.machine.kernel or "not known", state.machine.next_kernel
    if following in ("", running):
        return Row("kernel", running)
    return Row(
        "kernel",
        running,
        following,
        "note",
        f"{running} runs, and the next boot starts {following}",
        "reboot when it suits, so that what is built for a kernel is built for the one that stays",
    )


def _ram(plan: Plan, state: HostState) -> Row:
    have, declared = state.machine.memory, plan.ram
    found = show_size(have) if have else "not known"
    if not have or declared is None:
        return Row("RAM", found)
    wanted = show_size(declared)
    if have < declared * _LEAST_RAM:
        why = f"the inventory says {wanted} of RAM, and there are {found}: what is planned for RAM may not fit"
    # In a container it is the host's, of which it may have been given a part.
    elif have > declared * _MOST_RAM and not state.machine.in_container:
        why = f"the inventory says {wanted} of RAM, and there are {found}"
    else:
        return Row("RAM", found, wanted)
    return Row("RAM", found, wanted, "note", why, f"write `ram: {have >> 30}GiB` under `host:`, or see what is missing")


def _amx(state: HostState) -> Row:
    """Of RAM, llama.cpp takes up to twice as much where it computes with AMX."""
    if state.machine.amx:
        why = "the processor has AMX, where llama.cpp without a GPU holds most matrices twice: less RAM is planned"
        help_ = "write `amx: true` under `host: cpu:`; `--no-repack` in `extra_args` does without the copies"
        return Row("AMX", "yes", "no", "note", why, help_)
    why = "the inventory says that the processor has AMX, and it has none: more RAM is planned than servers take"
    return Row("AMX", "no", "yes", "note", why, "remove `amx: true` under `host: cpu:`")


def _boot(free: int) -> Row:
    found = f"{show_size(free)} free"
    if free >= _BOOT:
        return Row("/boot", found)
    why = f"/boot has {found}, which may not do for another kernel with a driver in its initrd"
    return Row("/boot", found, show_size(_BOOT), "note", why, "`apt-get autoremove --purge` removes kernels of old")


def _packages(plan: Plan, state: HostState) -> Row:
    machine = state.machine
    missing = len(set(plan.packages) - state.packages)
    wanted = f"{missing} to be installed" if missing else ""
    if machine.package_holder:
        why = f"apt or dpkg is held by {machine.package_holder}: a run waits for it"
        found = f"held by {machine.package_holder}"
        return Row("packages", found, wanted, "note", why, "let it end, or see what it is doing")
    held = sorted(name for name in machine.held if name in plan.packages or name.startswith(_DRIVERS))
    if held:
        why = f"somebody has put {listed(held)} on hold: they stay as they are"
        help_ = f"`apt-mark unhold {' '.join(held)}`, where that is no longer wanted"
        return Row("packages", f"on hold: {listed(held)}", wanted, "note", why, help_)
    return Row("packages", "nobody holds them", wanted)
