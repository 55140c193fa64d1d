"""Asks a server until it is as fast as it was before: pages, clocks and kernels come with the first requests."""

from __future__ import annotations

import time
from dataclasses import dataclass

from llamaherd.bench.asking.client import Failure
from llamaherd.bench.asking.requests import Requests
from llamaherd.bench.asking.runs import run_of
from llamaherd.bench.asking.salt import MOST
from llamaherd.bench.asking.suite import suite
from llamaherd.bench.results.metrics import DECODE
from llamaherd.bench.results.result import Condition, Run
from llamaherd.bench.schedule import Ask
from llamaherd.diagnostics.findings import UserError

_TOKENS, _FEWEST, _MOST_ASKED = 48, 2, 6
_STEADY = 0.03
"""The share within which two in a row must agree."""
_SHARE = 0.15
"""Of the time, that warming up may take."""
_CONDITION = Condition(kind="prose")


@dataclass(frozen=True)
class Warm:
    """How many requests it took, and about how fast the server is: tokens per second."""

    requests: int
    decode: float | None
    prefill: float | None


def warm_up(requests: Requests, seconds: float) -> Warm:
    """Ask until two in a row are alike, or a share of the time is over. Raises UserError where it does not answer."""
    until, runs = time.monotonic() + _SHARE * seconds, list[Run]()
    while len(runs) < _FEWEST or (len(runs) < _MOST_ASKED and time.monotonic() < until and not _steady(runs)):
        prompts = suite().prompts["prose"]
        # The last numbers of all: those that count begin at 0.
        wanted = Ask(None, prompts[len(runs) % len(prompts)].text, _TOKENS, salt=MOST - 1 - len(runs))
        answer = requests.send(wanted, seconds)
        if isinstance(answer, Failure):
            raise UserError(answer.message, answer.help)
        runs.append(run_of(answer, _CONDITION, at=0.0))
        if time.monotonic() > until and len(runs) == 1:
            break
    last = runs[-1]
    decode = DECODE.of(last)
    prefill = last.prompt_n / last.prompt_ms * 1000 if last.prompt_n and last.prompt_ms else None
    return Warm(len(runs), decode.rate if decode else None, prefill)


def _steady(runs: list[Run]) -> bool:
    before, last = (DECODE.of(run) for run in runs[-2:])
    return before is not None and last is not None and abs(last.rate / before.rate - 1) < _STEADY
