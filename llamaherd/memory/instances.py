"""The placement and the memory of one instance, with its projector and the model that drafts for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from llamaherd.engines import SIZED, USUAL, CommandLine, command_line, flags_of, has_explicit_options
from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.memory.compute import head_width
from llamaherd.memory.estimate import DraftUse, Memory, Use, add_memory, estimate
from llamaherd.memory.explicit_flags import embedding_placement, with_explicit_flags
from llamaherd.memory.layout import expert_layers_on_cpu, experts_pattern
from llamaherd.memory.overhead import Growth, cuda_on_gpus, in_ram, layouts_of, ram_growth
from llamaherd.memory.placement import CACHE_RAM, CHECKPOINTS, Placement
from llamaherd.reference.cards import usable_memory


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
    command = command_line(rig, instance, known) if known and has_explicit_options(instance) else None
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


def _by_keys(
    instance: Instance, header: Header, kind: str, known: Catalogue | None, free: tuple[int, ...]
) -> Placement:
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
        cache_ram=CACHE_RAM if known is None or known.knows("--cache-ram") else 0,
        checkpoints=CHECKPOINTS if known is None or known.knows("--ctx-checkpoints") else 0,
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
