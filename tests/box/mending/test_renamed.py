"""An instance under another name: what served under the old one is not lost to a new one that does not serve."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.box.bench import HERD, PORTS, Bench, Declared
from tests.box.changes import OTHER_LAYERS, REFUSES
from tests.support.envelope import the_rig


def rename(bench: Bench, old: str, *, port: int | None = None, **changes: object) -> Declared:
    """Declare the instance `old` as `talk`, with these changes."""
    rig = bench.rig()
    rig["instances"]["talk"] = rig["instances"].pop(old) | changes | ({"port": port} if port else {})
    bench.declare(rig)
    return rig


def talks(bench: Bench, port: int) -> None:
    """What listens there answers a greeting."""
    data = '{"messages":[{"role":"user","content":"Hello"}],"max_tokens":4}'
    status = bench.sh(
        f"curl -s -m 300 -o /dev/null -w '%{{http_code}}' -H 'Content-Type: application/json' "
        f"-H 'Authorization: Bearer {bench.key()}' -d '{data}' http://127.0.0.1:{port}/v1/chat/completions"
    )
    assert status == "200"


def leftovers(bench: Bench, name: str) -> str:
    """All that is there of an instance."""
    return bench.sh(
        f"ls -d /etc/systemd/system/llama-{name}.service /etc/llamaherd/compose/{name} /etc/llamaherd/keys/{name} "
        f"/var/lib/llamaherd/kept/llama-{name} 2>/dev/null; docker ps -aq --filter name=llama-{name}",
        check=False,
    )


@pytest.mark.parametrize("old", ["chat", pytest.param("drafter", marks=pytest.mark.rare)])
def test_at_the_same_port_it_is_a_switch(bench: Bench, old: str) -> None:
    rename(bench, old)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert f"stopping llama-{old}, which is not declared any more: its port is to be that of llama-talk" in ended.output
    talks(bench, PORTS[old])
    assert leftovers(bench, old) == ""
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output


@pytest.mark.parametrize("old", ["chat", pytest.param("drafter", marks=pytest.mark.rare)])
def test_at_the_same_port_what_served_comes_back(bench: Bench, old: str) -> None:
    bad = {"chat": OTHER_LAYERS, "drafter": ["--chat-template", REFUSES]}[old]
    rename(bench, old, extra_args=["--cache-ram", "256", *bad])
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert f"llama-{old} serves again, after " in ended.output
    assert bench.answers(old)
    before = bench.running()
    again = bench.up("--yes")
    assert again.code == 1, again.output
    assert f"llama-{old} serves in place of talk: what is declared was tried on 20" in again.output
    bench.unchanged(before)
    # As declared before: nothing of the try is left, and nothing restarts.
    bench.declare(bench.rig())
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    bench.unchanged(before)
    assert leftovers(bench, "talk") == ""


def test_what_waits_for_its_restart_steps_aside_too(bench: Bench) -> None:
    """As after a boot at which what is new had the port first: else it would take the port from what is tried."""
    rename(bench, "chat", extra_args=["--cache-ram", "256", *OTHER_LAYERS])
    bench.sh("systemctl kill -s KILL llama-chat")
    ended = bench.up("--yes", "--retry")
    assert ended.code == 1, ended.output
    assert "llama-chat serves again, after " in ended.output
    assert bench.answers("chat")
    bench.declare(bench.rig())
    assert bench.up("--yes").code == 0


def test_at_another_port_what_serves_does_not_stop(bench: Bench) -> None:
    before = bench.running()
    rename(bench, "ik-chat", port=8085, extra_args=["--override-kv", "gemma3.block_count=int:99"])
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "what it was to replace goes on, llama-ik-chat" in ended.output
    bench.unchanged(before)
    rename(bench, "ik-chat", port=8085)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert "stopping llama-ik-chat" not in ended.output
    assert ended.output.index("starting llama-talk") < ended.output.index("removing ik-chat")
    talks(bench, 8085)
    assert leftovers(bench, "ik-chat") == ""


def test_a_diff_says_both(bench: Bench) -> None:
    rename(bench, "chat")
    ended = bench.herd("plan", "box", "--json")
    rig = the_rig(ended.output)
    assert [(each["action"], each["name"]) for each in rig["changes"]][-2:] == [
        ("create", "llama-talk"),
        ("remove", "llama-chat"),
    ]


@pytest.mark.parametrize("boots", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_a_rename_that_is_cut_off(bench: Bench, boots: bool) -> None:
    """The run is killed, and its host, while the new one loads: the next run ends as the first would have."""
    rename(bench, "chat", extra_args=["--cache-ram", "256", *OTHER_LAYERS])

    def as_it_loads(line: str) -> bool:
        if "its port is to be that of llama-talk" not in line:
            return False
        if boots:
            subprocess.run(["docker", "restart", "-t", "0", bench.host.name], check=True, stdout=subprocess.DEVNULL)
        return True

    bench.killed(signal.SIGKILL, as_it_loads, [HERD, "up", "-v", "--yes"])
    if boots:
        bench.host.up()
    bench.sh("flock -w 120 /run/llamaherd/locks/host true", check=False)
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert bench.answers("chat")
    bench.declare(bench.rig())
    assert bench.up("--yes").code == 0
    assert bench.answers("chat")
