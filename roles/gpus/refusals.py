"""What the machine under a host is not, though it is declared: cards, as the bus shows them before any driver, and
compilers. What is not known of a machine is no problem."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from llamaherd.converge.disks import Refusal
from llamaherd.host.looks.machine import PciCard
from llamaherd.host.nvidia_smi import find
from llamaherd.host.state import HostState
from llamaherd.plan import BuildPlan, CardPlan, Plan
from llamaherd.plan.devices import address, short_address
from llamaherd.reference.cards import CARDS, is_known, is_other, model_of, sold_as

CONTAINERS = frozenset(
    {"systemd-nspawn", "lxc-libvirt", "lxc", "rkt", "docker", "podman", "openvz", "proot", "pouch", "container-other"}
)
"""In the words of systemd-detect-virt. The bus in there is that of their host."""

_PASSED_ON = "vfio-pci"
"""The driver that keeps a card for a virtual machine."""

_COMPILERS = ("CMAKE_CUDA_HOST_COMPILER", "CMAKE_CXX_COMPILER")


CARDS_ROW = "cards"
"""What preflight's table calls all of them."""


class Match(NamedTuple):
    """A declared card, and the one in this host that it is; `right` is False where that is surely another model."""

    card: CardPlan
    found: PciCard | None
    right: bool = True


def machine_refusals(plan: Plan, seen: HostState) -> list[Refusal]:
    """Cards that are not in this host or are others than declared, and compilers that a build lacks."""
    return [*_card_refusals(plan, seen), *_compiler_refusals(plan, seen)]


def about_card(name: str) -> str:
    """What preflight's table calls a card."""
    return f"card {name}"


def named(card: PciCard) -> str:
    """A card in words: its model, or what else is known of it, and where it is."""
    model = model_of(card.device, card.name) or sold_as(card.name)
    return (model or f"a card with PCI id 10de:{card.device}") + (
        f" at {short_address(card.address)}" if card.address else ""
    )


def kind(seen: HostState) -> str:
    """What the host is: `bare metal`, `virtual machine (kvm)`, `container (docker)`, `WSL`; empty where not known."""
    virtual = seen.machine.virtual
    if seen.wsl:
        return "WSL"
    if virtual in CONTAINERS:
        return f"container ({virtual})"
    if virtual not in ("", "none"):
        return f"virtual machine ({virtual})"
    if seen.machine.laptop:
        return "laptop"
    return "bare metal" if virtual else ""


def cards_of(seen: HostState) -> list[PciCard] | None:
    """The cards that this host can use, in the order of addresses; None where that is not known."""
    machine = seen.machine
    # Where a driver answers though the bus shows none, there are cards, and which is the driver's to tell.
    if seen.wsl is not None or (not machine.cards and (machine.bus is None or seen.cards)):
        return None
    return sorted((card for card in machine.cards if card.driver != _PASSED_ON), key=_place)


def matches(cards: Sequence[CardPlan], seen: HostState) -> list[Match]:
    """Which card of the host each declared one is: by its address, or else by its model, as far as that is known.

    A UUID is the driver's to tell. Nor do numbers count in a container, where the bus has cards that it was not given.
    """
    there = cards_of(seen) or []
    by_address = {_place(card): card for card in there if card.address}
    found: dict[str, PciCard | None] = {}
    for card in cards:
        shown = find(card.at, seen.cards)
        if shown and address(shown.pci) in by_address:
            found[card.name] = by_address[address(shown.pci)]
        elif ":" in card.at and len(by_address) == len(there):
            found[card.name] = by_address.get(address(card.at))
        elif card.at.isdigit() and seen.machine.virtual not in CONTAINERS:
            found[card.name] = there[int(card.at)] if int(card.at) < len(there) else None
    left = [card for card in there if card not in found.values()]
    # Those that surely fit first; then cards of which nothing is known; and what is not known here fits anything.
    for fits in (_is_that, _may_be_that):
        for known in (True, False):
            for card in cards:
                if card.name not in found and is_known(card.model) == known:
                    fitting = next((each for each in left if fits(card, each)), None)
                    if fitting:
                        found[card.name] = fitting
                        left.remove(fitting)
    for card in cards:
        if card.name not in found:
            found[card.name] = left.pop(0) if left else None
    return [Match(card, each := found[card.name], each is None or _may_be_that(card, each)) for card in cards]


