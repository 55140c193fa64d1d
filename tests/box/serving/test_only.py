"""A part of a rig alone: what belongs to others stays, whatever the inventory says of it."""

from __future__ import annotations

import json
import signal

from tests.box.bench import HERD, Bench, Declared
from tests.support.envelope import the_rig


def moved(bench: Bench) -> None:
    """An inventory that says something else of every instance: one restarts, one is another, one is gone."""
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 4096
    rig["instances"]["drafter"]["context"] = 1024
    del rig["instances"]["ik-chat"]
    bench.declare(rig)


def found(bench: Bench, *words: str) -> Declared:
    """What a diff says of the rig, for machines."""
    ended = bench.herd("plan", "box", "--json", *words)
    rig = the_rig(ended.output)
    return {**rig, "code": ended.code}


def last(bench: Bench) -> Declared:
    """The newest release."""
    ended = bench.herd("history", "box", "--json")
    rig = the_rig(ended.output)
    release: Declared = rig["releases"][-1]
    return release


def test_one_instance_is_changed_and_nothing_else(bench: Bench) -> None:
    before = bench.running()
    moved(bench)
    told = found(bench, "--only", "chat")
    assert (told["code"], [each["name"] for each in told["changes"]], told["left"]) == (2, ["llama-chat"], 2)
    said = bench.herd("plan", "box", "--only", "chat").output
    assert "box: 2 changes left out by --only; run `herd up` to apply them\n" in said
    ended = bench.up("--yes", "--only", "chat")
    assert ended.code == 0, ended.output
    bench.unchanged(before, "chat")
    assert bench.answers("chat")
    release = last(bench)
    assert release["only"] == ["chat"]
    assert [change.split(":")[0] for change in release["changes"]] == ["restart server llama-chat"]
    again = bench.up("--only", "chat")
    assert (again.code, again.changes) == (0, 0), again.output
    assert "box: 2 changes left out by --only" in again.output
    told = found(bench, "--only", "chat")
    assert (told["code"], told["changes"], told["left"]) == (0, [], 2)
    # What is left is what the inventory has moved, and nobody has changed the host.
    whole = found(bench)
    assert [(each["action"], each["name"]) for each in whole["changes"]] == [
        ("remove", "llama-ik-chat"),
        ("restart", "llama-drafter"),
    ]
    assert [each["drift"] for each in whole["changes"]] == [[], []]


def test_going_back_to_a_part_keeps_the_rest(bench: Bench) -> None:
    moved(bench)
    assert bench.up("--yes", "--only", "chat").code == 0
    number = last(bench)["number"]
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 2048
    bench.declare(rig)
    before = bench.running()
    assert bench.up("--yes", "--only", "chat").code == 0
    bench.unchanged(before, "chat")
    ended = bench.herd("rollback", "box", "--to", str(number), "--yes")
    assert ended.code == 0, ended.output
    bench.unchanged(before, "chat")
    assert bench.answers("chat")
    pid = bench.sh("systemctl show -P MainPID llama-chat")
    assert "--ctx-size 4096" in bench.sh(f"tr '\\0' ' ' </proc/{pid}/cmdline")


def test_one_role_is_changed_and_nothing_else(bench: Bench) -> None:
    before = bench.running()
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 4096
    bench.declare(rig)
    bench.sh("rm /opt/llamaherd/libexec/started")
    ended = bench.up("--yes", "--only", "base")
    assert ended.code == 0, ended.output
    bench.unchanged(before)
    assert bench.sh("stat -c %a /opt/llamaherd/libexec/started") == "755"
    assert "box: 1 change left out by --only; run `herd up` to apply it\n" in ended.output
    bench.sh("rm /opt/llamaherd/libexec/started")
    ended = bench.up("--yes", "--only", "serve")
    assert ended.code == 0, ended.output
    bench.unchanged(before, "chat")
    assert bench.sh("ls /opt/llamaherd/libexec/started", check=False) == ""


def test_a_saved_part_is_done_as_saved(bench: Bench) -> None:
    before = bench.running()
    moved(bench)
    file = bench.folder / "part.json"
    assert bench.herd("plan", "box", "--only", "chat", "--save", str(file)).code == 2
    assert json.loads(file.read_text())["only"] == ["chat"]
    # Another part of the inventory has moved since.
    bench.inventory.write_text(bench.inventory.read_text().replace("context: 1024", "context: 2048"))
    ended = bench.up("--plan", str(file))
    assert ended.code == 0, ended.output
    bench.unchanged(before, "chat")


def test_a_new_instance_brings_what_it_needs(bench: Bench) -> None:
    before = bench.running()
    rig = bench.rig()
    rig["instances"]["spare"] = rig["instances"]["ik-chat"] | {"port": 8083}
    rig["instances"]["chat"]["context"] = 4096
    bench.declare(rig)
    ended = bench.up("--only", "spare")
    assert ended.code == 0, ended.output
    bench.unchanged(before)
    assert bench.sh("systemctl is-active llama-spare") == "active"
    bench.declare(bench.rig())
    ended = bench.up("--yes", "--only", "chat")
    assert (ended.code, ended.changes) == (0, 0), ended.output
    assert bench.sh("systemctl is-active llama-spare") == "active"


def test_a_port_of_another_is_not_taken(bench: Bench) -> None:
    rig = bench.rig()
    rig["instances"]["talk"] = rig["instances"].pop("ik-chat")
    bench.declare(rig)
    before = bench.running()
    ended = bench.up("--yes", "--only", "talk")
    assert ended.code == 1, ended.output
    assert "talk is left as it is: llama-ik-chat has its port 8082, and is to stay" in ended.output
    bench.unchanged(before)


def test_a_run_for_a_part_that_is_killed_ends_the_same(bench: Bench) -> None:
    before = bench.running()
    moved(bench)
    bench.killed(
        signal.SIGKILL, lambda line: "starting llama-chat" in line, [HERD, "up", "-v", "--yes", "--only", "chat"]
    )
    ended = bench.up("--yes", "--only", "chat")
    assert ended.code == 0, ended.output
    bench.unchanged(before, "chat")
    assert bench.answers("chat")


def test_a_name_that_is_none(bench: Bench) -> None:
    ended = bench.up("--only", "chatt")
    assert ended.code == 2, ended.output
    assert "--only chatt: there is no such instance or role\n  help: did you mean `chat`? instances: " in ended.output
    assert bench.herd("plan", "--only", "chatt").code == 1
