"""The body of a request to a served instance: its own sampling, our text, and what is to come from its cache. Pure."""

from __future__ import annotations

from typing import Any

from llamaherd.bench.asking.salt import salt
from llamaherd.bench.schedule import Ask


def chat_body(model: str, ask: Ask, session: str) -> dict[str, Any]:
    """A chat of one message. `cache_prompt` is what llama.cpp and ik_llama.cpp go by; others do not know it."""
    before = "" if ask.salt is None else salt(session, ask.salt)
    return {
        "model": model,
        "messages": [{"role": "user", "content": before + ask.text}],
        "max_tokens": ask.tokens,
        "stream_options": {"include_usage": True},
        "cache_prompt": ask.reuse,
        **ask.more,
    }