def _is_that(card: CardPlan, found: PciCard) -> bool:
    model = model_of(found.device, found.name)
    return model is not None and is_known(card.model) and not is_other(card.model, model)


def _may_be_that(card: CardPlan, found: PciCard) -> bool:
    model = model_of(found.device, found.name)
    return model is None or not is_other(card.model, model)


def _card_refusals(plan: Plan, seen: HostState) -> Iterator[Refusal]:
    if not plan.has_cards:
        return
    unknown = [card for card in plan.cards if _is_unknown(card, plan, seen)]
    for card in unknown:
        yield Refusal(
            f"card `{card.name}` ({card.at}) is not in this host",
            _search(", ".join(f"{each.name} ({each.uuid} at {short_address(each.pci)})" for each in seen.cards)),
            about_card(card.name),
        )
    there = cards_of(seen)
    if not plan.cards or there is None:
        return
    if not there:
        yield _none(plan, seen)
        return
    shown = ", ".join(map(named, there))
    for card, found, right in matches(plan.cards, seen):
        if card in unknown:
            continue
        what = about_card(card.name)
        if found is None:
            yield Refusal(
                f"card `{card.name}` ({card.model}) is not in this host: {_missing(card)}", _search(shown), what
            )
        elif not right:
            model = str(model_of(found.device, found.name))
            known = "" if model in CARDS else " and its `architecture:`"
            message = f"card `{card.name}` is declared as {card.model}, and is {named(found)}"
            yield Refusal(message, f"write `model: {model}`{known}, or put the card in that is declared", what)


def _is_unknown(card: CardPlan, plan: Plan, seen: HostState) -> bool:
    """Whether the driver, which answers, does not show a card: unless another driver is to come, which may know it."""
    if not card.at or not seen.cards or find(card.at, seen.cards):
        return False
    driver, nvidia = plan.driver, seen.nvidia
    return driver is None or (
        driver.wants(nvidia.loaded or "") and all(package in nvidia.packages for package in driver.packages)
    )


def _none(plan: Plan, seen: HostState) -> Refusal:
    """Once for all cards."""
    names = ", ".join(f"`{card.name}`" for card in plan.cards)
    where = kind(seen)
    message = f"no NVIDIA card can be seen in this host, and the inventory declares {names}"
    if any(card.driver == _PASSED_ON for card in seen.machine.cards):
        message = f"all NVIDIA cards of this host are kept for virtual machines (by {_PASSED_ON}), {names} too"
        help_ = "take them from there, or declare the virtual machine as the rig"
    elif where.startswith("container"):
        help_ = f"this is a {where}: start it with the cards (`--gpus all` with Docker), or declare its host as the rig"
    elif where.startswith("virtual"):
        help_ = f"this is a {where}: pass the cards through to it, or declare its host as the rig"
    else:
        help_ = "see that they are seated and have power, and what `lspci -d 10de:` shows; or take `gpus` out"
    return Refusal(message, help_, CARDS_ROW)


def _missing(card: CardPlan) -> str:
    if ":" in card.at:
        return f"nothing is at {short_address(card.at)}"
    return f"there are not {int(card.at) + 1} cards" if card.at.isdigit() else "there are fewer cards than declared"


def _search(shown: str) -> str:
    return f"there is {shown}; correct the inventory, or see that the card is seated and has power"


def _place(card: PciCard) -> tuple[int, ...]:
    return address(card.address) if card.address else ()


def _compiler_refusals(plan: Plan, seen: HostState) -> Iterator[Refusal]:
    if not seen.machine.kernel:
        return
    for build in plan.builds:
        if seen.builds.get(build.id) in (None, "damaged"):
            for version in sorted(own_compilers(build) - seen.machine.gcc):
                package = f"g++-{version}"
                if package not in plan.packages:
                    message = f"engine `{build.engine}` is to be compiled with {package}, which is not installed"
                    help_ = f"`apt-get install {package}` on the host, or name another compiler in its `options`"
                    yield Refusal(message, help_, "compilers")


def own_compilers(build: BuildPlan) -> set[int]:
    """The versions of g++ that a build is to use besides the host's own, as its options name them."""
    said = (re.fullmatch(r"(?:/usr/bin/)?g\+\+-(\d+)", build.options.get(option, "")) for option in _COMPILERS)
    return {int(each[1]) for each in said if each}
