"""Cards found in homes: what an engine must be compiled for, and how much memory there is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownCard:
    """`architecture` is the compute capability without its dot, as CMAKE_CUDA_ARCHITECTURES wants it (NVIDIA's list of
    CUDA GPUs); `memory_mib` is the total that `nvidia-smi` shows; `laptop` cards often refuse a power limit."""

    architecture: str
    memory_mib: int
    laptop: bool = False


CARDS: dict[str, KnownCard] = {
    "GTX 1080 Ti": KnownCard("61", 11264),
    "RTX 2060": KnownCard("75", 6144),
    "RTX 2070": KnownCard("75", 8192),
    "RTX 2080": KnownCard("75", 8192),
    "RTX 2080 Ti": KnownCard("75", 11264),
    "RTX 3060": KnownCard("86", 12288),
    "RTX 3060 Ti": KnownCard("86", 8192),
    "RTX 3070": KnownCard("86", 8192),
    "RTX 3070 Ti": KnownCard("86", 8192),
    "RTX 3080": KnownCard("86", 10240),
    "RTX 3080 Ti": KnownCard("86", 12288),
    "RTX 3090": KnownCard("86", 24576),
    "RTX 3090 Ti": KnownCard("86", 24564),
    "RTX A6000": KnownCard("86", 49140),
    "RTX 4060": KnownCard("89", 8188),
    "RTX 4060 Ti": KnownCard("89", 8188),
    "RTX 4060 Ti 16GB": KnownCard("89", 16380),
    "RTX 4070": KnownCard("89", 12282),
    "RTX 4070 Super": KnownCard("89", 12282),
    "RTX 4070 Ti": KnownCard("89", 12282),
    "RTX 4070 Ti Super": KnownCard("89", 16376),
    "RTX 4080": KnownCard("89", 16376),
    "RTX 4080 Super": KnownCard("89", 16376),
    "RTX 4090": KnownCard("89", 24564),
    "RTX 4090M": KnownCard("89", 16376, laptop=True),
    "RTX 5060 Ti": KnownCard("120", 8151),
    "RTX 5060 Ti 16GB": KnownCard("120", 16311),
    "RTX 5070": KnownCard("120", 12227),
    "RTX 5070 Ti": KnownCard("120", 16303),
    "RTX 5080": KnownCard("120", 16303),
    "RTX 5090": KnownCard("120", 32607),
    "RTX 5090M": KnownCard("120", 24463, laptop=True),
    "RTX PRO 6000 Blackwell": KnownCard("120", 97887),
    "A100": KnownCard("80", 81920),
    "H100": KnownCard("90", 81559),
    "H200": KnownCard("90", 143771),
}

DRIVER_SHARE = 0.02
"""Of a card's memory, what the driver keeps for itself: 23.42 of 23.89 GiB are usable on a 5090M (the owner of one)."""


def usable(memory: int) -> int:
    """Bytes that programs can get of a card with `memory` bytes and no display."""
    return int(memory * (1 - DRIVER_SHARE))
