"""By how much a server's RAM grows while it works: prompts that it saves, and checkpoints of what it cannot cut back.

Facts: llama.cpp b11434, tools/server/server-task.cpp:1722-1900 (saved prompts), server-context.cpp:2513-2576 and
3708-3905 (checkpoints), common/common.h:634-638 (defaults); ik_llama.cpp 67268c8fd, examples/server/server-task.cpp:
1135-1215, server-context.cpp:1459-1467 and 3131-3170, common/common.h:452-455.
"""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.gguf.header import Header
from llamaherd.memory.layers import Layer, layers
from llamaherd.memory.placement import Placement, row_bytes

_F32 = 4

Types = tuple[str, str]
"""Of keys and of values."""


@dataclass(frozen=True)
class Growth:
    """The most that comes to a server's RAM, in bytes; `prompts` is None where it saves them without a limit."""

    prompts: int | None = 0
    checkpoints: int = 0

    @property
    def total(self) -> int | None:
        """Both; None without a limit."""
        return None if self.prompts is None else self.prompts + self.checkpoints


def growth(header: Header, placement: Placement, drafting: Header | None = None) -> Growth:
    """The most by which a server's RAM grows. `drafting` is the header of a model that drafts for it."""
    does = placement.does
    if not any(layer.state or (layer.keys and layer.cached) for layer in layers(header)):
        return Growth()
    tokens = placement.context // placement.parallel if does.slots_share_cells else placement.cells
    prompts = placement.cache_ram
    if prompts and does.saves_one_at_least:
        prompts = max(prompts, saved(header, placement, tokens, drafting))
    each = checkpoint(header, placement, tokens, drafting)
    return Growth(prompts, placement.parallel * placement.checkpoints * each)


def saved(header: Header, placement: Placement, tokens: int, drafting: Header | None = None) -> int:
    """Bytes of a saved prompt of so many tokens, without its checkpoints: all that a slot holds of it."""
    own = _whole(_trunk(header), placement, tokens, (placement.type_k, placement.type_v))
    return own + sum(_whole(which, placement, tokens, types) for which, types in _drafts(header, placement, drafting))


def checkpoint(header: Header, placement: Placement, tokens: int, drafting: Header | None = None) -> int:
    """Bytes of a checkpoint after so many tokens; 0 for a model of which none are made.

    None are of attention to the whole context alone; ik_llama.cpp makes them of recurrent states only. llama.cpp keeps
    with each what the draft holds, and of a draft's attention that is its whole cache.
    """
    each = _kept(_trunk(header), placement, tokens, (placement.type_k, placement.type_v))
    if not each:
        return 0
    drafts = _drafts(header, placement, drafting)
    return each + sum(
        _kept(which, placement, tokens, types) or _whole(which, placement, tokens, types) for which, types in drafts
    )


def _trunk(header: Header) -> tuple[Layer, ...]:
    return tuple(layer for layer in layers(header) if not layer.head)


def _drafts(
    header: Header, placement: Placement, drafting: Header | None
) -> tuple[tuple[tuple[Layer, ...], Types], ...]:
    """The layers that draft, and the types of their caches: in llama.cpp, a context beside the model's."""
    if not placement.does.saves_drafts:
        return ()
    heads = tuple(layer for layer in layers(header) if layer.head) if placement.mtp else ()
    other = _trunk(drafting) if drafting else ()
    types = (placement.draft_type_k, placement.draft_type_v)
    return tuple((which, types) for which in (heads, other) if which)


def _kept(which: tuple[Layer, ...], placement: Placement, tokens: int, types: Types) -> int:
    """Bytes that cannot be cut back: the recurrent state, or what a window shows (…_FLAGS_PARTIAL_ONLY)."""
    states = sum(layer.state * _F32 for layer in which)
    if states or placement.swa_full or not placement.does.windows_cut_cache:
        return states
    return sum(_row(layer, types) * min(layer.window, tokens) for layer in which)


def _whole(which: tuple[Layer, ...], placement: Placement, tokens: int, types: Types) -> int:
    """Bytes of all that a slot holds of a prompt; what a window shows no more is left out, but by ik_llama.cpp."""
    all_ = not placement.does.windows_cut_cache
    return sum(
        layer.state * _F32 + _row(layer, types) * (tokens if all_ or not layer.window else min(layer.window, tokens))
        for layer in which
    )


def _row(layer: Layer, types: Types) -> int:
    """Bytes of one token's keys and values."""
    return row_bytes(types[0], layer.keys) + row_bytes(types[1], layer.values)
