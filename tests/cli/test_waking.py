"""`herd up`, `herd verify` and `herd status` of a rig that sleeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamaherd.onhost.document import dump
from llamaherd.onhost.gateway import GatewayState, ModelRow, ServerRow, UserRow
from tests.support.rigs import DIGEST
from tests.support.ssh_hosts import Hosts, three_hosts

FLEET = """
gateway:
  on: [attic]
  users: {tom: {key: {env: TOM_KEY}}}
  models: {small: {serve: [attic.chat]}}
"""
WAKE = {"mac": "3c:7c:3f:12:ab:cd"}


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Three hosts: one has the gateway, and another one sleeps."""
    monkeypatch.setenv("TOM_KEY", "herd-tom-0f3a")
    hosts = three_hosts(tmp_path)
    (tmp_path / "model.gguf").touch()
    chat = {"engine": "main", "model": "small", "context": 4096, "port": 8080, "backend": "compose"}
    declare(
        hosts,
        "attic",
        engines={"main": {"kind": "llama.cpp", "image": f"a@sha256:{DIGEST}"}},
        models={"small": {"file": str(tmp_path / "model.gguf"), "sha256": "ab" * 32}},
        instances={"chat": chat},
    )
    declare(hosts, "duo", wake=WAKE)
    (hosts.folder / "fleet" / "fleet.yaml").write_text(FLEET)
    hosts.mark("duo", "asleep")
    return hosts


def declare(hosts: Hosts, name: str, **keys: object) -> None:
    """Change keys of a rig."""
    rig = json.loads(hosts.rig(name).read_text())
    hosts.rig(name).write_text(json.dumps(rig | keys))


def test_a_run_wakes_a_rig_and_changes_it(hosts: Hosts) -> None:
    ended = hosts.herd("up", "duo")
    assert ended.returncode == 0, ended.stderr
    assert "duo: it does not respond; waking it, for up to 180 s\n" in ended.stderr
    assert "duo: awake after " in ended.stderr
    assert [each for each in hosts.log if each[1] == "woke"] == [("attic", "woke")]
    assert ("duo", "changed") in hosts.log


def test_a_rig_without_wake_is_not_woken(hosts: Hosts) -> None:
    declare(hosts, "duo", wake=None)
    ended = hosts.herd("up", "duo")
    assert ended.returncode == 1
    assert "waking" not in ended.stderr
    assert ("attic", "woke") not in hosts.log


def test_a_run_names_the_gateway_that_cannot_wake_a_rig(hosts: Hosts) -> None:
    hosts.mark("attic", "gone")
    ended = hosts.herd("up", "duo")
    assert ended.returncode == 1
    assert "duo: attic did not wake it: nothing listens for SSH at 127.0.0.1 port 2301" in ended.stderr


def test_a_rig_that_sleeps_is_no_fault(hosts: Hosts) -> None:
    ended = hosts.herd("verify", "duo")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "duo: asleep or off; a request for its models or `herd up duo` wakes it\n"
    (found,) = json.loads(hosts.herd("verify", "duo", "--json").stdout)["rigs"]
    assert (found["ok"], found["asleep"]) == (True, True)
    ended = hosts.herd("status", "duo")
    assert ended.returncode == 0, ended.stdout
    assert "duo asleep" in ended.stdout
    assert "duo: it sleeps, or is off; a request for its models or `herd up duo` wakes it\n" in ended.stdout
    top = hosts.herd("top", "duo", "--once")
    assert top.returncode == 0
    assert "duo: asleep or off\n" in top.stdout


def test_a_gateway_shows_the_servers_of_a_rig_that_sleeps(hosts: Hosts) -> None:
    attic = json.loads(hosts.rig("attic").read_text())
    chat = {**attic["instances"]["chat"], "listen": "0.0.0.0", "api_key": {"env": "TOM_KEY"}}
    store = {"share": {"address": "duo.lan"}}
    declare(hosts, "duo", engines=attic["engines"], models=attic["models"], instances={"chat": chat}, store=store)
    (hosts.folder / "fleet" / "fleet.yaml").write_text(FLEET.replace("[attic.chat]", "[duo.chat]"))
    row = ServerRow("duo.chat", "DOWN", 0, 1, 7)
    state = GatewayState((ModelRow("small", 0, (row,)),), (UserRow("tom", 0, 4),), 0)
    (hosts.folder / "2301" / "gateway").write_text(dump({"event": "result", "value": state}))
    ended = hosts.herd("gateway", "status")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "attic: 1 model, duo.chat asleep\n" in ended.stdout
    (hosts.folder / "2302" / "asleep").unlink()
    ended = hosts.herd("gateway", "status")
    assert ended.returncode == 1
    assert "attic: 1 model, duo.chat down\n" in ended.stdout


def test_a_host_that_refuses_is_awake_and_a_fault(hosts: Hosts) -> None:
    (hosts.folder / "2302" / "asleep").unlink()
    hosts.mark("duo", "gone")
    assert hosts.herd("verify", "duo").returncode == 1
    assert hosts.herd("status", "duo").returncode == 1
