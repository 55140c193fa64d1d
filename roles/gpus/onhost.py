"""Inspect what NVIDIA's driver lists of GPUs. The PCI bus is base's to inspect."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.onhost.hardware import FIELDS, GpuState, parse_gpu
from llamaherd.onhost.system import NOT_STARTED, FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

_SECONDS = 12
"""A driver that hangs blocks every process that queries it."""


@dataclass(frozen=True)
class Found:
    """The GPUs that the driver lists, or the first line that nvidia-smi printed instead."""

    gpus: tuple[GpuState, ...] = ()
    problem: str = ""


def inspect(_: NoInput, system: System) -> Found:
    """Query NVIDIA's driver for its GPUs."""
    query = ["nvidia-smi", "--format=csv,noheader,nounits", f"--query-gpu={','.join(FIELDS)}"]
    ended = system.run(query, seconds=_SECONDS)
    if ended.code == NOT_STARTED:
        return Found(problem="there is no nvidia-smi")
    lines = [line for line in (ended.out + ended.err).splitlines() if line.strip()]
    gpus = [line for line in lines if line.startswith("GPU-") and line.count(", ") >= len(FIELDS) - 1]
    try:
        return Found(tuple(map(parse_gpu, gpus)), "" if gpus else next(iter(lines), ""))
    except ValueError as error:
        raise FailedError(f"nvidia-smi prints what cannot be read: {error}", "see `nvidia-smi` on the host") from None


VERBS = {"inspect": Verb(NoInput, inspect)}
