"""Tensors that are sent elsewhere, by patterns: whether the engine takes them, and which of them counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice

from llamaherd.diagnostics.findings import Severity
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.clash import Around, Clash
from llamaherd.engines.flags.meant import Meant, Option
from llamaherd.engines.flags.overrides import Override, parse_overrides
from llamaherd.engines.flags.visible import visible
from llamaherd.text.numbers import whole

BUFFERS = re.compile(
    r"CPU|(?:CUDA|ROCm|Vulkan|SYCL|MUSA|CANN|MTL|OPENVINO|HTP)(?:0|[1-9][0-9]{0,3})|RPC.+|Metal|BLAS|OpenCL|GPUOpenCL|WebGPU.*|zDNN|ZenDNN|ET"
)
"""What backends call the buffers that `-ot` takes (llama.cpp b11434, common/arg.cpp:255-262): one for each device."""
_MANY = 128
"""Layers of a model that is none in particular."""
_MOST = 256
"""Overrides that are compared with those before them: each is tried on every tensor."""
_PARTS = (
    *("attn_q", "attn_k", "attn_v", "attn_output", "attn_norm", "ffn_norm", "ffn_gate_inp"),
    *("ffn_up", "ffn_down", "ffn_gate", "ffn_up_shexp", "ffn_down_shexp", "ffn_gate_shexp"),
    *("ffn_up_exps", "ffn_down_exps", "ffn_gate_exps", "ffn_gate_up_exps"),
)


BAD_OVERRIDE = Rule(
    "LH218",
    "The engine refuses an override of tensors, or it finds nothing.",
    why="""
    The pattern is a regular expression of C++ (std::regex), searched for in the tensors' names. The buffer is
    `CPU`, or `CUDA0` and so on by the GPUs that the server sees.
    """,
    example="""
    instances:
      coder: {extra_args: ["-ot", "*exps*=CPU"]}
    """,
    way_out="write the pattern or buffer of the help line. For experts, write the key `experts_on_cpu`.",
    sometimes=("warning",),
)


def overrides(meant: Meant, around: Around) -> Iterator[Clash]:
    """Tensors sent elsewhere: a pattern and a buffer that the engine takes, and that find something."""
    for option in meant.every("--override-tensor"):
        try:
            overrides = parse_overrides(option.value)
        except ValueError as error:
            message, help_ = f"{option} is not taken: {error}", "write `PATTERN=CPU`, several with commas between"
            yield Clash(BAD_OVERRIDE, (option,), message, help_)
            continue
        for override in overrides:
            if fault := _fault(override, meant, around):
                yield Clash(BAD_OVERRIDE, (option,), *fault)


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
    if override.buffer.startswith("RPC") and not meant.get("--rpc"):
        message = f"`{override.buffer}` is no buffer that the server has: no `--rpc` names its host"
        return message, "write `--rpc HOST:PORT` before it", "error"
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


OVERTAKEN = Rule(
    "LH260",
    "An earlier override sends all tensors of this one elsewhere.",
    why="Of patterns that match a tensor, the first counts: a pattern for a few tensors must stand before one for all.",
    example="""
    llama-server -m model.gguf -ot "exps=CPU" -ot "blk.[0-9].ffn_.*_exps=CUDA0"
    """,
    language="sh",
    way_out="put the narrower pattern first.",
    severity="warning",
)


def overtaken(meant: Meant, around: Around) -> Iterator[Clash]:
    """Of patterns that match one tensor the first counts (llama.cpp b11434, src/llama-model-loader.cpp:1237-1262)."""
    if meant.catalogue.kind != "llama.cpp":
        return
    names = around.tensors or _usual()
    left = set(names)
    before: tuple[Option, Override] | None = None
    sent = ((option, override) for option in meant.said for override in _sent(meant, option))
    for option, override in islice(sent, _MOST):
        found = {name for name in names if override.regex and override.regex.search(name)}
        if found and not found & left and before and not _said_of_experts(meant, option):
            one, other = f"{option}", f"{before[0]}"
            if option == before[0]:
                one, other = (f"`{each.pattern}={each.buffer}`" for each in (override, before[1]))
            message = f"{one} finds nothing: all its tensors go where {other} sends them, which comes first"
            help_ = f"put {one} before {other}: of patterns that match, the first counts"
            yield Clash(OVERTAKEN, tuple(dict.fromkeys((option, before[0]))), message, help_)
        elif found:
            before, left = (option, override), left - found


def _said_of_experts(meant: Meant, option: Option) -> bool:
    """Whether the rule about the two options for experts says it already."""
    return option.flag == meant.catalogue.find("--n-cpu-moe") and meant.is_on("--cpu-moe")


def _sent(meant: Meant, option: Option) -> tuple[Override, ...]:
    """What an option sends elsewhere; none for one that says nothing of tensors."""
    if option.flag == meant.catalogue.find("--cpu-moe") and option.on:
        return (Override("_exps", "CPU"),)
    if option.flag == meant.catalogue.find("--n-cpu-moe") and (count := whole(option.value)) is not None:
        numbers = "|".join(str(number) for number in range(min(count, _MANY)))
        return (Override(rf"blk\.({numbers})\.ffn_.*_exps", "CPU"),) if numbers else ()
    if option.flag != meant.catalogue.find("--override-tensor"):
        return ()
    try:
        return parse_overrides(option.value)
    except ValueError:
        return ()


@cache
def _usual() -> tuple[str, ...]:
    """The names that tensors usually have."""
    of_layers = (f"blk.{layer}.{part}.weight" for layer in range(_MANY) for part in _PARTS)
    return ("token_embd.weight", "output.weight", "output_norm.weight", *of_layers)
