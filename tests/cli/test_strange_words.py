"""Whatever is typed where a number, a name or a path is wanted: one short sentence, never a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.mutations import NUMBERS
from llamaherd.cli.herd import main
from llamaherd.cli.status import _is_number
from tests.support.examples import EXAMPLES

NINES = "9" * 4301
COMMANDS = (
    "fit x/y --vram {} --context {}",
    "fit x/y --ubatch {}",
    "fit x/y --ram {}",
    "rollback duo --to {}",
    "up duo --waves {}",
    "prune duo --keep {}",
    "diff duo --lock-wait {}",
    "bench duo/chat --time {}",
    "users add tom --streams {}",
    "report duo/{}",
    "explain {}",
    "{}",
    "--{}",
    "check {}",
    "-i {} check",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("word", ["²", NINES, "x\x1b[31m\u202e", "a" * 5000])
def test_it_is_refused_in_short_lines(command: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERD_INVENTORY", str(tmp_path / "none"))
    ended = CliRunner().invoke(main, [part.format(word) for part in command.split(" ")])
    assert isinstance(ended.exception, SystemExit)
    assert ended.exit_code in (1, 2)
    assert max(map(len, ended.output.splitlines())) < 1200
    assert all(line.isprintable() for line in ended.output.splitlines())


def rig_with(folder: Path, value: str, *keys: str) -> Path:
    """An example of a rig in which these keys have another value."""
    text = (EXAMPLES / "one.yaml").read_text(encoding="utf-8")
    for key in keys:
        text = re.sub(rf"\b{key}: [^,}}\n]*", f"{key}: {value}", text)
    file = folder / "one.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("value", NUMBERS)
def test_keys_that_take_numbers(value: str, tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["check", str(rig_with(tmp_path, value, "context", "port", "cores", "decode"))])
    assert ended.exception is None or isinstance(ended.exception, SystemExit)
    assert max(map(len, ended.output.splitlines()), default=0) < 1200


def test_a_number_of_more_digits_than_any_key_takes_is_named_at_its_place(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["check", str(rig_with(tmp_path, "0x" + "f" * 4000, "context"))])
    assert "LH012: `instances.chat.context` must be a whole number" in ended.stdout


@pytest.mark.parametrize(
    ("word", "number"),
    [("5", True), ("2.5", True), (".5", True), ("²", False), ("1²", False), (NINES, False), (".", False)],
)
def test_what_follows_watch(word: str, number: bool) -> None:
    assert _is_number(word) is number
