"""The placement that results from `extra_args` and `environment`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from llamaherd.engines import EXPERTS, SIZED, CommandLine
from llamaherd.engines.flags.definitions import INTEGER
from llamaherd.engines.flags.drafting import AUTOMATIC_SLOTS
from llamaherd.engines.flags.effective import Option
from llamaherd.engines.flags.overrides import parse_overrides
from llamaherd.engines.flags.task import pooling, server_task
from llamaherd.gguf.header import Header
from llamaherd.memory.layout import spread_ik_experts
from llamaherd.memory.placement import Placement
from llamaherd.text.numbers import clamped_number, parse_real

PlacedOverride = tuple[str, str | int]

OFF = ("off", "0", "false", "disabled")
MOVING = ("--override-tensor", "--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn")
"""Options that keep tensors elsewhere, in the order in which llama.cpp reads their variables."""
MOVING_DRAFT = ("--override-tensor-draft", "--cpu-moe-draft", "--n-cpu-moe-draft")
"""The same of a model that drafts, which ik_llama.cpp does not offer."""

LLAMA_EXPERTS, LLAMA_DENSE = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", r"\.ffn_(up|down|gate)\."
IK_EXPERTS = r"\.(ffn_(up|down|gate|gate_up)_exps\.weight)"
MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS (src/llama-hparams.h)."""
SPLITS = {"attn": "graph"}
"""Split modes that cut as another does."""

UNCOUNTED_FLAGS = (
    *("--mmproj", "--mmproj-url", "--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled", "--rpc"),
    *("--model-draft", "--hf-repo-draft", "--draft-params", "--max-gpu"),
)
"""Options with files of which nothing is known here, or with other hosts."""

_NUMBERS = {
    "batch": ("--batch-size",),
    "ubatch": ("--ubatch-size",),
    "main_device": ("--main-gpu",),
}
_WORDS = {
    "type_k": ("--cache-type-k",),
    "type_v": ("--cache-type-v",),
    "draft_type_k": ("--cache-type-k-draft",),
    "draft_type_v": ("--cache-type-v-draft",),
    "split": ("--split-mode",),
}


class UncountedError(ValueError):
    """An option after which the memory of a server cannot be computed: one sentence."""

    def __init__(self, option: Option, sentence: str) -> None:
        self.option = option
        super().__init__(sentence)


def with_explicit_flags(placed: Placement, line: CommandLine, header: Header) -> Placement:
    """Return the placement with all arguments and variables applied.

    Raises ValueError, with a sentence, for what no engine takes, and UncountedError for what cannot be derived.
    """
    changes: dict[str, Any] = {"uncounted": tuple(str(option) for option in uncounted_option(line))}
    for field, names in _NUMBERS.items():
        if (number := _number(line, *names)) is not None:
            changes[field] = number
    for field, names in _WORDS.items():
        if option := line.own(*names):
            changes[field] = SPLITS.get(option.value, option.value)
    changes |= _slots(line, header) | _switches(line) | _draft(line, placed) | _growing(line)
    if (layers := line.own("--gpu-layers", "--n-gpu-layers")) and placed.devices:
        changes["gpu_layers"] = _layers(layers, placed)
    if shares := line.own("--tensor-split"):
        changes["tensor_split"] = _shares(shares.value)
    told = replace(placed, **changes)
    if told.ubatch == 0:  # src/llama-context.cpp:250
        told = replace(told, ubatch=told.batch)
    told = _outputs(told, line)
    drafting = tuple(_kept(_in_order(line, MOVING_DRAFT), line, ()))
    told = replace(told, overrides=_moved(told, line, header), draft_overrides=drafting)
    if option := _fits_itself(told, line):
        raise UncountedError(option, f"with {option}, {told.engine} decides itself what goes on the GPUs")
    return told


def _outputs(placed: Placement, line: CommandLine) -> Placement:
    """Return the placement with a server's outputs (llama.cpp, tools/server/server-context.cpp:42-46)."""
    if server_task(line.meant) != "chat":
        return embedding_placement(placed)
    if pooling(line.meant) not in (None, "none"):
        return replace(placed, outputs=placed.ubatch)
    return placed


def embedding_placement(placed: Placement) -> Placement:
    """Return the placement of a server of embeddings or rerank: a batch of it is computed at once.

    tools/server/server.cpp:162-166.
    """
    return replace(placed, embeddings=True, batch=min(placed.batch, placed.ubatch))


