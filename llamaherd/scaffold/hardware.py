"""The hardware of a host by one inspection, and its GPUs in the words of an inventory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import UnexpectedLineError, query_verb
from llamaherd.host.remote import NoPythonError, Remote
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.inventory.schema.rig import OperatingSystem
from llamaherd.onhost.hardware import FoundGpu, FoundHost, HardwareInput
from llamaherd.reference.cards import CARDS

INIT_SECONDS = 60.0
"""More than `nvidia-smi` may take on the host."""
_MOST_COUNT = 10**18
_MOST_GPUS = 64


class ScaffoldError(UserError):
    """An inspection that cannot become a rig: one sentence, and a fix."""


def inspect_hardware(connect: Connect) -> FoundHost:
    """Inspect a host, in one connection. Raise RemoteError if it cannot be reached, ScaffoldError if it is unfit."""
    try:
        found = query_verb(Remote(connect), "llamaherd.hardware.inspect", HardwareInput(), FoundHost, INIT_SECONDS)
    except NoPythonError as error:
        install = f"install it: `{_install_command(connect)}`, then run this command again"
        raise ScaffoldError(error.message, install if error.installable else error.help) from None
    refuse_unfit(checked_hardware(found), "this machine" if connect.host == LOCAL else connect.host)
    return found


def _install_command(connect: Connect) -> str:
    """Return the command that installs python3 on a host. A new machine has no package lists yet."""
    sudo = "" if connect.user == "root" else "sudo "
    install = f"{sudo}apt-get update && {sudo}apt-get install -y python3"
    if connect.host == LOCAL:
        return install
    options = [*(["-p", str(connect.port)] if connect.port else []), *(["-i", str(connect.key)] if connect.key else [])]
    host = f"{connect.user}@{connect.host}" if connect.user else connect.host
    return shlex.join(("ssh", *options, host, install))


def refuse_unfit(found: FoundHost, host: str) -> None:
    """Raise ScaffoldError if llamaherd cannot use such a host."""
    known = get_args(OperatingSystem)
    if found.os not in known:
        what = f"runs {found.os}" if found.os else "has no known system in /etc/os-release"
        raise ScaffoldError(f"{host} {what}, which llamaherd cannot provision", f"its systems are {', '.join(known)}")
    if not found.memory or not (found.cores or found.threads):
        raise ScaffoldError(f"{host} does not report its cores and memory", "is /proc mounted there?")


def checked_hardware(found: FoundHost) -> FoundHost:
    """Return the hardware of a host. Raise UnexpectedLineError if no host can have this hardware."""
    for text in _texts(found):
        if not text.isprintable():
            raise UnexpectedLineError(text)
    for count in (found.cores, found.threads, found.performance or 0, found.memory, found.free):
        if not 0 <= count <= _MOST_COUNT:
            raise UnexpectedLineError(str(count))
    if len(found.cards) > _MOST_GPUS or len(found.bus) > _MOST_GPUS:
        raise UnexpectedLineError(f"{len(found.cards)} and {len(found.bus)} GPUs")
    return found


def _texts(found: FoundHost) -> Iterator[str]:
    yield from (found.name, found.os, found.arch, found.cpu, found.refused, *found.cuda)
    for card in found.cards:
        yield from (card.uuid, card.pci, card.driver, card.capability, card.name)
    for address, name in found.bus:
        yield from (address, name)


_NEAR = 0.03
"""The difference in memory between two GPUs of one model: a driver or ECC takes a little of it."""


@dataclass(frozen=True)
class WrittenGpu:
    """A GPU as a rig's file has it; what `model` implies is None. `said` is a comment about it."""

    model: str
    uuid: str | None = None
    pci: str | None = None
    architecture: str | None = None
    memory_mib: int | None = None
    comment: str = ""

    @property
    def known(self) -> bool:
        """Return whether the file is valid with it: its architecture and its memory are known."""
        return self.model in CARDS or (self.architecture is not None and self.memory_mib is not None)

    @property
    def memory(self) -> int:
        """Its memory in MiB; 0 if it is unknown."""
        return self.memory_mib or (CARDS[self.model].memory_mib if self.model in CARDS else 0)

    @property
    def sm(self) -> int:
        """Its architecture, as a number such as 86; 0 if it is unknown."""
        architecture = self.architecture or (CARDS[self.model].architecture if self.model in CARDS else "")
        return int(re.sub(r"\D", "", architecture) or 0)


