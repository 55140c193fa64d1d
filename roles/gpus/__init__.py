"""GPUs: match the declared GPUs with those of the host, and refuse a host that lacks one. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from llamaherd.host.state import GpusState, HostState, find_gpu
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.hardware import PciGpu
from llamaherd.onhost.verbs import NoInput
from llamaherd.plan import GpuPlan, Plan
from llamaherd.plan.devices import gpu_ref
from llamaherd.reference.cards import (
    CARDS,
    is_known_model,
    is_other_model,
    is_pci_address,
    model_of,
    pci_address,
    short_pci_address,
    sold_as,
)
from llamaherd.role.preflight import PreflightRow, Refusal
from llamaherd.role.role import Inspection, Planning, PlanPart, Role
from llamaherd.text.numbers import whole_number
from roles.gpus.onhost import Found

_PASSED_ON = "vfio-pci"
"""The driver that keeps a GPU for a virtual machine."""

GPUS_ROW = "GPUs"
"""What preflight's table calls all of them."""


def plan(planning: Planning) -> PlanPart:
    """Return all GPUs of a rig; none under WSL, where Windows manages them."""
    rig = planning.rig
    return PlanPart(fields={"cards": declared_gpus(rig), "has_cards": rig.gpus is not None and rig.host.wsl is None})


def declared_gpus(rig: Rig) -> tuple[GpuPlan, ...]:
    """Return all GPUs of a rig."""
    gpus = rig.gpus.cards if rig.gpus else {}
    return tuple(GpuPlan(name=name, model=gpu.model, at=gpu_ref(gpu, "")) for name, gpu in gpus.items())


def inspection_input(plan: Plan) -> NoInput | None:
    """Return what to inspect, where it matters which GPU is which, or what a GPU is limited to."""
    return NoInput() if plan.has_cards and (plan.power or any(each.at for each in plan.cards)) else None


def state_parts(found: Found) -> tuple[GpusState]:
    """Return the part of the host's state. Raise ValueError for an invalid PCI address."""
    if not all(is_pci_address(each.pci) for each in found.gpus):
        raise ValueError("not a PCI address")
    return (GpusState(found.gpus, found.problem),)


class Match(NamedTuple):
    """A declared GPU, and the one in this host that it is; `right` is False where that is surely another model."""

    card: GpuPlan
    found: PciGpu | None
    right: bool = True


def about_gpu(name: str) -> str:
    """Return the name of a GPU in preflight's table."""
    return f"GPU {name}"


def named(gpu: PciGpu) -> str:
    """Return a GPU in words: its model, or what else is known of it, and its address."""
    model = model_of(gpu.device, gpu.name) or sold_as(gpu.name)
    return (model or f"a GPU with PCI id 10de:{gpu.device}") + (
        f" at {short_pci_address(gpu.address)}" if gpu.address else ""
    )


def gpus_of(state: HostState) -> list[PciGpu] | None:
    """Return the GPUs that this host can use, in the order of addresses; None if they are unknown."""
    machine = state.system.machine
    # Where a driver answers though the bus shows none, there are GPUs, and which is the driver's to tell.
    if state.system.wsl or (not machine.cards and (machine.bus is None or state.gpus.shown)):
        return None
    return sorted((gpu for gpu in machine.cards if gpu.driver != _PASSED_ON), key=_place)


def matches(gpus: Sequence[GpuPlan], state: HostState) -> list[Match]:
    """Return the host's GPU for each declared one: by its address, or else by its model, as far as known."""
    # Only the driver knows UUIDs. Nor do numbers count in a container, where the bus has GPUs that it was not given.
    there = gpus_of(state) or []
    by_address = {_place(gpu): gpu for gpu in there if gpu.address}
    found: dict[str, PciGpu | None] = {}
    for gpu in gpus:
        shown = find_gpu(gpu.at, state.gpus.shown)
        if shown and pci_address(shown.pci) in by_address:
            found[gpu.name] = by_address[pci_address(shown.pci)]
        elif ":" in gpu.at and len(by_address) == len(there):
            found[gpu.name] = by_address.get(pci_address(gpu.at))
        elif (place := whole_number(gpu.at)) is not None and not state.system.machine.in_container:
            found[gpu.name] = there[place] if place < len(there) else None
    left = [gpu for gpu in there if gpu not in found.values()]
    # Those that surely fit first; then GPUs of which nothing is known; and what is not known here fits anything.
    for fits in (_is_that, _may_be_that):
        for known in (True, False):
            for gpu in gpus:
                if gpu.name not in found and is_known_model(gpu.model) == known:
                    fitting = next((each for each in left if fits(gpu, each)), None)
                    if fitting:
                        found[gpu.name] = fitting
                        left.remove(fitting)
    for gpu in gpus:
        if gpu.name not in found:
            found[gpu.name] = left.pop(0) if left else None
    return [Match(gpu, each := found[gpu.name], each is None or _may_be_that(gpu, each)) for gpu in gpus]


def _is_that(gpu: GpuPlan, found: PciGpu) -> bool:
    model = model_of(found.device, found.name)
    return model is not None and is_known_model(gpu.model) and not is_other_model(gpu.model, model)


