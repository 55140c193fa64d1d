"""The ladder: one prefill, each rung as deep as it says, and what came from the cache held against what was there.

Played is a server's cache, by which tokens are in it. It is no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import WorkloadContext
from llamaherd.measure.bench.workloads import Ladder, fit_ladder
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.client.requests import Served
from llamaherd.measure.results.result import Cell, Condition, Run
from tests.bench.site import Reply, Site, page

LADDER = Ladder((512, 1024, 2048), tokens=64, times=3)


@dataclass
class Cache:
    """One slot: it takes the longest beginning that it has, reads the rest at 1 ms each, and writes at 10 ms each.

    `forgets`: it can go on only from its very end, as recurrent models do. `told`: with its counts of the cache.
    """

    forgets: bool = False
    loses_at: int = 0
    gives_back: bool = True
    told: bool = True
    wrote: int | None = None
    held: list[int] = field(default_factory=list)
    read: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a completion."""
        self.asked.append(body)
        tokens: list[int] = body["prompt"]
        both = zip(self.held, tokens, strict=False)
        common = next(
            (number for number, (one, two) in enumerate(both) if one != two), min(len(self.held), len(tokens))
        )
        reused = min(common, len(tokens) - 1) if body["cache_prompt"] else 0
        if (self.forgets and reused < len(self.held)) or len(self.asked) == self.loses_at:
            reused = 0
        self.read += len(tokens) - reused
        count = self.wrote or body["n_predict"]
        written = [900_000 + len(self.asked) * 1000 + number for number in range(count)]
        self.held = [*tokens, *written[:-1]]
        timings: dict[str, Any] = {"prompt_n": len(tokens) - reused, "prompt_ms": float(len(tokens) - reused)}
        timings |= {"predicted_n": count, "predicted_ms": 10.0 * (count - 1)}
        timings |= {"cache_n": reused} if self.told else {}
        return {"timings": timings} | ({"tokens": written} if self.gives_back else {})

    def pages(self) -> dict[str, Reply]:
        """It as a server. A token is a word."""

        def tokenized(body: dict[str, Any]) -> list[int]:
            return [sum(word.encode()) * 7 + number for number, word in enumerate(body["content"].split())]

        return {
            "/completion": lambda body: page(self.complete(body))(body),
            "/tokenize": lambda body: page({"tokens": tokenized(body)})(body),
        }


def road(site: Site, session: str = "session") -> WorkloadContext:
    target = Target(site.url)
    return WorkloadContext(Served(target, target, "/v1/chat/completions", "gemma", native=True), session, lambda: 1.5)


def climbed(cache: Cache, **more: Reply) -> dict[Condition, list[Run]]:
    with Site(cache.pages() | {f"/{name}": there for name, there in more.items()}) as site:
        cells: dict[Condition, list[Run]] = {each: [] for each in LADDER.conditions}
        for number, run in LADDER.runs(road(site)):
            cells[LADDER.conditions[number]].append(run)
    return cells


def excluded(cells: dict[Condition, list[Run]]) -> set[str | None]:
    return {run.excluded for runs in cells.values() for run in runs}


def test_it_costs_one_prefill() -> None:
    cache = Cache()
    cells = climbed(cache)
    assert excluded(cells) == {None}
    assert [len(body["prompt"]) for body in cache.asked[::3]] == [512, 1024, 2048]
    # Each answer but the first reads the last token that was written, which was never read before.
    texts = 512 + (1024 - 512 - 192) + (2048 - 1024 - 192)
    assert cache.read == texts + 8
    assert [str(each) for each in cells] == [
        "long, 512 in",
        "long, 64 out, depth 512, warm",
        "long, 320 in, depth 704, warm",
        "long, 64 out, depth 1,024, warm",
        "long, 832 in, depth 1,216, warm",
        "long, 64 out, depth 2,048, warm",
    ]


