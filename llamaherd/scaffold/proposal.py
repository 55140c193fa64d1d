"""The first model of a new rig: the largest of a few known models that fits, by its header on the hub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from llamaherd.diagnostics.findings import UserError
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.memory.facts import rig_facts
from llamaherd.onhost.hardware import FoundHost
from llamaherd.scaffold.hardware import written_gpus

_SPARE_DISK = 20 * 10**9
"""Bytes of the disk that stay free for the engine's build and its CUDA toolkit."""


@dataclass(frozen=True)
class Proposal:
    """A model to start with: its name in the rig, its repository and quant, and how its instance runs.

    `least` is the memory in MiB below which a GPU is too small for the file: its header is not read then. `on_gpu` is
    False if the instance runs on the CPU.
    """

    name: str
    hf: str
    quant: str
    context: int
    mtp: int = 0
    least: int = 0
    on_gpu: bool = True

    @property
    def on_hub(self) -> str:
        """The model as `herd fit` names it."""
        return f"{self.hf}:{self.quant}"


SMALL = Proposal("gemma", "bartowski/google_gemma-3-4b-it-GGUF", "Q4_K_M", context=8192)
"""The model of a host without a large GPU, or without a hub."""

# Files of 22.4 and 17.2 GB, whose speeds are in docs/rigs/wsl.md and docs/rigs/one.md.
LARGE = (
    Proposal("35b", "unsloth/Qwen3.6-35B-A3B-MTP-GGUF", "UD-Q4_K_XL", context=32_768, mtp=2, least=22_000),
    Proposal("35b", "unsloth/Qwen3.6-35B-A3B-MTP-GGUF", "UD-Q3_K_XL", context=32_768, mtp=2, least=17_000),
)

ReadHeader = Callable[[str], Header]
"""Returns the header of `OWNER/NAME:QUANT`. Raises UserError."""


def propose_model(
    found: FoundHost, make_rig: Callable[[Proposal], Rig], read_header: ReadHeader, say: Callable[[str], None]
) -> Proposal:
    """Return the first model that fits the host, from the largest to the smallest; SMALL if no header can be read.

    `make_rig` returns the rig with a proposal, whose memory is then calculated as `herd check` does.
    """
    gpus = written_gpus(found)
    largest = max((gpu.memory for gpu in gpus), default=0) if all(gpu.known for gpu in gpus) else 0
    tried = [each for each in LARGE if largest >= each.least]
    try:
        for each in (*tried, *([SMALL] if largest else [])):
            say(f"reading the header of {each.on_hub}")
            header = read_header(each.on_hub)
            if fits_rig(make_rig(each), header, found.free):
                return each
    except UserError as error:
        say(f"proposing the small model {SMALL.on_hub}: {error.message}")
        return SMALL
    return replace(SMALL, on_gpu=False)


def fits_rig(rig: Rig, header: Header, free: int) -> bool:
    """Return whether the only instance of a rig fits its GPUs, its RAM and so many bytes of its disk (0: unknown)."""
    (sized,) = rig_facts(rig, dict.fromkeys(rig.models, header)).sized.values() or (None,)
    weights = sum(tensor.bytes for tensor in header.each)
    return sized is not None and sized.fit.fits and (not free or weights + _SPARE_DISK <= free)
