"""A search on a real host: the declared server comes back whatever ends it, and what is found is written and served."""

from __future__ import annotations

import signal
import time
from math import ceil

import yaml

from tests.box.bench import HERD, Bench
from tests.box.coarse import coarse

READINGS = 20
"""Of candidates: a pass through the keys, and the rounds of the end."""
UNITS = "systemctl list-units --all --plain --no-legend 'llamaherd-arm*'"


def declare_a_draft_that_costs(bench: Bench) -> None:
    """A draft as slow as what it drafts for: alone that is twice as fast, whoever else computes.

    `expect` says that so slow will do: else `herd up` would take it back where the server was measured before.
    """
    rig = bench.rig()
    rig["models"]["coarse"] = coarse()
    draft = {"model": "coarse", "max": 4}
    rig["instances"]["chat"] |= {"context": 512, "kv": "f16", "draft": draft, "expect": {"decode": 0.1}}
    bench.declare(rig)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output


def search(seconds: float) -> tuple[str, ...]:
    """What `herd` is told, with time for a search in which a candidate takes so long."""
    minutes = max(6, ceil(READINGS * seconds / 60))
    return ("tune", "box/chat", "--for", "decode", "--budget", f"{minutes}m", "--yes")


def serves_again(bench: Bench) -> None:
    until = time.monotonic() + 300
    while bench.sh("systemctl is-active llama-chat", check=False) != "active":
        assert time.monotonic() < until, bench.sh("systemctl status llama-chat llamaherd-arms", check=False)
        time.sleep(0.3)
    assert bench.answers("chat")
    assert bench.sh(UNITS) == ""
    assert bench.sh("ls -d /run/systemd/system/llamaherd-arm* /run/llamaherd/arms 2>/dev/null", check=False) == ""


def test_killed_and_gone_on_with_it_finds_what_is_faster(bench: Bench) -> None:
    declare_a_draft_that_costs(bench)
    before = bench.sh("stat -c '%i %y %z' /etc/systemd/system/llama-chat.service")
    first_read = bench.killed(signal.SIGKILL, lambda line: line.startswith("  1  "), [HERD, *search(180)])
    serves_again(bench)
    (journal,) = (bench.folder / "results/box/chat").glob("tune-*.jsonl")
    first = journal.read_text()

    ended = bench.herd(*search(first_read.seconds), "--apply")
    assert ended.code == 0, ended.output
    assert "resuming the previous search" in ended.output
    assert "llama-chat is as before, after" in ended.output
    assert journal.read_text().startswith(first)
    assert "\n  1  " not in ended.output
    serves_again(bench)
    assert bench.sh("stat -c '%i %y %z' /etc/systemd/system/llama-chat.service") == before

    declared = yaml.safe_load(bench.inventory.read_text())["instances"]["chat"]
    assert not declared.get("draft"), ended.output
    changed = bench.herd("plan", "box", "-v")
    assert changed.code == 2, changed.output
    assert "restart server llama-chat" in changed.output
    assert bench.up("--yes").code == 0
    assert bench.answers("chat")


def test_the_same_search_again_answers_at_once(bench: Bench) -> None:
    declare_a_draft_that_costs(bench)
    started = bench.sh("systemctl show -P InvocationID llama-chat")
    again = bench.herd(*search(0), "--json")
    assert again.code == 0, again.output
    assert "the result of" in again.output
    assert "draft: null" in again.output
    assert bench.sh("systemctl show -P InvocationID llama-chat") == started
