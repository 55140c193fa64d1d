"""Chunk and batch sizes with which a divergence measurement fits into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from llamaherd.engines.divergence import Reading, counts_in_32_bits, logits_bytes, run_bytes
from llamaherd.inventory.schema import CacheTypes, Instance
from llamaherd.memory.facts import RigFacts
from llamaherd.memory.fit import fit_in

CONTEXTS = (8192, 4096, 2048, 1024, 512)
"""Tokens of a chunk, the longest first."""
MOST_TOKENS = 2 * CONTEXTS[0]
"""Of the text: the tool reads no text that is shorter than two chunks."""
_BATCHES = (512, 256, 128)
"""Tokens that are computed at once: each has logits on the GPU."""
_FEWEST, _MOST = 2, 8
"""Chunks: two of the longest ones have as many tokens as the text; of short ones more are read."""


def readings(facts: RigFacts, name: str, instance: Instance) -> Iterator[Reading]:
    """Yield ways to read the text with an instance's weights and a cache of f16, the best one first.

    `instance` may have other keys than the rig's instance of that name. None if the model's vocabulary is unknown.
    """
    header = facts.headers.get(instance.model)
    if header is None or not header.vocabulary:
        return
    most = longest_chunk(instance)
    most = min(most, header.number("context_length") or most)
    for context in CONTEXTS:
        if context > most or not counts_in_32_bits(header.vocabulary, context):
            continue
        batch = next((batch for batch in _BATCHES if _fits(facts, name, instance, context, batch)), None)
        if batch is not None:
            chunks = min(_MOST, max(_FEWEST, CONTEXTS[0] // context))
            yield Reading(context, chunks, batch, logits_bytes(header.vocabulary, context, chunks))


def longest_chunk(instance: Instance) -> int:
    """Return the most tokens of a chunk: those of one slot."""
    return instance.context // max(1, instance.parallel)


def _fits(facts: RigFacts, name: str, instance: Instance, context: int, batch: int) -> bool:
    """Return whether GPUs and RAM hold the tool next to the other servers; also if the memory is unknown.

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
    found = facts.sized_as(name, read, projector=False)
    if found is None:
        return True
    placement = replace(found.placement, outputs=batch, cache_ram=0, checkpoints=0)
    fit = fit_in(found.header, placement, found.room)
    all_logits = placement.does.reserves_all_logits
    taken, left = run_bytes(found.header.vocabulary, context, batch, all_logits=all_logits), fit.spare_ram
    return fit.fits and (left is None or left >= taken)
