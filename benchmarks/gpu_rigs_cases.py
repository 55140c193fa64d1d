"""Servers on one GPU and on several whose memory is measured, of both engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.memory_shapes import (
    deepseek_v2_lite,
    gemma3_12b,
    gemma4_26b,
    gemma4_e4b,
    glm_45_air,
    gpt_oss_20b,
    qwen3_30b,
    qwen3_next_80b,
    qwen35_27b,
    with_experts,
)
from benchmarks.memory_shapes_embedding import (
    bge_m3,
    bge_reranker,
    embedding_gemma,
    in_type,
    jina_v2,
    jina_v3,
    minilm,
    modern_bert,
    nomic_embed,
    qwen3_embedding,
    qwen3_embedding_8b,
    qwen3_reranker,
)
from tests.support.gguf_files import QWEN_35B, QWEN_122B, QWEN_MERGES, QWEN_TOKENS, Model, llama, llama_70b, qwen

_QWEN = partial(qwen, tokens=QWEN_TOKENS, merges=QWEN_MERGES)

MODELS: Mapping[str, Model] = {
    "35B-A3B": _QWEN(QWEN_35B, mtp=False),
    "35B-A3B with a head": _QWEN(QWEN_35B),
    "35B-A3B, 64 experts": with_experts(_QWEN(QWEN_35B, mtp=False), 64),
    "122B-A10B Q3_K": _QWEN(QWEN_122B, experts="Q3_K", mtp=False),
    "Llama 8B": llama(tokens=128_256),
    "Llama 70B": llama_70b(tokens=128_256),
    "Qwen3 30B-A3B": qwen3_30b(),
    "Gemma 3 12B": gemma3_12b(),
    "gpt-oss 20B": gpt_oss_20b(),
    "GLM 4.5 Air": glm_45_air(),
    "Qwen3.5 27B": qwen35_27b(),
    "Qwen3-Next 80B-A3B": qwen3_next_80b(),
    "Gemma 4 26B-A4B": gemma4_26b(),
    "Gemma 4 E4B": gemma4_e4b(),
    "DeepSeek V2 Lite": deepseek_v2_lite(),
    "Llama 2B": llama(tokens=32_000, layers=8),
    "Llama 5B": llama(tokens=64_000, layers=20),
    "Llama 24B": llama_70b(tokens=32_000, layers=26),
    "Qwen3 30B-A3B, 40 experts": with_experts(qwen3_30b(), 40),
    "Qwen3 Embedding 0.6B": qwen3_embedding(),
    "bge m3": bge_m3(),
    "Qwen3 Embedding 8B": qwen3_embedding_8b(),
    "Qwen3 Reranker 0.6B": qwen3_reranker(),
    "bge Reranker v2 m3": bge_reranker(),
    "all-MiniLM-L6-v2": minilm(),
    "Nomic Embed v1.5": nomic_embed(),
    "Jina Embeddings v2 base": jina_v2(),
    "Jina Embeddings v3": jina_v3(),
    "GTE ModernBERT base": modern_bert(),
    "EmbeddingGemma 300M": embedding_gemma(),
    "Qwen3 Embedding 0.6B F16": in_type(qwen3_embedding(), "F16"),
    "Qwen3 Embedding 0.6B BF16": in_type(qwen3_embedding(), "BF16"),
    "bge m3 Q8_0": in_type(bge_m3(), "Q8_0"),
    "Nomic Embed v1.5 BF16": in_type(nomic_embed(), "BF16"),
}


@dataclass(frozen=True)
class Case:
    """One server: its engine, its model, how many GPUs it has, and the keys of an instance in an inventory."""

    engine: str
    model: str
    cards: int
    keys: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        keys = ", ".join(f"{key} {value}" for key, value in self.keys.items())
        return f"{self.model}, {keys}"


def _cases(engine: str, each: Mapping[str, tuple[str, int, Mapping[str, Any]]]) -> dict[str, Case]:
    return {name: Case(engine, *case) for name, case in each.items()}


_LONG = {"context": 131_072, "kv": "q8_0"}
_WIDE = {"context": 32_768, "ubatch": 2048}

LLAMA: Mapping[str, Case] = _cases(
    "llama.cpp",
    {
        "qwen35": ("35B-A3B", 1, {"context": 32_768}),
        "qwen35-slots": ("35B-A3B", 1, {**_LONG, "ubatch": 2048, "parallel": 4}),
        "qwen35-mtp": ("35B-A3B with a head", 1, {"context": 32_768, "draft": {"mtp": 2}}),
        "llama8": ("Llama 8B", 1, {"context": 65_536}),
        "gemma12": ("Gemma 3 12B", 1, {"context": 32_768, "parallel": 2}),
        "qwen30": ("Qwen3 30B-A3B", 1, {"context": 65_536, "kv": "q8_0"}),
        "oss20": ("gpt-oss 20B", 1, {"context": 65_536}),
        "qwen35-half": ("35B-A3B", 1, {"context": 32_768, "experts_on_cpu": "50%"}),
        "qwen35-none": ("35B-A3B", 1, {**_WIDE, "experts_on_cpu": "100%"}),
        "qwen30-read": ("Qwen3 30B-A3B", 1, {"context": 32_768, "experts_on_cpu": "75%", "mmap": False}),
        "glm-most": ("GLM 4.5 Air", 1, {**_LONG, "experts_on_cpu": "60%"}),
        "llama8-layers": ("Llama 8B", 1, {"context": 32_768, "gpu_layers": 16}),
        "qwen35-2": ("35B-A3B", 2, {"context": 32_768}),
        "qwen35-4": ("35B-A3B", 4, {"context": 32_768}),
        "qwen35-4-wide": ("35B-A3B", 4, {**_LONG, "ubatch": 2048}),
        "qwen35-4-slots": ("35B-A3B", 4, {**_WIDE, "parallel": 4}),
        "qwen35-4-mtp": ("35B-A3B with a head", 4, {"context": 32_768, "draft": {"mtp": 2}}),
        "qwen35-4-half": ("35B-A3B", 4, {"context": 32_768, "experts_on_cpu": "50%"}),
        "qwen35-4-uneven": ("35B-A3B", 4, {"context": 65_536, "tensor_split": [1, 1, 1, 2]}),
        "llama70-4": ("Llama 70B", 4, {"context": 65_536, "kv": "q8_0"}),
        "llama70-4-wide": ("Llama 70B", 4, _WIDE),
        "llama8-4-wide": ("Llama 8B", 4, {**_WIDE, "parallel": 4}),
        "llama8-3-wide": ("Llama 8B", 3, {"context": 16_384, "batch": 4096, "ubatch": 4096}),
        "llama70-2-layers": ("Llama 70B", 2, {"context": 32_768, "gpu_layers": 40}),
        "qwen30-2-wide": ("Qwen3 30B-A3B", 2, _WIDE),
        "gemma12-2": ("Gemma 3 12B", 2, _WIDE),
        "glm-4": ("GLM 4.5 Air", 4, {"context": 65_536, "kv": "q8_0"}),
        "qwen122-3": ("122B-A10B Q3_K", 3, {"context": 65_536, "ubatch": 1024}),
        "oss20-4": ("gpt-oss 20B", 4, _WIDE),
    },
)

IK: Mapping[str, Case] = _cases(
    "ik_llama.cpp",
    {
        "ik-qwen35": ("35B-A3B", 1, {"context": 32_768}),
        "ik-qwen35-wide": ("35B-A3B", 1, {**_LONG, "ubatch": 2048, "parallel": 2}),
        "ik-qwen35-half": ("35B-A3B", 1, {"context": 32_768, "experts_on_cpu": "50%"}),
        "ik-qwen35-none": ("35B-A3B", 1, {**_WIDE, "experts_on_cpu": "100%"}),
        "ik-llama8": ("Llama 8B", 1, {"context": 65_536, "kv": "q8_0"}),
        "ik-llama8-layers": ("Llama 8B", 1, {"context": 32_768, "gpu_layers": 16}),
        "ik-qwen30": ("Qwen3 30B-A3B", 1, {"context": 65_536, "kv": "q8_0", "ubatch": 2048}),
        "ik-gemma12": ("Gemma 3 12B", 1, {"context": 32_768}),
        "ik-qwen35-2": ("35B-A3B", 2, {"context": 32_768}),
        "ik-qwen35-4": ("35B-A3B", 4, _LONG),
        "ik-qwen35-4-wide": ("35B-A3B", 4, {**_WIDE, "parallel": 4}),
        "ik-qwen35-2-half": ("35B-A3B", 2, {"context": 32_768, "experts_on_cpu": "50%"}),
        "ik-llama70-4": ("Llama 70B", 4, {"context": 65_536, "kv": "q8_0"}),
        "ik-llama70-2": ("Llama 70B", 2, _WIDE),
        "ik-llama8-4-wide": ("Llama 8B", 4, _WIDE),
        "ik-llama8-3-uneven": ("Llama 8B", 3, {"context": 32_768, "tensor_split": [1, 2, 1]}),
        "ik-qwen30-4": ("Qwen3 30B-A3B", 4, {"context": 32_768}),
        "ik-gemma12-2": ("Gemma 3 12B", 2, _WIDE),
        "ik-qwen122-3": ("122B-A10B Q3_K", 3, {"context": 65_536, "ubatch": 1024}),
        "ik-llama8-2-graph": ("Llama 8B", 2, {"context": 32_768, "split": "graph"}),
        "ik-llama70-4-graph": ("Llama 70B", 4, {"context": 32_768, "split": "graph"}),
        "ik-qwen30-4-graph": ("Qwen3 30B-A3B", 4, {"context": 32_768, "split": "graph"}),
    },
)

HELD_OUT: Mapping[str, Case] = {
    **_cases(
        "llama.cpp",
        {
            "new-qwen27": ("Qwen3.5 27B", 1, {"context": 32_768}),
            "new-qwen27-mtp": ("Qwen3.5 27B", 1, {"context": 65_536, "kv": "q8_0", "draft": {"mtp": 3}}),
            "new-qwen27-slots": ("Qwen3.5 27B", 1, {**_LONG, "ubatch": 1024, "parallel": 3}),
            "new-next80-half": ("Qwen3-Next 80B-A3B", 1, {"context": 65_536, "kv": "q8_0", "experts_on_cpu": "50%"}),
            "new-gemma26": ("Gemma 4 26B-A4B", 1, {"context": 65_536}),
            "new-e4b": ("Gemma 4 E4B", 1, {"context": 32_768, "parallel": 4}),
            "new-deepseek": ("DeepSeek V2 Lite", 1, {"context": 65_536}),
            "new-llama2": ("Llama 2B", 1, {"context": 16_384, "kv": "q4_0", "batch": 1024, "ubatch": 256}),
            "new-oss20-most": ("gpt-oss 20B", 1, {"context": 131_072, "experts_on_cpu": "75%", "ubatch": 2048}),
            "new-qwen27-2": ("Qwen3.5 27B", 2, {"context": 65_536}),
            "new-qwen27-2-uneven": ("Qwen3.5 27B", 2, {**_WIDE, "tensor_split": [1, 2]}),
            "new-next80-2": ("Qwen3-Next 80B-A3B", 2, _LONG),
            "new-gemma26-2": ("Gemma 4 26B-A4B", 2, {"context": 131_072, "kv": "q8_0", "ubatch": 1024}),
            "new-deepseek-2": ("DeepSeek V2 Lite", 2, {"context": 32_768, "parallel": 2}),
        },
    ),
    **_cases(
        "ik_llama.cpp",
        {
            "new-ik-next80-half": ("Qwen3-Next 80B-A3B", 1, {"context": 65_536, "kv": "q8_0", "experts_on_cpu": "50%"}),
            "new-ik-llama2": ("Llama 2B", 1, {"context": 16_384, "kv": "q4_0", "batch": 1024, "ubatch": 256}),
            "new-ik-oss20": ("gpt-oss 20B", 1, {"context": 65_536}),
            "new-ik-next80-2": ("Qwen3-Next 80B-A3B", 2, {"context": 131_072, "kv": "q8_0", "ubatch": 1024}),
            "new-ik-oss20-2": ("gpt-oss 20B", 2, _WIDE),
        },
    ),
}
"""Shapes and settings that no formula was fitted to: they are the proof."""

_OFF = {"flash_attention": "off"}

FILLED: Mapping[str, Case] = {
    **_cases(
        "llama.cpp",
        {
            "filled-llama8": ("Llama 8B", 1, _LONG),
            "filled-llama8-off": ("Llama 8B", 1, {"context": 32_768, **_OFF}),
            "filled-next80-2-off": ("Qwen3-Next 80B-A3B", 2, {"context": 40_960, **_OFF, "ubatch": 1536}),
            "filled-oss20": ("gpt-oss 20B", 1, {"context": 65_536, "kv": "q8_0"}),
        },
    ),
    **_cases(
        "ik_llama.cpp",
        {
            "filled-ik-llama8": ("Llama 8B", 1, _LONG),
            "filled-ik-llama8-f16": ("Llama 8B", 1, {"context": 65_536}),
            "filled-ik-qwen35": ("35B-A3B", 1, _LONG),
            "filled-ik-qwen30": ("Qwen3 30B-A3B", 1, {"context": 65_536, "kv": "q4_0"}),
            "filled-ik-llama8-off": ("Llama 8B", 1, {"context": 32_768, **_OFF}),
        },
    ),
}
"""Servers whose context is to be filled, with `--prompt 40000`: some scratch memory grows with what is in it."""

_EMBEDS, _RANKS = {"serve": "embeddings"}, {"serve": "rerank"}


def _batch(tokens: int) -> Mapping[str, int]:
    return {"context": tokens, "batch": tokens, "ubatch": tokens}


TASKS: Mapping[str, Case] = _cases(
    "llama.cpp",
    {
        "embed-qwen06": ("Qwen3 Embedding 0.6B", 1, {**_EMBEDS, "context": 8192, "parallel": 4}),
        "embed-qwen06-wide": ("Qwen3 Embedding 0.6B", 1, {**_EMBEDS, **_batch(4096)}),
        "embed-qwen8": ("Qwen3 Embedding 8B", 1, {**_EMBEDS, "context": 16_384, "ubatch": 1024, "parallel": 2}),
        "embed-qwen8-2": ("Qwen3 Embedding 8B", 2, {**_EMBEDS, "context": 8192}),
        "rank-qwen06": ("Qwen3 Reranker 0.6B", 1, {**_RANKS, "context": 8192, "parallel": 2, "ubatch": 2048}),
        "embed-bge": ("bge m3", 1, {**_EMBEDS, **_batch(8192)}),
        "embed-bge-small": ("bge m3", 1, {**_EMBEDS, "context": 2048, "parallel": 4}),
        "rank-bge": ("bge Reranker v2 m3", 1, {**_RANKS, **_batch(2048)}),
        "embed-minilm": ("all-MiniLM-L6-v2", 1, {**_EMBEDS, **_batch(512)}),
        "embed-nomic": ("Nomic Embed v1.5", 1, {**_EMBEDS, **_batch(2048)}),
        "embed-jina2": ("Jina Embeddings v2 base", 1, {**_EMBEDS, **_batch(8192)}),
        "embed-jina3": ("Jina Embeddings v3", 1, {**_EMBEDS, **_batch(4096)}),
        "embed-modern": ("GTE ModernBERT base", 1, {**_EMBEDS, **_batch(8192)}),
        "embed-gemma": ("EmbeddingGemma 300M", 1, {**_EMBEDS, **_batch(2048)}),
        "embed-qwen06-f16": ("Qwen3 Embedding 0.6B F16", 1, {**_EMBEDS, "context": 8192, "ubatch": 1024}),
        "embed-qwen06-bf16": ("Qwen3 Embedding 0.6B BF16", 1, {**_EMBEDS, "context": 8192, "ubatch": 1024}),
        "embed-bge-q8": ("bge m3 Q8_0", 1, {**_EMBEDS, **_batch(4096)}),
        "embed-nomic-bf16": ("Nomic Embed v1.5 BF16", 1, {**_EMBEDS, **_batch(2048)}),
    },
)
"""Servers of embeddings and rerank: every slot gets an input as long as a batch."""

CASES: Mapping[str, Case] = {**LLAMA, **IK, **HELD_OUT, **FILLED, **TASKS}
