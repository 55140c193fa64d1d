"""GPUs as `nvidia-smi` and `lspci` name them, and as an inventory does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llamaherd.reference.cards import CARDS
from llamaherd.scaffold.look import FoundGpu, FoundHost

_NEAR = 0.03
"""How much the memory of two GPUs of one model differs: a driver or ECC takes a little of it."""


@dataclass(frozen=True)
class WrittenGpu:
    """A GPU as it stands in a rig's file; what `model` tells is None. `said` is what else is known of it."""

    model: str
    uuid: str | None = None
    pci: str | None = None
    architecture: str | None = None
    memory_mib: int | None = None
    said: str = ""

    @property
    def known(self) -> bool:
        """Whether the file is valid with it: what it is compiled for and its memory are known."""
        return self.model in CARDS or (self.architecture is not None and self.memory_mib is not None)

    @property
    def memory(self) -> int:
        """Its memory in MiB; 0 where that is not known."""
        return self.memory_mib or (CARDS[self.model].memory_mib if self.model in CARDS else 0)

    @property
    def sm(self) -> int:
        """What it is compiled for, as a number such as 86; 0 where that is not known."""
        architecture = self.architecture or (CARDS[self.model].architecture if self.model in CARDS else "")
        return int(re.sub(r"\D", "", architecture) or 0)


def written_gpus(seen: FoundHost) -> tuple[WrittenGpu, ...]:
    """All GPUs of a host, in the order of their PCI addresses: as the driver shows them, or else as the bus does."""
    if seen.cards:
        return tuple(written_gpu(gpu) for gpu in sorted(seen.cards, key=lambda gpu: gpu.pci))
    return tuple(WrittenGpu(model=from_bus(name), pci=address) for address, name in sorted(seen.bus))


def written_gpu(seen: FoundGpu) -> WrittenGpu:
    """A GPU that the driver shows."""
    architecture = seen.capability.replace(".", "") if re.fullmatch(r"\d+\.\d", seen.capability) else None
    plain = plain_name(seen.name) or "unknown"
    model = _known(plain, seen.memory_mib) or plain
    known = CARDS.get(model)
    same_memory = known and (seen.memory_mib is None or _near(known.memory_mib, seen.memory_mib))
    return WrittenGpu(
        model=model,
        uuid=seen.uuid if re.fullmatch(r"GPU-[0-9A-Za-z-]+", seen.uuid) else None,
        architecture=None if known and architecture in (None, known.architecture) else architecture,
        memory_mib=None if same_memory else seen.memory_mib,
        said=_said(seen),
    )


def plain_name(name: str) -> str:
    """`RTX 5090M` of `NVIDIA GeForce RTX 5090 Laptop GPU`: without the vendor, a laptop's GPU with an M."""
    name = re.sub(r"^(NVIDIA\s+)?(GeForce\s+)?", "", name.strip())
    return re.sub(r"\s+(Laptop GPU|Max-Q / Mobile|Mobile / Max-Q|Mobile)$", "M", name.removesuffix(" Lite Hash Rate"))


def from_bus(name: str) -> str:
    """What `lspci` calls a GPU, as an inventory does: it stands in brackets behind the chip's name."""
    bracketed = re.search(r"\[([^][]+)\]", name)
    plain = plain_name(bracketed[1] if bracketed else re.sub(r"^NVIDIA Corporation\s*", "", name))
    plain = re.sub(r"\s*\(rev \w+\)$", "", plain)
    return _known(plain, None) or plain or "unknown"


def _known(plain: str, memory_mib: int | None) -> str | None:
    """The name in CARDS: the same one in any case, by its memory where two GPUs share it (`RTX 4060 Ti 16GB`)."""
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


def _said(seen: FoundGpu) -> str:
    place = re.sub(r"^0000(?=[0-9a-fA-F]{4}:)", "", seen.pci).lower()
    if seen.power_limit is None:
        return f"at {place}; takes no power limit: hold its clocks instead, as in `clocks: {{max: 1800MHz}}`"
    most = f", {seen.most_power:.0f} W at most" if seen.most_power else ""
    return f"at {place}; draws up to {seen.power_limit:.0f} W{most}: `power_limit: 280W` would hold it"
