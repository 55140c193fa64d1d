"""Servers whose memory is measured: models in the shapes of real ones, and the keys of an instance in an inventory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.memory_shapes import with_experts
from tests.support.gguf_files import QWEN_35B, QWEN_122B, QWEN_MERGES, QWEN_TOKENS, Model, llama_70b, qwen

MODELS: Mapping[str, Model] = {
    "small": with_experts(qwen(QWEN_35B, tokens=QWEN_TOKENS, merges=QWEN_MERGES), 8),
    "35B-A3B Q3_K": qwen(QWEN_35B, experts="Q3_K", tokens=QWEN_TOKENS, merges=QWEN_MERGES),
    "35B-A3B Q4_K": qwen(QWEN_35B, experts="Q4_K", tokens=QWEN_TOKENS, merges=QWEN_MERGES),
    "122B-A10B Q3_K": qwen(QWEN_122B, experts="Q3_K", tokens=QWEN_TOKENS, merges=QWEN_MERGES),
    "70B Q4_K": replace(llama_70b(tokens=QWEN_TOKENS), merges=QWEN_MERGES),
    "half of 70B Q4_K": replace(llama_70b(tokens=QWEN_TOKENS, layers=40), merges=QWEN_MERGES),
    "fifth of 70B Q4_K": replace(llama_70b(tokens=QWEN_TOKENS, layers=16), merges=QWEN_MERGES),
}


@dataclass(frozen=True)
class Case:
    """One server: a model, the keys of an instance in an inventory, and how long the prompts shall be, in tokens."""

    model: str
    keys: Mapping[str, Any]
    prompt: int = 12_000

    def __str__(self) -> str:
        return ", ".join([self.model, *(f"{key} {_shown(value)}" for key, value in self.keys.items())])


CASES: Mapping[str, Case] = {
    "small": Case("small", {"context": 4096}, prompt=100),
    "small-mtp": Case("small", {"context": 4096, "draft": {"mtp": 3}, "parallel": 2}, prompt=100),
    "one": Case("35B-A3B Q3_K", {"context": 32_768, "kv": "q4_0", "batch": 512, "ubatch": 512, "draft": {"mtp": 3}}),
    "one-long": Case(
        "35B-A3B Q3_K", {"context": 262_144, "kv": "q4_0", "batch": 512, "ubatch": 512, "draft": {"mtp": 3}}
    ),
    "plain": Case("35B-A3B Q4_K", {"context": 32_768}, prompt=32_000),
    "mtp-1": Case("35B-A3B Q4_K", {"context": 32_768, "draft": {"mtp": 1}}),
    "mtp-3": Case("35B-A3B Q4_K", {"context": 32_768, "draft": {"mtp": 3}}),
    "slots": Case("35B-A3B Q4_K", {"context": 32_768, "parallel": 4, "ubatch": 2048}),
    "slots-mtp": Case("35B-A3B Q4_K", {"context": 32_768, "parallel": 4, "draft": {"mtp": 3}}),
    "long": Case("35B-A3B Q4_K", {"context": 262_144, "kv": "q8_0"}),
    "long-mtp": Case("35B-A3B Q4_K", {"context": 262_144, "kv": "q8_0", "draft": {"mtp": 3}}),
    "long-f16": Case("35B-A3B Q4_K", {"context": 262_144, "ubatch": 2048, "draft": {"mtp": 1}}),
    "long-slots": Case("35B-A3B Q4_K", {"context": 262_144, "kv": "q4_0", "parallel": 4, "ubatch": 2048}),
    "half": Case("122B-A10B Q3_K", {"context": 131_072, "kv": "q8_0", "experts_on_cpu": "50%"}, prompt=1100),
    "half-mtp": Case(
        "122B-A10B Q3_K",
        {"context": 131_072, "kv": "q8_0", "experts_on_cpu": "50%", "draft": {"mtp": 2}},
        prompt=1100,
    ),
    "half-wide": Case(
        "122B-A10B Q3_K",
        {"context": 131_072, "kv": "q8_0", "experts_on_cpu": "50%", "ubatch": 2048, "draft": {"mtp": 3}},
        prompt=4200,
    ),
}


def _shown(value: object) -> str:
    """A value of an inventory in a few letters."""
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_shown(each)}" for key, each in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
