"""Keys that servers behind a gateway are given: who gets one, who has it together, and which file keeps it."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.api_keys import KEYS, ServerKey, make_key, server_keys, with_server_keys
from llamaherd.inventory.schema import Rig, Secret
from llamaherd.inventory.schema.fleet_file import FleetFile
from tests.support.rigs import GONE, changed, cpu_rig


def rigs(*names: str, **changes: object) -> dict[str, Rig]:
    """Rigs with two servers each that others may use and that name no key."""
    both = {f"instances/{each}/listen": "0.0.0.0" for each in ("chat", "drafter")} | {"instances/chat/api_key": GONE}
    return {name: Rig.model_validate(changed(cpu_rig(), {**both, **changes, "rig": name})) for name in names}


def fleet(**models: str) -> FleetFile:
    """A gateway with these models, each by its servers."""
    served = {name: {"serve": servers.split()} for name, servers in models.items()}
    return FleetFile.model_validate({"gateway": {"on": ["attic"], "models": served}})


def asked(keys: tuple[ServerKey, ...], folder: Path) -> dict[str, Mapping[str, frozenset[str]]]:
    return {str(key.file.relative_to(folder / KEYS)): key.servers for key in keys}


def test_each_rig_has_one_for_its_servers_that_are_served(tmp_path: Path) -> None:
    keys = server_keys(
        fleet(a="attic.chat", b="attic.drafter", c="porch.chat"), rigs("attic", "porch", "cellar"), tmp_path
    )
    assert asked(keys, tmp_path) == {
        "attic": {"attic": frozenset({"chat", "drafter"})},
        "porch": {"porch": frozenset({"chat"})},
    }


@pytest.mark.parametrize(
    "models",
    [
        pytest.param({"a": "porch.chat attic.chat"}, id="one model"),
        pytest.param({"a": "porch.chat", "b": "attic.chat porch.drafter"}, id="by another server"),
    ],
)
def test_rigs_that_serve_a_model_together_have_one(models: dict[str, str], tmp_path: Path) -> None:
    keys = server_keys(fleet(**models, c="cellar.chat"), rigs("attic", "porch", "cellar"), tmp_path)
    assert [sorted(key.servers) for key in keys] == [["attic", "porch"], ["cellar"]]
    assert [key.file.name for key in keys] == ["attic", "cellar"]


def test_one_chain_of_models_is_one_key(tmp_path: Path) -> None:
    models = {"a": "six.chat attic.chat", "b": "porch.chat cellar.chat", "c": "cellar.drafter six.drafter"}
    (key,) = server_keys(fleet(**models), rigs("attic", "porch", "cellar", "six"), tmp_path)
    assert list(key.servers) == ["attic", "cellar", "porch", "six"]


def test_a_rig_that_joins_changes_no_key_of_those_that_are_there(tmp_path: Path) -> None:
    alone = server_keys(fleet(a="porch.chat"), rigs("attic", "porch"), tmp_path)
    for key in alone:
        make_key(key)
    (joined,) = server_keys(fleet(a="porch.chat attic.chat"), rigs("attic", "porch"), tmp_path)
    assert joined.file == alone[0].file
    assert joined.is_made


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"instances/chat/api_key": {"env": "CHAT_KEY"}}, id="it names one"),
        pytest.param({"instances/chat/listen": "127.0.0.1"}, id="it is its own host's alone"),
    ],
)
def test_who_needs_none_gets_none(changes: dict[str, object], tmp_path: Path) -> None:
    declared = rigs("attic", **changes)
    keys = server_keys(fleet(a="attic.chat"), declared, tmp_path)
    assert keys == ()
    assert with_server_keys(declared["attic"], keys) is declared["attic"]


def test_without_a_gateway_there_are_none(tmp_path: Path) -> None:
    for declared in (None, FleetFile()):
        assert server_keys(declared, rigs("attic"), tmp_path) == ()


def test_servers_have_its_place_as_if_it_were_declared(tmp_path: Path) -> None:
    there = rigs("attic")
    keys = server_keys(fleet(a="attic.chat"), there, tmp_path)
    instances = with_server_keys(there["attic"], keys).instances
    assert instances["chat"].api_key == Secret(file=tmp_path / KEYS / "attic")
    assert instances["drafter"].api_key is None, "no gateway sends to it"


def test_a_group_is_one_server(tmp_path: Path) -> None:
    """Whichever of its instances is served, all of them are one process that asks for one key."""
    grouped = {f"instances/{each}/group": "card" for each in ("chat", "drafter")}
    there = rigs("attic", **grouped)
    (key,) = server_keys(fleet(a="attic.chat"), there, tmp_path)
    assert key.servers == {"attic": frozenset({"card"})}
    places = {each.api_key for each in with_server_keys(there["attic"], [key]).instances.values()}
    assert places == {Secret(file=key.file)}
    half = rigs("attic", **grouped, **{"instances/drafter/api_key": {"env": "K"}})
    assert server_keys(fleet(a="attic.chat"), half, tmp_path) == (), "that they differ is found as of any group"


def test_it_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    (key,) = server_keys(fleet(a="attic.chat"), rigs("attic"), tmp_path)
    make_key(key)
    first = key.file.read_text()
    make_key(key)
    assert key.file.read_text() == first
    assert len(first.strip()) >= 43, "256 bits"
    assert stat.S_IMODE(key.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.file.parent.stat().st_mode) == 0o700
    assert [each.name for each in key.file.parent.iterdir()] == ["attic"]


def test_no_two_are_alike(tmp_path: Path) -> None:
    keys = server_keys(fleet(a="attic.chat", b="porch.chat"), rigs("attic", "porch"), tmp_path)
    for key in keys:
        make_key(key)
    assert len({key.file.read_text() for key in keys}) == 2


def test_a_folder_that_takes_none_is_said(tmp_path: Path) -> None:
    (key,) = server_keys(fleet(a="attic.chat"), rigs("attic"), tmp_path)
    (tmp_path / "keys").write_text("no folder")
    with pytest.raises(UserError, match="cannot write"):
        make_key(key)