def uncounted_option(line: CommandLine) -> Iterator[Option]:
    """Yield the options whose memory is unknown here: that of a file, or of another host."""
    named = (option for name in UNCOUNTED_FLAGS if (option := line.own(name)))
    yield from dict.fromkeys(option for option in named if option.value)


def _fits_itself(placed: Placement, line: CommandLine) -> Option | None:
    """Return the option by which the engine decides on the placement.

    common/fit.cpp:463-486; ik_llama.cpp, src/llama.cpp:2447-2600.
    """
    fit = line.meant.get("--fit")
    if not placed.devices or placed.overrides or (fit and (not fit.on or fit.value.lower() in OFF)):
        return None
    if placed.does.fits_only_when_told:
        return fit
    layers = line.own("--gpu-layers", "--n-gpu-layers")
    automatic = layers and layers.value in ("auto", "-1") and line.meant.catalogue.knows("--fit")
    by_hand = placed.split == "tensor" or any(placed.tensor_split or ())
    return layers if automatic and not by_hand else None


def _number(line: CommandLine, *names: str) -> int | None:
    """Return the effective number as C++ reads it; None if a key sets it, or if it is not a number."""
    option = line.own(*names)
    found = INTEGER.match(option.value) if option else None
    return clamped_number(found[1]) if found else None


def _slots(line: CommandLine, header: Header) -> dict[str, Any]:
    """Return context and slots; `-np -1` is four slots that share it (tools/server/server.cpp:168-173)."""
    found: dict[str, Any] = {}
    if (context := _number(line, "--ctx-size")) is not None:
        found["context"] = context or header.number("context_length")
    if (slots := _number(line, "--parallel")) is not None:
        automatic = slots < 0 and SIZED[line.meant.catalogue.kind].counts_slots_itself
        found |= {"parallel": AUTOMATIC_SLOTS, "kv_unified": True} if automatic else {"parallel": max(slots, 1)}
    if option := line.own("--kv-unified"):
        found["kv_unified"] = option.on
    return found


def _switches(line: CommandLine) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if attention := line.own("--flash-attn"):
        found["flash_attention"] = attention.value.lower() not in OFF
    for field, name in (("no_kv_offload", "--no-kv-offload"), ("projector_in_ram", "--no-mmproj-offload")):
        if option := line.own(name):
            found[field] = _says_no(option, name)
    if option := line.own("--no-op-offload"):
        found["op_offload"] = not _says_no(option, "--no-op-offload")
    if option := line.own("--swa-full"):
        found["swa_full"] = option.on
    if option := line.own("--load-mode", "--mmap", "--no-mmap"):
        found["mmap"] = "mmap" in option.value or option.value == "auto" if option.values else not _unmapped(option)
    if (option := line.own("--repack")) and not option.on:
        found["layouts"] = ()
    if line.own("--run-time-repack"):
        found["mmap"] = False
    return found


def _growing(line: CommandLine) -> dict[str, Any]:
    """Return the limits of saved prompts; a negative number is no limit."""
    found: dict[str, Any] = {}
    if (mib := _number(line, "--cache-ram")) is not None:
        found["cache_ram"] = mib << 20 if mib >= 0 else None
    if (count := _number(line, "--ctx-checkpoints")) is not None:
        found["checkpoints"] = max(count, 0)
    return found


def _says_no(option: Option, name: str) -> bool:
    """Return whether a switch with this spelling is on; it may be the negation of another switch."""
    return not option.on if name in option.flag.negated else option.on


def _unmapped(option: Option) -> bool:
    return _says_no(option, "--no-mmap")


def _layers(option: Option, placed: Placement) -> int | None:
    """Return how many layers GPUs hold; None for all.

    A negative number is all in llama.cpp (src/llama-model.cpp, n_gpu_layers), and none in ik_llama.cpp, as is its
    default (src/llama.cpp:4935).
    """
    found = INTEGER.match(option.value)
    number = clamped_number(found[1]) if found else -1
    if number < 0:
        return None if placed.does.negative_layers_mean_all else 0
    return number


def _shares(text: str) -> tuple[float, ...]:
    """Return the GPUs' parts; `,` and `/` separate them. Raises ValueError."""
    try:
        return tuple(parse_real(part.strip()) for part in re.split("[,/]+", text))
    except ValueError:
        raise ValueError(f"`{text}` is no list of parts") from None


