"""GPUs found in homes: architecture, memory, power, and their ids and addresses on the PCI bus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


def pci_address(pci: str) -> tuple[int, ...]:
    """Return a PCI address as numbers that sort as the bus does; the domain is 0 if it is left out."""
    *domain, bus, rest = pci.split(":")
    device, function = rest.split(".")
    return (int(domain[0], 16) if domain else 0, int(bus, 16), int(device, 16), int(function))


def is_pci_address(text: str) -> bool:
    """Return whether a text is a PCI address."""
    return re.fullmatch(r"([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", text) is not None


def short_pci_address(pci: str) -> str:
    """Return a PCI address as lspci writes it, `0000:01:00.0`: nvidia-smi has eight digits of the domain."""
    domain, bus, device, function = pci_address(pci)
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


@dataclass(frozen=True)
class KnownGpu:
    """A GPU by its specification.

    `architecture` is the compute capability without its dot, for CMAKE_CUDA_ARCHITECTURES (NVIDIA's list of CUDA GPUs);
    `memory_mib` is the total that `nvidia-smi` shows, `multiprocessors` decides how a context of CUDA grows (NVIDIA's
    specifications); `laptop` GPUs often refuse a power limit. GB10 shares the machine's memory and shows none there:
    the value is CUDA's, the least that llama.cpp has printed (122,502 to 124,610 MiB).
    """

    architecture: str
    memory_mib: int
    multiprocessors: int
    laptop: bool = False


CARDS: dict[str, KnownGpu] = {
    "GTX 1080 Ti": KnownGpu("61", 11264, 28),
    "RTX 2060": KnownGpu("75", 6144, 30),
    "RTX 2070": KnownGpu("75", 8192, 36),
    "RTX 2080": KnownGpu("75", 8192, 46),
    "RTX 2080 Ti": KnownGpu("75", 11264, 68),
    "RTX 3060": KnownGpu("86", 12288, 28),
    "RTX 3060 Ti": KnownGpu("86", 8192, 38),
    "RTX 3070": KnownGpu("86", 8192, 46),
    "RTX 3070 Ti": KnownGpu("86", 8192, 48),
    "RTX 3080": KnownGpu("86", 10240, 68),
    "RTX 3080 Ti": KnownGpu("86", 12288, 80),
    "RTX 3090": KnownGpu("86", 24576, 82),
    "RTX 3090 Ti": KnownGpu("86", 24564, 84),
    "RTX A6000": KnownGpu("86", 49140, 84),
    "RTX 4060": KnownGpu("89", 8188, 24),
    "RTX 4060 Ti": KnownGpu("89", 8188, 34),
    "RTX 4060 Ti 16GB": KnownGpu("89", 16380, 34),
    "RTX 4070": KnownGpu("89", 12282, 46),
    "RTX 4070 Super": KnownGpu("89", 12282, 56),
    "RTX 4070 Ti": KnownGpu("89", 12282, 60),
    "RTX 4070 Ti Super": KnownGpu("89", 16376, 66),
    "RTX 4080": KnownGpu("89", 16376, 76),
    "RTX 4080 Super": KnownGpu("89", 16376, 80),
    "RTX 4090": KnownGpu("89", 24564, 128),
    "RTX 4090M": KnownGpu("89", 16376, 76, laptop=True),
    "RTX 5060 Ti": KnownGpu("120", 8151, 36),
    "RTX 5060 Ti 16GB": KnownGpu("120", 16311, 36),
    "RTX 5070": KnownGpu("120", 12227, 48),
    "RTX 5070 Ti": KnownGpu("120", 16303, 70),
    "RTX 5080": KnownGpu("120", 16303, 84),
    "RTX 5090": KnownGpu("120", 32607, 170),
    "RTX 5090M": KnownGpu("120", 24463, 82, laptop=True),
    "RTX PRO 6000 Blackwell": KnownGpu("120", 97887, 188),
    "RTX 5060": KnownGpu("120", 8151, 30),
    "GB10": KnownGpu("121", 122502, 48),
    "A100": KnownGpu("80", 81920, 108),
    "H100": KnownGpu("90", 81559, 132),
    "H200": KnownGpu("90", 143771, 132),
}

_GB10 = 121
"""Its architecture: `121a` and `121f` are the same GPU."""


def on_arm(architecture: str) -> bool:
    """Return whether GPUs of an architecture are in machines with ARM processors alone."""
    return int(architecture.rstrip("af")) == _GB10


OTHER_SIZES: Mapping[str, tuple[int, ...]] = {
    "RTX 2060": (12288,),
    "RTX 2080 Ti": (22528,),
    "RTX 3060": (8192,),
    "RTX 3070": (16384,),
    "RTX 3080": (12288, 20480),
    "RTX 4060 Ti": (16380,),
    "RTX 4080 Super": (32760,),
    "RTX 4090": (49140,),
    "RTX 5060 Ti": (16311,),
    "A100": (40960,),
    "H100": (95830,),
}
"""MiB of GPUs of the same name that have another size: NVIDIA's own, and those that are sold with more soldered on."""

BOARD_WATTS: Mapping[str, int] = {
    "GTX 1080 Ti": 250,
    "RTX 2060": 160,
    "RTX 2070": 175,
    "RTX 2080": 215,
    "RTX 2080 Ti": 250,
    "RTX 3060": 170,
    "RTX 3060 Ti": 200,
    "RTX 3070": 220,
    "RTX 3070 Ti": 290,
    "RTX 3080": 320,
    "RTX 3080 Ti": 350,
    "RTX 3090": 350,
    "RTX 3090 Ti": 450,
    "RTX A6000": 300,
    "RTX 4060": 115,
    "RTX 4060 Ti": 160,
    "RTX 4060 Ti 16GB": 165,
    "RTX 4070": 200,
    "RTX 4070 Super": 220,
    "RTX 4070 Ti": 285,
    "RTX 4070 Ti Super": 285,
    "RTX 4080": 320,
    "RTX 4080 Super": 320,
    "RTX 4090": 450,
    "RTX 5060": 145,
    "RTX 5060 Ti": 180,
    "RTX 5060 Ti 16GB": 180,
    "RTX 5070": 250,
    "RTX 5070 Ti": 300,
    "RTX 5080": 360,
    "RTX 5090": 575,
    "RTX PRO 6000 Blackwell": 600,
    "A100": 400,
    "H100": 700,
    "H200": 700,
}
"""Board power of NVIDIA's own design, in watts (NVIDIA's specifications); partners' GPUs go up to 1.4 times that."""

USUAL_MULTIPROCESSORS = 84
"""The multiprocessors of an unknown GPU: those of a large one of its generation."""

DRIVER_PART = 0.03
DRIVER_MOST = 500 << 20
DRIVER_MOST_OF_MANY = 640 << 20
"""The memory that the driver keeps of a GPU for itself: a part of its memory, up to so many bytes, and up to a few more
of GPUs with 64 GiB and above. CUDA is left with 7,946 of a 3070's 8,192 MiB, 24,124 of a 3090's 24,576, 24,077 of a
4090's 24,564, 23.42 of a 5090M's 23.89 GiB, 143,155 of an H200's 143,771 MiB (docs/gpus.md,
docs/measurements/memory.md).
"""


def usable_memory(memory: int) -> int:
    """Return the bytes that programs can use of a GPU with `memory` bytes and no display."""
    most = DRIVER_MOST_OF_MANY if memory >= 64 << 30 else DRIVER_MOST
    return memory - min(int(memory * DRIVER_PART), most)


_DEVICES: Mapping[str, str] = {
    "GTX 1080 Ti": "1b01 1b06",
    "RTX 2080 Ti": "1e03 1e04 1e07",
    "RTX 2080 Super": "1e81",
    "RTX 2080": "1e82 1e87",
    "RTX 2070 Super": "1e84 1ec2 1ec7",
    "RTX 2060": "1e89 1f03 1f08",
    "RTX 2080M": "1e90 1ed0",
    "RTX 2070 Super Laptop": "1e91 1ed1",
    "RTX 2080 Super Laptop": "1e93 1ed3",
    "RTX 2070": "1f02 1f07",
    "RTX 2060 Super": "1f06 1f42 1f47",
    "RTX 2070M": "1f10 1f14 1f50 1f54",
    "RTX 2060M": "1f11 1f12 1f15 1f51 1f55",
    "A100": "20b0 20b1 20b2 20b5 20f1",
    "RTX 3090 Ti": "2203",
    "RTX 3090": "2204",
    "RTX 3080 Ti": "2205 2208",
    "RTX 3080": "2206 220a 2216",
    "RTX 3070 Ti": "2207 2482 248c",
    "RTX A6000": "2230",
    "RTX A5000": "2231",
    "RTX A4500": "2232",
    "RTX A5500": "2233",
    "H100": "2313 2330 2331 2336 2337 2338 2339 233d",
    "H200": "2335 233b",
    "RTX 3060 Ti": "2414 2486 2489 248e 24c9",
    "RTX 3080 Ti Laptop": "2420 2460",
    "RTX 3070": "2484 2488 248d 24c8",
    "RTX 3060": "2487 24c7 2501 2503 2504 2509 2544",
    "RTX 3080M": "249c 24dc",
    "RTX 3070M": "249d 24dd",
    "RTX 3070 Ti Laptop": "24a0 24e0",
    "RTX A4000": "24b0",
    "RTX 3050": "2507 2582 2583 2584",
    "RTX 3050 OEM": "2508",
    "RTX 3060M": "2520 2521 2560 2561",
    "RTX 3050 Ti Laptop": "2523 2563 25a0 25e0",
    "RTX A2000": "2531",
    "RTX 3050M": "25a2 25a5 25ab 25ac 25e2 25e5 25ec",
    "RTX 2050": "25a9 25ad 25ed",
    "RTX 4090": "2684 2685",
    "RTX 4070 Ti Super": "2689 2705",
    "RTX 4080 Super": "2702 2703",
    "RTX 4080": "2704",
    "RTX 4070": "2709 2786",
    "RTX 4090M": "2717 2757",
    "RTX 4070 Ti": "2782",
    "RTX 4070 Super": "2783",
    "RTX 4060 Ti": "2788 2803 2805",
    "RTX 4080M": "27a0 27e0",
    "RTX 4060": "2808 2882",
    "RTX 4070M": "2820 2860",
    "RTX 4060M": "28a0 28e0",
    "RTX 4050M": "28a1 28e1",
    "RTX 5090": "2b85 2b87",
    "RTX PRO 6000 Blackwell": "2bb1 2bb4 2bb5",
    "RTX 5080": "2c02",
    "RTX 5070 Ti": "2c05",
    "RTX 5090M": "2c18 2c58",
    "RTX 5080M": "2c19 2c59",
    "RTX 5060 Ti": "2d04",
    "RTX 5060": "2d05",
    "RTX 5070M": "2d18 2d58",
    "RTX 5060M": "2d19 2d59",
    "RTX 5050M": "2d98 2dd8",
    "GB10": "2e12",
    "RTX 5070": "2f04",
    "RTX 5070 Ti Laptop": "2f18 2f58",
}
"""The ids that GPUs have on the PCI bus, for hosts without lspci (the PCI ID Project's list of June 2025, without
engineering samples; GB10 as a DGX Spark shows it). GPUs that differ in their memory alone may share an id; a D is its
model for China.
"""

_MODELS = {device: model for model, devices in _DEVICES.items() for device in devices.split()}


def model_of(device: str, name: str = "") -> str | None:
    """Return the GPU with an id on the bus, or with a name of lspci's or the driver's; None for an unknown one.

    Of a name, the text in brackets counts, or all of it without brackets.
    """
    return _MODELS.get(device) or _BY_PLAIN_NAME.get(_plain(sold_as(name)))


def sold_as(name: str) -> str:
    """Return the text in the brackets of lspci's name of a GPU: `GeForce RTX 4090` of `AD102 [GeForce RTX 4090]`."""
    bracketed = re.search(r"\[(.+)\]", name)
    return bracketed[1] if bracketed else name


def known_as(name: str) -> str | None:
    """Return the GPU of `CARDS` with a common name: `RTX 3090` for `NVIDIA GeForce RTX 3090` and `rtx3090`."""
    return name if name in CARDS else _CALLED.get(_called(name))


def _called(name: str) -> str:
    """Return a name without its maker, its family, the suffix of nvidia-smi's list, spaces and capitals."""
    text = re.sub(r"nvidia|geforce|graphics|(workstation|server) edition", "", name.lower())
    text = re.sub(r"\b(a100|h100)[ -](sxm\d?|pcie)?[ -]?(80gb)?[ -]?(pcie|hbm3)?$", r"\1", text.strip())
    text = re.sub(r" ?(laptop gpu|laptop|mobile)$", "m", text.strip())
    return re.sub(r"^(rtx|gtx)(?=\d)", "", re.sub(r"[^a-z0-9]", "", text))


def is_known_model(model: str) -> bool:
    """Return whether GPUs of a declared model can be distinguished from others."""
    return _plain(model) in _BY_PLAIN_NAME


def is_other_model(declared: str, found: str) -> bool:
    """Return whether a GPU that is declared as one model is certainly another. `found` is a result of `model_of`.

    A declared name may be unknown, and is then not another model.
    """
    return is_known_model(declared) and _plain(declared) != _plain(found)


def _plain(model: str) -> str:
    """Return a model without its maker, its family and its memory, and laptops' GPUs by their usual short name."""
    text = re.sub(r"nvidia|geforce|\d+ ?gi?b\b|\bgpu\b", "", model.lower())
    if "pro" not in text:
        text = re.sub(r"laptop|mobile|max-q", "m", text)
    return re.sub(r"m(?: ?/ ?m)*$", "m", text.strip()).replace(" ", "")


_CALLED = {_called(model): model for model in CARDS}
_BY_PLAIN_NAME = {_plain(model): model for model in _DEVICES}
