"""The placement and the memory of one instance: by its keys, its arguments and its variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from llamaherd.engines import EXPERTS, SIZED, USUAL, CommandLine, command_line, flags_of, has_explicit_options
from llamaherd.engines.flags.definitions import INTEGER, Catalogue
from llamaherd.engines.flags.effective import OFF, Option
from llamaherd.engines.flags.overrides import parse_overrides
from llamaherd.engines.flags.task import AUTOMATIC_SLOTS, pooling, server_task
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.memory.compute import head_width
from llamaherd.memory.estimate import DraftUse, Memory, Use, add_memory, estimate
from llamaherd.memory.overhead import Growth, cuda_on_gpus, in_ram, layouts_of, ram_growth
from llamaherd.memory.placement import (
    CACHE_RAM,
    CHECKPOINTS,
    Placement,
    expert_layers_on_cpu,
    experts_pattern,
    spread_ik_experts,
)
from llamaherd.reference.cards import usable_memory
from llamaherd.text.numbers import clamped_number, parse_real

PlacedOverride = tuple[str, str | int]

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

_NUMBERS = {"batch": "--batch-size", "ubatch": "--ubatch-size", "main_device": "--main-gpu"}
_WORDS = {
    "type_k": "--cache-type-k",
    "type_v": "--cache-type-v",
    "draft_type_k": "--cache-type-k-draft",
    "draft_type_v": "--cache-type-v-draft",
    "split": "--split-mode",
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
    for field, name in _NUMBERS.items():
        if (number := _number(line, name)) is not None:
            changes[field] = number
    for field, name in _WORDS.items():
        if option := line.own(name):
            changes[field] = SPLITS.get(option.value, option.value)
    changes |= _slots(line, header) | _switches(line) | _draft(line, placed) | _growing(line)
    if (layers := line.own("--gpu-layers", "--n-gpu-layers")) and placed.devices:
        changes["gpu_layers"] = _layers(layers, placed)
    if shares := line.own("--tensor-split"):
        changes["tensor_split"] = _shares(shares.value)
    explicit = replace(placed, **changes)
    if explicit.ubatch == 0:  # src/llama-context.cpp:250
        explicit = replace(explicit, ubatch=explicit.batch)
    explicit = _outputs(explicit, line)
    drafting = tuple(_kept(_in_order(line, MOVING_DRAFT), line, ()))
    explicit = replace(explicit, overrides=_moved(explicit, line, header), draft_overrides=drafting)
    if option := _fits_itself(explicit, line):
        raise UncountedError(option, f"with {option}, {explicit.engine} decides itself what goes on the GPUs")
    return explicit


def _outputs(placed: Placement, line: CommandLine) -> Placement:
    """Return the placement with a server's outputs (llama.cpp, tools/server/server-context.cpp:42-46)."""
    if server_task(line.effective) != "chat":
        return embedding_placement(placed)
    if pooling(line.effective) not in (None, "none"):
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
    fit = line.effective.get("--fit")
    if not placed.devices or placed.overrides or (fit and (not fit.on or fit.value.lower() in OFF)):
        return None
    if placed.does.fits_on_request:
        return fit
    layers = line.own("--gpu-layers", "--n-gpu-layers")
    automatic = layers and layers.value in ("auto", "-1") and line.effective.catalogue.knows("--fit")
    by_hand = placed.split == "tensor" or any(placed.tensor_split or ())
    return layers if automatic and not by_hand else None


def _number(line: CommandLine, name: str) -> int | None:
    """Return the effective number as C++ reads it; None if a key sets it, or if it is not a number."""
    option = line.own(name)
    found = INTEGER.match(option.value) if option else None
    return clamped_number(found[1]) if found else None


