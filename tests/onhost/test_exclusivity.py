"""The lock of measurements: held until the connection ends, and reported to those that come meanwhile."""

from __future__ import annotations

import time

import pytest

from llamaherd.onhost.exclusivity import HELD, LOCK, ExclusivityInput, hold, measuring
from llamaherd.onhost.system import HeldError
from llamaherd.onhost.verbs import find_verb
from tests.support.played_host import PlayedHost


def test_it_is_held_until_the_connection_ends() -> None:
    host = PlayedHost({})
    held: list[dict[str, str]] = []

    def look() -> str:
        held.append(dict(host.holders))
        return "anything"

    host.from_controller = iter([look, "$(id)"])
    find_verb("llamaherd.exclusivity.hold").run(ExclusivityInput("tom  on\ndesk"), host)
    assert host.log == [HELD]
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(host.clock()))
    assert held == [{LOCK: f"tom on desk since {since}"}]
    assert host.holders == {}


@pytest.mark.parametrize(
    ("holder", "by"), [("ann on lap since 2026-11-28 10:00:00", "ann on lap"), ("", "a run that has just begun")]
)
def test_another_measurement_is_named(holder: str, by: str) -> None:
    host = PlayedHost({}, holders={LOCK: holder})
    with pytest.raises(HeldError, match=f"another measurement goes on here, by {by}") as raised:
        hold(ExclusivityInput("tom"), host)
    assert raised.value.fix == "wait until it has ended"
    assert (host.log, host.holders) == ([], {LOCK: holder})


def test_it_is_free_after_a_failure() -> None:
    host = PlayedHost({})
    with pytest.raises(KeyError), measuring(host, "tom", 5):
        raise KeyError
    assert host.holders == {}
