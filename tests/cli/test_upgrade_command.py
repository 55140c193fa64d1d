"""`herd upgrade`: tags move in the YAML with comments kept, everything else in the lock, and nothing by halves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.cli import version_moves
from llamaherd.pipeline.load import read_lock
from tests.support.moving_versions import REPO, MovingVersions, moving_versions


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingVersions]:
    with moving_versions(tmp_path, monkeypatch) as running:
        yield running


def contents(world: MovingVersions) -> list[bytes]:
    return [file.read_bytes() for file in sorted(world.folder.iterdir())]


def test_everything_moves(world: MovingVersions) -> None:
    before, old = world.file.read_text(), read_lock(world.folder)
    world.release()
    ended = world.herd("upgrade", "--yes", "--no-apply")
    assert ended.exit_code == 0, ended.output
    assert world.file.read_text() == before.replace("ref: b11434", "ref: b12359").replace("v0.33.0", "v0.34.0")
    new = read_lock(world.folder)
    assert {each.ref for each in new.engines} == {"b12359", "master"}
    assert new.commit(f"file://{world.git}", "master") != old.commit(f"file://{world.git}", "master")
    assert new.images[0].image.endswith(":v0.34.0")
    assert new.models[0].commit == world.hub.commit(REPO)
    assert new.models[0].header
    assert "everything is at its newest version" in world.herd("upgrade", "--yes").output


def test_one_name_moves_alone(world: MovingVersions) -> None:
    before, old = world.file.read_text(), read_lock(world.folder)
    world.release()
    ended = world.herd("upgrade", "main", "--yes", "--no-apply")
    assert ended.exit_code == 0, ended.output
    assert "main  b11434 → b12359" in ended.output
    assert world.file.read_text() == before.replace("ref: b11434", "ref: b12359")
    new = read_lock(world.folder)
    assert (new.models, new.images) == (old.models, old.images)
    model = world.herd("upgrade", "gemma", "--yes", "--no-apply")
    assert model.exit_code == 0, model.output
    assert world.file.read_text() == before.replace("ref: b11434", "ref: b12359")
    assert read_lock(world.folder).models[0].commit == world.hub.commit(REPO)


def test_a_tag_moves_where_it_is_written(world: MovingVersions) -> None:
    """The engine is declared for all rigs, with its `flags`; each rig's own file stays."""
    text = world.file.read_text()
    line = next(each for each in text.splitlines() if each.startswith("  main:"))
    world.file.write_text(text.replace(line + "\n", ""))
    defaults = world.folder / "defaults.yaml"
    own = line.replace("}}   # stable", "}, flags: b11434}   # stable")
    defaults.write_text(f"engines:\n{own}\n")
    other = world.file.read_text().replace("rig: duo", "rig: six").replace("port: 9", "port: 10")
    (world.folder / "six.yaml").write_text(other)
    assert world.herd("lock").exit_code == 0
    before = world.file.read_text()
    world.release()
    ended = world.herd("upgrade", "main", "--yes", "--no-apply")
    assert ended.exit_code == 0, ended.output
    assert defaults.read_text() == f"engines:\n{own.replace('b11434', 'b12359')}\n"
    assert world.file.read_text() == before


def test_a_dry_run_changes_nothing(world: MovingVersions) -> None:
    world.release()
    before = contents(world)
    ended = world.herd("upgrade", "--dry-run")
    assert ended.exit_code == 0, ended.output
    assert "-  main:" in ended.output
    assert contents(world) == before


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["mian", "--yes"], 2, "did you mean `main`?"),
        (["main"], 2, "add --yes"),
        (["vllm", "--yes"], 1, "has a failure (503)"),
    ],
    ids=str,
)
def test_what_is_refused_writes_nothing(world: MovingVersions, words: list[str], code: int, message: str) -> None:
    world.release()
    world.registry.status = 503
    before = contents(world)
    ended = world.herd("upgrade", *words)
    assert (ended.exit_code, message in ended.output) == (code, True), ended.output
    assert contents(world) == before


def test_a_lock_that_another_run_writes_during_the_question_stays(
    world: MovingVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.release()
    before = world.file.read_text()
    monkeypatch.setattr(version_moves, "confirm_write", lambda *_: world.herd("lock", "--upgrade", "gemma"))
    ended = world.herd("upgrade", "main", "--yes", "--no-apply")
    assert ended.exit_code == 1, ended.output
    assert "herd.lock was changed by another program meanwhile" in ended.output
    assert world.file.read_text() == before
    assert read_lock(world.folder).models[0].commit == world.hub.commit(REPO)


def test_a_new_version_that_the_inventory_does_not_suit_is_refused(world: MovingVersions) -> None:
    """Build b11434 no longer has a flag of build b9093 that the server is started with."""
    text = world.file.read_text().replace("ref: b11434", "ref: b9093")
    flag = "extra_args: [--checkpoint-every-n-tokens, '4096'], port: 8080"
    world.file.write_text(text.replace("port: 8080", flag))
    world.commit("older", "refs/tags/b9093")
    assert world.herd("lock").exit_code == 0
    before = contents(world)
    ended = world.herd("upgrade", "main", "--yes", "--no-apply")
    assert ended.exit_code == 1, ended.output
    assert "the inventory has errors with the new versions; nothing was written" in ended.output
    assert "--checkpoint-every-n-tokens" in ended.output
    assert contents(world) == before


def test_a_server_with_a_gate_is_measured_first(world: MovingVersions) -> None:
    """The host does not respond, so the new version cannot be measured, and nothing is written."""
    text = world.file.read_text().replace("port: 8080}", "port: 8080, gate: {decode: -3%}}")
    world.file.write_text(text)
    world.release()
    before = contents(world)
    ended = world.herd_process("upgrade", "main", "--yes")
    assert ended.returncode == 1, ended.stdout
    assert "installs the new versions, and measures chat" in ended.stdout
    assert contents(world) == before
    without = world.herd("upgrade", "main", "--yes", "--no-try", "--no-apply")
    assert without.exit_code == 0, without.output
    assert world.file.read_text() == text.replace("ref: b11434", "ref: b12359")


def test_it_is_applied_at_once(world: MovingVersions) -> None:
    """The host does not respond: the versions are written, and `herd up` reports the host."""
    world.release()
    ended = world.herd_process("upgrade", "gemma", "--yes")
    assert ended.returncode == 1, ended.stdout
    assert "--> Inspecting 1 host..." in ended.stdout
    assert read_lock(world.folder).models[0].commit == world.hub.commit(REPO)


def test_lock_names_the_command_that_moves_a_tag(world: MovingVersions) -> None:
    world.release()
    before = contents(world)
    ended = world.herd("lock", "--upgrade", "main", "--upgrade", "vllm")
    assert ended.exit_code == 0, ended.output
    assert "`main` stays at the tag `b11434`, which the inventory names" in ended.output
    assert "`herd upgrade main` replaces it by the newest tag" in ended.output
    assert "`herd upgrade vllm` replaces it by the newest tag" in ended.output
    assert contents(world) == before
    branch = world.herd("lock", "--upgrade", "edge")
    assert (branch.exit_code, "stays at" in branch.output) == (0, False), branch.output
