"""What arms are asked, and when enough is known of it. Pure.

In a block both are asked the same, word for word: what differs is the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llamaherd.bench.compare import Comparison, Row
from llamaherd.bench.metrics import DECODE, PREFILL, STEP, Metric
from llamaherd.bench.result import Condition
from llamaherd.bench.salt import salt
from llamaherd.bench.suite import KINDS, suite

PREFILL_CELL = "prefill"
CELLS = (*KINDS, PREFILL_CELL)
USUAL = ("code", "prose", PREFILL_CELL)
RUNS = 3
"""Requests under each condition, at each start."""

_TOKENS, _WARM_TOKENS, _PROMPT, _SPARE = 128, 32, 2048, 256
_SEED = 7


@dataclass(frozen=True)
class Request:
    """One request, and the cell that its run belongs to; None while the server warms up."""

    cell: int | None
    body: Mapping[str, Any]


def conditions(names: Sequence[str], context: int) -> tuple[Condition, ...]:
    """The cells of these names, for servers whose every request has so much context."""
    prompt = max(64, min(_PROMPT, context - _SPARE))
    found = []
    for name in dict.fromkeys(names):
        if name == PREFILL_CELL:
            found.append(Condition(kind="long", prompt=prompt, generated=1, cache="cold", sampling="instance"))
        else:
            kind = next(each for each in KINDS if each == name)
            found.append(Condition(kind=kind, generated=_TOKENS, cache="cold", sampling="instance"))
    return tuple(found)


def requests(asked: Sequence[Condition], long: str, session: str, block: int) -> Iterator[Request]:
    """What an arm is asked in a block, in order: first what warms it up, then all cells in turn."""
    first = block * (RUNS + 1)
    for each in asked:
        warm = min(each.generated, _WARM_TOKENS)
        yield Request(None, _body(each, 0, long, salt(session, first), warm))
    for number in range(RUNS):
        for cell, each in enumerate(asked):
            begin = salt(session, first + 1 + number)
            yield Request(cell, _body(each, number, long, begin, each.generated))


def _body(condition: Condition, number: int, long: str, begin: str, tokens: int) -> dict[str, Any]:
    prompts = suite().prompts.get(condition.kind)
    text = prompts[number % len(prompts)].text if prompts else long
    return {
        "messages": [{"role": "user", "content": begin + text}],
        "max_tokens": tokens,
        "seed": _SEED + number,
        "cache_prompt": False,
        "stream_options": {"include_usage": True},
    }


def not_known(found: Comparison, asked: Sequence[Condition]) -> tuple[Row | Condition, ...]:
    """What has no verdict yet: rows that are to have one, and conditions of which there is no row."""
    rows = {each: _judged(found.rows, each) for each in asked}
    missing = tuple(each for each in asked if not rows[each])
    return (*missing, *(row for of in rows.values() for row in of if _open(row)))


def _judged(rows: Sequence[Row], condition: Condition) -> list[Row]:
    """Of a prompt its prefill; of an answer how fast it comes, and how long a step takes where drafts are made."""
    counts: tuple[Metric, ...] = (PREFILL,) if condition.kind == "long" else (DECODE, STEP)
    return [row for row in rows if row.condition == condition and row.metric in counts]


def _open(row: Row) -> bool:
    return row.judgement is None or row.judgement.verdict == "not known yet"
