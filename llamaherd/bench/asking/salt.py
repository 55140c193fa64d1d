"""Beginnings that no server has seen before: a prompt that is in its cache says nothing of how fast it reads.

They differ from the first word on, as caches know a prompt by how it begins; and they are as long as each other, so
that prompts stay so.
"""

from __future__ import annotations

import hashlib

_FOUR_LETTERS = """
acid also area army away baby back ball band bank base bath bear beat bell best
bird blue boat body bone book born both bowl burn bush calm came camp card care
case cash cast cell city club coal coat code cold come cook cool corn cost crew
dark data date dawn days dead deal deep desk dish door down draw drop duck dust
"""
WORDS = tuple(_FOUR_LETTERS.split())
"""Sixty-four, of four letters each: common ones, of which most tokenizers make one token each."""

MOST = len(WORDS) ** 3
_COUNTED, _LOTS = 3, 5


def salt(session: str, number: int) -> str:
    """The beginning of the prompt of this number: another for each number, and in each session."""
    if not 0 <= number < MOST:
        raise ValueError(f"{number} is no number of a prompt; there are {MOST:,}")
    counted = [WORDS[number // len(WORDS) ** place % len(WORDS)] for place in range(_COUNTED)]
    digest = hashlib.sha256(f"{session}\0{number}".encode()).digest()
    return " ".join([*counted, *(WORDS[byte % len(WORDS)] for byte in digest[:_LOTS])]) + ".\n\n"
