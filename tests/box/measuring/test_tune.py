"""A search on a real host: the declared server comes back whatever ends it, and what is found is written and served."""

from __future__ import annotations

import signal
import time

import pytest
import yaml

from tests.box.bench import HERD, Bench

pytestmark = pytest.mark.box

SEARCH = ("tune", "box", "chat", "--for", "decode", "--budget", "6m", "--yes")
UNITS = "systemctl list-units --all --plain --no-legend 'llamaherd-arm*'"


def declare_too_many_threads(bench: Bench) -> None:
    """Two threads on one processor wait for each other by spinning: one alone is faster."""
    rig = bench.rig()
    chat = rig["instances"]["chat"]
    chat |= {"threads": 2, "cpus": "0", "context": 512, "kv": "f16"}
    chat["extra_args"] += ["--poll", "100"]
    bench.declare(rig)
    assert bench.up("--yes").code == 0


def serves_again(bench: Bench, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while bench.sh("systemctl is-active llama-chat", check=False) != "active":
        assert time.monotonic() < until, bench.sh("systemctl status llama-chat llamaherd-arms", check=False)
        time.sleep(0.3)
    assert bench.answers("chat")
    assert bench.sh(UNITS) == ""
    assert bench.sh("ls -d /run/systemd/system/llamaherd-arm* /run/llamaherd/arms 2>/dev/null", check=False) == ""


def test_killed_and_gone_on_with_it_finds_what_is_faster(bench: Bench) -> None:
    declare_too_many_threads(bench)
    before = bench.sh("stat -c '%i %y %z' /etc/systemd/system/llama-chat.service")
    bench.killed(signal.SIGKILL, lambda line: line.startswith("  1  "), [HERD, *SEARCH])
    serves_again(bench)
    (journal,) = (bench.folder / "results/box/chat").glob("tune-*.jsonl")
    first = journal.read_text()

    ended = bench.herd(*SEARCH, "--apply")
    assert ended.code == 0, ended.output
    assert "going on with what was measured before" in ended.output
    assert "llama-chat is as before, after" in ended.output
    assert journal.read_text().startswith(first)
    assert "\n  1  " not in ended.output
    serves_again(bench)
    assert bench.sh("stat -c '%i %y %z' /etc/systemd/system/llama-chat.service") == before

    declared = yaml.safe_load(bench.inventory.read_text())["instances"]["chat"]
    assert declared["threads"] == 1, ended.output
    changed = bench.herd("diff", "box")
    assert changed.code == 2, changed.output
    assert "restart server llama-chat" in changed.output
    assert bench.up("--yes").code == 0
    assert bench.answers("chat")


def test_the_same_search_again_answers_at_once(bench: Bench) -> None:
    declare_too_many_threads(bench)
    started = bench.sh("systemctl show -P InvocationID llama-chat")
    again = bench.herd(*SEARCH, "--json")
    assert again.code == 0, again.output
    assert "known from" in again.output
    assert '"threads: 1' in again.output
    assert bench.sh("systemctl show -P InvocationID llama-chat") == started