def _slots(line: CommandLine, header: Header) -> dict[str, Any]:
    """Return context and slots; `-np -1` is four slots that share it (tools/server/server.cpp:168-173)."""
    found: dict[str, Any] = {}
    if (context := _number(line, "--ctx-size")) is not None:
        found["context"] = context or header.number("context_length")
    if (slots := _number(line, "--parallel")) is not None:
        automatic = slots < 0 and SIZED[line.effective.catalogue.kind].counts_slots_itself
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
        found["mmap"] = (
            "mmap" in option.value or option.value == "auto" if option.values else not _says_no(option, "--no-mmap")
        )
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
    named = line.effective.get("--model-draft", "--spec-draft-model")
    switch, count = line.effective.get("-mtp"), line.effective.get("--spec-draft-n-max", "--draft-max")
    kinds = [each for each in line.effective.every("--spec-type", "--spec-stage") if _is_head(each)]
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
        options = line.effective.every("--override-tensor")
        return (*_kept(options, line, placed.overrides), *_spread(placed, line, header))
    return tuple(_kept(_in_order(line, MOVING), line, placed.overrides))


def _in_order(line: CommandLine, names: tuple[str, ...]) -> tuple[Option, ...]:
    """Return options in llama.cpp's order: all variables, by flag, before the arguments (common/arg.cpp:766-790)."""
    flags = {flag for name in names if (flag := line.effective.catalogue.find(name))}
    variables = [each for name in names for each in line.effective.every(name) if each.origin == "environment"]
    return (*variables, *(each for each in line.effective.said if each.origin == "argument" and each.flag in flags))


def _kept(options: Iterable[Option], line: CommandLine, by_key: tuple[PlacedOverride, ...]) -> Iterator[PlacedOverride]:
    """Yield the overrides of each option (common/arg.cpp:2757-2790, common/common.h:1224-1243). Raises ValueError."""
    find = line.effective.catalogue.find
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
    options = line.effective.every("--n-cpu-moe", "--cpu-moe")
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


def sidecar_memory(
    instance: Instance, placed: Placement, headers: Mapping[str, Header], projectors: Mapping[str, int]
) -> Memory:
    """Return the memory of an instance besides its model. `projectors` are bytes by name of model."""
    held = _nothing(placed)
    if size := projectors.get(instance.model, 0):
        doubt = "what the vision projector takes while it reads an image is not counted"
        held = summed_memory(held, _on_first(placed, Use(weights=size), doubt, in_ram=placed.projector_in_ram))
    if instance.draft and instance.draft.model:
        name = instance.draft.model
        held = summed_memory(held, _drafting(name, headers.get(name), placed, head=instance.draft.mtp is not None))
    return held


def drafting_header(instance: Instance, headers: Mapping[str, Header]) -> Header | None:
    """Return the header of the model that drafts for an instance, if it is known."""
    return headers.get(instance.draft.model) if instance.draft and instance.draft.model else None


def summed_memory(one: Memory, other: Memory) -> Memory:
    """Return the sum, GPU by GPU."""
    devices = tuple(add_memory(*each) for each in zip(one.devices, other.devices, strict=True))
    return Memory(devices, add_memory(one.host, other.host), (*one.doubts, *other.doubts))


def _nothing(placed: Placement) -> Memory:
    return Memory((Use(),) * placed.devices, Use())


def _on_first(placed: Placement, use: Use, doubt: str, *, in_ram: bool = False) -> Memory:
    """Return memory of the first GPU, or of the RAM if there is none or with `in_ram`."""
    if in_ram:
        return replace(_nothing(placed), host=use, doubts=(doubt,))
    devices = tuple(use if device == 0 else Use() for device in range(placed.devices))
    return Memory(devices, Use() if devices else use, (doubt,))


def _drafting(name: str, header: Header | None, placed: Placement, *, head: bool) -> Memory:
    if header is None:
        return replace(_nothing(placed), doubts=(f"what `{name}` takes to draft is not known: it is not in the lock",))
    if head:
        weights = Use(draft=DraftUse(weights=sum(tensor.bytes for tensor in header.each)))
        return _on_first(placed, weights, f"of the prediction head `{name}`, cache and buffers are not counted")
    try:
        memory = estimate(header, draft_placement(placed))
    except ValueError as error:
        return replace(_nothing(placed), doubts=(f"what `{name}` takes to draft is not known: {error}",))
    doubts = tuple(f"`{name}`, which drafts: {doubt}" for doubt in memory.doubts)
    return Memory(tuple(map(_as_draft, memory.devices)), _as_draft(memory.host), doubts)