def _may_be_that(gpu: GpuPlan, found: PciGpu) -> bool:
    model = model_of(found.device, found.name)
    return model is None or not is_other_model(gpu.model, model)


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield GPUs that are missing on this host, or are others than declared."""
    if not plan.has_cards:
        return
    unknown = [gpu for gpu in plan.cards if _is_unknown(gpu, plan, state)]
    for gpu in unknown:
        yield Refusal(
            f"GPU `{gpu.name}` ({gpu.at}) is not in this host",
            _search(
                ", ".join(f"{each.name} ({each.uuid} at {short_pci_address(each.pci)})" for each in state.gpus.shown)
            ),
            about_gpu(gpu.name),
        )
    there = gpus_of(state)
    if not plan.cards or there is None:
        return
    if not there:
        yield _none(plan, state)
        return
    shown = ", ".join(map(named, there))
    for gpu, found, right in matches(plan.cards, state):
        if gpu in unknown:
            continue
        what = about_gpu(gpu.name)
        if found is None:
            yield Refusal(f"GPU `{gpu.name}` ({gpu.model}) is not in this host: {_missing(gpu)}", _search(shown), what)
        elif not right:
            model = str(model_of(found.device, found.name))
            known = "" if model in CARDS else " and its `architecture:`"
            message = f"GPU `{gpu.name}` is declared as {gpu.model}, and is {named(found)}"
            yield Refusal(message, f"write `model: {model}`{known}, or put the GPU in that is declared", what)


def _is_unknown(gpu: GpuPlan, plan: Plan, state: HostState) -> bool:
    """Return whether the driver responds and does not show a GPU, and no other driver is planned."""
    if not gpu.at or not state.gpus.shown or find_gpu(gpu.at, state.gpus.shown):
        return False
    driver, nvidia = plan.driver, state.driver
    return driver is None or (
        driver.wants(nvidia.loaded or "") and all(package in nvidia.packages for package in driver.packages)
    )


def _none(plan: Plan, state: HostState) -> Refusal:
    """Return the refusal for all GPUs."""
    names = ", ".join(f"`{gpu.name}`" for gpu in plan.cards)
    where = state.system.kind
    message = f"this host shows no NVIDIA GPU, and the inventory declares {names}"
    if any(gpu.driver == _PASSED_ON for gpu in state.system.machine.cards):
        message = f"all NVIDIA GPUs of this host are kept for virtual machines (by {_PASSED_ON}), {names} too"
        help_ = "take them from there, or declare the virtual machine as the rig"
    elif where.startswith("container"):
        help_ = f"this is a {where}: start it with the GPUs (`--gpus all` with Docker), or declare its host as the rig"
    elif where.startswith("virtual"):
        help_ = f"this is a {where}: pass the GPUs through to it, or declare its host as the rig"
    else:
        help_ = "see that they are seated and have power, and what `lspci -d 10de:` shows; or take `gpus` out"
    return Refusal(message, help_, GPUS_ROW)


def _missing(gpu: GpuPlan) -> str:
    if ":" in gpu.at:
        return f"nothing is at {short_pci_address(gpu.at)}"
    place = whole_number(gpu.at)
    return "there are fewer GPUs than declared" if place is None else f"there are not {place + 1} GPUs"


def _search(shown: str) -> str:
    return f"there is {shown}; correct the inventory, or see that the GPU is seated and has power"


def _place(gpu: PciGpu) -> tuple[int, ...]:
    return pci_address(gpu.address) if gpu.address else ()


def facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield each declared GPU with the one that it is, and GPUs that are not declared."""
    if plan.has_cards:
        yield from _gpus(plan, state)
    elif plan.cards:
        yield PreflightRow(GPUS_ROW, "Windows' to show", ", ".join(map(_declared, plan.cards)))


def _gpus(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield each declared GPU with the one that it is, and GPUs that are not declared."""
    there = gpus_of(state)
    if not there:
        wanted = ", ".join(map(_declared, plan.cards))
        yield PreflightRow(GPUS_ROW, "not known before there is a driver" if there is None else "none", wanted)
        return
    paired = matches(plan.cards, state)
    for gpu, found, _ in paired:
        yield PreflightRow(about_gpu(gpu.name), named(found) if found else "not there", _declared(gpu))
    for number, other in enumerate(gpu for gpu in there if gpu not in [each.found for each in paired]):
        yield PreflightRow("further GPUs" if number == 0 else "", named(other))


def _declared(gpu: GpuPlan) -> str:
    if ":" in gpu.at:
        return f"{gpu.model} at {short_pci_address(gpu.at)}"
    return f"{gpu.model}, number {gpu.at}" if whole_number(gpu.at) is not None else gpu.model


ROLE = Role(
    name="gpus",
    summary="The GPUs that are declared are in the host.",
    for_instances=True,
    plan=plan,
    inspection=Inspection("gpus.inspect", inspection_input, Found, state_parts),
    refusals=refusals,
    facts=facts,
)
