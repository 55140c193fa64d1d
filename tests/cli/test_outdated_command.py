"""`herd outdated`, against git, a registry and a hub of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamaherd.lock.git_refs import newest_tag
from tests.support.envelope import the_rig
from tests.support.moving_versions import REPO, MovingVersions, moving_versions


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingVersions]:
    with moving_versions(tmp_path, monkeypatch) as running:
        yield running


def versions(world: MovingVersions) -> dict[str, dict[str, Any]]:
    ended = world.herd("outdated", "--json")
    assert ended.exit_code == 0, ended.output
    row = the_rig(ended.stdout)
    assert row["rig"] == "duo"
    return {each["names"][0]: each for each in row["versions"]}


def test_nothing_is_newer_at_first(world: MovingVersions) -> None:
    found = versions(world)
    assert {name: (each["newer"], each["error"]) for name, each in found.items()} == dict.fromkeys(
        ("main", "edge", "vllm", "gemma"), (False, None)
    )
    assert all(each["locked"] == each["newest"] for each in found.values())
    assert "newer" not in world.herd("outdated").output


def test_what_is_newer_is_listed(world: MovingVersions) -> None:
    before = [file.read_bytes() for file in sorted(world.folder.iterdir())]
    world.release()
    found = versions(world)
    assert all(each["newer"] for each in found.values())
    assert (found["main"]["locked"], found["main"]["newest"], found["main"]["move_to"]) == (
        "b11434",
        "b12359",
        "b12359",
    )
    assert (found["edge"]["move_to"], found["edge"]["newest"][:7]) == (None, "master ")
    assert found["vllm"]["newest"] == "v0.34.0"
    assert found["vllm"]["move_to"] == f"{world.registry.host}/vllm/vllm-openai:v0.34.0"
    assert found["gemma"]["newest"] == world.hub.commit(REPO)[:9]
    shown = world.herd("outdated").output
    assert "4 newer versions: herd upgrade main edge vllm gemma" in shown
    assert [file.read_bytes() for file in sorted(world.folder.iterdir())] == before


def test_a_commit_that_leaves_the_files_is_not_newer(world: MovingVersions) -> None:
    model = world.hub.repo(REPO)
    assert model
    files = model.commits[world.hub.commit(REPO)]
    old = {path: file.file or file.read(0, file.size) for path, file in files.items()}
    world.hub.push(REPO, {**old, "README.md": b"a typing mistake less"})
    assert not versions(world)["gemma"]["newer"]


def test_one_that_cannot_be_queried_is_a_row_of_its_own(world: MovingVersions) -> None:
    world.release()
    world.registry.status = 503
    found = versions(world)
    assert found["vllm"]["error"].endswith("has a failure (503)")
    assert found["vllm"]["newest"] is None
    assert found["main"]["newer"]
    shown = world.herd("outdated")
    assert shown.exit_code == 0
    assert re.search(r"^vllm +image +v0\.33\.0 +unknown +127", shown.output, re.MULTILINE)
    assert "has a failure (503)" in shown.output
    assert "3 newer versions" in shown.output


def test_tags_of_many_pages_are_read(world: MovingVersions) -> None:
    world.registry.page = 3
    world.registry.images |= {f"vllm/vllm-openai:v0.33.{number}": b"" for number in range(1, 11)}
    assert versions(world)["vllm"]["newest"] == "v0.33.10"


def test_a_rig_that_is_none(world: MovingVersions) -> None:
    ended = world.herd("outdated", "dou")
    assert (ended.exit_code, "did you mean `duo`?" in ended.output) == (2, True)


def test_nothing_locked(world: MovingVersions) -> None:
    (world.folder / "herd.lock").unlink()
    ended = world.herd("outdated")
    assert (ended.exit_code, "nothing is locked" in ended.output) == (0, True)


@pytest.mark.parametrize(
    ("tag", "others", "newest"),
    [
        ("b11434", ["b9", "b12359", "b99999-rc1", "v2", "master"], "b12359"),
        ("v0.33.0", ["v0.33.1", "v0.4.0", "v1.0", "0.99.0", "v1.0.0"], "v1.0.0"),
        (
            "server-cuda13-b11434",
            ["server-cuda12-b20000", "server-cuda13-b12000", "server-b30000"],
            "server-cuda13-b12000",
        ),
        ("latest", ["b1", "newer"], "latest"),
        ("v0.33.0-cu129", ["v0.34.0-cu129"], "v0.34.0-cu129"),
        ("v0.33.0-cu129", ["v0.33.0-cu130", "v0.34.0"], "v0.33.0-cu129"),
        ("b5", [f"b{'9' * 5000}"], "b5"),
    ],
    ids=str,
)
def test_the_newest_tag_is_of_the_same_kind(tag: str, others: list[str], newest: str) -> None:
    assert newest_tag(tag, others) == newest
