"""The quick measurement, played through with runs of a known speed: what comes next, and when it is enough."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from llamaherd.measure.bench.job import ServerProfile
from llamaherd.measure.bench.series import (
    FEWEST_RUNS,
    MOST_RUNS,
    PROMPTS,
    TOKENS,
    Quick,
    fit_lengths,
    is_narrow,
    judged_metrics,
    lengths_of,
    quick_series,
)
from llamaherd.measure.client.requests import KINDS, RequestSpec, SeriesProgress, Step, cache_buster, suite
from llamaherd.measure.results.comparison_table import measurement_outcome
from llamaherd.measure.results.metrics import DECODE, PREFILL
from llamaherd.measure.results.result import Cell, Condition, Run, Start
from tests.bench.made import result, run
from tests.support.sample import drawn

PAIRS = drawn(range(20))
"""Seeds of pairs of measurements: at most one pair of the twenty is not as it is."""
WHOLE = Quick(suite().prompts, "a long text", "seed", 180.0)


class Played:
    """A server whose runs all take a second, and whose speed has this spread."""

    def __init__(
        self,
        series: Quick,
        spread: float,
        seconds: float = 180.0,
        excluded: str | None = None,
        speed: float = 1.0,
        seed: int = 7,
    ) -> None:
        self.series, self.spread, self.left, self.excluded, self.speed = series, spread, seconds, excluded, speed
        self.cells = [Cell(condition=each) for each in series.conditions]
        self.random = random.Random(seed)
        self.order: list[int] = []
        self.requests: list[RequestSpec] = []

    @property
    def so_far(self) -> SeriesProgress:
        return SeriesProgress(tuple(self.cells), self.left, len(self.order))

    def play(self, steps: int = 1000) -> Played:
        for _ in range(steps):
            if (step := self.series.next_step(self.so_far)) is None:
                break
            self.take(step)
        return self

    def take(self, step: Step) -> None:
        self.order.append(next(request.cell for request in step.requests if request.cell is not None))
        for request in step.requests:
            self.requests.append(request)
            if request.cell is None:
                continue
            self.left -= 1.0
            speed = self.speed * self.random.gauss(1.0, self.spread)
            made = run(100.0 * speed, total_ms=1000.0, first_token_ms=500 / speed, excluded=self.excluded)
            made = made.model_copy(update={"prompt_n": 2048, "prompt_ms": 500 / speed, "at": float(len(self.requests))})
            cell = self.cells[request.cell]
            self.cells[request.cell] = cell.model_copy(update={"runs": (*cell.runs, made)})


def test_a_steady_server_is_known_after_the_fewest_runs() -> None:
    played = Played(WHOLE, 0.0005).play()
    assert [len(cell.runs) for cell in played.cells] == [FEWEST_RUNS] * (len(KINDS) + 2)


def test_one_that_is_not_is_asked_more_often_but_not_for_ever() -> None:
    played = Played(WHOLE, 0.2, seconds=1e6).play()
    assert [len(cell.runs) for cell in played.cells] == [MOST_RUNS] * len(played.cells)


def test_conditions_take_turns_by_lot() -> None:
    """Nothing that drifts is in one of them alone; and it is another order with another seed."""
    order = Played(WHOLE, 0.0005).play().order
    cells = len(KINDS) + 1
    rounds = [order[at : at + cells] for at in range(0, len(order), cells)]
    assert [sorted(each) for each in rounds] == [list(range(cells))] * FEWEST_RUNS
    assert len({tuple(each) for each in rounds}) > 1
    assert Played(replace(WHOLE, seed="another"), 0.0005).play().order != order
    assert Played(WHOLE, 0.0005).play().order == order


def test_it_ends_when_the_time_is_over() -> None:
    played = Played(WHOLE, 0.2, seconds=10.5).play()
    assert 0 <= played.left < 2
    assert sum(len(cell.runs) for cell in played.cells) == 10


def test_what_never_counts_is_not_asked_for_ever() -> None:
    played = Played(WHOLE, 0.0, seconds=1e6, excluded="it ended after 3 of 256 tokens").play()
    assert [len(cell.runs) for cell in played.cells] == [MOST_RUNS] * len(played.cells)


def test_cut_off_it_goes_on_where_it_was() -> None:
    whole, cut = Played(WHOLE, 0.0005).play(), Played(WHOLE, 0.0005).play(7)
    assert cut.order == whole.order[:7]
    assert cut.play().order == whole.order


def test_cold_and_warm_are_of_one_prompt_and_no_other() -> None:
    requests = Played(WHOLE, 0.01).play().requests
    long = [request for request in requests if request.text == "a long text"]
    assert [(request.cell, request.reuse) for request in long] == [(5, False), (6, True)] * (len(long) // 2)
    requests = [request for request in requests if request.cell is not None]
    salts = Counter(request.salt for request in requests)
    assert {salts[request.salt] for request in long} == {2}
    assert {salts[request.salt] for request in requests if request.cell in range(5)} == {1}
    begins = {cache_buster("one", request.salt or 0) for request in requests}
    assert len(begins) == len(salts)


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_what_a_server_saves_before_a_cold_long_prompt_is_always_the_same(slots: int) -> None:
    """llama.cpp saves the last prompt of a slot, at the cost of the next first token. It takes the slot that rests."""
    held, saved = dict.fromkeys(range(slots), ""), set[str]()
    for request in Played(WHOLE, 0.01).play().requests:
        slot = request.more.get("id_slot", next(iter(held)))
        before = held.pop(slot)
        held[slot] = request.text
        if request.cell == 5:
            saved.add(before)
        elif request.cell == 6:
            assert before == request.text
    assert len(saved) == 1
    assert 0 < len(saved.pop()) < 20


def test_share_done_only_grows() -> None:
    played, before = Played(WHOLE, 0.05), 0.0
    while step := WHOLE.next_step(played.so_far):
        share = WHOLE.share_done(played.so_far)
        assert before - 1e-9 <= share <= 1
        before = share
        played.take(step)


@pytest.mark.parametrize(
    ("seconds", "decode", "prefill", "context", "lengths"),
    [
        (150, 100.0, 2000.0, 32768, (256, 2048)),
        (150, 5.0, 30.0, 32768, (32, 256)),
        (150, 20.0, 120.0, 32768, (64, 1024)),
        (150, 100.0, 2000.0, 2048, (256, 1024)),
        (150, None, None, 300, (256, 256)),
    ],
)
def test_slow_servers_are_asked_for_less(
    seconds: float, decode: float | None, prefill: float | None, context: int, lengths: tuple[int, int]
) -> None:
    assert fit_lengths(seconds, decode, prefill, context) == lengths


def test_what_was_cut_off_keeps_its_lengths() -> None:
    before = replace(WHOLE, tokens=TOKENS[2], prompt=PROMPTS[3]).conditions
    begun = ServerProfile(150.0, "seed", 32768, 200.0, 9000.0, lambda tokens: "x" * tokens, before)
    assert quick_series(begun).conditions == before
    assert quick_series(replace(begun, last=WHOLE.conditions)).conditions == before
    assert quick_series(replace(begun, before=())).tokens == TOKENS[0]


def known(decode: float | None, last: tuple[int, int], prefill: float = 9000.0, context: int = 32768) -> ServerProfile:
    """A server about so fast, last measured in these lengths, and three minutes for it."""
    conditions = replace(WHOLE, tokens=last[0], prompt=last[1]).conditions
    return ServerProfile(180.0, "seed", context, decode, prefill, lambda tokens: "x" * tokens, last=conditions)


def lengths(found: Quick) -> tuple[int, int]:
    return found.tokens, found.prompt


def test_a_speed_between_two_lengths_is_asked_for_one_of_them_each_time() -> None:
    """By what it was asked for first, 3 % more or less speed changes nothing."""
    edge = next(speed for speed in range(10, 100) if fit_lengths(180.0, float(speed), 9000.0, 32768)[0] == TOKENS[0])
    speeds = (edge * 0.97, edge * 1.03)
    assert {fit_lengths(180.0, speed, 9000.0, 32768)[0] for speed in speeds} == {TOKENS[0], TOKENS[1]}
    for tokens in TOKENS[:2]:
        assert {quick_series(known(speed, (tokens, 2048))).tokens for speed in speeds} == {tokens}


@pytest.mark.parametrize(
    ("decode", "last", "context", "asked"),
    [
        (40.0, (256, 2048), 32768, (256, 2048)),
        (26.0, (256, 2048), 32768, (256, 2048)),  # A third slower: it is to be told so.
        (15.0, (256, 2048), 32768, (64, 2048)),  # No three answers of each kind would fit.
        (80.0, (128, 2048), 32768, (128, 2048)),
        (80.0, (32, 256), 32768, (256, 2048)),  # Short ones, of a look of some seconds: they are not kept for ever.
        (80.0, (256, 2048), 2048, (256, 1024)),
        (None, (128, 1024), 32768, (128, 1024)),
    ],
)
def test_the_last_lengths_are_kept_where_they_will_do(
    decode: float | None, last: tuple[int, int], context: int, asked: tuple[int, int]
) -> None:
    assert lengths(quick_series(known(decode, last, context=context))) == asked


def test_lengths_of_series_beside_it_are_none_of_its_own() -> None:
    conditions = [
        Condition(kind="code", generated=128, concurrency=4),
        Condition(kind="prose", generated=768),
        Condition(kind="long", prompt=512, cache="warm", power_limit_watts=200),
    ]
    assert lengths_of(conditions) == (None, None)
    assert lengths_of([*conditions, *WHOLE.conditions]) == (256, 2048)


def test_with_drafts_the_step_must_be_known_and_not_the_text() -> None:
    """Speed goes with what is accepted; the time of a step does not."""
    runs = [
        Run(predicted_n=257, predicted_ms=10.0 * (256 - taken), draft_n=200, draft_n_accepted=taken)
        for taken in (60, 120, 180)
    ]
    cell = Cell(condition=Condition(kind="code", generated=256), runs=tuple(runs))
    assert is_narrow(cell)
    bare = tuple(each.model_copy(update={"draft_n": None, "draft_n_accepted": None}) for each in runs)
    assert not is_narrow(cell.model_copy(update={"runs": bare}))


def spread(*rates: float) -> Cell:
    """A cell with a run of each of these speeds."""
    return Cell(condition=Condition(kind="code", generated=256, cache="cold"), runs=tuple(map(run, rates)))


def test_three_runs_that_lie_close_together_by_luck_are_not_enough() -> None:
    lucky, others = spread(100.0, 100.01, 99.99), [spread(100.0, 101.5, 99.0), spread(98.5, 100.0, 101.0)]
    assert is_narrow(lucky)
    assert is_narrow(lucky, [lucky, lucky])
    assert not is_narrow(lucky, [lucky, *others])


def test_where_the_machine_wanders_it_goes_on() -> None:
    steady = spread(100.0, 100.01, 99.99)
    assert is_narrow(steady, drift=0.002)
    assert not is_narrow(steady, drift=0.003)


def test_what_was_cached_tells_no_speed_of_reading() -> None:
    """Of a warm prompt one token is read: that is the time to the first token, by another name."""
    assert PREFILL.of(Run(prompt_n=1, prompt_ms=70.0, cache_n=2064)) is None
    assert PREFILL.of(Run(prompt_n=2065, prompt_ms=1800.0)) is not None
    short = PREFILL.of(Run(prompt_n=1, prompt_ms=70.0, cache_n=0))
    assert short, "what other programs measure of a prompt that is so short is one"


def test_each_condition_is_there_for_something() -> None:
    assert [[metric.name for metric in judged_metrics(each)] for each in WHOLE.conditions] == [
        *[["decode", "step"]] * 5,
        ["prefill", "first token"],
        ["first token"],
    ]


def verdicts(spread: float, speed: float, pair: int, seconds: float = WHOLE.seconds) -> set[str]:
    """What is said of decode in the second of two measurements of one process, whose speed is this share."""
    made = []
    for number, share in enumerate((1.0, speed)):
        series = replace(WHOLE, seed=f"{pair} {number}", seconds=seconds)
        played = Played(series, spread, seconds, speed=share, seed=2 * pair + number).play()
        made.append(result(starts=(Start(process="77@5"),)).model_copy(update={"cells": tuple(played.cells)}))
    values = measurement_outcome(made[1], None, made[0]).values
    return {value.judgement.verdict for value in values if value.judgement and value.metric is DECODE}


@pytest.mark.parametrize("spread", [0.003, 0.005, 0.01])
@pytest.mark.parametrize(("speed", "said"), [(1.0, "same"), (0.995, "same"), (0.95, "slower")])
def test_two_measurements_of_one_server(spread: float, speed: float, said: str) -> None:
    """Pairs of five kinds of text each: all as they are. What drifts by half a percent counts as unchanged."""
    as_they_are = [verdicts(spread, speed, pair) == {said} for pair in PAIRS]
    assert sum(as_they_are) >= len(PAIRS) - 1


def test_a_noisy_server_is_hardly_ever_said_to_be_slower() -> None:
    """A spread of 2 %, which is the margin: much is not known then, unless there is more time."""
    said = [verdicts(0.02, 1.0, pair) for pair in PAIRS]
    assert not any("slower" in each for each in said)
    ten = {pair // 2 for pair in PAIRS}
    assert all("slower" in verdicts(0.02, 0.95, pair) for pair in ten)
    assert sum(verdicts(0.02, 1.0, pair, seconds=600) == {"same"} for pair in ten) >= len(ten) - 1
