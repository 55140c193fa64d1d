"""Servers drawn by chance: shapes and settings that nobody has chosen, the same for the same seed."""

from __future__ import annotations

import random
from typing import Any

from benchmarks.gpu_rigs_cases import MODELS, Case

_KV = {"llama.cpp": ("q8_0", "q5_1", "q4_0", {"k": "q8_0", "v": "q4_0"}), "ik_llama.cpp": ("q8_0", "q4_0")}
"""Types of a cache; of ik_llama.cpp those that every build of it has kernels for."""

_UNKNOWN = {"Qwen3.5 27B", "Gemma 4 26B-A4B", "Gemma 4 E4B", "GLM 4.5 Air", "35B-A3B with a head"}
"""Models that ik_llama.cpp 67268c8fd does not load, as they are written here."""


def drawn(engine: str, seed: int, count: int) -> dict[str, Case]:
    """So many servers of an engine, by name. Some need more than a GPU has: who measures leaves them out."""
    choose = random.Random(f"{engine} {seed}")
    known = [model for model in MODELS if engine == "llama.cpp" or model not in _UNKNOWN]
    return {f"drawn-{engine}-{seed}-{index}": _one(choose, engine, known) for index in range(count)}


def _one(choose: random.Random, engine: str, models: list[str]) -> Case:
    model, cards = choose.choice(models), choose.choice([1, 1, 2, 3, 4])
    keys: dict[str, Any] = {"context": choose.choice([8192, 20_480, 40_960, 98_304, 131_072])}
    if choose.random() < 0.55:
        keys["kv"] = choose.choice(_KV[engine])
    elif choose.random() < 0.2:
        keys["flash_attention"] = "off"
    if choose.random() < 0.5:
        keys["ubatch"] = choose.choice([128, 256, 768, 1024, 1536, 2048])
        keys["batch"] = max(2048, keys["ubatch"])
    if choose.random() < 0.4:
        keys["parallel"] = choose.choice([2, 3, 4, 6])
    if MODELS[model].parameters.get("expert_used_count") and choose.random() < 0.3:
        keys["experts_on_cpu"] = choose.choice(["20%", "40%", "70%", "100%"])
    elif choose.random() < 0.1:
        keys["gpu_layers"] = choose.choice([6, 10, 13])
    if "head" in model and choose.random() < 0.7:
        keys["draft"] = {"mtp": choose.choice([1, 2, 3])}
    if cards > 1 and choose.random() < 0.4:
        keys["tensor_split"] = [choose.choice([1, 2, 3]) for _ in range(cards)]
    if choose.random() < 0.15:
        keys["mmap"] = False
    return Case(engine, model, cards, keys)
