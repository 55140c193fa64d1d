"""Wrong arguments of `herd`: exit code 2, one sentence, and a way out that is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from llamaherd.cli.herd import main

DUO = (Path(__file__).parents[1] / "data" / "duo.yaml").read_text(encoding="utf-8")

WRONG = {
    "check duu.yaml": "did you mean `duo.yaml`?",
    "check empty": "`herd init DIR` begins with one",
    "check defaults.yaml": "defaults.yaml holds no rig",
    "-i . show dou": "did you mean `duo`?",
    "-i . show zebra": "known names: duo",
    "-i . show": "run `herd lock`",
    "-i . lock --upgrade mian": "did you mean `main`?",
    "-i . lock --upgrad main": "Did you mean '--upgrade'?",
    "-i . up dou": "did you mean `duo`?",
    "-i . verify dou": "did you mean `duo`?",
    "-i . fit smal": "did you mean `small`?",
    "-i . fit small": "`small` is not in the lock",
    "fit tyny.gguf": "did you mean `tiny.gguf`?",
    "fit elsewhere/a.gguf": "there is no file elsewhere/a.gguf",
    "fit empty": "`empty` is a folder",
    "fit tiny.gguf --kv q8": "did you mean `--kv q8_0`?",
    "fit tiny.gguf --kv q4_k": "known names: bf16",
    "fit tiny.gguf --vram 24": "is `24G` meant?",
    "fit tiny.gguf --vram 24X": "write it like 24G",
    "fit tiny.gguf --context 8k": "did you mean 8192?",
    "fit tiny.gguf --parallel 0": "not in the range",
    "chek": "'check'",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "duo.yaml").write_text(DUO, encoding="utf-8")
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    (tmp_path / "empty").mkdir()
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "coder").write_text("key\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HERD_INVENTORY", raising=False)
    return tmp_path


@pytest.mark.parametrize("command", WRONG)
def test_it_is_said_and_ends_with_2(command: str, folder: Path) -> None:
    if "defaults.yaml" in command:
        (folder / "defaults.yaml").write_text("host: {os: debian-13}\n", encoding="utf-8")
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == 2, done.output
    assert WRONG[command] in done.output
    assert "Traceback" not in done.output