def draft_placement(placed: Placement) -> Placement:
    """Return the placement of a model that drafts for a placed model: all of it on the same GPUs.

    llama.cpp gives it a cache of f16 (common/speculative.cpp:2527-2563 of b11434), ik_llama.cpp one of the same types
    and for one slot (examples/server/server-context.cpp:117-139 of 67268c8fd).
    """
    whole = replace(placed, gpu_layers=placed.draft_gpu_layers, overrides=placed.draft_overrides, mtp=0)
    if placed.does.drafts_for_one_slot:
        return replace(whole, context=placed.context // placed.parallel, parallel=1, no_kv_offload=False)
    return replace(whole, type_k=placed.draft_type_k, type_v=placed.draft_type_v)


def _as_draft(use: Use) -> Use:
    """Return all memory of a model as that of a draft."""
    return Use(draft=DraftUse(weights=use.weights, kv=use.kv, state=use.state, compute=use.compute))


MARGIN = 128 << 20
"""Bytes that are left free on each GPU: no plan was further below what a server took (docs/gpus.md)."""

SYSTEM_RAM = 1 << 30
"""Bytes of RAM that are left to the system and everything else on a host."""


@dataclass(frozen=True)
class InstanceMemory:
    """The memory of one instance, independent of other instances.

    `model` is that of its model, `extra` that of a projector and of a model that drafts, whose header is `drafting`.
    `cuda` are the bytes that CUDA takes of each of its GPUs besides what the engine allocates.
    """

    instance: Instance
    header: Header
    placement: Placement
    drafting: Header | None
    model: Memory
    extra: Memory
    cuda: tuple[int, ...]

    @cached_property
    def memory(self) -> Memory:
        """The memory of its model and of what it loads besides."""
        return summed_memory(self.model, self.extra)

    @cached_property
    def server_ram(self) -> int:
        """The bytes of RAM that the server takes for itself."""
        return in_ram(self.header, self.placement)

    @property
    def ram(self) -> int:
        """The bytes of RAM that the instance needs."""
        return self.memory.host.total + self.server_ram

    @property
    def on_gpus(self) -> dict[str, int]:
        """The bytes of each of its GPUs, with what CUDA takes."""
        parts = zip(self.instance.on, self.memory.devices, self.cuda, strict=True)
        return {gpu: use.total + cuda for gpu, use, cuda in parts}

    @cached_property
    def growth(self) -> Growth:
        """The most that its RAM grows while it runs."""
        return ram_growth(self.header, self.placement, self.drafting)


def instance_memory(
    rig: Rig,
    instance: Instance,
    placed: Placement,
    headers: Mapping[str, Header],
    projectors: Mapping[str, int],
) -> InstanceMemory | None:
    """Return the memory of an instance; None if its model's header or the memory of one of its GPUs is unknown.

    `projectors` are the bytes of vision projectors by name of model. Raises ValueError, with a sentence, for a
    placement that no engine takes.
    """
    header = headers.get(instance.model)
    if header is None or any(capacity(rig, gpu) is None for gpu in instance.on):
        return None
    return InstanceMemory(
        instance=instance,
        header=header,
        placement=placed,
        drafting=drafting_header(instance, headers),
        model=estimate(header, placed),
        extra=sidecar_memory(instance, placed, headers, projectors),
        cuda=cuda_bytes(rig, instance, header, placed),
    )


def placement(rig: Rig, instance: Instance, header: Header) -> Placement:
    """Return the placement of an instance that the rig may declare with other keys. Raises as `place_instance` does."""
    known = flags_of(rig.engines[instance.engine])
    command = command_line(rig, instance, known) if has_explicit_options(instance) else None
    return place_instance(rig, instance, header, command)


def place_instance(rig: Rig, instance: Instance, header: Header, explicit: CommandLine | None) -> Placement:
    """Return the placement of an instance by its keys and by the options that it sets explicitly, if there are any.

    Raises ValueError, with a sentence, if its experts cannot be distinguished or if the options have an effect that
    cannot be derived.
    """
    engine = rig.engines[instance.engine]
    free = tuple(usable_bytes(rig, gpu) for gpu in instance.on)
    placed = _by_keys(instance, header, engine.kind, flags_of(engine), free)
    placed = replace(placed, layouts=layouts_of(engine, rig.host.cpu))
    if explicit:
        return with_explicit_flags(placed, explicit, header)
    return placed if instance.serve == "chat" else embedding_placement(placed)


def _by_keys(instance: Instance, header: Header, kind: str, known: Catalogue, free: tuple[int, ...]) -> Placement:
    moved = experts_on_cpu(instance, header)
    layers = instance.gpu_layers
    return Placement(
        engine=kind if kind in SIZED else USUAL,
        context=instance.context,
        parallel=instance.parallel,
        type_k=instance.kv.k,
        type_v=instance.kv.v,
        batch=instance.batch or Placement.batch,
        ubatch=instance.ubatch or Placement.ubatch,
        flash_attention=_flash_attention(instance, header, kind),
        gpu_layers=layers if isinstance(layers, int) else None,
        devices=len(instance.on),
        free=free,
        tensor_split=instance.tensor_split or None,
        split=instance.split or "layer",
        overrides=((moved, "CPU"),) if moved else (),
        mtp=instance.draft.mtp or 0 if instance.draft and not instance.draft.model else 0,
        mmap=instance.mmap is not False,
        cache_ram=CACHE_RAM if known.knows("--cache-ram") else 0,
        checkpoints=CHECKPOINTS if known.knows("--ctx-checkpoints") else 0,
    )


_FLASH_HEADS = {40, 64, 72, 80, 96, 112, 128, 192, 256, 320, 512, 576}
"""Numbers of a head's keys for which CUDA has flash attention (ggml_cuda_get_best_fattn_kernel in fattn.cu)."""


def _flash_attention(instance: Instance, header: Header, kind: str) -> bool:
    """Return whether the server computes flash attention: by `auto`, llama.cpp does so where its GPUs can."""
    if instance.flash_attention in ("on", "off"):
        return instance.flash_attention == "on"
    automatic = kind == USUAL and instance.on and not instance.kv.quantised
    return not automatic or head_width(header) in _FLASH_HEADS


def experts_on_cpu(instance: Instance, header: Header) -> str | None:
    """Return the pattern of the experts that the CPU computes; None for none, as 1 % of 40 layers are.

    Raises ValueError, with a sentence.
    """
    layers = expert_layers_on_cpu(header, str(instance.experts_on_cpu)) if instance.moves_experts else ()
    return experts_pattern(header, layers) if layers else None


def capacity(rig: Rig, gpu: str) -> int | None:
    """Return the bytes of a GPU without those reserved for other programs; None if they are unknown."""
    known = rig.gpus.cards.get(gpu) if rig.gpus else None
    if known is None or known.memory_bytes is None:
        return None
    return max(known.memory_bytes - (known.reserved or 0), 0)


def usable_bytes(rig: Rig, gpu: str) -> int:
    """Return the bytes of a GPU that servers can allocate; 0 if they are unknown."""
    known = rig.gpus.cards.get(gpu) if rig.gpus else None
    return max(usable_memory(known.memory_bytes) - (known.reserved or 0), 0) if known and known.memory_bytes else 0


def cuda_bytes(rig: Rig, instance: Instance, header: Header, placed: Placement) -> tuple[int, ...]:
    """Return the bytes that CUDA takes of each GPU of an instance, besides what the engine allocates."""
    gpus = rig.gpus.cards if rig.gpus else {}
    sizes = tuple(gpus[name].multiprocessors for name in instance.on)
    return tuple(cuda_on_gpus(sizes, header, placed, drafts=instance.draft is not None))
