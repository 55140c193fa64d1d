"""`herd lock --try`: what it refuses before it touches a host, and which servers it measures."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.cli.lock import LockTrial, try_lock
from llamaherd.inventory.schema import Rig
from llamaherd.lock.file import write_lock
from llamaherd.measure.trials.trial import server_with
from tests.bench.grouped import CARD, GROUPED, RIG
from tests.support.rigs import KEY, changed, cpu_rig, hub_lock, planned

REPO = "owner/moe"


def tried(folder: Path, *words: str) -> Result:
    ended = CliRunner().invoke(main, ["lock", *words, "-i", str(folder)], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rig whose drafter has its model from a hub that is asked in vain."""
    rig = cpu_rig()
    rig["models"]["moe"] = {"hf": REPO, "files": "*.gguf"}
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(rig))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    return tmp_path


def test_it_tries_what_is_named(fleet: Path) -> None:
    ended = tried(fleet, "--try", "box")
    assert ended.exit_code == 2
    assert ended.output == "error: --try needs --upgrade\n  help: for example `herd lock --upgrade main --try duo`\n"


def test_it_speaks_to_people(fleet: Path) -> None:
    ended = tried(fleet, "--upgrade", "moe", "--try", "box", "--json")
    assert ended.exit_code == 2
    assert "leave out --json" in ended.output


def test_a_name_that_nothing_has(fleet: Path) -> None:
    ended = tried(fleet, "--upgrade", "meo", "--try", "box")
    assert ended.exit_code == 2
    assert "LH035" in ended.output


@pytest.mark.usefixtures("starts_processes")
def test_a_hub_that_does_not_answer(fleet: Path) -> None:
    ended = tried(fleet, "--upgrade", "moe", "--try", "box")
    assert ended.exit_code == 1
    assert not (fleet / "herd.lock").exists()


def test_a_rig_that_is_none(fleet: Path) -> None:
    """It is said before a hub is asked."""
    ended = tried(fleet, "--upgrade", "moe", "--try", "bxo")
    assert ended.exit_code == 2
    assert "LH007" in ended.output
    assert "did you mean `box`?" in ended.output


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"instances/two/extra_args": ["--cache-ram", "64"]}, ["two"]),
        ({"engines/main/options": {"GGML_LTO": True}}, ["one", "two", "chat"]),
    ],
    ids=["nothing", "one of a group", "its engine"],
)
def test_what_computes_otherwise_is_measured_and_of_a_group_each_alone(
    changes: dict[str, object], names: list[str]
) -> None:
    tried = LockTrial(Path(), None, Rig.model_validate(RIG), GROUPED, planned(RIG, changes), hub_lock())
    found = list(tried.pairs())
    assert [each.b.instance.name for each in found] == names
    for each in found[:2]:
        sides = (each.a.instance, each.b.instance)
        assert [(one.name, one.endpoint.listen, one.members) for one in sides] == [
            (each.b.instance.name, "127.0.0.1", ())
        ] * 2
        assert len({one.endpoint.port for one in sides}) == 1
    assert all(server_with(GROUPED, name) == CARD for name in ("one", "two")), "it is stopped meanwhile"


def test_a_missing_file_is_reported_before_the_host_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = hub_lock()
    (model,) = old.models
    shards = tuple(shard.model_copy(update={"sha256": "b" * 64}) for shard in model.shards)
    new = old.model_copy(update={"models": (model.model_copy(update={"commit": "c" * 40, "shards": shards}),)})
    changes = {
        "connect/port": 9,
        "engines/main/source/archive": str(tmp_path / "missing.tar.gz"),
        "models/gemma": {"hf": model.repo, "files": model.files},
    }
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(changed(cpu_rig(), changes)))
    write_lock(tmp_path / "herd.lock", old)
    monkeypatch.setenv("CHAT_KEY", KEY)
    monkeypatch.delenv("COLUMNS", raising=False)  # no line is wrapped
    with pytest.raises(SystemExit) as ended:
        try_lock(tmp_path, tmp_path, new, "box", yes=True, lock_wait=0)
    assert ended.value.code == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if " error " in line]
    assert [f"LH024: there is no file {tmp_path / 'missing.tar.gz'}" in line for line in errors] == [True, False]
