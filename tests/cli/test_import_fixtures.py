"""`herd import` of every fixture that starts a server: the help names its models, and the rig with it is right."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from llamaherd.cli import import_run
from llamaherd.cli.herd import main
from llamaherd.lock import LockedModel
from llamaherd.pipeline.new_instance import FoundModel, ModelSource
from llamaherd.recipes import understand
from llamaherd.recipes.servers import OF_EVERY_PROGRAM, PORTS
from tests.recipes.test_importing import DATA, lock

RIG = {
    "rig": "duo",
    "connect": {"host": "duo.lan"},
    "host": {"os": "ubuntu-24.04", "cpu": {"cores": 32}, "ram": "2000GB"},
    "gpus": {
        "cuda": "13.0",
        "cards": {f"gpu{n}": {"model": "RTX 3090", "uuid": f"GPU-{n}", "memory": "900GB"} for n in range(1, 9)},
    },
    "engines": {"main": {"kind": "llama.cpp", "ref": "b11434"}},
    "models": {},
    "instances": {},
}


def starts_a_server(file: Path) -> bool:
    return any(each.program in PORTS and not each.has(*OF_EVERY_PROGRAM) for each in understand(file).servers)


FILES = [file for file in sorted(DATA.rglob("*")) if file.is_file() and starts_a_server(file)]


def locked(name: str, repo: str, files: str) -> LockedModel:
    model = next(each for each in lock().models if each.repo == f"org/{name}")
    return model.model_copy(update={"repo": repo, "files": files})


def found(source: ModelSource, _folder: Path) -> FoundModel:
    """Every model of a hub: one with experts and a prediction head."""
    files = f"*{source.quant}*.gguf" if source.quant else "*.gguf"
    keys = {"hf": source.repo, "files": files}
    return FoundModel("main", keys, locked("main", source.repo, files), source.repo)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def resolve(repo: str, _revision: str, files: str, **_: Any) -> LockedModel:
        return locked("whole", repo, files)

    monkeypatch.setattr(import_run, "_found", found)
    monkeypatch.setattr("llamaherd.lock.hub.resolve", resolve)
    (tmp_path / "duo.yaml").write_text(yaml.safe_dump(RIG, sort_keys=False))
    return tmp_path


def imported(fleet: Path, file: Path, *words: str) -> Result:
    arguments = ["import", str(file), "-i", str(fleet), "--dry-run", "--json", *words]
    ended = CliRunner().invoke(main, arguments, prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def test_there_are_enough() -> None:
    assert len(FILES) >= 60


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_fixture_is_imported_by_the_options_that_the_help_names(file: Path, fleet: Path) -> None:
    ended = imported(fleet, file)
    (error,) = json.loads(ended.stdout)["errors"] or ({"help": ""},)
    models = [word for each in re.findall(r"--model ([^`\s]+)", error["help"]) for word in ("--model", each)]
    assert bool(models) == (ended.exit_code == 1)
    ended = imported(fleet, file, *(word.replace("OWNER/NAME:QUANT", "org/main:Q4_K_M") for word in models))
    if file.name == "a-reranker.sh":
        assert "LH178" in ended.stderr, "the model that stands for all is no reranker"
        return
    assert ended.exit_code == 0, ended.output
    (row,) = json.loads(ended.stdout)["rigs"]
    assert row["instances"]
    assert all(each["comments"][0].startswith(f"from {file.name}:") for each in row["instances"])
