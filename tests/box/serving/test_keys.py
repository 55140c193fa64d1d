"""Key files of servers that need none any more, on a real host."""

from __future__ import annotations

from tests.box.bench import Bench

KEYS = "/etc/llamaherd/keys"


def lies(bench: Bench) -> list[str]:
    """The keys that are there."""
    return bench.sh(f"ls -A {KEYS}").split()


def removed(output: str) -> list[str]:
    """The keys that a look or a run says go."""
    return [line.split(":")[0].split()[-1] for line in output.splitlines() if "remove key" in line]


def test_a_key_goes_with_the_need_for_it_and_nothing_is_started_for_that(bench: Bench) -> None:
    assert lies(bench) == ["chat"]
    rig = bench.rig()
    rig["instances"]["drafter"]["api_key"] = {"file": str(bench.key_file)}
    bench.declare(rig)
    ended = bench.up()
    assert ended.code == 0, ended.output
    assert lies(bench) == ["chat", "drafter"]
    before = bench.running()
    for name in ("chat", "drafter"):
        rig["instances"][name].pop("api_key")
    bench.declare(rig)
    looked = bench.herd("plan", "-v")
    assert (looked.code, removed(looked.output)) == (2, ["chat", "drafter"]), looked.output
    ended = bench.up()
    assert ended.code == 0, ended.output
    assert lies(bench) == []
    bench.unchanged(before, "chat", "drafter")
    # The previous versions have the key until their probation ends.
    bench.sh("while systemctl -q is-active 'llamaherd-probation-*'; do sleep 1; done")
    assert bench.sh(f"grep -rlF -- {bench.key()} /etc /run /var/lib/llamaherd", check=False) == ""
    assert bench.ask("chat", "/v1/models")[0] == 200
    assert bench.ask("drafter", "/v1/models")[0] == 200
    back = bench.herd("rollback", "box", "--yes")
    assert (back.code, "the host has no key of chat, no key of drafter any more" in back.output) == (1, True), (
        back.output
    )

    before = bench.running()
    bench.sh(f"echo left >{KEYS}/chat; echo left >{KEYS}/old; chmod 600 {KEYS}/*")
    looked = bench.herd("plan", "-v")
    assert (looked.code, removed(looked.output)) == (2, ["old", "chat"]), looked.output
    ended = bench.up()
    assert (ended.code, ended.changes) == (0, 2), ended.output
    assert lies(bench) == []
    bench.unchanged(before)
    again = bench.up()
    assert (again.code, again.changes) == (0, 0), again.output
