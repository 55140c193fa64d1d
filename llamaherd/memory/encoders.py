"""Architectures that embed texts: what of a language model their graphs and contexts lack.

Facts: llama.cpp b11434, src/llama-model.cpp:2364-2381 (create_memory), src/models/*.cpp.
"""

from __future__ import annotations

BERT = frozenset({"bert", "jina-bert-v2", "jina-bert-v3", "nomic-bert", "nomic-bert-moe"})
"""They share one graph (src/models/bert.cpp), which normalises after each part of a layer."""

WITHOUT_OUTPUT = BERT | {"eurobert", "modern-bert", "neo-bert"}
"""They load no output matrix, and no copy of the embeddings in its place."""

WITHOUT_LOGITS = WITHOUT_OUTPUT | {"clef", "gemma-embedding", "llama-embed", "t5encoder"}
"""Their graphs end with the embeddings."""

LOGITS_FOR_CHAT = frozenset({"lfm2", "lfm2moe"})
"""Their graphs compute logits unless embeddings are on (src/models/lfm2.cpp:287)."""

WITHOUT_CACHE = WITHOUT_OUTPUT | {"clef", "dream", "gemma-embedding", "llada", "llada-moe", "rnd1"}
"""Each token sees those of its own batch, and llama.cpp keeps no keys and values of them."""

WINDOWS: dict[str, tuple[int | None, int, bool]] = {"gemma-embedding": (None, 6, False), "modern-bert": (None, 3, True)}
"""Those with sliding windows, as `layers` has them: default, period, and whether the first layer sees everything."""
