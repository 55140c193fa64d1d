"""Samples of laws that hold for each of many similar examples.

An ordinary run draws a tenth of the examples of such a law at random. LLAMAHERD_SEARCH=1 runs all of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

# Workers of pytest-xdist inherit the environment, and must collect the same tests.
MADE = os.environ.setdefault("LLAMAHERD_SAMPLE", str(random.SystemRandom().randrange(10**6)))
SEED = os.environ.get("LLAMAHERD_SEED") or MADE
ALL = os.environ.get("LLAMAHERD_SEARCH", "0") != "0"
FEW, LEAST = 20, 5


def drawn(examples: Iterable[T], seed: str = SEED, everything: bool = ALL) -> list[T]:
    """Return a tenth of the examples in their order, at least five; all of them if they are fewer than twenty."""
    examples = list(examples)
    if everything or len(examples) < FEW:
        return examples
    chosen = random.Random(seed).sample(range(len(examples)), max(len(examples) // 10, LEAST))
    return [examples[number] for number in sorted(chosen)]


def header() -> str:
    """Return the line of pytest's header that says how to draw the same examples again."""
    if ALL:
        return "laws run all of their examples"
    return f"seed {SEED}: LLAMAHERD_SEED={SEED} draws the same examples, LLAMAHERD_SEARCH=1 runs all of them"
