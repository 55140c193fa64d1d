"""A change that makes a server slower than its model was here is taken back, unless `expect` says it will do."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator

import pytest

from tests.box.bench import Bench, Declared
from tests.box.throttle import throttled

SPEEDS = "/var/lib/llamaherd/kept/llama-chat/last/speeds"

TENTH = {"on": 0.01, "off": 0.09}
"""Seconds: a server computes for a tenth of the time."""


@pytest.fixture(autouse=True)
def alone(bench: Bench) -> Iterator[None]:
    """What is measured while others compute does not count: whoever else is at work on this machine is hidden."""
    bench.sh("cat /proc/stat >/run/stat && mount --bind /run/stat /proc/stat")
    yield
    bench.sh("umount /proc/stat")


def declare(bench: Bench, **chat: object) -> Declared:
    rig = bench.rig()
    rig["instances"]["chat"] |= chat
    bench.declare(rig)
    return rig


def settled(bench: Bench, **chat: object) -> None:
    """As declared, however fast it is by then: on a busy machine it may seem slower, for the moment."""
    declare(bench, **chat)
    ended = bench.up("--yes", "--retry")
    assert ended.code == 0, ended.output
    assert bench.answers("chat")


def well(bench: Bench, **chat: object) -> None:
    """As declared in the end: those who are hidden make it slow now and then, and nothing is refused for that."""
    declare(bench, **chat)
    for _ in range(4):
        if (ended := bench.up("--yes")).code == 0:
            break
        assert "decodes no faster now" in ended.output, ended.output
    assert ended.code == 0, ended.output
    assert bench.answers("chat")


def speeds(bench: Bench) -> list[float]:
    """What the host knows, the newest last."""
    return [each["rate"] for each in json.loads(bench.sh(f"cat {SPEEDS}"))]


@pytest.mark.parametrize("way_out", ["expect", pytest.param("retry", marks=pytest.mark.rare)])
def test_one_that_is_slower_than_before(bench: Bench, way_out: str) -> None:
    bench.restore()
    settled(bench, context=2048)
    settled(bench)
    known = speeds(bench)
    with throttled(bench, "llama-chat", "--ctx-size 4096", **TENTH):
        slower(bench, known, way_out)


def slower(bench: Bench, known: list[float], way_out: str) -> None:
    before = bench.running()
    declare(bench, context=4096)
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    said = re.search(
        r"it decodes ([0-9.]+) tokens/s, and the same model decoded ([0-9.]+) here before: "
        r"`expect: \{decode: ([0-9.]+)\}` or `herd up --retry` has it so",
        ended.output,
    )
    assert said, ended.output
    slow, usual, will_do = map(float, said.groups())
    assert slow < 0.7 * usual
    assert usual == round(statistics.median_low(known), 1)
    assert "llama-chat serves again as before, spec " in ended.output
    assert bench.answers("chat")
    assert speeds(bench) == known
    bench.unchanged(before, "chat")
    # Nor is it tried again by itself.
    again = bench.up("--yes")
    assert again.code == 1
    assert "what is declared was tried on 20" in again.output
    assert "here before" in again.output
    # The ways out that it names are some, and what is known begins anew: so neither need be said for ever.
    if way_out == "expect":
        well(bench, context=4096, expect={"decode": will_do})
    else:
        ended = bench.up("--yes", "--retry")
        assert ended.code == 0, ended.output
    assert len(speeds(bench)) == 1
    well(bench, context=4096)


def test_a_host_that_has_become_slow_is_no_fault_of_a_change(bench: Bench) -> None:
    """What served before is asked how fast it is now; and from then on, that is what counts."""
    bench.restore()
    settled(bench, context=2048)
    before = bench.running()
    with throttled(bench, "llama-chat", "--ctx-size", **TENTH):
        declare(bench, context=4096)
        ended = bench.up("--yes")
        assert ended.code == 1, ended.output
        assert "here before: `expect: {decode: " in ended.output
        assert "the previous version decodes no faster now: `herd up` tries the declared version again" in ended.output
        bench.unchanged(before, "chat")
        well(bench, context=4096)
    well(bench)