def _draft(line: CommandLine, placed: Placement) -> dict[str, Any]:
    """Return how many tokens the model's own head drafts, and how a model that drafts is laid out."""
    found: dict[str, Any] = {}
    if (layers := line.own("--n-gpu-layers-draft")) and placed.devices:
        found["draft_gpu_layers"] = _layers(layers, placed)
    named = line.meant.get("--model-draft", "--spec-draft-model")
    switch, count = line.meant.get("-mtp"), line.meant.get("--spec-draft-n-max", "--draft-max")
    kinds = [each for each in line.meant.every("--spec-type", "--spec-stage") if _is_head(each)]
    head = next(iter(kinds), switch if switch and switch.on else None)
    if named or head is None or (line.is_by_key(head) and (count is None or line.is_by_key(count))):
        return found
    inside = re.search(r"n_max=([0-9]+)", head.value)
    usual = placed.does.drafted
    number = INTEGER.match(count.value) if count else None
    return found | {"mtp": clamped_number(inside[1]) if inside else clamped_number(number[1]) if number else usual}


def _is_head(option: Option) -> bool:
    return any(word.split(":")[0] in ("mtp", "draft-mtp") for word in option.value.split(","))


def _moved(placed: Placement, line: CommandLine, header: Header) -> tuple[PlacedOverride, ...]:
    """Return the overrides, the first match first. `placed` has those of keys."""
    if placed.does.spreads_experts:
        options = line.meant.every("--override-tensor")
        return (*_kept(options, line, placed.overrides), *_spread(placed, line, header))
    return tuple(_kept(_in_order(line, MOVING), line, placed.overrides))


def _in_order(line: CommandLine, names: tuple[str, ...]) -> tuple[Option, ...]:
    """Return options in llama.cpp's order: all variables, by flag, before the arguments (common/arg.cpp:766-790)."""
    flags = {flag for name in names if (flag := line.meant.catalogue.find(name))}
    variables = [each for name in names for each in line.meant.every(name) if each.origin == "environment"]
    return (*variables, *(each for each in line.meant.said if each.origin == "argument" and each.flag in flags))


def _kept(options: Iterable[Option], line: CommandLine, by_key: tuple[PlacedOverride, ...]) -> Iterator[PlacedOverride]:
    """Yield the overrides of each option (common/arg.cpp:2757-2790, common/common.h:1224-1243). Raises ValueError."""
    find = line.meant.catalogue.find
    for option in options:
        number = INTEGER.match(option.value)
        if option.flag in (find("--override-tensor"), find("--override-tensor-draft")):
            yield from by_key if line.is_by_key(option) and option.value == EXPERTS else _parsed(option)
        elif not option.values:
            if option.on:
                yield LLAMA_EXPERTS, "CPU"
        elif number and clamped_number(number[1]) > 0:
            names = LLAMA_DENSE if option.flag == find("--n-cpu-ffn") else LLAMA_EXPERTS
            yield _of_layers(range(min(clamped_number(number[1]), MOST_LAYERS)), names), "CPU"


def _spread(placed: Placement, line: CommandLine, header: Header) -> Iterator[PlacedOverride]:
    """Yield ik_llama.cpp's override for experts: by the last number, with a share of each GPU's layers."""
    options = line.meant.every("--n-cpu-moe", "--cpu-moe")
    if options:
        found = INTEGER.match(options[-1].value)
        count = clamped_number(found[1]) if found else 0 if options[-1].values else header.layers
        if layers := spread_ik_experts(header, placed, min(count, header.layers)):
            yield _of_layers(layers, IK_EXPERTS), "CPU"


def _of_layers(layers: Iterable[int], names: str) -> str:
    """Return one pattern for all these layers."""
    return rf"blk\.(?:{'|'.join(map(str, layers))}){names}"


def _parsed(option: Option) -> Iterator[PlacedOverride]:
    """Yield overrides with GPUs by number. Raises ValueError, and UncountedError for what cannot be derived."""
    for override in parse_overrides(option.value):
        gpu = re.fullmatch(r"CUDA([0-9]{1,4})", override.buffer)
        if not gpu and override.buffer != "CPU":
            raise UncountedError(option, f"what `{override.buffer}` holds is not known")
        if override.fault is None and override.regex is None:
            raise UncountedError(option, f"`{override.pattern}` repeats so much that trying it may take for ever")
        yield override.pattern, int(gpu[1]) if gpu else "CPU"
