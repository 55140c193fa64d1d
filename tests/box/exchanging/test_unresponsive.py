"""systemd, Docker or D-Bus does not respond for a while in a run: no server is lost, or taken for a stranger."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from threading import Timer

import pytest

from tests.box.bench import Bench, Ended

DOCKERD = "$(systemctl show -P MainPID docker)"
OUTAGES = {
    "systemd re-executes": ("systemctl daemon-reexec", ":"),
    "systemd re-executes again and again": ("for _ in 1 2 3 4; do systemctl daemon-reexec; sleep 0.3; done", ":"),
    "Docker stands still": (f"kill -STOP {DOCKERD}", f"kill -CONT {DOCKERD}"),
    "D-Bus is stopped": ("systemctl stop dbus.socket dbus.service", "systemctl start dbus.socket dbus.service"),
}
"""What begins each, and what ends it."""
UNTRUE = re.compile(
    r"is taken by|stop that program|does not respond|hangs:|docker stop|does not serve|is not healthy|was not healthy"
    r"|there is no such (?:unit|container)|Traceback|restoring the previous|taken back"
)
UNREAD = re.compile(
    r"(?:systemd|Docker)(?: and \w+)? did not respond to the inspection, so what runs there is left as it is"
)


@pytest.fixture(autouse=True)
def _over(converged: Bench) -> Iterator[None]:
    """Nothing stands still after a test."""
    yield
    for _, end in OUTAGES.values():
        converged.sh(end, check=False)


def disturbed(bench: Bench, outage: str, after: float, lasts: float) -> Ended:
    """A run that changes two servers, and what does not respond meanwhile for so long."""
    begin, end = OUTAGES[outage]
    timers = [
        Timer(after, bench.sh, [begin], {"check": False}),
        Timer(after + lasts, bench.sh, [end], {"check": False}),
    ]
    for timer in timers:
        timer.start()
    ended = bench.up("--yes")
    for timer in timers:
        timer.join()
    return ended


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.rare) for seed in range(2, 50))])
def test_no_server_is_lost(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    outage = list(OUTAGES)[seed % len(OUTAGES)]
    after, lasts = chance.uniform(0, 10), chance.uniform(1, 15)
    rig = bench.rig()
    if changes := chance.random() < 0.7:
        rig["instances"]["chat"]["context"] = 1024 + 256 * (seed + 1)
        rig["instances"]["drafter"]["context"] = 1024 + 256 * (seed + 1)
    bench.declare(rig)
    ended = disturbed(bench, outage, after, lasts)
    said = f"seed {seed}: {outage} after {after:.1f} s for {lasts:.1f} s, with changes: {changes}\n{ended.output}"
    assert not UNTRUE.search(ended.output), said
    assert ended.code == 0 or UNREAD.search(ended.output), said
    for name in ("chat", "ik-chat", "drafter"):
        assert bench.answers(name), said
    again = bench.up("--yes")
    assert again.code == 0, f"{said}\n{again.output}"
    last = bench.up("--yes")
    assert (last.code, last.changes) == (0, 0), f"{said}\n{last.output}"


def test_a_docker_that_hangs_is_named_and_nothing_else(bench: Bench) -> None:
    before = bench.running()
    bench.sh(f"kill -STOP {DOCKERD}")
    try:
        for words in (["plan", "box"], ["preflight", "box"], ["up", "--yes"]):
            began = time.monotonic()
            ended = bench.herd(*words)
            assert ended.code == 1, ended.output
            assert "Docker did not respond to the inspection" in ended.output
            assert not UNTRUE.search(ended.output), ended.output
            assert time.monotonic() - began < 45
    finally:
        bench.sh(f"kill -CONT {DOCKERD}")
    bench.unchanged(before)


def test_a_full_disk_is_not_the_fault_of_arguments(bench: Bench) -> None:
    """There is no room in /tmp while they are checked, and while the server is switched."""
    before = bench.running()
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 2304
    bench.declare(rig)
    bench.sh("mount -t tmpfs -o size=64k,mode=1777 full /tmp; head -c 64k /dev/zero >/tmp/full", check=False)
    try:
        ended = bench.up("--yes")
    finally:
        bench.sh("umount -l /tmp")
    assert "does not accept its arguments" not in ended.output
    if ended.code:
        assert "no space left on device" in ended.output.lower()
        assert "df -h" in ended.output
        bench.unchanged(before)
    assert bench.answers("chat")
