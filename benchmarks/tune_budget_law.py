"""The rig of docs/rigs/budget.md as a law: how fast it decodes, by what its owner has measured, and what is assumed.

Memory is no law: it is what `herd tune` itself works out, for headers of these models' shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

from llamaherd.measure.tune.candidate import Candidate
from llamaherd.measure.tune.search import EXPERTS, LAYERS, THREADS

ALL, CORES = 40, 8
"""Layers of the model, and cores of the host; with SMT it has twice as many processors."""

MEASURED = {
    ("Q3_K_M", 16, 8): 11.850,
    ("Q3_K_M", 17, 8): 12.331,
    ("IQ2_XXS", 27, 8): 29.899,
    ("IQ2_XXS", 27, 16): 3.7,
}
"""Tokens a second that the owner has published, by quant, layers on the GPU, and threads."""

NAIVE = 6.1
"""Where the owner began: minimal offloading, and a number of threads that nobody says."""

_Q3, _NEXT = MEASURED["Q3_K_M", 16, 8], MEASURED["Q3_K_M", 17, 8]
_LAYER = 1 / _Q3 - 1 / _NEXT
BASE = 1 / _NEXT - (ALL - 17) * _LAYER
"""Seconds of a token when no layer is on the CPU: what is left of 17 layers' time without those on the CPU."""

LAYER = {"Q3_K_M": _LAYER, "IQ2_XXS": (1 / MEASURED["IQ2_XXS", 27, 8] - BASE) / (ALL - 27)}
"""Seconds that a layer on the CPU costs more than one on the GPU."""

_SMT = (1 / MEASURED["IQ2_XXS", 27, 16] - BASE) / ((ALL - 27) * LAYER["IQ2_XXS"])
"""How many times as long layers on the CPU take with a thread for each sibling."""

_SWITCH = 0.0001
"""Assumed: seconds for a layer whose work goes to the CPU and back."""


@dataclass(frozen=True)
class Budget:
    """The rig with a quant. `share` is assumed: how much of the time of a layer on the CPU is that of its experts.

    The owner has moved whole layers alone, so nothing that was measured tells it.
    """

    quant: str
    share: float
    noise: float = 0.01

    def decode(self, candidate: Candidate) -> float:
        """Tokens a second."""
        on_gpu, experts = candidate[LAYERS], int(str(candidate[EXPERTS] or 0))
        whole = 0 if on_gpu is None else ALL - int(str(on_gpu))
        # Experts of the first layers are those of layers on the CPU as well, as `gpu_layers` puts the last ones there.
        alone = max(0, experts - whole)
        moved = (whole + self.share * alone) * LAYER[self.quant] * _slower(int(str(candidate[THREADS] or CORES)))
        return 1 / (BASE + moved + alone * _SWITCH)


def _slower(threads: int) -> float:
    """How many times as long layers on the CPU take. Measured with 8 and 16; assumed with fewer."""
    if threads > CORES:
        return _SMT
    return (1 - exp(-3.2)) / (1 - exp(-3.2 * threads / CORES))


def owners_law(in_ram: float) -> float:
    """Tokens a second by the power law that the owner has fitted, for so many GB of the model in RAM."""
    return 9.81e-6 * exp(4.247 * log(42 - in_ram))
