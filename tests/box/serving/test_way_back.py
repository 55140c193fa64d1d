"""The way back to a release: what it costs, and what keeps it from coming."""

from __future__ import annotations

from tests.box.bench import Bench
from tests.box.releases import context, releases, shrink
from tests.support.envelope import the_rig


def chat_unit(bench: Bench) -> str:
    """The text of its unit."""
    return bench.sh("cat /etc/systemd/system/llama-chat.service")


def test_a_way_back_costs_six_logins(bench: Bench) -> None:
    """The past, the turn and a look, all begun at once; the switch, a look at what that did, and the release.

    A look holds for two seconds. On a busy machine more may go by until the switch begins: then it costs another one.
    """
    counts: list[int] = []
    while 6 not in counts and len(counts) < 3:
        shrink(bench, 4096)
        shrink(bench, 2048)
        began = bench.sh("date +%s.%N")
        ended = bench.herd("rollback", "box", "--yes")
        counts.append(bench.sessions(began))
        assert ended.code == 0, ended.output
        assert context(bench) == 4096
    assert counts[-1] == 6, counts
    assert set(counts) <= {6, 7}


def test_drift_is_told_from_a_moved_inventory(bench: Bench) -> None:
    shrink(bench, 4096)
    bench.sh("echo '# somebody was here' >>/etc/llamaherd/compose/drafter/compose.yaml")
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 2048
    bench.declare(rig)
    ended = bench.herd("plan", "box", "--json")
    assert ended.code == 2, ended.output
    found = the_rig(ended.output)
    chat, drafter = found["changes"]
    assert (chat["drift"], chat["inventory"]) == ([], chat["reasons"])
    assert chat["away"]["measured"]
    assert 0.2 < chat["away"]["seconds"] < 300
    assert (drafter["drift"], drafter["inventory"]) == (drafter["reasons"], [])
    said = bench.herd("plan", "box", "-v").output
    assert "LLAMAHERD_SPEC (the inventory has moved)\n" in said
    assert "compose.yaml has another text (drift)\n" in said


def test_what_is_gone_cannot_come_back(bench: Bench) -> None:
    shrink(bench, 4096)
    (*_, last) = releases(bench)
    shrink(bench, 2048)
    before = bench.running()
    builds = bench.sh("ls -d /opt/llamaherd/builds/llama.cpp-*").splitlines()
    (build,) = (path for path in builds if path in chat_unit(bench))
    bench.sh(f"mv {build} /opt/aside")
    try:
        ended = bench.herd("rollback", "box/chat", "--to", str(last["number"]), "--yes")
    finally:
        bench.sh(f"mv /opt/aside {build}")
    assert ended.code == 1, ended.output
    assert "cannot come back: the host has no build llama.cpp-" in ended.output
    bench.unchanged(before)


def test_one_that_cannot_come_back_keeps_no_other(bench: Bench) -> None:
    """What others need is there, and seen: engines and models take no part, and are looked at all the same."""

    def both(chat: int, ik_chat: int) -> int:
        rig = bench.rig()
        rig["instances"]["chat"]["context"], rig["instances"]["ik-chat"]["context"] = chat, ik_chat
        bench.declare(rig)
        ended = bench.up("--yes")
        assert ended.code == 0, ended.output
        number: int = releases(bench)[-1]["number"]
        return number

    first = both(2048, 2048)
    both(1024, 1024)
    unit = "/etc/systemd/system/llama-chat.service"
    bench.sh(f"mount --bind {unit} {unit}")
    try:
        ended = bench.herd("rollback", "box", "--to", str(first), "--yes")
    finally:
        bench.sh(f"umount {unit}")
    assert ended.code == 1, ended.output
    assert "is left as it is" not in ended.output
    assert context(bench) == 1024
    assert "--ctx-size 2048 " in bench.sh("tr '\\0' ' ' </proc/$(systemctl show -P MainPID llama-ik-chat)/cmdline")
