"""A newer model is measured beside the one that serves, before it is locked; afterwards all is served as before."""

from __future__ import annotations

import secrets
import signal

from box.cli import TINY_MOE
from tests.box.bench import HERD
from tests.box.supply import FILE, REPO, STORE, Supply

UNIT = "/etc/systemd/system/llama-drafter.service"
TRY = ("lock", "--upgrade", "tiny-moe", "--try", "box", "--yes")


def as_a_unit(supply: Supply) -> None:
    """The drafter's model from the hub, and the drafter a unit, which may lose half of its reading."""
    rig = supply.bench.rig()
    rig["models"]["tiny-moe"] = {"hf": REPO, "files": FILE}
    rig["instances"]["drafter"] |= {"backend": "systemd", "gate": {"prefill": "-50%", "budget": "60s"}}
    supply.bench.declare(rig)


def test_it_is_measured_and_nothing_is_served_otherwise(supply: Supply) -> None:
    bench = supply.bench
    supply.hurry()
    as_a_unit(supply)
    supply.deploys()
    before, locked = bench.running(), (bench.folder / "herd.lock").read_bytes()
    unit = bench.sh(f"cat {UNIT}")
    nothing = bench.herd(*TRY, **supply.private)
    assert nothing.code == 0, nothing.output
    assert "the new versions change no unit" in nothing.output

    supply.hub.push(REPO, {FILE: TINY_MOE.read_bytes() + secrets.token_bytes(64)})
    ended = bench.herd(*TRY, **supply.private)
    assert ended.code == 0, ended.output
    assert "block 1" in ended.output
    assert "box/drafter: reading " in ended.output
    assert (bench.folder / "herd.lock").read_bytes() == locked
    bench.unchanged(before)
    assert bench.sh(f"cat {UNIT}") == unit
    assert bench.answers("drafter").startswith("abcdefgh")
    assert bench.sh(f"ls {STORE}/llamaherd/tiny-moe | wc -l") == "2", "both are there"
    supply.settled()

    upgraded = bench.herd("lock", "--upgrade", "tiny-moe", **supply.private)
    assert upgraded.code == 0, upgraded.output
    ended = bench.up("--yes", **supply.private)
    assert ended.code == 0, ended.output
    assert "both were measured at" in ended.output or ": held" in ended.output or "not known yet" in ended.output
    assert "fetching" not in ended.output


def test_one_of_a_group_is_measured_alone_and_the_group_comes_back(supply: Supply) -> None:
    """However it ends: here by whoever asked for it, after the first block."""
    bench = supply.bench
    supply.hurry()
    rig = bench.rig()
    rig["models"]["tiny-moe"] = {"hf": REPO, "files": FILE}
    alike = {"engine": "main", "port": 8094, "group": "card", "threads": 1}
    chat = rig["instances"].pop("chat")
    rig["instances"].pop("drafter")
    rig["instances"]["writer"] = {**alike, "model": chat["model"], "context": 2048, "extra_args": chat["extra_args"]}
    rig["instances"]["guesser"] = {**alike, "model": "tiny-moe", "context": 2048, "extra_args": ["--cache-ram", "64"]}
    bench.declare(rig)
    supply.deploys()
    preset = bench.sh("cat /etc/llamaherd/presets/card-*.ini")
    supply.hub.push(REPO, {FILE: TINY_MOE.read_bytes() + secrets.token_bytes(64)})
    ended = bench.killed(signal.SIGINT, lambda line: line.startswith("block 1"), [HERD, *TRY], **supply.private)
    assert "measures guesser against the current ones" in ended.output
    bench.sh("timeout 300 sh -c 'until systemctl -q is-active llama-card; do sleep 0.5; done'")
    assert bench.sh("cat /etc/llamaherd/presets/card-*.ini") == preset
    again = bench.deploy(**supply.private)
    assert (again.code, again.changes) == (0, 0), again.output
