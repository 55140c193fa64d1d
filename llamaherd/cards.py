"""Cards found in homes: what an engine must be compiled for, and how much memory there is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownCard:
    """`architecture` is the compute capability without its dot, as CMAKE_CUDA_ARCHITECTURES wants it (NVIDIA's list of
    CUDA GPUs); `memory_mib` is the total that `nvidia-smi` shows, `multiprocessors` what a context of CUDA grows with
    (NVIDIA's specifications); `laptop` cards often refuse a power limit. GB10 shares the machine's memory and shows
    none there: here is what CUDA has of it, the least that llama.cpp was seen to print (122,502 to 124,610 MiB)."""

    architecture: str
    memory_mib: int
    multiprocessors: int
    laptop: bool = False


CARDS: dict[str, KnownCard] = {
    "GTX 1080 Ti": KnownCard("61", 11264, 28),
    "RTX 2060": KnownCard("75", 6144, 30),
    "RTX 2070": KnownCard("75", 8192, 36),
    "RTX 2080": KnownCard("75", 8192, 46),
    "RTX 2080 Ti": KnownCard("75", 11264, 68),
    "RTX 3060": KnownCard("86", 12288, 28),
    "RTX 3060 Ti": KnownCard("86", 8192, 38),
    "RTX 3070": KnownCard("86", 8192, 46),
    "RTX 3070 Ti": KnownCard("86", 8192, 48),
    "RTX 3080": KnownCard("86", 10240, 68),
    "RTX 3080 Ti": KnownCard("86", 12288, 80),
    "RTX 3090": KnownCard("86", 24576, 82),
    "RTX 3090 Ti": KnownCard("86", 24564, 84),
    "RTX A6000": KnownCard("86", 49140, 84),
    "RTX 4060": KnownCard("89", 8188, 24),
    "RTX 4060 Ti": KnownCard("89", 8188, 34),
    "RTX 4060 Ti 16GB": KnownCard("89", 16380, 34),
    "RTX 4070": KnownCard("89", 12282, 46),
    "RTX 4070 Super": KnownCard("89", 12282, 56),
    "RTX 4070 Ti": KnownCard("89", 12282, 60),
    "RTX 4070 Ti Super": KnownCard("89", 16376, 66),
    "RTX 4080": KnownCard("89", 16376, 76),
    "RTX 4080 Super": KnownCard("89", 16376, 80),
    "RTX 4090": KnownCard("89", 24564, 128),
    "RTX 4090M": KnownCard("89", 16376, 76, laptop=True),
    "RTX 5060 Ti": KnownCard("120", 8151, 36),
    "RTX 5060 Ti 16GB": KnownCard("120", 16311, 36),
    "RTX 5070": KnownCard("120", 12227, 48),
    "RTX 5070 Ti": KnownCard("120", 16303, 70),
    "RTX 5080": KnownCard("120", 16303, 84),
    "RTX 5090": KnownCard("120", 32607, 170),
    "RTX 5090M": KnownCard("120", 24463, 82, laptop=True),
    "RTX PRO 6000 Blackwell": KnownCard("120", 97887, 188),
    "RTX 5060": KnownCard("120", 8151, 30),
    "GB10": KnownCard("121", 122502, 48),
    "A100": KnownCard("80", 81920, 108),
    "H100": KnownCard("90", 81559, 132),
    "H200": KnownCard("90", 143771, 132),
}

USUAL_MULTIPROCESSORS = 84
"""Of a card that is not known: a large one of its generation."""

DRIVER_PART = 0.03
DRIVER_MOST = 500 << 20
DRIVER_MOST_OF_MANY = 640 << 20
"""What the driver keeps of a card for itself: a part of its memory, up to so many bytes, and up to a few more of cards
with 64 GiB and above. CUDA is left with 7,946 of a 3070's 8,192 MiB, 24,124 of a 3090's 24,576, 24,077 of a 4090's
24,564, 23.42 of a 5090M's 23.89 GiB, 143,155 of an H200's 143,771 MiB (docs/gpu.md, docs/memory.md)."""

_PER_MULTIPROCESSOR = 4 << 20
_PER_SERVER = 192 << 20
_PER_DRAFT = 116 << 20


def usable(memory: int) -> int:
    """Bytes that programs can get of a card with `memory` bytes and no display."""
    most = DRIVER_MOST_OF_MANY if memory >= 64 << 30 else DRIVER_MOST
    return memory - min(int(memory * DRIVER_PART), most)


def taken_by_cuda(multiprocessors: int, *, drafts: bool) -> int:
    """Bytes that CUDA takes of a card for one server besides its buffers: context, kernels, cuBLAS, scratch memory.

    Measured on an H200; up to 200 MiB too much for a GeForce, whose contexts are smaller (docs/gpu.md).
    """
    return multiprocessors * _PER_MULTIPROCESSOR + _PER_SERVER + (_PER_DRAFT if drafts else 0)
