"""A compressed cache of 8 bits: what a GPU computes in while it turns a layer's rows into f16."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.memory_shapes import deepseek_v2_lite
from llamaherd.memory.compute import compute_bytes
from llamaherd.memory.placement import Placement, lay_out
from tests.support.headers import header

MIB = 1 << 20
V3 = {
    "embedding_length": 7168,
    "feed_forward_length": 18_432,
    "attention.head_count": 128,
    "expert_count": 256,
    "expert_used_count": 8,
    "expert_feed_forward_length": 2048,
    "expert_shared_feed_forward_length": 2048,
}
LITE = deepseek_v2_lite()
DEEPSEEK_V3 = header(replace(LITE, parameters={**LITE.parameters, **V3}))
"""DeepSeek V3 as far as buffers depend on it, with fewer layers."""


def test_buffers_are_near_what_three_gpus_logged() -> None:
    """llama.cpp b11434 on H200s: a first GPU with dense layers holds 32 MiB more than is planned."""
    placed = Placement(
        context=131_072, ubatch=1024, type_k="q8_0", type_v="q8_0", devices=3, tensor_split=(1.0, 1.0, 1.0)
    )
    found = compute_bytes(lay_out(DEEPSEEK_V3, placed))
    assert [found[device] / MIB for device in range(3)] == pytest.approx([2576, 2292, 2292], abs=33)


@pytest.mark.parametrize(("context", "ubatch"), [(8192, 1024), (32_768, 1024), (131_072, 2048)])
def test_a_copy_that_fits_below_the_queries_costs_nothing(context: int, ubatch: int) -> None:
    """What comes out and the copy behind it then lie where the queries were that are joined by now."""
    eight = Placement(context=context, ubatch=ubatch, type_k="q8_0", type_v="q8_0")
    sixteen = replace(eight, type_k="f16", type_v="f16")
    assert compute_bytes(lay_out(DEEPSEEK_V3, eight)) == compute_bytes(lay_out(DEEPSEEK_V3, sixteen))
