"""What a host remembers of runs, and the way back."""

from __future__ import annotations

import json

from tests.box.bench import Bench, Declared


def releases(bench: Bench) -> list[Declared]:
    """What the host tells of its releases, the oldest first."""
    ended = bench.herd("history", "box", "--json")
    assert ended.code == 0, ended.output
    (rig,) = json.loads(ended.output)["rigs"]
    found: list[Declared] = rig["releases"]
    return found


def shrink(bench: Bench, context: int) -> None:
    """A change that one restart of `chat` makes."""
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = context
    bench.declare(rig)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output


def chat_unit(bench: Bench) -> str:
    """The text of its unit."""
    return bench.sh("cat /etc/systemd/system/llama-chat.service")


def context(bench: Bench) -> int:
    """What `chat` runs with."""
    return int(
        bench.sh("tr '\\0' '\\n' </proc/$(systemctl show -P MainPID llama-chat)/cmdline | sed -n '/^--ctx-size$/{n;p}'")
    )


def test_a_change_is_remembered_and_taken_back(bench: Bench) -> None:
    before = bench.running()
    shrink(bench, 4096)
    (*_, last) = releases(bench)
    assert [change.split(":")[0] for change in last["changes"]] == ["restart server llama-chat"]
    assert (last["failed"], last["back_to"]) == ([], None)
    assert set(last["origin"]) == {"user", "machine", "commit", "lock", "version"}
    shrink(bench, 2048)
    assert context(bench) == 2048
    # No engine, model or YAML of then: the way back needs what lies on the host.
    bench.inventory.write_text(bench.inventory.read_text().replace("context: 2048", "context: 1024"))
    ended = bench.herd("rollback", "box", "--yes")
    assert ended.code == 0, ended.output
    assert f"box: back to release {last['number']}\n" in ended.output
    assert context(bench) == 4096
    assert bench.answers("chat")
    bench.unchanged(before, "chat")
    (*_, newest) = releases(bench)
    assert (newest["number"], newest["back_to"]) == (last["number"] + 2, last["number"])
    said = bench.herd("history", "box").output
    assert f"back to release {last['number']}" in said
    assert bench.key() not in said
    again = bench.herd("rollback", "box", "chat", "--to", str(last["number"]), "--yes")
    assert (again.code, again.output) == (0, f"box: as in release {last['number']}, nothing to do\n")


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


def test_no_secret_is_remembered(bench: Bench) -> None:
    shrink(bench, 4096)
    bench.sh(f"umask 077; printf %s '{bench.key()}' >/run/canary")
    found = bench.sh(
        "cd /var/lib/llamaherd/releases && for each in *.plan; do zcat <$each; done | grep -cF -f /run/canary;"
        " grep -lF -f /run/canary *; rm /run/canary; stat -c '%a %U' .",
        check=False,
    )
    assert found == "0\n700 root"


def test_a_run_that_changes_nothing_leaves_no_release(bench: Bench) -> None:
    bench.up("--yes")
    before = releases(bench)
    assert bench.up("--yes").code == 0
    assert bench.deploy().code == 0
    assert releases(bench) == before


def test_drift_is_told_from_a_moved_inventory(bench: Bench) -> None:
    shrink(bench, 4096)
    bench.sh("echo '# somebody was here' >>/etc/llamaherd/compose/drafter/compose.yaml")
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 2048
    bench.declare(rig)
    ended = bench.herd("diff", "box", "--json")
    assert ended.code == 2, ended.output
    (found,) = json.loads(ended.output[ended.output.index('{"rigs"') :])["rigs"]
    chat, drafter = found["changes"]
    assert (chat["drift"], chat["inventory"]) == ([], chat["reasons"])
    assert chat["away"]["measured"]
    assert 0.2 < chat["away"]["seconds"] < 300
    assert (drafter["drift"], drafter["inventory"]) == (drafter["reasons"], [])
    said = bench.herd("diff", "box").output
    assert "LLAMAHERD_SPEC (the inventory has moved); away for about " in said
    assert "compose.yaml has another text (drift); away for about " in said


def test_what_is_gone_cannot_come_back(bench: Bench) -> None:
    shrink(bench, 4096)
    (*_, last) = releases(bench)
    shrink(bench, 2048)
    before = bench.running()
    builds = bench.sh("ls -d /opt/llamaherd/builds/llama.cpp-*").splitlines()
    (build,) = (path for path in builds if path in chat_unit(bench))
    bench.sh(f"mv {build} /opt/aside")
    try:
        ended = bench.herd("rollback", "box", "chat", "--to", str(last["number"]), "--yes")
    finally:
        bench.sh(f"mv /opt/aside {build}")
    assert ended.code == 1, ended.output
    assert "cannot come back: the host has no build llama.cpp-" in ended.output
    bench.unchanged(before)


def test_a_release_that_is_none(bench: Bench) -> None:
    ended = bench.herd("rollback", "box", "--to", "999999", "--yes")
    assert ended.code == 1, ended.output
    assert "box has no release 999999\n  help: `herd history` lists what there is" in ended.output


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
