"""`herd compare --run`, as far as it goes without a host: what is refused before one is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from tests.support.rigs import cpu_rig


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rig that nobody answers for."""
    rig = cpu_rig()
    rig["connect"] = {"host": "127.0.0.1", "port": 9}
    (tmp_path / "rig.yaml").write_text(yaml.safe_dump(rig))
    monkeypatch.setenv("HERD_INVENTORY", str(tmp_path))
    return tmp_path


def herd(*words: str) -> Result:
    ended = CliRunner().invoke(main, ["compare", *words], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--run box/chat", "A and B are the same"),
        ("--run box/chat box/chat", "A and B are the same"),
        ("--run box --with batch=1", "names no instance"),
        ("--run box/chat gpu/chat", "on two hosts"),
        ("--run box/nobody --with batch=1", "has no instance `nobody`"),
        ("--run box/drafter --with batch=256", "is a container"),
        ("--run box/chat --with port=1", "does not apply to a trial"),
        ("--run box/chat --with batch", "sets nothing"),
        ("--run box/chat --with batch=many", "--with batch=many: error LH012"),
        ("--run box/chat --with bacth=512", "--with bacth=512: error LH010"),
        ("--run box/chat --with batch=512 --budget soon", "write a time"),
        ("--run box/chat --with batch=512 --cells poems", "there is no `poems`"),
        ("box/chat --with batch=512", "Missing argument 'B'"),
        ("box/chat box/chat:2 --with batch=512", "need --run"),
    ],
)
def test_what_cannot_be_measured_is_said_before_a_host_is_asked(inventory: Path, words: str, said: str) -> None:
    ended = herd(*words.split())
    assert ended.exit_code == 2, ended.output
    assert said in ended.stderr
    assert not (inventory / "results").exists()


@pytest.mark.usefixtures("starts_processes")
def test_a_host_that_does_not_answer_is_said(inventory: Path) -> None:
    ended = herd("--run", "box/chat", "--with", "batch=512", "--yes")
    assert ended.exit_code == 1, ended.output
    assert "127.0.0.1 port 9" in ended.stderr
    assert not (inventory / "results").exists()
