"""Keys of servers that are not made yet: made once, for hosts that have none, and never over what a host has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.pipeline.diff import plan_digest
from llamaherd.pipeline.load import plans
from llamaherd.pipeline.own_roles import all_roles
from roles.gateway import read_keys
from tests.support.gateway import gateway_of
from tests.support.ours import show_plan
from tests.support.rigs import changed
from tests.support.server_keys import FLEET, KeylessFleet

pytestmark = pytest.mark.usefixtures("starts_processes")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeylessFleet:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return KeylessFleet(tmp_path)


def test_it_is_made_once_and_reaches_server_and_gateway(fleet: KeylessFleet) -> None:
    planned, made = fleet.plans()
    assert [key.file for key in made] == [fleet.key("porch")]
    assert fleet.asked == ["porch"]
    text = fleet.key("porch").read_text().strip()
    (chat,) = [each for each in planned["porch"].instances if each.name == "chat"]
    assert chat.endpoint.key
    assert read_key(chat.endpoint.key) == text
    assert chat.server.key, "the server is told of a file"
    assert read_keys(gateway_of(planned["attic"])).servers == {"small": text}
    for plan in planned.values():
        assert text not in plan.model_dump_json() + show_plan(plan)
    again, none = fleet.plans()
    assert (again, none) == (planned, [])
    assert fleet.asked == ["porch"], "no host is asked where there is one"
    assert fleet.key("porch").read_text().strip() == text


def test_who_only_looks_makes_none_and_sees_what_would_come(fleet: KeylessFleet) -> None:
    before, made = fleet.plans(making=False)
    assert made == []
    assert not fleet.key("porch").parent.exists()
    (chat,) = [each for each in before["porch"].instances if each.name == "chat"]
    assert chat.endpoint.key
    assert len(read_key(chat.endpoint.key)) > 40
    after, _ = fleet.plans()
    for name, (rig, _) in plans(fleet.folder, all_roles(fleet.folder)).items():
        assert plan_digest(rig, before[name]) == plan_digest(rig, after[name]), "a saved diff still holds"


def test_who_touches_no_host_asks_none(fleet: KeylessFleet) -> None:
    planned, _ = fleet.plans(deploying=False, making=False)
    assert fleet.asked == []
    assert "LH024" not in {each.code for each in fleet.doubts}
    (chat,) = [each for each in planned["porch"].instances if each.name == "chat"]
    assert chat.endpoint.key
    with pytest.raises(UnreadableKeyError):
        read_key(chat.endpoint.key)


@pytest.mark.parametrize("making", [True, False])
def test_a_key_that_a_host_has_from_elsewhere_is_not_changed(fleet: KeylessFleet, making: bool) -> None:
    fleet.host("porch", has="chat")
    with pytest.raises(InventoryError) as raised:
        fleet.plans(making=making)
    (finding,) = raised.value.findings
    assert finding.code == "LH024"
    assert "the host of rig `porch` has a key for `chat`" in finding.message
    assert "/etc/llamaherd/keys/chat" in finding.help
    assert not fleet.key("porch").exists()
    fleet.key("porch").parent.mkdir(parents=True)
    fleet.key("porch").write_text("brought-from-there\n")
    assert fleet.plans(making=making)[1] == []


def test_a_key_of_another_server_there_is_none_of_these(fleet: KeylessFleet) -> None:
    fleet.host("porch", has="drafter")
    assert [key.file.name for key in fleet.plans()[1]] == ["porch"]


@pytest.mark.parametrize("what", ["gone", "lies"])
def test_none_is_made_while_the_host_does_not_say(fleet: KeylessFleet, what: str) -> None:
    """One that is gone keeps no other from being planned; its gateway says which key it lacks."""
    fleet.host("porch", has="chat" if what == "lies" else "", what=what)
    planned, made = fleet.plans("attic")
    assert made == []
    (doubt,) = [each for each in fleet.doubts if each.code == "LH024"]
    assert (doubt.severity, "rig `porch`, which may have that key, is unreachable" in doubt.message) == (
        "warning",
        True,
    )
    with pytest.raises(UserError, match="the key of servers of `small`"):
        read_keys(gateway_of(planned["attic"]))


def test_only_those_are_asked_whose_key_is_needed(fleet: KeylessFleet) -> None:
    fleet.declare("fleet.yaml", FLEET + "    large: {serve: [attic.chat]}\n")
    fleet.open("attic")
    assert fleet.plans("six")[1] == []
    assert fleet.asked == []
    assert [key.file.name for key in fleet.plans("porch")[1]] == ["porch"]
    assert fleet.asked == ["porch"]


def test_rigs_that_serve_together_are_all_asked(fleet: KeylessFleet) -> None:
    fleet.declare("fleet.yaml", FLEET.replace("[porch.chat]", "[porch.chat, attic.chat]"))
    fleet.open("attic")
    fleet.host("attic", has="chat")
    with pytest.raises(InventoryError, match="rig `attic` has a key for `chat`"):
        fleet.plans("porch")
    assert sorted(fleet.asked) == ["attic", "porch"]


def test_rigs_that_name_their_keys_notice_nothing(fleet: KeylessFleet) -> None:
    for name in ("attic", "porch"):
        text = (fleet.folder / f"{name}.yaml").read_text()
        declared = changed(yaml.safe_load(text), {"instances/chat/api_key": {"env": "CHAT_KEY"}})
        fleet.declare(f"{name}.yaml", yaml.safe_dump(declared))
    _, made = fleet.plans()
    assert (made, fleet.asked) == ([], [])
    assert not (fleet.folder / "keys").exists()
