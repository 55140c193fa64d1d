"""What a host is before anything is changed, row by row, beside what is wanted of it. Pure, as plan and look are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from llamaherd.converge.disks import Refusal, disk, needs
from llamaherd.converge.host import refusals
from llamaherd.converge.machine import (
    CARDS_ROW,
    CONTAINERS,
    about_card,
    cards_of,
    kind,
    matches,
    named,
    own_compilers,
)
from llamaherd.host.state import HostState
from llamaherd.plan import CardPlan, Plan
from llamaherd.plan.devices import short_address
from llamaherd.reference.toolchains import NEWEST_GCC, release
from llamaherd.text.units import show_size

Verdict = Literal["ok", "note", "refused"]

_LEAST_RAM, _MOST_RAM = 0.9, 1.25
"""Of the RAM that is declared: below and above, the host has another amount. Linux shows some 97 % of what is there,
and 192 GiB are often written as 192GB."""

_BOOT = 200 * 10**6
"""Bytes: another kernel and its initrd seldom fit into less, and the old ones stay until the new ones are written."""

_DRIVERS = ("nvidia", "libnvidia", "cuda", "linux-")
"""How packages begin that driver and kernel come from."""


@dataclass(frozen=True)
class Row:
    """One thing that was looked at. `why` is a sentence where it is not as it should be, and `help` a way out."""

    what: str
    found: str
    wanted: str = ""
    verdict: Verdict = "ok"
    why: str = ""
    help: str = ""


@dataclass(frozen=True)
class Preflight:
    """The rows of one rig."""

    rig: str
    rows: tuple[Row, ...]

    @property
    def refused(self) -> tuple[Row, ...]:
        """What stands in the way."""
        return tuple(row for row in self.rows if row.verdict == "refused")

    @property
    def doubtful(self) -> tuple[Row, ...]:
        """That, and what a person should know."""
        return tuple(row for row in self.rows if row.verdict != "ok")

    @property
    def ok(self) -> bool:
        """Whether nothing is refused."""
        return not self.refused

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {"rig": self.rig, "ok": self.ok, "rows": [asdict(row) for row in self.rows]}


def survey(plan: Plan, seen: HostState, local_sizes: Mapping[str, int]) -> Preflight:
    """The whole table. `local_sizes`: bytes of the controller's files, by sha256."""
    facts = list(_facts(plan, seen, local_sizes))
    return Preflight(plan.rig, _with_refusals(facts, refusals(plan, seen, local_sizes)))


def unreachable(rig: str, message: str, help_: str) -> Preflight:
    """The table of a host that could not be asked."""
    return Preflight(rig, (Row("host", "cannot be asked", "", "refused", message, help_),))


