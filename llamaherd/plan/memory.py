"""What a plan holds of memory: what GPUs and the RAM hold of each instance."""

from __future__ import annotations

from typing import Literal

from llamaherd.plan.base import Planned

RAM = "RAM"
"""The host's memory, among the places where something is held."""


class Holds(Planned):
    """What one GPU, or the RAM (`where` is `RAM`), holds of one instance, in bytes. `size` is what there is of it.

    `draft` is what speculation adds: the head's weights, its cache, its buffers and the copies of the state. `cuda` is
    what CUDA takes of a GPU besides all that: its context, kernels and scratch memory. In RAM it is what the server
    holds for itself there, and pages of a mapped file between those that it needs.
    """

    where: str
    size: int
    weights: int
    kv: int
    state: int
    compute: int
    draft: int
    cuda: int = 0

    @property
    def total(self) -> int:
        """All parts."""
        return self.weights + self.kv + self.state + self.compute + self.draft + self.cuda


class Grows(Planned):
    """The most that comes to a server's RAM while it works, in bytes; `prompts` is None without a limit."""

    prompts: int | None = 0
    checkpoints: int = 0


class Estimate(Planned):
    """What an instance takes. `source` is who says so: `arithmetic`, or `engine`, which was asked.

    `resident` is what its RAM cannot do without, in bytes: no page of a mapped file, and nothing of its programs. None
    where that is not known, as in plans of earlier versions.
    """

    source: Literal["arithmetic", "engine"]
    holds: tuple[Holds, ...]
    doubts: tuple[str, ...] = ()
    grows: Grows = Grows()
    resident: int | None = None
