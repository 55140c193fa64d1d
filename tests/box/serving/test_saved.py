"""What `herd plan --save` has kept, carried out on a real host, and refused once that has moved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.box.bench import Bench


@pytest.fixture
def kept(bench: Bench, tmp_path: Path) -> Path:
    """A diff of one restart and a program that is gone."""
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 4096
    bench.declare(rig)
    bench.sh("rm /opt/llamaherd/libexec/started")
    file = tmp_path / "kept.json"
    ended = bench.herd("plan", "box", "--save", str(file))
    assert ended.code == 2, ended.output
    return file


def test_the_same_look_gives_the_same_file(bench: Bench, kept: Path, tmp_path: Path) -> None:
    """No reason holds a time or a process: of servers that run, and of one that was stopped."""
    again = tmp_path / "again.json"
    bench.sh("systemctl stop llama-ik-chat && rm /etc/llamaherd/compose/drafter/compose.yaml")
    for file in (kept, again):
        assert bench.herd("plan", "box", "--save", str(file)).code == 2
    assert kept.read_text() == again.read_text()
    changes = json.loads(kept.read_text())["rigs"][0]["changes"]
    assert {each["name"] for each in changes} >= {"llama-chat", "llama-ik-chat", "llama-drafter"}
    assert bench.key() not in kept.read_text()


def test_what_was_kept_is_done_once(bench: Bench, kept: Path) -> None:
    before = bench.running()
    ended = bench.up("--plan", str(kept))
    assert ended.code == 0, ended.output
    bench.unchanged(before, "chat")
    before = bench.running()
    again = bench.up("--plan", str(kept))
    assert again.code == 1, again.output
    assert f"box: gone since {kept}: restart server llama-chat: " in again.output
    bench.unchanged(before)


def test_a_host_that_has_moved_is_left_alone(bench: Bench, kept: Path) -> None:
    bench.sh("echo '# somebody was here' >>/etc/llamaherd/compose/drafter/compose.yaml")
    before = bench.running()
    ended = bench.up("--plan", str(kept))
    assert ended.code == 1, ended.output
    assert f"box: new since {kept}: restart server llama-drafter: " in ended.output
    assert "gone since" not in ended.output
    bench.unchanged(before)
