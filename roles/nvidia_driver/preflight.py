"""The driver's rows of preflight's table: what is loaded and installed, and what may keep it from being loaded."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.facts import Row, listed


def facts(plan: Plan, state: HostState) -> Iterator[Row]:
    """What there is of a driver, where GPUs are this system's."""
    if plan.has_cards:
        yield from _driver(plan, state)
        yield _secure_boot(state)
        yield _headers(state)


def _driver(plan: Plan, state: HostState) -> Iterator[Row]:
    """The driver in the kernel, the one that is installed, and the one that is wanted; what nvidia-smi makes of it."""
    bound = sorted({gpu.driver for gpu in state.machine.cards if gpu.driver})
    shown = f"nvidia-smi shows {len(state.cards)}" if state.cards else state.nvidia.says or state.driver_says
    installed = state.nvidia.version(plan.driver.library) if plan.driver else None
    told = (
        f"{state.nvidia.loaded} is loaded" if state.nvidia.loaded else "",
        f"{installed} is installed" if installed else "",
        f"GPUs are bound to {listed(bound)}" if bound else "",
        shown,
    )
    found = "; ".join(filter(None, told)) or "none"
    wanted = f"{plan.driver.wanted}, {plan.driver.modules}" if plan.driver else "nvidia"
    if not state.machine.nouveau or "nvidia" in bound:
        yield Row("driver", found, wanted)
        return
    help_ = "the packages of NVIDIA's driver keep it from being loaded, from the next boot on"
    yield Row("driver", found, wanted, "note", "nouveau is loaded, and NVIDIA's driver cannot be beside it", help_)


def _secure_boot(state: HostState) -> Row:
    machine = state.machine
    if machine.secure_boot is None:
        return Row("Secure Boot", "no UEFI to tell")
    if not machine.secure_boot:
        return Row("Secure Boot", "off")
    if machine.mok:
        return Row("Secure Boot", "on, the key for modules is enrolled")
    key = "the key for modules is not enrolled" if machine.mok is False else "no enrolled key for modules is known"
    help_ = (
        "`mokutil --import` its certificate and enrol it at the console, at the next boot; or switch Secure Boot off"
    )
    return Row(
        "Secure Boot",
        f"on, {key}",
        "",
        "note",
        "with Secure Boot, modules that are compiled here are loaded only once the key that signs them is enrolled",
        f"take modules that the distribution has signed (`from: distribution` on Ubuntu), or {help_}",
    )


def _headers(state: HostState) -> Row:
    machine = state.machine
    kernels = [each for each in dict.fromkeys((machine.kernel, machine.next_kernel)) if each]
    lacking = [each for each in kernels if each not in machine.headers]
    # In a container the kernel and its modules are the host's.
    if not lacking or machine.in_container:
        return Row("kernel headers", listed(sorted(machine.headers)) or "none")
    return Row(
        "kernel headers",
        listed(sorted(machine.headers)) or "none",
        listed(kernels),
        "note",
        f"there are no headers for {listed(lacking)}, without which modules cannot be compiled for it",
        f"`apt-get install {' '.join(f'linux-headers-{each}' for each in lacking)}`, unless modules come compiled",
    )
