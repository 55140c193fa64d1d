"""Two servers compared in blocks, each a unit of its own: the declared one is stopped meanwhile, and comes back."""

from __future__ import annotations

import signal
import time

import pytest

from tests.box.bench import HERD, Bench, Ended

ASKED = ("compare", "--run", "box/chat", "--with", "context=512", "--cells", "prefill", "--budget", "30s", "--yes")
UNITS = "systemctl list-units --all --plain --no-legend 'llamaherd-arm*'"


def file_of(bench: Bench) -> str:
    """The declared unit's file, to the nanosecond."""
    return bench.sh("stat -c '%i %y %z' /etc/systemd/system/llama-chat.service; ls /etc/systemd/system/")


def nothing_left(bench: Bench) -> None:
    assert bench.sh(UNITS) == ""
    assert bench.sh("ls -d /run/systemd/system/llamaherd-arm* /run/llamaherd/arms 2>/dev/null", check=False) == ""
    assert bench.sh("pgrep -fc 'port 609[0-9][0-9]'", check=False) == "0"


def serves_again(bench: Bench) -> None:
    until = time.monotonic() + 300
    while bench.sh("systemctl is-active llama-chat", check=False) != "active":
        assert time.monotonic() < until, bench.sh("systemctl status llama-chat llamaherd-arms", check=False)
        time.sleep(0.3)
    assert bench.answers("chat")


def in_the_middle(bench: Bench, by: signal.Signals, what: str) -> Ended:
    """A comparison that is ended by a signal once its first block has been measured, and the second has begun."""

    def measured(line: str) -> bool:
        if not line.startswith("block 1,"):
            return False
        until = time.monotonic() + 300
        while not bench.sh(f"{UNITS} | grep 'arm-.* running'", check=False) and time.monotonic() < until:
            time.sleep(0.2)
        # Failed, where it took longer to end than it may.
        assert bench.sh("systemctl is-active llama-chat", check=False) in ("inactive", "failed")
        if what == "script":
            pid = bench.sh("sed -n 's/process \\([0-9]*\\) .*/\\1/p' /run/llamaherd/locks/host")
            bench.sh(f"kill -9 {pid}")
            time.sleep(2)
        return True

    return bench.killed(by, measured, [HERD, *ASKED[:-2], "10m", "--yes"])


def test_it_ends_with_what_is_known_and_the_server_serves_again(bench: Bench) -> None:
    before, others = file_of(bench), bench.running()
    ended = bench.herd(*ASKED)
    assert ended.code == 0, ended.output
    assert "long, 256 in" in ended.output
    assert "B vs A" in ended.output
    assert "llama-chat is as before, after" in ended.output
    assert file_of(bench) == before
    bench.unchanged(others, "chat")
    assert bench.answers("chat")
    nothing_left(bench)
    assert len(list((bench.folder / "results/box/chat").glob("*.json"))) >= 2
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output


@pytest.mark.parametrize("what", ["herd", pytest.param("script", marks=pytest.mark.rare)])
def test_killed_in_the_middle_it_leaves_nothing(bench: Bench, what: str) -> None:
    before = file_of(bench)
    in_the_middle(bench, signal.SIGKILL, what)
    serves_again(bench)
    nothing_left(bench)
    assert file_of(bench) == before
    going_on = bench.herd(*ASKED)
    assert going_on.code == 0, going_on.output
    assert "resuming the previous measurement" in going_on.output
    assert bench.answers("chat")


def test_what_does_not_start_is_said_and_the_server_serves_again(bench: Bench) -> None:
    ended = bench.herd(*ASKED[:3], "--with", "extra_args=[--chat-template-file, /nowhere]", *ASKED[5:])
    assert ended.code != 0
    assert "Traceback" not in ended.output
    assert bench.answers("chat")
    nothing_left(bench)
