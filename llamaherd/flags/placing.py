"""Options that say where a model goes: cards, shares, tensors, and the engine's own fitting."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.findings import Severity
from llamaherd.flags import codes
from llamaherd.flags.clash import Around, Clash
from llamaherd.flags.meant import Meant, Option
from llamaherd.flags.overrides import Override, parse_overrides

LAYERS, EXPERTS = ("--gpu-layers", "--n-gpu-layers"), ("--override-tensor", "--cpu-moe", "--n-cpu-moe")
OFF = ("off", "0", "false", "disabled")
BUFFERS = re.compile(
    r"CPU|(?:CUDA|ROCm|Vulkan|SYCL|MUSA|CANN|MTL|OPENVINO|HTP)[0-9]{1,4}|RPC.+|Metal|BLAS|OpenCL|GPUOpenCL|WebGPU.*|zDNN|ZenDNN|ET"
)
"""What backends call the buffers that `-ot` takes (llama.cpp b11434, common/arg.cpp:255-262): one for each device."""


def attention_off(meant: Meant) -> Option | None:
    option = meant.get("--flash-attn")
    return option if option and option.value.lower() in OFF else None


def fit(meant: Meant, _around: Around) -> Iterator[Clash]:
    """llama.cpp b11434, common/fit.cpp:183; ik_llama.cpp 8337e4cd3, src/llama.cpp:4281-4286."""
    fit = meant.get("--fit")
    if fit is None or fit.value.lower() in OFF:
        return
    fork = meant.catalogue.kind == "ik_llama.cpp"
    names = EXPERTS if fork else (*EXPERTS, *LAYERS, "--tensor-split")
    placed = [option for name in names if (option := meant.get(name)) and option.value not in ("auto", "-1")]
    if placed and fork:
        message = f"ik_llama.cpp does not start with {fit} beside {placed[0]}"
        yield Clash(codes.NO_FIT, (fit, placed[0]), message, "leave out one of the two")
    elif placed:
        message = f"llama.cpp fits nothing where something is placed by hand, and here {placed[0]} does so"
        yield Clash(codes.NO_FIT, (fit, placed[0]), message, f"leave out {fit}, or {placed[0]}", "note")


def split(meant: Meant, around: Around) -> Iterator[Clash]:
    split = meant.get("--split-mode")
    if split is None:
        return
    cards = visible(meant, around)
    if split.value in ("graph", "attn") and meant.catalogue.kind == "ik_llama.cpp" and cards == 1:
        message = f"ik_llama.cpp does not start with {split} and one card"
        yield Clash(codes.NO_SPLIT, (split,), message, f"leave out {split}")
    attention = attention_off(meant)
    if split.value == "tensor" and attention:
        message = f"llama.cpp does not start with {split} and without flash attention"
        yield Clash(
            codes.NO_SPLIT, (split, attention), message, f"leave out {attention}, or write `--split-mode layer`"
        )


def shares(meant: Meant, around: Around) -> Iterator[Clash]:
    """A share for each card, and a main card that is there and counts."""
    cards, shares = visible(meant, around), meant.get("--tensor-split")
    parts = [part for part in shares.value.replace("/", ",").split(",") if part] if shares else []
    if shares and cards is not None and len(parts) > max(1, cards):
        message = f"{shares} has {len(parts)} shares, and the server sees {_counted(cards, 'card')}"
        yield Clash(codes.TOO_MANY, (shares,), message, "give a share to each card that it sees", "warning")
    main = meant.get("--main-gpu")
    if main and cards is not None and meant.number("--main-gpu", default=0) >= max(1, cards):
        message = f"{main} names a card that is not there: the server sees {_counted(cards, 'card')}, counted from 0"
        yield Clash(codes.TOO_MANY, (main,), message, f"leave out {main}")


def visible(meant: Meant, around: Around) -> int | None:
    """How many cards a server sees."""
    chosen = meant.environment.get("CUDA_VISIBLE_DEVICES")
    if around.cards is not None or chosen is None:
        return around.cards
    names = [name.strip() for name in chosen.split(",")]
    # CUDA sees what stands before the first name that is none.
    return next((index for index, name in enumerate(names) if name in ("", "-1")), len(names))


def _counted(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number} {what}s" if number else f"no {what}"


def overrides(meant: Meant, around: Around) -> Iterator[Clash]:
    """Tensors sent elsewhere: a pattern and a buffer that the engine takes, and that find something."""
    for option in meant.every("--override-tensor"):
        try:
            overrides = parse_overrides(option.value)
        except ValueError as error:
            message, help_ = f"{option} is not taken: {error}", "write `PATTERN=CPU`, several with commas between"
            yield Clash(codes.BAD_OVERRIDE, (option,), message, help_)
            continue
        for override in overrides:
            if fault := _fault(override, meant, around):
                yield Clash(codes.BAD_OVERRIDE, (option,), *fault)


def _fault(override: Override, meant: Meant, around: Around) -> tuple[str, str, Severity] | None:
    """What is wrong with one override, what to write, and how bad it is."""
    if override.fault:
        message = f"`{override.pattern}` is no regular expression of C++: {override.fault}"
        return message, r"write one that finds the tensors' names, such as `blk\.1[0-9]\.ffn_.*_exps`", "error"
    card = re.fullmatch(r"CUDA([0-9]{1,4})", override.buffer)
    cards = visible(meant, around)
    if not BUFFERS.fullmatch(override.buffer) or (card and cards is not None and int(card[1]) >= cards):
        there = ["`CPU`", *(f"`CUDA{number}`" for number in range(cards or 0))]
        message = f"`{override.buffer}` is no buffer that the server has"
        return message, f"write {' or '.join(there)}" if cards is not None else "write `CPU`, `CUDA0` …", "error"
    if override.regex is None:
        return None
    found = [name for name in around.tensors if override.regex.search(name)]
    if around.experts_moved and (any("_exps" in name for name in found) or "exps" in override.pattern):
        message = f"`{override.pattern}` is about experts, of which `experts_on_cpu` decides before it"
        return message, "leave out one of the two", "error"
    if around.tensors and not found:
        message = f"`{override.pattern}` finds none of the model's {len(around.tensors)} tensors"
        return message, f"write one that finds names such as `{around.tensors[-1]}`", "warning"
    return None
