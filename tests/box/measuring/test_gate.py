"""A gate: what serves and what is declared are measured on their host, and what is too slow does not take its place."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.box.bench import Bench

pytestmark = pytest.mark.box

GATE = {"prefill": "-30%", "budget": "5m"}

CONTEXT = 256
"""Half of it is the prompt that is measured: a short one takes less than its server's start, on any machine."""

HALF = """
while sleep 0.05; do
    pid=$(systemctl show -P MainPID llamaherd-arm-b-chat)
    [ "$pid" -gt 0 ] || continue
    kill -STOP $pid; sleep 0.1; kill -CONT $pid
done 2>/dev/null
"""
"""Lets whatever is measured as B compute for a third of the time: a slower engine cannot be had in a moment."""


@contextmanager
def slower(bench: Bench) -> Iterator[None]:
    bench.sh(f"systemd-run -q --unit=slower sh -c {shlex.quote(HALF.replace('$', '$$'))}")
    try:
        yield
    finally:
        bench.sh("systemctl stop slower; systemctl kill -s CONT llamaherd-arm-b-chat", check=False)


@pytest.fixture
def small(bench: Bench) -> Bench:
    """The rig whose server is measured in no time."""
    declare(bench)
    assert bench.up("--yes", "--retry").code == 0
    return bench


def declare(bench: Bench, **chat: object) -> None:
    rig = bench.rig()
    rig["instances"]["chat"] |= {"gate": GATE, "context": CONTEXT, **chat}
    bench.declare(rig)


def nothing_left(bench: Bench) -> None:
    assert bench.sh("systemctl list-units --all --plain --no-legend 'llamaherd-arm*'") == ""
    assert bench.sh("ls /run/systemd/system | grep arm", check=False) == ""


def test_what_is_slower_does_not_take_its_place(small: Bench) -> None:
    bench = small
    before = bench.running()
    declare(bench, environment={"LLAMAHERD_TRIED": "slower"})
    with slower(bench):
        ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "both are measured for 5 min 00 s at most" in ended.output
    assert "chat serves as before, and not as declared: it is slower than what serves: reading -" in ended.output
    assert "and -30.0% may be lost" in ended.output
    assert bench.answers("chat")
    bench.unchanged(before, "chat")
    assert "LLAMAHERD_TRIED" not in bench.sh("cat /etc/systemd/system/llama-chat.service")
    nothing_left(bench)
    # The host remembers, whoever asks; and nothing is measured once more.
    again = bench.herd("diff", "box")
    assert "it is slower than what serves: reading -" in again.output, again.output
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "block 1" not in ended.output
    # Who knows better has it so.
    ended = bench.up("--yes", "--retry")
    assert ended.code == 0, ended.output
    assert "LLAMAHERD_TRIED" in bench.sh("cat /etc/systemd/system/llama-chat.service")


def test_what_is_as_fast_takes_its_place(small: Bench) -> None:
    bench = small
    declare(bench, environment={"LLAMAHERD_TRIED": "equal"})
    shown = bench.herd("diff", "box")
    assert "before that for 5 min 00 s at most, while its gate measures both" in shown.output, shown.output
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert "block 1" in ended.output
    assert ": held" in ended.output or ": not known yet" in ended.output
    assert bench.answers("chat")
    assert "LLAMAHERD_TRIED=equal" in bench.sh("cat /etc/systemd/system/llama-chat.service")
    nothing_left(bench)
    assert bench.up("--yes").changes == 0
