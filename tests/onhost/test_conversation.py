"""Verbs that the controller talks to: their empty lines, and signals that end them."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from llamaherd.onhost.reservation import exit_by_signals, heartbeat
from tests.support.played_host import PlayedHost


class Heard(PlayedHost):
    """A host whose lines a test waits for."""

    beats: threading.Event

    def report(self, line: str) -> None:
        """Note a line."""
        super().report(line)
        self.beats.set()


pytestmark = pytest.mark.usefixtures("starts_processes")  # threads that wait


def test_an_empty_line_now_and_then() -> None:
    host = Heard({})
    host.beats = threading.Event()
    with heartbeat(host, 0.01):
        assert host.beats.wait(10)
    count = len(host.log)
    assert set(host.log) == {""}
    host.beats.clear()
    assert not host.beats.wait(0.05)
    assert len(host.log) == count


def test_none_where_it_does_not_last() -> None:
    host = PlayedHost({})
    with heartbeat(host):
        pass
    assert host.log == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_what_it_restores(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    restored: list[int] = []

    def interrupted() -> None:
        with exit_by_signals():
            try:
                os.kill(os.getpid(), number)
                time.sleep(5)
            finally:
                restored.append(number)

    with pytest.raises(SystemExit):
        interrupted()
    assert restored == [number]
    assert signal.getsignal(number) == before
