"""A server before and after a boot: how often it is started, what is kept of it, and what follows from both.

Servers are played at exact speeds, by a clock that they alone move on.
"""

from __future__ import annotations

import json
from math import log
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.client.http_client import Failure
from llamaherd.measure.client.suite import suite
from llamaherd.measure.trials.blocks import trial_conditions
from llamaherd.measure.trials.gate import gate_cells
from llamaherd.measure.trials.restarts import (
    BETWEEN_BOOTS,
    FEWEST_STARTS,
    MOST_STARTS,
    MOST_TEXT,
    BootReading,
    CellReading,
    ServerReading,
    boot_ratio,
    boot_rows,
    is_conclusive,
    parse_boot_reading,
    read_cells,
)
from llamaherd.plan import GatePlan
from tests.bench.played_arms import Played

GATE = GatePlan(decode=0.03, prefill=0.05, seconds=1200)
ASKED = trial_conditions(gate_cells(GATE), 8192)


def played(seed: int, slower: float, start_error: float = 0.004) -> Played:
    """The same server on another boot, by which it may have become slower."""
    return Played(seed, arm_a=slower, start_error=start_error)


def measured(seed: int, slower: float = 0.0, *, seconds: float = 600, start_error: float = 0.004) -> ServerReading:
    cells = read_cells(played(seed, slower, start_error), ASKED, seconds)
    return ServerReading(instance="chat", spec="a spec", cells=cells)


def verdicts(seed: int, slower: float, start_error: float = 0.004) -> list[str]:
    before = measured(2 * seed, start_error=start_error)
    after = measured(2 * seed + 1, slower, start_error=start_error)
    return [row.verdict for row in boot_rows(before, after.cells, GATE, spent=True)]


def reading() -> BootReading:
    return BootReading(driver="580.105.08", at="2026-11-26T18:00:00Z", suite=suite().ref.sha256, servers=(measured(1),))


def test_it_is_started_as_often_as_its_time_goes() -> None:
    assert {len(each.starts) for each in measured(1).cells} == {MOST_STARTS}
    server = played(1, 0)
    (first, *_) = read_cells(server, ASKED, 1)
    assert (len(first.starts), server.running) == (1, None)
    one = server.now
    assert {len(each.starts) for each in read_cells(played(1, 0), ASKED, 2.5 * one)} == {2}


def test_it_ends_once_enough_is_known_and_not_before_there_is_a_spread() -> None:
    before = measured(1)

    def enough(found: tuple[CellReading, ...]) -> bool:
        return is_conclusive(boot_rows(before, found, GATE), len(before.cells))

    much_slower = read_cells(played(2, 0.5), ASKED, 600, enough)
    assert {len(each.starts) for each in much_slower} == {FEWEST_STARTS}
    at_the_limit = read_cells(played(2, 0.03), ASKED, 600, enough)
    assert {len(each.starts) for each in at_the_limit} == {MOST_STARTS}


def test_one_that_is_slower_beyond_its_limits_is_told_every_time() -> None:
    assert all("slower" in verdicts(seed, 0.08) for seed in range(40))


def test_one_that_is_as_fast_is_never_called_slower() -> None:
    assert not [seed for seed in range(40) if "slower" in verdicts(seed, 0.0)]


def test_starts_that_differ_much_tell_little() -> None:
    assert not [seed for seed in range(10) if "held" in verdicts(seed, 0.04, start_error=0.08)]


def test_an_interval_is_never_narrower_than_two_boots_differ() -> None:
    exact = CellReading(condition=ASKED[0], starts=((100.0, 1.0),) * 3)
    ratio = boot_ratio(exact, exact)
    assert ratio
    assert ratio.low
    assert ratio.value == 1
    assert -log(ratio.low) == pytest.approx(1.96 * BETWEEN_BOOTS * 2**0.5, rel=1e-3)
    assert ratio.assumed == BETWEEN_BOOTS


def test_one_start_on_either_side_tells_nothing_yet() -> None:
    before, after = measured(1, seconds=1), measured(2, 0.3, seconds=1)
    assert {row.verdict for row in boot_rows(before, after.cells, GATE, spent=True)} == {"not known yet"}


def test_what_only_one_side_has_is_not_judged() -> None:
    before = measured(1)
    rows = boot_rows(before, measured(2).cells[:1], GATE)
    assert [row.condition for row in rows] == [ASKED[0]]
    assert boot_rows(before, before.cells, GatePlan(kld=0.02, seconds=1200)) == ()


def test_a_server_that_gives_no_answer_is_stopped() -> None:
    server = played(1, 0)
    server.fails = lambda asked: Failure("unreachable", "it is gone", "look") if asked > 5 else None
    with pytest.raises(UserError, match="gave no answer: it is gone"):
        read_cells(server, ASKED, 600)
    assert server.running is None


def test_what_is_kept_is_read_as_it_was() -> None:
    assert parse_boot_reading(reading().model_dump_json()) == reading()
    assert len(reading().model_dump_json()) < 4000


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": 2},
        {"driver": "5" * 65},
        {"at": "2026-13-01T00:00:00Z"},
        {"suite": "other"},
        {"servers": []},
        {"more": 1},
        {"servers": [{"instance": "../chat", "spec": "s", "cells": []}]},
    ],
    ids=str,
)
def test_anything_else_is_no_reading(wrong: dict[str, Any]) -> None:
    made = json.loads(reading().model_dump_json())
    assert parse_boot_reading(json.dumps(made)) is not None
    assert parse_boot_reading(json.dumps(made | wrong)) is None


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[" * 5000, " " * MOST_TEXT + "{}"], ids=["", "{", "null", "[", "long"]
)
def test_no_text_is_a_reading_by_chance(text: str) -> None:
    assert parse_boot_reading(text) is None


def test_rates_that_cannot_be_are_no_reading() -> None:
    text = reading().model_dump_json()
    made = json.loads(text)
    for wrong in ([0, 1], [1, -1], [1e300, 1], [1], ["1", 1]):
        made["servers"][0]["cells"][0]["starts"][0] = wrong
        assert parse_boot_reading(json.dumps(made)) is None
