"""The ladder of depths beside separate requests: how alike their speeds are, and how long each takes.

    llama-server -m model.gguf -c 140000 -np 1 -ngl 999 --cache-ram 0 --port 8080 &
    python3 -m benchmarks.ladder http://127.0.0.1:8080 4096,32768,131072 > ladder.jsonl

It needs Python 3.11 and this repository, in whose folder it is called: no library, and no network but the way to a
llama-server that nobody else uses. A key, if there is one, is in the variable KEY. 128 tokens are written at once, 3
times on each depth. After both have been tried once at the least depth, ladders and rounds of separate requests take
turns, ROUNDS of each (1), so that what drifts is in both. Of a round of separate requests, each reads its depth anew.

Each line is JSON: answers; for each depth, decode of both in tokens per second, and the ratio; then the seconds of
both, and the ratio. Prefill of a ladder is that of a piece, from a depth on; of a separate request it is of all.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from llamaherd.measure.bench.workloads import Climb, prompt_tokens, token_completion
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.client.requests import cache_buster
from llamaherd.measure.results.result import Run

TOKENS, TIMES = 128, 3
MODEL = "any"
"""A llama-server with one model takes every name for it."""
WAYS = ("ladder", "separate")
LONG = Path(__file__).parents[1] / "llamaherd/measure/client/prompts/long.txt.gz"


def texts(session: str, number: int, letters: int) -> str:
    """A text that begins as none before."""
    whole = gzip.decompress(LONG.read_bytes()).decode()
    return (cache_buster(session, number) + whole * (letters // len(whole) + 1))[:letters]


def climbed(target: Target, depths: Sequence[int], session: str, number: int) -> list[tuple[int, Run]]:
    """One way up some depths."""
    words = prompt_tokens(target, MODEL, depths[-1] + TOKENS * TIMES, lambda letters: texts(session, number, letters))
    return list(Climb(depths, TOKENS, TIMES, token_completion(target, MODEL), time.monotonic).runs(words))


def way(
    name: str, target: Target, depths: Sequence[int], session: str, number: int
) -> tuple[list[tuple[int, Run]], float]:
    """The answers of a ladder or of a round of separate requests, each with its place among the depths; the seconds."""
    if name == "ladder":
        found = climbed(target, depths, session, 100 * number)
    else:
        each = [climbed(target, [depth], session, 100 * number + place) for place, depth in enumerate(depths, start=1)]
        found = [(place, run) for place, runs in enumerate(each) for _, run in runs]
    return found, sum(run.total_ms or 0.0 for _, run in found) / 1000


def decode(answers: Iterable[Run]) -> float:
    """Tokens per second, of all that count."""
    counted = [one for one in answers if not one.excluded]
    tokens = sum((told.predicted_n or 1) - 1 for told in counted)
    return 1000 * tokens / sum(told.predicted_ms or 0.0 for told in counted) if tokens else 0.0


def main(url: str, depths: Sequence[int], rounds: int) -> None:
    """Measure both ways, and say how they compare."""
    target, session = Target(url, os.environ.get("KEY")), secrets.token_hex(8)
    found: dict[str, list[tuple[int, Run]]] = {name: [] for name in WAYS}
    seconds = dict.fromkeys(WAYS, 0.0)
    for name in WAYS:
        way(name, target, depths[:1], session, 90 + len(name))
    for number in range(rounds):
        for name in WAYS if number % 2 == 0 else reversed(WAYS):
            answers, took = way(name, target, depths, session, 2 * number + WAYS.index(name))
            found[name] += answers
            seconds[name] += took
            for rung, run in answers:
                row = {"way": name, "round": number, "depth": depths[rung], **run.model_dump(exclude_defaults=True)}
                print(json.dumps(row), flush=True)
    for rung, depth in enumerate(depths):
        speeds = {name: decode(run for at, run in found[name] if at == rung) for name in WAYS}
        ratio = speeds["ladder"] / speeds["separate"] if speeds["separate"] else None
        print(json.dumps({"depth": depth, "decode": speeds, "ratio": ratio}))
    print(json.dumps({"seconds": seconds, "ratio": seconds["ladder"] / seconds["separate"]}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sorted(int(each) for each in sys.argv[2].split(",")), int(os.environ.get("ROUNDS", "1")))
