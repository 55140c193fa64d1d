"""Speed by depth of a server that takes no tokens: each depth in requests of its own, which read all of it anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llamaherd.bench.asking.client import Answer, Patience, ask
from llamaherd.bench.asking.runs import run_of
from llamaherd.bench.asking.salt import salt
from llamaherd.bench.courses.course import Road, broken
from llamaherd.bench.courses.ladder import TOKENS
from llamaherd.bench.results.result import Condition, Run

TIMES = 2
"""Requests of each depth."""

_FIRST_SALT = 140_000
_NEAR = 0.1
"""The share by which a prompt may be longer or shorter than its depth."""

_GO_ON = "\n\nGo on with this text where it ends: write a long next chapter."
_PATIENCE = Patience(first=3600, silence=120, total=3600)


@dataclass(frozen=True)
class Separate:
    """Depths from the least on, twice each: the conditions of decode are those of a ladder."""

    depths: tuple[int, ...]
    name: str = "depth"
    one_by_one: bool = True

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """For each depth the whole prompt, and what is written after it."""
        return tuple(each for depth in self.depths for each in (_prompt(depth), _decode(depth)))

    @property
    def rule(self) -> str:
        """When it is enough."""
        return f"{TIMES} requests at each of {len(self.depths)} depths"

    def runs(self, road: Road) -> Iterator[tuple[int, Run]]:
        """Two runs of each answer, of the prompt and of what was written. Raises UserError."""
        for place, depth in enumerate(self.depths):
            text = road.text_of(depth) + _GO_ON
            for number in range(TIMES):
                at = road.clock()
                before = salt(road.session, _FIRST_SALT + TIMES * place + number)
                answer = ask(road.served.target, road.served.chat, _body(road, before + text), _PATIENCE)
                if isinstance(answer, Answer):
                    run = run_of(answer, _prompt(depth).model_copy(update={"generated": TOKENS}), at=at)
                    yield from _both(run, depth, place)
                elif answer.why in ("refused", "empty"):
                    # Mostly a context that is too short, of which nobody knew.
                    yield 2 * place + 1, Run(at=round(at, 3), excluded=answer.message)
                    break
                else:
                    raise broken(f"at a depth of {depth:,} tokens", answer)


def _both(run: Run, depth: int, place: int) -> Iterator[tuple[int, Run]]:
    if run.prompt_n is None or abs(run.prompt_n / depth - 1) > _NEAR:
        read = "nobody tells how many" if run.prompt_n is None else f"{run.prompt_n:,}"
        run = run.model_copy(update={"excluded": run.excluded or f"of a prompt of {depth:,} tokens it read {read}"})
    yield 2 * place, run.model_copy(update={"predicted_n": None, "predicted_ms": None, "pieces_ms": ()})
    yield 2 * place + 1, run.model_copy(update={"prompt_n": None, "prompt_ms": None, "first_token_ms": None})


def _prompt(depth: int) -> Condition:
    return Condition(kind="long", prompt=depth, cache="cold", sampling="instance")


def _decode(depth: int) -> Condition:
    return Condition(kind="long", depth=depth, generated=TOKENS, cache="warm", sampling="instance")


def _body(road: Road, text: str) -> dict[str, Any]:
    body: dict[str, Any] = {"model": road.served.model, "messages": [{"role": "user", "content": text}]}
    body |= {"max_tokens": TOKENS, "stream_options": {"include_usage": True}}
    # Others may refuse what they do not know.
    return body | ({"ignore_eos": True} if road.served.engine == "vllm" else {})
