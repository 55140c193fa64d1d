"""The engine's own figure: `llama-fit-params -fitp on`, which reads headers alone and prints MiB per device.

Its figure lacks a draft: the memory of a draft is added from the arithmetic. Facts: llama.cpp b11434,
common/fit.cpp:1088-1113, tools/fit-params/fit-params.cpp:31-80.
"""

from __future__ import annotations

import re
from dataclasses import replace

from llamaherd.gguf.header import Header
from llamaherd.memory.estimate import Memory, Use, add_memory, estimate
from llamaherd.memory.placement import HOST, Placement
from llamaherd.text.terminal import one_line

MIB = 1024**2

_ROW = re.compile(r"^(\S+) ([0-9]{1,12}) ([0-9]{1,12}) ([0-9]{1,12}) *$", re.MULTILINE)
_BUFFER = re.compile(r"(\S+) +(model|KV|RS) buffer size = +([0-9]{1,12}\.[0-9]+) MiB")
_CARD = re.compile(r"CUDA([0-9]{1,4})")


class NoFigureError(ValueError):
    """The tool printed no figures; the message contains what it printed instead."""


def tool_arguments(placement: Placement, model: str) -> tuple[str, ...]:
    """Return the arguments of `llama-fit-params`, which it shares with the server; the first shard is the model.

    Raises ValueError for a placement of ik_llama.cpp, which has no such tool, and for unified slots, which the tool
    does not offer.
    """
    if not placement.does.tells_memory:
        raise ValueError("only llama.cpp has llama-fit-params")
    if placement.kv_unified and placement.parallel > 1:
        raise ValueError("llama-fit-params has no option for slots that share one cache")
    layers = "all" if placement.gpu_layers is None else str(placement.gpu_layers)
    split = placement.tensor_split
    overrides = ",".join(f"{pattern}={_buffer(target)}" for pattern, target in placement.overrides)
    return (
        *("-m", model, "-fitp", "on", "-c", str(placement.context), "-np", str(placement.parallel)),
        *("-ctk", placement.type_k, "-ctv", placement.type_v),
        *("-b", str(placement.batch), "-ub", str(placement.ubatch)),
        *("-fa", "on" if placement.flash_attention else "off"),
        "--no-repack",  # weights that a CPU build repacks are in no row of what it prints (common/fit.cpp:80-98)
        *(("-ngl", layers) if placement.devices else ()),
        *(("-sm", placement.split, "-mg", str(placement.main_device)) if placement.devices > 1 else ()),
        *(("-ts", ",".join(f"{share:g}" for share in split)) if split else ()),
        *(("-ot", overrides) if overrides else ()),
        *(("-nkvo",) if placement.no_kv_offload else ()),
        *(() if placement.op_offload else ("--no-op-offload",)),
        *(("--swa-full",) if placement.swa_full else ()),
    )


def parse_figures(text: str) -> Memory:
    """Return the tool's output as bytes. Its one figure for the context is in `kv`. Raises NoFigureError."""
    rows = [(name, *(int(figure) * MIB for figure in figures)) for name, *figures in _ROW.findall(text)]
    uses = {name: Use(weights=weights, kv=kv, compute=compute) for name, weights, kv, compute in rows}
    if "Host" not in uses:
        said = text.strip().splitlines()
        raise NoFigureError(one_line(f"llama-fit-params printed no figures: {said[-1] if said else 'nothing at all'}"))
    return Memory(devices=tuple(use for name, use in uses.items() if name != "Host"), host=uses["Host"])


def logged(text: str, devices: int) -> Memory:
    """Return the bytes of weights, KV and state by a server's log, the draft's added to the model's.

    `text` is what it logs with `-lv 4`. Compute is left out: buffers that are made anew are logged anew.
    Raises NoFigureError.
    """
    uses = [Use()] * (devices + 1)
    for name, what, figure in _BUFFER.findall(text):
        size, gpu = round(float(figure) * MIB), _CARD.fullmatch(name)
        index = int(gpu[1]) if gpu and int(gpu[1]) < devices else devices
        part = {"model": Use(weights=size), "KV": Use(kv=size), "RS": Use(state=size)}[what]
        uses[index] = add_memory(uses[index], part)
    if not any(use.weights for use in uses):
        raise NoFigureError("the log contains no buffers; start the server with `-lv 4`")
    return Memory(devices=tuple(uses[:devices]), host=uses[devices])


def completed(engine: Memory, header: Header, placement: Placement) -> Memory:
    """Return the engine's figures as those of a server: with a draft, and with the server's few rows of logits.

    The tool reserves a row for every token of a batch; the arithmetic has the compute buffers of these rows.
    Raises ValueError as `estimate` does, and if the tool's number of GPUs differs from the placement's.
    """
    devices = engine.devices
    if placement.split == "none" and len(devices) == 1:
        # It prints the one GPU alone (src/llama.cpp:289-301).
        devices = tuple(devices[0] if gpu == placement.main_device else Use() for gpu in range(placement.devices))
    if len(devices) != placement.devices:
        raise ValueError(f"the tool printed {len(devices)} GPUs, but the instance is on {placement.devices}")
    ours, asked = estimate(header, placement), estimate(header, without_draft(placement))
    return Memory(
        devices=tuple(_as_served(*uses) for uses in zip(devices, ours.devices, asked.devices, strict=True)),
        host=_as_served(engine.host, ours.host, asked.host),
        doubts=ours.doubts,
    )


def without_draft(placement: Placement) -> Placement:
    """Return the placement of the tool: without a draft, nothing mapped, and as many rows of logits as tokens."""
    return replace(placement, mtp=0, outputs=placement.ubatch, mmap=False)


def _as_served(engine: Use, ours: Use, asked: Use) -> Use:
    """Return the engine's figures, corrected by the differences between the tool's input and the server."""
    return replace(engine, compute=max(0, engine.compute + ours.compute - asked.compute), draft=ours.draft)


def _buffer(target: str | int) -> str:
    """Return a buffer type's name: `CPU`, or a CUDA GPU's."""
    return target if isinstance(target, str) else "CPU" if target == HOST else f"CUDA{target}"