def test_each_run_says_one_thing() -> None:
    cells = climbed(Cache())
    for condition, runs in cells.items():
        assert len(runs) == (3 if condition.generated else 1)
        assert all((run.predicted_n is not None) == bool(condition.generated) for run in runs)
        assert all((run.prompt_n is None) == bool(condition.generated) for run in runs)
    (piece,) = cells[LADDER.conditions[2]]
    assert (piece.prompt_n, piece.prompt_ms, piece.cache_n) == (321, 321.0, 703)
    written = cells[LADDER.conditions[3]]
    assert [(run.predicted_n, run.predicted_ms, run.cache_n) for run in written] == [
        (64, 630.0, 703),
        (64, 630.0, 1024 + 63),
        (64, 630.0, 1024 + 127),
    ]
    assert Cell(condition=LADDER.conditions[3], runs=tuple(written)).counted


def test_a_model_that_can_only_go_on_is_never_asked_to_go_back() -> None:
    cache = Cache(forgets=True)
    assert excluded(climbed(cache)) == {None}


def test_the_first_answer_takes_nothing_from_the_cache() -> None:
    cache = Cache()
    climbed(cache)
    assert [body["cache_prompt"] for body in cache.asked] == [False] + [True] * 8
    assert {(body["id_slot"], body["ignore_eos"], body["stream"]) for body in cache.asked} == {(0, True, False)}


def test_a_cache_that_was_lost_is_seen() -> None:
    """Somebody else's request took the slot: what was read again says nothing of the piece."""
    cells = climbed(Cache(loses_at=4))
    assert excluded(cells) == {None, "0 tokens came from the cache instead of 703"}
    assert cells[LADDER.conditions[2]][0].excluded
    assert cells[LADDER.conditions[3]][0].excluded
    assert not cells[LADDER.conditions[3]][1].excluded


def test_a_server_that_tells_only_what_it_read() -> None:
    assert excluded(climbed(Cache(told=False))) == {None}
    lost = climbed(Cache(told=False, loses_at=7))
    assert "0 tokens came from the cache instead of 1,215" in excluded(lost)


def test_a_server_that_gives_no_tokens_back() -> None:
    """It goes on from the prompt, each rung as deep as it says."""
    cache = Cache(gives_back=False)
    cells = climbed(cache)
    assert excluded(cells) == {None}
    assert [len(body["prompt"]) for body in cache.asked] == [512] * 3 + [1024] * 3 + [2048] * 3


def test_too_few_tokens_are_no_run() -> None:
    assert excluded(climbed(Cache(wrote=9))) == {"it generated 9 tokens instead of 64"}


@pytest.mark.parametrize("answer", [{}, [], {"timings": []}, {"timings": {"prompt_n": "many"}}, 7])
def test_an_answer_that_tells_nothing(answer: Any) -> None:
    assert excluded(climbed(Cache(), completion=page(answer))) == {
        "the server does not report how many tokens it read and generated"
    }


@pytest.mark.parametrize(
    ("path", "there", "says"),
    [
        ("tokenize", page({"tokens": 7}), "does not return the tokens of a text"),
        ("tokenize", page({"tokens": [1]}), "does not return the tokens of a text"),
        ("tokenize", page("oh", "500 Oh"), "cannot be counted: the server returns 500"),
        ("completion", page({"error": {"message": "too long"}}, "400 Bad"), "at a depth of 512 tokens: .*too long"),
    ],
)
def test_a_server_that_cannot_is_a_sentence(path: str, there: Reply, says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        climbed(Cache(), **{path: there})
    assert error.value.help


def test_rungs_beyond_the_context_are_left_out() -> None:
    assert fit_ladder(LADDER, None) == (LADDER, None)
    assert fit_ladder(LADDER, 2048 + 192) == (LADDER, None)
    fits, told = fit_ladder(LADDER, 2048 + 191)
    assert (fits.depths, fits.context) == ((512, 1024), 1024 + 192)
    assert told == "a slot of the server has room for 2,239 tokens: 2,048 deep is left out"
    nothing, told = fit_ladder(LADDER, 600)
    assert (nothing.depths, nothing.conditions, nothing.context) == ((), (), 0)


def test_prompts_begin_as_none_before() -> None:
    def begun(session: str) -> Sequence[int]:
        cache = Cache()
        with Site(cache.pages()) as site:
            next(LADDER.runs(road(site, session)))
        first: list[int] = cache.asked[0]["prompt"]
        return first

    assert begun("one")[:8] != begun("two")[:8]
    assert begun("one") == begun("one")
