"""`herd users`: keys that are made, shown once and kept, and nowhere else."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.inventory.yaml_text import Loader
from tests.support.envelope import envelope
from tests.support.rigs import cpu_rig

FLEET = """\
gateway:
  on: [box]
  models:
    coder: {serve: [box.chat]}
    small: {serve: [box.drafter]}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(cpu_rig()))
    return tmp_path


def herd(fleet: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["users", *words, "-i", str(fleet)])


def declared(fleet: Path) -> dict[str, dict[str, object]]:
    users: dict[str, dict[str, object]] = yaml.load((fleet / "fleet.yaml").read_text(), Loader=Loader)["gateway"][
        "users"
    ]
    return users


def test_a_user_is_added_with_a_key_that_is_shown_once(fleet: Path) -> None:
    done = herd(fleet, "add", "tom", "--streams", "2", "--model", "coder")
    assert done.exit_code == 0, done.output
    key = done.stdout.strip()
    file = fleet / "keys/users/tom"
    assert file.read_text() == f"{key}\n"
    assert len(key) > 40
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert declared(fleet) == {"tom": {"key": {"file": "keys/users/tom"}, "streams": 2, "models": ["coder"]}}
    assert key not in herd(fleet, "list").output
    assert key not in (fleet / "fleet.yaml").read_text()
    assert CliRunner().invoke(main, ["check", "-i", str(fleet)]).exit_code == 0


def test_keys_are_different_and_of_chance(fleet: Path) -> None:
    keys = {herd(fleet, "add", f"user-{n}").stdout for n in range(5)}
    assert len(keys) == 5
    listed = envelope(herd(fleet, "list", "--json").stdout)["data"]["users"]
    assert [each["name"] for each in listed] == [f"user-{n}" for n in range(5)]
    assert listed[0]["models"] == ["coder", "small"]


def test_a_key_is_given_another(fleet: Path) -> None:
    first = herd(fleet, "add", "tom").stdout
    text = (fleet / "fleet.yaml").read_text()
    second = herd(fleet, "rotate", "tom").stdout
    assert first != second
    assert (fleet / "keys/users/tom").read_text() == second
    assert (fleet / "fleet.yaml").read_text() == text


@pytest.mark.parametrize(
    "user",
    ["tom: {key: {file: keys/users/tom}, streams: 2}", "tom: {streams: 2}  # of the attic", "tom:\n      streams: 2"],
)
def test_a_declared_user_gets_the_first_key(fleet: Path, user: str) -> None:
    (fleet / "fleet.yaml").write_text(f"{FLEET}  users:\n    {user}\n    ann: {{key: {{env: ANN}}}}\n")
    done = herd(fleet, "add", "tom")
    assert done.exit_code == 0, done.output
    assert (fleet / "keys/users/tom").read_text() == done.stdout
    assert declared(fleet) == {
        "tom": {"key": {"file": "keys/users/tom"}, "streams": 2},
        "ann": {"key": {"env": "ANN"}},
    }
    assert ("# of the attic" in user) == ("# of the attic" in (fleet / "fleet.yaml").read_text())
    again = herd(fleet, "add", "tom")
    assert (again.exit_code, "`herd users rotate tom` makes another key" in again.output) == (2, True)


def test_a_user_of_whom_only_the_name_is_declared_gets_the_first_key(fleet: Path) -> None:
    (fleet / "fleet.yaml").write_text(f"{FLEET}  users:\n    tom: {{}}\n")
    done = herd(fleet, "add", "tom")
    assert done.exit_code == 0, done.output
    assert declared(fleet) == {"tom": {"key": {"file": "keys/users/tom"}}}


def test_options_of_a_declared_user_are_those_of_the_file(fleet: Path) -> None:
    text = f"{FLEET}  users:\n    tom: {{key: {{file: keys/users/tom}}}}\n"
    (fleet / "fleet.yaml").write_text(text)
    for options in (["--streams", "2"], ["--model", "coder"]):
        done = herd(fleet, "add", "tom", *options)
        assert (done.exit_code, "change `streams` and `models` in" in done.output) == (2, True)
    assert (fleet / "fleet.yaml").read_text() == text
    assert not (fleet / "keys").exists()


def test_a_user_is_taken_out_and_the_key_with_it(fleet: Path) -> None:
    herd(fleet, "add", "tom")
    herd(fleet, "add", "ann")
    done = herd(fleet, "revoke", "tom")
    assert done.exit_code == 0
    assert list(declared(fleet)) == ["ann"]
    assert [file.name for file in (fleet / "keys/users").iterdir()] == ["ann"]
    assert "herd up box" in done.output


def test_a_key_that_lies_elsewhere_is_left_there(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("keys") / "tom"
    elsewhere.write_text("key")
    (fleet / "fleet.yaml").write_text(FLEET + f"  users:\n    tom: {{key: {{file: {elsewhere}}}}}\n")
    assert herd(fleet, "revoke", "tom").exit_code == 0
    assert elsewhere.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "Tom Smith"], "is not a valid"),
        (["add", "../tom"], "is not a valid"),
        (["add", "bob", "--model", "codr"], "no model `codr`"),
        (["add", "ann"], "there is a user `ann` already"),
        (["revoke", "bob"], "no user `bob`"),
        (["rotate", "bob"], "no user `bob`"),
        (["rotate", "env"], "in the environment variable ENV_KEY"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(fleet: Path, words: list[str], said: str) -> None:
    herd(fleet, "add", "ann")
    text = (fleet / "fleet.yaml").read_text().replace("  users:", "  users: ")
    text = text.replace("{ann: ", "{env: {key: {env: ENV_KEY}}, ann: ")
    (fleet / "fleet.yaml").write_text(text)
    done = herd(fleet, *words)
    assert done.exit_code == 2
    assert said in done.output
    assert "help:" in done.output
    assert (fleet / "fleet.yaml").read_text() == text
    assert [file.name for file in (fleet / "keys/users").iterdir()] == ["ann"]


def test_without_a_gateway_it_is_said_how_to_declare_one(tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(cpu_rig()))
    done = herd(tmp_path, "add", "tom")
    assert done.exit_code == 2
    assert "there is no gateway in" in done.output


def test_a_folder_that_may_not_be_written_is_said(fleet: Path) -> None:
    (fleet / "keys").write_text("a file where a folder must be")
    done = herd(fleet, "add", "tom")
    assert done.exit_code == 2
    assert "cannot write" in done.output
    assert "Traceback" not in done.output
    assert (fleet / "fleet.yaml").read_text() == FLEET
