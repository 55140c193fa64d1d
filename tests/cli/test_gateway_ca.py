"""`herd gateway ca`: a CA that is made once, and what clients are told of it."""

from __future__ import annotations

import ast
import json
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.cli.users import CLIENTS
from llamaherd.inventory.authority import KEY, ROOT
from tests.support.envelope import envelope
from tests.support.rigs import changed, cpu_rig

FLEET = """\
gateway:
  on: [box]
  listen: 0.0.0.0
  tls: {ca: keys/ca}
  users:
    tom: {key: {env: TOM_KEY}}
  models:
    coder: {serve: [box.chat]}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(changed(cpu_rig(), {"connect": {"host": "box.lan"}})))
    return tmp_path


def herd(fleet: Path, *words: str) -> Result:
    ended = CliRunner().invoke(main, [*words, "-i", str(fleet)])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def test_it_is_made_once_and_printed_each_time(fleet: Path) -> None:
    first, second = herd(fleet, "gateway", "ca"), herd(fleet, "gateway", "ca")
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    assert first.stdout == second.stdout == (fleet / "keys/ca" / ROOT).read_text()
    assert "created a CA" in first.stderr
    assert "created a CA" not in second.stderr
    told = envelope(herd(fleet, "gateway", "ca", "--json").stdout)["data"]
    assert told["fingerprint"] in first.stderr
    assert told["root"] == str(fleet / "keys/ca" / ROOT)
    assert "PRIVATE" not in first.output + second.output + json.dumps(told)
    assert stat.S_IMODE((fleet / "keys/ca" / KEY).stat().st_mode) == 0o600


def test_who_declares_none_is_told_how(fleet: Path) -> None:
    (fleet / "fleet.yaml").write_text(FLEET.replace("  tls: {ca: keys/ca}\n", ""))
    done = herd(fleet, "gateway", "ca")
    assert done.exit_code == 2
    assert "tls: {ca: keys/ca}" in done.stderr
    assert not (fleet / "keys").exists()


def test_where_nothing_can_be_written_it_is_a_sentence(fleet: Path) -> None:
    (fleet / "keys").write_text("a file in the place of the folder")
    done = herd(fleet, "gateway", "ca")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: cannot write")


def test_check_says_that_it_is_to_be_made(fleet: Path) -> None:
    assert "make it: `herd gateway ca`" in herd(fleet, "check").output
    herd(fleet, "gateway", "ca")
    assert "herd gateway ca" not in herd(fleet, "check").output
    (fleet / "keys/ca" / KEY).chmod(0o644)
    assert "LH315" in herd(fleet, "check").output


def test_plan_says_whose_certificate_it_is(fleet: Path) -> None:
    """And makes none: who only looks needs no key."""
    said = herd(fleet, "show", "box", "-v").stdout
    assert f"certificate of the CA in {fleet}/keys/ca, for 127.0.0.1, ::1, box.lan, localhost" in said
    assert not (fleet / "keys").exists()


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_are_told_where_the_root_is(fleet: Path, client: str) -> None:
    done = herd(fleet, "clients", client, "--user", "tom")
    assert f"{fleet}/keys/ca/root.pem" in done.output
    assert "https://box.lan:8000" in done.stdout
    elsewhere = herd(fleet, "clients", client, "--user", "tom", "--ca", "/home/tom/my root.pem")
    assert "/home/tom/my root.pem" in elsewhere.output
    assert str(fleet) not in elsewhere.output
    if client == "openai-python":
        assert ast.parse(elsewhere.stdout)


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ("{}", "no certificate is declared"),
        ("{certificate: a.pem}", "no certificate is declared"),
        ("{ca: keys/ca, key: a.key}", "another one is named"),
        ("{certificate: a.pem, key: a.key, names: [a.lan]}", "made here"),
        ("{ca: keys/ca, names: ['https://a.lan']}", "neither a name nor an IP address"),
        ("{ca: keys/ca, names: ['a.lan:8000']}", "neither a name nor an IP address"),
        ("{ca: keys/ca, names: ['a*.lan']}", "neither a name nor an IP address"),
        ('{ca: keys/ca, names: ["a\\nb"]}', "LH013"),
    ],
)
def test_a_certificate_is_declared_in_one_way(fleet: Path, tls: str, said: str) -> None:
    (fleet / "fleet.yaml").write_text(FLEET.replace("{ca: keys/ca}", tls))
    done = herd(fleet, "check")
    assert done.exit_code != 0
    assert said in done.output
