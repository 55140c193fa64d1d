"""A gate: what serves and what is declared are measured on their host, and what is too slow does not take its place."""

from __future__ import annotations

import pytest

from tests.box.bench import Bench
from tests.box.throttle import throttled

GATE = {"prefill": "-30%", "budget": "15m"}

CONTEXT = 256
"""Half of it is the prompt that is measured: a short one takes less than its server's start, on any machine."""


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
    # A slower engine cannot be had in a moment.
    with throttled(bench, "llamaherd-arm-b-chat", on=0.03, off=0.07):
        ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "both are measured, for 15 min 00 s at most" in ended.output
    assert "chat serves as before, and not as declared: it is slower than the running server: reading -" in ended.output
    assert "and -30.0% may be lost" in ended.output
    assert bench.answers("chat")
    bench.unchanged(before, "chat")
    assert "LLAMAHERD_TRIED" not in bench.sh("cat /etc/systemd/system/llama-chat.service")
    nothing_left(bench)
    # The host remembers, whoever asks; and nothing is measured once more.
    again = bench.herd("plan", "box")
    assert "it is slower than the running server: reading -" in again.output, again.output
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
    shown = bench.herd("plan", "box")
    assert "and for up to 15 min 00 s while its gate measures both versions" in shown.output, shown.output
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert "block 1" in ended.output
    assert ": held" in ended.output or ": not known yet" in ended.output
    assert bench.answers("chat")
    assert "LLAMAHERD_TRIED=equal" in bench.sh("cat /etc/systemd/system/llama-chat.service")
    nothing_left(bench)
    assert bench.up("--yes").changes == 0
