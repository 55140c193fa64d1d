"""What arms are asked, and when enough is known of it. Pure.

In a block both are asked the same, word for word: what differs is the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.bench.asking.suite import KINDS, suite
from llamaherd.bench.comparing.compare import Comparison, Row
from llamaherd.bench.courses.quick import ANSWERED
from llamaherd.bench.results.metrics import DECODE, PREFILL, STEP, Metric
from llamaherd.bench.results.result import Condition
from llamaherd.bench.schedule import Ask

PREFILL_CELL = "prefill"
CELLS = (*KINDS, PREFILL_CELL)
RUNS = 3
"""Requests under each condition, at each start."""

TOKENS, PROMPT = 128, 1024
"""Of an answer, and of the long prompt: short ones, as starts tell more than requests."""
_WARM_TOKENS, _ABOUT = 32, 32
"""Of an answer while it warms up; and around the long text, by its beginning and the chat template."""
_SEED = 7


def conditions(names: Sequence[str], context: int) -> tuple[Condition, ...]:
    """The cells of these names, for servers whose every request has so much context."""
    prompt = max(_ABOUT * 2, min(PROMPT, context // 2))
    long = Condition(kind="long", prompt=prompt, cache="cold", sampling="instance")
    cells: dict[str, Condition] = {PREFILL_CELL: long}
    for each in KINDS:
        cells[each] = Condition(kind=each, generated=TOKENS, cache="cold", sampling="instance")
    return tuple(cells[name] for name in dict.fromkeys(names))


def long_tokens(asked: Sequence[Condition]) -> int | None:
    """How many tokens the long text is to have; None where none is asked for."""
    return next((each.prompt - _ABOUT for each in asked if each.prompt), None)


def asks(asked: Sequence[Condition], long: str, block: int) -> Iterator[Ask]:
    """What an arm is asked in a block, in order: first what warms it up, then all cells in turn."""
    first = block * (RUNS + 1)
    for each in asked:
        yield _ask(None, each, 0, long, first, min(each.generated or ANSWERED, _WARM_TOKENS))
    for number in range(RUNS):
        for cell, each in enumerate(asked):
            yield _ask(cell, each, number, long, first + 1 + number, each.generated or ANSWERED)


def _ask(cell: int | None, condition: Condition, number: int, long: str, salt: int, tokens: int) -> Ask:
    prompts = suite().prompts.get(condition.kind)
    text = prompts[number % len(prompts)].text if prompts else long
    return Ask(cell, text, tokens, salt=salt, more={"seed": _SEED + number})


def not_known(found: Comparison, asked: Sequence[Condition]) -> tuple[Row | Condition, ...]:
    """What has no verdict yet: rows that are to have one, and conditions of which there is no row."""
    rows = {each: _judged(found.rows, each) for each in asked}
    missing = tuple(each for each in asked if not rows[each])
    return (*missing, *(row for of in rows.values() for row in of if _open(row)))


def _judged(rows: Sequence[Row], condition: Condition) -> list[Row]:
    """Of a prompt its prefill; of an answer how fast it comes, and how long a step takes where drafts are made."""
    counts: tuple[Metric, ...] = (PREFILL,) if condition.prompt else (DECODE, STEP)
    return [row for row in rows if row.condition == condition and row.metric in counts]


def _open(row: Row) -> bool:
    return row.judgement is None or row.judgement.verdict == "not known yet"
