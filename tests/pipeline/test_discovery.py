"""Which fleet a command uses: by -i, by the folder that it runs in, by HERD_INVENTORY."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from llamaherd.cli.herd import main
from llamaherd.pipeline.discovery import find_fleet, is_fleet_folder, searched_folders
from llamaherd.pipeline.load import inventory_path, lock_command
from llamaherd.scaffold import example_rig, fleet_files, write_files

RIG = "# a comment\nrig: attic\nconnect: local\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, which is the current folder; no inventory is set."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HERD_INVENTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def folder(path: Path, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / f"{name}.yaml").write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("attic.yaml", RIG, True),
        ("attic.yml", RIG, True),
        ("attic.yaml", json.dumps({"rig": "attic"}), True),
        ("attic.yaml", "{ 'rig': attic}", True),
        ("attic.yaml", "services:\n  rig: {image: x}\n", False),
        ("attic.yaml", "rigs: []\nright: 1\n", False),
        ("attic.txt", RIG, False),
        ("defaults.yaml", RIG, False),
        ("herd.lock", "version: 2\n", True),
        (".herd", "of another program", False),
    ],
)
def test_what_marks_a_fleet_folder(tmp_path: Path, name: str, text: str, expected: bool) -> None:
    (tmp_path / name).write_text(text)
    assert is_fleet_folder(tmp_path) is expected


def test_the_folder_of_init_is_found_from_within_even_without_a_rig(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(home / "fleet", fleet_files({}))
    below = folder(home / "fleet" / "roles" / "own")
    monkeypatch.chdir(home / "fleet")
    assert inventory_path(None) == Path()
    monkeypatch.chdir(below)
    assert inventory_path(None) == home / "fleet"


def test_herd_check_in_the_folder_of_init(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(home / "fleet", fleet_files({"attic": example_rig()}))
    monkeypatch.chdir(home / "fleet")
    ended = CliRunner().invoke(main, ["check"])
    assert (ended.exit_code, ended.stdout) == (0, "1 rig, 0 findings\n")


def test_the_nearest_folder_wins_and_minus_i_before_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(home, attic=RIG)
    near = folder(home / "near", porch=RIG)
    monkeypatch.setenv("HERD_INVENTORY", str(home / "elsewhere"))
    monkeypatch.chdir(folder(near / "notes"))
    assert inventory_path(None) == near
    assert inventory_path(Path("given")) == Path("given")


def test_the_variable_counts_outside_of_fleets(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(home / "inventory", attic=RIG)
    assert inventory_path(None) == Path("inventory")
    monkeypatch.setenv("HERD_INVENTORY", str(home / "elsewhere"))
    assert inventory_path(None) == home / "elsewhere"


def test_the_search_ends_at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(home, attic=RIG)
    own = folder(home / "tom" / "notes")
    monkeypatch.chdir(own)
    assert find_fleet() == home
    monkeypatch.setenv("HOME", str(own.parent))
    assert find_fleet() is None
    assert searched_folders() == (own, own.parent)


def test_outside_of_home_the_search_ends_at_the_root(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home / "nobody"))
    assert searched_folders() == (home, *home.parents)


def test_a_folder_that_all_can_write_to_counts_only_as_the_current_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as /tmp: another user's roles there would run as programs of this user."""
    shared = folder(home / "shared", attic=RIG)
    shared.chmod(0o1777)
    monkeypatch.chdir(folder(shared / "work"))
    assert find_fleet() is None
    monkeypatch.chdir(shared)
    assert find_fleet() == Path()


def test_a_folder_of_another_user_counts_only_as_the_current_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = folder(home / "theirs", attic=RIG)
    monkeypatch.chdir(folder(theirs / "below"))
    assert find_fleet() == theirs
    if os.geteuid() == 0:
        os.chown(theirs, 4711, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert find_fleet() is None
    monkeypatch.chdir(theirs)
    assert find_fleet() == Path()


def test_a_current_folder_that_was_removed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder(home / "gone")
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_fleet() is None
    ended = CliRunner().invoke(main, ["check"])
    assert (ended.exit_code, "the inventory does not exist" in ended.output) == (2, True)


def test_nothing_found_names_where_it_was_searched(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = folder(home / "a" / "b")
    monkeypatch.chdir(here)
    ended = CliRunner().invoke(main, ["check"])
    assert ended.exit_code == 2
    assert f"searched {here} and the folders above it up to {home}; HERD_INVENTORY is not set" in ended.output
    assert "`herd init DIR`" in ended.output


def test_the_command_that_locks_needs_no_option_where_the_fleet_is_found(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder(home / "fleet", attic=RIG))
    assert lock_command(inventory_path(None)) == "herd lock"
    assert lock_command(home / "other") == f"herd -i {home / 'other'} lock"
