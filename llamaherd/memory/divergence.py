"""Chunk and batch sizes with which a divergence measurement fits into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from llamaherd.engines.divergence import Reading, counts_in_32_bits, logits_bytes, run_bytes
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import CacheTypes, Instance, Rig
from llamaherd.memory.fit import fit_in
from llamaherd.memory.instances import sized

CONTEXTS = (8192, 4096, 2048, 1024, 512)
"""Tokens of a chunk, the longest first."""
MOST_TOKENS = 2 * CONTEXTS[0]
"""Of the text: the tool reads no text that is shorter than two chunks."""
_BATCHES = (512, 256, 128)
"""Tokens that are computed at once: each has logits on the GPU."""
_FEWEST, _MOST = 2, 8
"""Chunks: two of the longest ones have as many tokens as the text; of short ones more are read."""


def readings(rig: Rig, name: str, instance: Instance, headers: Mapping[str, Header]) -> Iterator[Reading]:
    """Ways in which the text could be read with an instance's weights and a cache of f16, the best one first.

    `instance` may have other keys than the rig's of that name. None where nobody knows the model's vocabulary.
    """
    header = headers.get(instance.model)
    if header is None or not header.vocabulary:
        return
    most = longest_chunk(instance)
    most = min(most, header.number("context_length") or most)
    for context in CONTEXTS:
        if context > most or not counts_in_32_bits(header.vocabulary, context):
            continue
        batch = next((batch for batch in _BATCHES if _fits(rig, name, instance, headers, context, batch)), None)
        if batch is not None:
            chunks = min(_MOST, max(_FEWEST, CONTEXTS[0] // context))
            yield Reading(context, chunks, batch, logits_bytes(header.vocabulary, context, chunks))


def longest_chunk(instance: Instance) -> int:
    """Tokens of a chunk at most: what a request of it may have."""
    return instance.context // max(1, instance.parallel)


def _fits(rig: Rig, name: str, instance: Instance, headers: Mapping[str, Header], context: int, batch: int) -> bool:
    """Whether GPUs and RAM hold it beside the others, with what the tool takes for itself; also where nobody can tell.

    Each token of a batch has its logits, and nothing is drafted or saved.
    """
    read = instance.model_copy(
        update={
            "context": context,
            "parallel": 1,
            "kv": CacheTypes(),
            "draft": None,
            "batch": batch,
            "ubatch": batch,
        }
    )
    found = sized(rig.model_copy(update={"instances": {**rig.instances, name: read}}), headers).get(name)
    if found is None:
        return True
    placement = replace(found.placement, outputs=batch, cache_ram=0, checkpoints=0)
    fit = fit_in(found.header, placement, found.room)
    all_logits = placement.does.reserves_all_logits
    taken, left = run_bytes(found.header.vocabulary, context, batch, all_logits=all_logits), fit.spare_ram
    return fit.fits and (left is None or left >= taken)
