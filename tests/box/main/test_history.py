"""What a host remembers of runs, and the way back."""

from __future__ import annotations

from tests.box.bench import Bench
from tests.box.releases import context, releases, shrink


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
    assert f"box: rollback to release {last['number']}\n" in ended.output
    assert context(bench) == 4096
    assert bench.answers("chat")
    bench.unchanged(before, "chat")
    (*_, newest) = releases(bench)
    assert (newest["number"], newest["back_to"]) == (last["number"] + 2, last["number"])
    said = bench.herd("history", "box").output
    assert f"back to release {last['number']}" in said
    assert bench.key() not in said
    again = bench.herd("rollback", "box/chat", "--to", str(last["number"]), "--yes")
    assert (again.code, again.output) == (0, f"box: already at release {last['number']}, nothing to do\n")


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


def test_a_release_that_is_none(bench: Bench) -> None:
    ended = bench.herd("rollback", "box", "--to", "999999", "--yes")
    assert ended.code == 1, ended.output
    assert "box has no release 999999\n  help: `herd history` lists what there is" in ended.output
