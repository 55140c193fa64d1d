"""Several sources of one file: who is asked, and what becomes of one that fails, dies or lies."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.onhost.fetch.transfer import LaterError, Supplier
from tests.support.fetching import BLOCK, HASTY, REPO, STEADY, Host, source, wanted
from tests.support.hub_server import Hub, gone

FILE = "model.gguf"
WHOLE = random.Random(1).randbytes(2 * BLOCK + 12345)
SMALL = WHOLE[:300_000]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({REPO: {FILE: WHOLE}}) as hub:
        yield hub


def test_the_second_source_has_what_the_first_one_lacks(host: Host, hub: Hub) -> None:
    with Hub({REPO: {"other": b""}}) as first:
        sources = [source(first, FILE, "six"), source(hub, FILE)]
        assert host.fetch(wanted(FILE, WHOLE, sources)) == []
    assert host.arrived(WHOLE)
    assert hub.sent == len(WHOLE)


def test_a_source_that_is_down_does_not_hold_up_the_next(host: Host, hub: Hub) -> None:
    with gone({REPO: {FILE: WHOLE}}) as first:
        file = wanted(FILE, WHOLE, [source(first, FILE, "six"), source(hub, FILE)])
        # Patience that no test would survive.
        assert host.fetch(file, limits=replace(STEADY, patience=1e9)) == []
    assert host.arrived(WHOLE)


def test_a_source_that_dies_half_way_is_replaced(host: Host, hub: Hub) -> None:
    with Hub({REPO: {FILE: WHOLE}}) as first:
        first.truncate_after = BLOCK // 16
        first.on_request = lambda _: setattr(first, "close_at_once", len(first.requests) > 6)
        assert host.fetch(wanted(FILE, WHOLE, [source(first, FILE, "six"), source(hub, FILE)])) == []
        assert host.arrived(WHOLE)
        assert first.sent > 0
        assert first.sent + hub.sent == len(WHOLE)


def test_a_source_that_lies_is_replaced(host: Host, hub: Hub) -> None:
    with Hub({REPO: {FILE: WHOLE}}) as first:
        first.corrupt.add(FILE)
        assert host.fetch(wanted(FILE, WHOLE, [source(first, FILE, "six"), source(hub, FILE)])) == []
    assert host.arrived(WHOLE)
    assert hub.sent == len(WHOLE)


def test_one_of_two_lies_and_it_is_not_known_which(host: Host, hub: Hub) -> None:
    with Hub({REPO: {FILE: WHOLE}}) as first:
        first.corrupt.add(FILE)
        first.truncate_after = BLOCK // 16
        first.on_request = lambda _: setattr(first, "close_at_once", 6 < len(first.requests) < 30)
        assert host.fetch(wanted(FILE, WHOLE, [source(first, FILE, "six"), source(hub, FILE)])) == []
    assert host.arrived(WHOLE)


def test_every_reason_is_named_and_other_files_still_come(host: Host, hub: Hub) -> None:
    hub.push(REPO, {FILE: WHOLE, "gated.gguf": SMALL})
    with Hub({REPO: {"other": b""}}) as first:
        hub.status["gated.gguf"] = 403
        lost = wanted("gated.gguf", SMALL, [source(first, FILE, "six"), source(hub, "gated.gguf")])
        (said,) = host.fetch(lost, wanted(FILE, WHOLE, [source(hub, FILE)]))
    assert said.startswith(
        f"tiny: gated.gguf cannot be fetched: six has no such file in this revision of {REPO} (404);"
        f" hub requires a token for {REPO} (403)\n"
    )
    assert host.arrived(WHOLE)


def test_a_source_that_stumbles_for_long_is_not_waited_for() -> None:
    """Seconds of it: then the next one is asked, and it is only looked at now and then."""
    supplier = Supplier("six", HASTY)
    supplier.served()
    supplier.failed(time.monotonic(), LaterError("no response in time"))
    assert supplier.is_worth_waiting_for()
    supplier._failing_since -= 10
    assert not supplier.is_worth_waiting_for()
