"""What a server tells of itself beside its answers: how many tokens a text has, its context, its version."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.bench.asking.client import Target
from llamaherd.bench.asking.plain import Told, tell


@dataclass(frozen=True)
class ServerFacts:
    """What it says that it has: of a slot of its cache, how many of them, and what it was built from."""

    context: int | None = None
    slots: int | None = None
    build: str | None = None


def server_facts(target: Target, props_path: str | None) -> ServerFacts:
    """By the path where llama.cpp and ik_llama.cpp tell it; nothing where there is none."""
    found = tell(target, props_path) if props_path else None
    if not isinstance(found, Told) or not isinstance(found.value, dict):
        return ServerFacts()
    settings, build = found.value.get("default_generation_settings"), found.value.get("build_info")
    context = settings.get("n_ctx") if isinstance(settings, dict) else None
    slots = _count(found.value.get("total_slots"))
    return ServerFacts(_count(context), slots, build if isinstance(build, str) else None)


def count_tokens(target: Target, model: str, text: str) -> int | None:
    """How many tokens a text has by the server's own tokenizer: `content` is llama.cpp's word, `prompt` vLLM's."""
    found = tell(target, "/tokenize", {"model": model, "content": text, "prompt": text})
    if not isinstance(found, Told) or not isinstance(found.value, dict):
        return None
    tokens = found.value.get("tokens")
    return len(tokens) if isinstance(tokens, list) else _count(found.value.get("count"))


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 40 else None