def lines(rows: Sequence[Row]) -> list[str]:
    """A table as plain text."""
    cells = [("", "found", "wanted", ""), *((row.what, row.found, row.wanted, row.verdict) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _with_refusals(facts: Sequence[Row], problems: Iterable[Refusal]) -> tuple[Row, ...]:
    """Every problem in the row that it is about, or in one of its own after that."""
    rows = list(facts)
    for problem in problems:
        what = problem.about or "host"
        places = [place for place, row in enumerate(rows) if row.what == what]
        if places and rows[places[-1]].verdict != "refused":
            fact = rows[places[-1]]
            rows[places[-1]] = Row(what, fact.found, fact.wanted, "refused", problem.message, problem.help)
        else:
            row = Row(what, "", "", "refused", problem.message, problem.help)
            rows.insert(places[-1] + 1 if places else len(rows), row)
    return tuple(rows)


def _facts(plan: Plan, seen: HostState, local_sizes: Mapping[str, int]) -> Iterator[Row]:
    machine = seen.machine
    yield Row("system", f"{seen.os} {seen.arch}", plan.os)
    yield Row("systemd", "runs" if seen.systemd else "does not run", "runs")
    yield _kernel(seen)
    yield Row("kind", kind(seen) or "not known", "WSL" if plan.wsl else "")
    if plan.has_cards:
        yield from _cards(plan, seen)
        yield from _driver(plan, seen)
        yield _secure_boot(seen)
        yield _headers(seen)
    elif plan.cards:
        yield Row(CARDS_ROW, "Windows' to show", ", ".join(map(_declared, plan.cards)))
    if plan.builds:
        yield _compilers(plan, seen)
    yield from (
        Row(disk(each.folder), f"{show_size(each.free)} free", f"{show_size(each.need)} to come" if each.need else "")
        for each in needs(plan, seen, local_sizes)
    )
    yield _ram(plan, seen)
    if machine.boot_free is not None and plan.has_cards and machine.virtual not in CONTAINERS:
        yield _boot(machine.boot_free)
    yield _packages(plan, seen)
    if plan.power:
        yield Row("power", "cards answer" if seen.cards else "no card answers", _held(plan))
    if plan.instances:
        ports = sorted(instance.endpoint.port for instance in plan.instances)
        ours = [port for port in ports if port in seen.listening]
        yield Row("ports", f"{_listed(ours)} in use" if ours else "free", _listed(ports))


def _kernel(seen: HostState) -> Row:
    running, following = seen.machine.kernel or "not known", seen.machine.next_kernel
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


def _cards(plan: Plan, seen: HostState) -> Iterator[Row]:
    """Each card that is declared beside the one that it is; and those that nobody declared."""
    there = cards_of(seen)
    if not there:
        wanted = ", ".join(map(_declared, plan.cards))
        yield Row(CARDS_ROW, "not known before there is a driver" if there is None else "none", wanted)
        return
    paired = matches(plan.cards, seen)
    for card, found, _ in paired:
        yield Row(about_card(card.name), named(found) if found else "not there", _declared(card))
    for number, other in enumerate(card for card in there if card not in [each.found for each in paired]):
        yield Row("further cards" if number == 0 else "", named(other))


def _declared(card: CardPlan) -> str:
    if ":" in card.at:
        return f"{card.model} at {short_address(card.at)}"
    return f"{card.model}, number {card.at}" if card.at.isdigit() else card.model


def _driver(plan: Plan, seen: HostState) -> Iterator[Row]:
    """The driver in the kernel, the one that is installed, and the one that is wanted; what nvidia-smi makes of it."""
    bound = sorted({card.driver for card in seen.machine.cards if card.driver})
    shown = f"nvidia-smi shows {len(seen.cards)}" if seen.cards else seen.nvidia.says or seen.driver_says
    installed = seen.nvidia.version(plan.driver.library) if plan.driver else None
    told = (
        f"{seen.nvidia.loaded} is loaded" if seen.nvidia.loaded else "",
        f"{installed} is installed" if installed else "",
        f"cards are bound to {_listed(bound)}" if bound else "",
        shown,
    )
    found = "; ".join(filter(None, told)) or "none"
    wanted = f"{plan.driver.wanted}, {plan.driver.modules}" if plan.driver else "nvidia"
    if not seen.machine.nouveau or "nvidia" in bound:
        yield Row("driver", found, wanted)
        return
    help_ = "the packages of NVIDIA's driver keep it from being loaded, from the next boot on"
    yield Row("driver", found, wanted, "note", "nouveau is loaded, and NVIDIA's driver cannot be beside it", help_)


def _secure_boot(seen: HostState) -> Row:
    machine = seen.machine
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


def _headers(seen: HostState) -> Row:
    machine = seen.machine
    kernels = [each for each in dict.fromkeys((machine.kernel, machine.next_kernel)) if each]
    lacking = [each for each in kernels if each not in machine.headers]
    # In a container the kernel and its modules are the host's.
    if not lacking or machine.virtual in CONTAINERS:
        return Row("kernel headers", _listed(sorted(machine.headers)) or "none")
    return Row(
        "kernel headers",
        _listed(sorted(machine.headers)) or "none",
        _listed(kernels),
        "note",
        f"there are no headers for {_listed(lacking)}, without which modules cannot be compiled for it",
        f"`apt-get install {' '.join(f'linux-headers-{each}' for each in lacking)}`, unless modules come compiled",
    )


def _compilers(plan: Plan, seen: HostState) -> Row:
    newest = {cuda: NEWEST_GCC.get(release(build.cuda) or (0, 0)) for build in plan.builds if (cuda := build.cuda)}
    wanted = [f"up to g++ {gcc} for CUDA {cuda}" for cuda, gcc in sorted(newest.items()) if gcc]
    wanted += [f"g++-{each}" for each in sorted(set().union(*map(own_compilers, plan.builds)))]
    have = ", ".join(f"g++ {version}" for version in sorted(seen.machine.gcc))
    return Row("compilers", have or ("g++" if "g++" in seen.packages else "none yet"), "; ".join(wanted))


def _ram(plan: Plan, seen: HostState) -> Row:
    have, declared = seen.machine.memory, plan.ram
    found = show_size(have) if have else "not known"
    if not have or declared is None:
        return Row("RAM", found)
    wanted = show_size(declared)
    if have < declared * _LEAST_RAM:
        why = f"the inventory says {wanted} of RAM, and there are {found}: what is planned for RAM may not fit"
    # In a container it is the host's, of which it may have been given a part.
    elif have > declared * _MOST_RAM and seen.machine.virtual not in CONTAINERS:
        why = f"the inventory says {wanted} of RAM, and there are {found}"
    else:
        return Row("RAM", found, wanted)
    return Row("RAM", found, wanted, "note", why, f"write `ram: {have >> 30}GiB` under `host:`, or see what is missing")


def _boot(free: int) -> Row:
    found = f"{show_size(free)} free"
    if free >= _BOOT:
        return Row("/boot", found)
    why = f"/boot has {found}, which may not do for another kernel with a driver in its initrd"
    return Row("/boot", found, show_size(_BOOT), "note", why, "`apt-get autoremove --purge` removes kernels of old")


def _packages(plan: Plan, seen: HostState) -> Row:
    machine = seen.machine
    missing = len(set(plan.packages) - seen.packages)
    wanted = f"{missing} to be installed" if missing else ""
    if machine.package_holder:
        why = f"apt or dpkg is held by {machine.package_holder}: a run waits for it"
        found = f"held by {machine.package_holder}"
        return Row("packages", found, wanted, "note", why, "let it end, or see what it is doing")
    held = sorted(name for name in machine.held if name in plan.packages or name.startswith(_DRIVERS))
    if held:
        why = f"somebody has put {_listed(held)} on hold: they stay as they are"
        help_ = f"`apt-mark unhold {' '.join(held)}`, where that is no longer wanted"
        return Row("packages", f"on hold: {_listed(held)}", wanted, "note", why, help_)
    return Row("packages", "nobody holds them", wanted)


def _held(plan: Plan) -> str:
    return "; ".join(f"{card.name}: {card.declared}" for card in plan.power.cards) if plan.power else ""


def _listed(each: Iterable[object]) -> str:
    return ", ".join(map(str, each))
