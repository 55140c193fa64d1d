"""A gate's `kld` on a real host, by the engine's own tool: what says other things does not take a server's place."""

from __future__ import annotations

import json
import re

import pytest

from tests.box.bench import Bench, Ended

GATE = {"kld": 0.02, "budget": "10m"}
CONTEXT = 512
"""Of a request, and so of the pieces that are read: this is about what comes of it, and not about how good Gemma is."""
UNIT = "/etc/systemd/system/llama-chat.service"
LEFT = "ls -d /run/systemd/system/llamaherd-arm* /run/llamaherd/arms* /var/tmp/*llamaherd-arm* 2>/dev/null"
READ = "both read a text"
FIGURE = r"mean KLD (\d\.\d+) ± (\d\.\d+), same top \d+\.\d+ ± \d+\.\d+ %, 8 x 512 tokens, and a mean KLD of 0.02 is"


def declare(bench: Bench, gate: object = GATE, **chat: object) -> None:
    rig = bench.rig()
    rig["instances"]["chat"] |= {"context": CONTEXT, "kv": "f16", **({"gate": gate} if gate else {}), **chat}
    bench.declare(rig)


def figure(ended: Ended) -> float:
    found = re.search(FIGURE, ended.output)
    assert found, ended.output
    assert float(found[2]) < float(found[1])
    return float(found[1])


def nothing_left(bench: Bench) -> None:
    assert bench.sh("systemctl list-units --all --plain --no-legend 'llamaherd-arm*'") == ""
    assert bench.sh(LEFT, check=False) == ""
    assert bench.sh("pgrep -c llama-perplexi", check=False) == "0"


@pytest.fixture
def gated(bench: Bench) -> Bench:
    """The rig with a gate, after one that had none: its engine is built anew, with one program more."""
    declare(bench, None)
    assert bench.up("--yes", "--retry").code == 0
    declare(bench)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert READ not in ended.output, "nothing that it says can be different"
    return bench


def test_what_says_other_things_does_not_take_its_place(gated: Bench) -> None:
    bench = gated
    before, unit = bench.running(), bench.sh(f"cat {UNIT}")
    declare(bench, kv="q4_0")
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert READ in ended.output
    assert 0.03 < figure(ended) < 0.3
    assert (
        "chat serves as before, and not as declared: its output differs from that of the running server: mean KLD"
        in ended.output
    )
    assert bench.answers("chat")
    bench.unchanged(before, "chat")
    assert bench.sh(f"cat {UNIT}") == unit
    nothing_left(bench)
    (kept,) = (bench.folder / "results/box/chat").glob("kld-*.json")
    assert json.loads(kept.read_text())["found"]["quality"]["kld"]["value"] > 0.03
    # The host remembers, whoever asks; and nothing is read once more.
    again = bench.up("--yes")
    assert again.code == 1, again.output
    assert "its output differs from that of the running server: mean KLD" in again.output
    assert READ not in again.output
    # Who knows better has it so.
    ended = bench.up("--yes", "--retry")
    assert ended.code == 0, ended.output
    assert "q4_0" in bench.sh(f"cat {UNIT}")


def test_what_says_nearly_the_same_takes_its_place(gated: Bench) -> None:
    bench = gated
    declare(bench, kv="q8_0")
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert 0.001 < figure(ended) < 0.02
    assert "is the most: held" in ended.output
    assert "q8_0" in bench.sh(f"cat {UNIT}")
    assert bench.answers("chat")
    nothing_left(bench)
    # Threads and batches change nothing that is said.
    declare(bench, kv="q8_0", threads=1, ubatch=64)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert READ not in ended.output
    assert bench.up("--yes").changes == 0


def test_what_cannot_be_judged_is_not_let_in(bench: Bench) -> None:
    declare(bench, None)
    assert bench.up("--yes", "--retry").code == 0
    before = bench.running()
    declare(bench, kv="q4_0")
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "what serves was built without the program that compares" in ended.output
    assert "`herd up` with only `gate` changed" in ended.output
    assert READ not in ended.output
    # Its engine is built anew, and the other one that it serves is switched to that.
    bench.unchanged(before, "drafter")
    assert bench.answers("chat")