def written_gpus(found: FoundHost) -> tuple[WrittenGpu, ...]:
    """Return all GPUs of a host, in the order of their PCI addresses: from the driver, or else from the bus."""
    if found.cards:
        return tuple(written_gpu(gpu) for gpu in sorted(found.cards, key=lambda gpu: gpu.pci))
    return tuple(WrittenGpu(model=model_from_bus(name), pci=address) for address, name in sorted(found.bus))


def written_gpu(found: FoundGpu) -> WrittenGpu:
    """Return a GPU from the driver's values."""
    architecture = found.capability.replace(".", "") if re.fullmatch(r"\d+\.\d", found.capability) else None
    plain = plain_name(found.name) or "unknown"
    model = _known_card(plain, found.memory_mib) or plain
    known = CARDS.get(model)
    same_memory = known and (found.memory_mib is None or _near(known.memory_mib, found.memory_mib))
    return WrittenGpu(
        model=model,
        uuid=found.uuid if re.fullmatch(r"GPU-[0-9A-Za-z-]+", found.uuid) else None,
        architecture=None if known and architecture in (None, known.architecture) else architecture,
        memory_mib=None if same_memory else found.memory_mib,
        comment=_described(found),
    )


def plain_name(name: str) -> str:
    """Return `RTX 5090M` for `NVIDIA GeForce RTX 5090 Laptop GPU`: without the vendor, a laptop's GPU with an M."""
    name = re.sub(r"^(NVIDIA\s+)?(GeForce\s+)?", "", name.strip())
    return re.sub(r"\s+(Laptop GPU|Max-Q / Mobile|Mobile / Max-Q|Mobile)$", "M", name.removesuffix(" Lite Hash Rate"))


def model_from_bus(name: str) -> str:
    """Return `lspci`'s name of a GPU in the words of an inventory: the text in brackets behind the chip's name."""
    bracketed = re.search(r"\[([^][]+)\]", name)
    plain = plain_name(bracketed[1] if bracketed else re.sub(r"^NVIDIA Corporation\s*", "", name))
    plain = re.sub(r"\s*\(rev \w+\)$", "", plain)
    return _known_card(plain, None) or plain or "unknown"


def _known_card(plain: str, memory_mib: int | None) -> str | None:
    """Return the name in CARDS: the same one in any case, by its memory if two GPUs share it (`RTX 4060 Ti 16GB`)."""
    wanted = plain.casefold()
    same = [name for name in CARDS if re.sub(r" \d+GB$", "", name).casefold() == wanted]
    if wanted.startswith("rtx pro ") or not wanted.startswith(("rtx ", "gtx ")):
        # `H100 80GB HBM3`, `A100-SXM4-80GB`: what follows the name is how the GPU is built.
        same += [n for n in CARDS if re.match(re.escape(n.casefold()) + r"[ -]", wanted)]
    if memory_mib is not None:
        same.sort(key=lambda name: abs(CARDS[name].memory_mib - memory_mib))
    return same[0] if same else None


def _near(one: int, other: int) -> bool:
    return abs(one - other) <= _NEAR * one


def _described(found: FoundGpu) -> str:
    place = re.sub(r"^0000(?=[0-9a-fA-F]{4}:)", "", found.pci).lower()
    if found.power_limit is None:
        return f"at {place}; takes no power limit: limit its clocks instead, as in `clocks: {{max: 1800MHz}}`"
    most = f", {found.most_power:.0f} W at most" if found.most_power else ""
    return f"at {place}; draws up to {found.power_limit:.0f} W{most}: `power_limit: 280W` would limit it"
