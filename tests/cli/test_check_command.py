"""`herd check`: its screen at two widths, on a terminal and in a pipe; and what `--fix` writes."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from tests.support.envelope import envelope
from tests.support.ssh_hosts import HERD

RIG = """\
# the rig in the attic
rig: attic
connect: {host: attic.lan, user: tom}
host: {os: debian-13, cpu: {cores: 8}, ram: 64GB}
gpus:
  driver: {branch: 580}
  cuda: "13.0"
  cards: {main: {model: RTX 3090}}
engines:
  main: {kind: llama.cpp, ref: b11434}
models:
  small: {hf: bartowski/google_gemma-3-4b-it-GGUF, quant: Q4_K_M}
instances:
  chat:
    engine: mian  # the newest
    model: small
    on: [main]
    contxt: 8192
    port: 8080
"""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "attic.yaml").write_text(RIG)
    return tmp_path


def herd(*words: str) -> Result:
    return CliRunner().invoke(main, words)


PIPED = """\
attic.yaml:18:5: error LH010: there is no key `contxt` here
  18 |     contxt: 8192
     |     ^^^^^^
  help: did you mean `context`? [--fix]
explained by: herd explain LH010

1 error in 1 file; 1 can be fixed by --fix
"""


@pytest.mark.usefixtures("fleet")
def test_in_a_pipe_it_is_whole_lines_without_colour() -> None:
    found = herd("check", "attic.yaml")
    assert (found.exit_code, found.stdout, found.stderr) == (1, PIPED, "")


LONG = RIG.replace(
    "ref: b11434}", f"ref: b11434, options: {{GGML_LTO: true, GGML_NATIVE: true, {'X' * 20}: 1, cudda: 1}}}}"
)


def on_a_terminal(**variables: str) -> str:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", **variables}
    command = [HERD, "check", "attic.yaml"]
    subprocess.run(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment, check=False)
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        return terminal.read1(100_000).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 100])
def test_no_line_is_wider_than_the_terminal(fleet: Path, columns: int) -> None:
    (fleet / "attic.yaml").write_text(LONG.replace("    on: [main]", "    temprature_of_sampling: 1"))
    lines = on_a_terminal(COLUMNS=str(columns), NO_COLOR="1").splitlines()
    assert max(map(len, lines)) <= columns
    assert max(map(len, lines)) > columns - 20
    assert any(line.startswith("        ") for line in lines)


@pytest.mark.usefixtures("fleet")
def test_a_terminal_has_colours() -> None:
    assert "\x1b[31m\x1b[1merror\x1b[0m LH010" in on_a_terminal(COLUMNS="80")
    assert on_a_terminal(COLUMNS="80", NO_COLOR="1") == PIPED


FIXED = RIG.replace("mian", "main").replace("contxt", "context")


def test_a_fix_changes_what_is_wrong_and_nothing_else(fleet: Path) -> None:
    file = fleet / "attic.yaml"
    file.chmod(0o640)
    done = herd("check", "--fix", "attic.yaml")
    assert file.read_text() == FIXED
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert done.stdout.startswith(
        "attic.yaml:18:5: fixed LH010: there is no key `contxt` here\n"
        "  18 -     contxt: 8192\n"
        "  18 +     context: 8192\n"
        "\n"
        "attic.yaml:15:13: fixed LH020: "
    )
    assert "  15 +     engine: main  # the newest\n" in done.stdout
    assert "\n2 fixed, " in done.stdout
    assert (done.exit_code, [path.name for path in fleet.iterdir()]) == (0, ["attic.yaml"])
    again = herd("check", "--fix", "attic.yaml")
    assert again.stdout.splitlines()[-1].startswith("nothing to fix, ")


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_marks_stay(fleet: Path, start: str, end: str) -> None:
    file = fleet / "attic.yaml"
    file.write_bytes((start + RIG.replace("rig: attic", "rgi: attic")).replace("\n", end).encode())
    herd("check", "--fix", "attic.yaml")
    assert file.read_bytes() == (start + FIXED).replace("\n", end).encode()


def test_a_link_stays_one(fleet: Path) -> None:
    (fleet / "attic.yaml").rename(fleet / "real.txt")
    (fleet / "attic.yaml").symlink_to("real.txt")
    herd("check", "--fix", "attic.yaml")
    assert (fleet / "attic.yaml").is_symlink()
    assert (fleet / "real.txt").read_text() == FIXED


def test_defaults_are_fixed_where_they_stand(fleet: Path) -> None:
    (fleet / "defaults.yaml").write_text("instance_defaults:\n  batc: 512  # all\n")
    done = herd("check", "--fix", "-i", str(fleet))
    assert (fleet / "defaults.yaml").read_text() == "instance_defaults:\n  batch: 512  # all\n"
    assert "3 fixed" in done.stdout


def test_a_file_that_cannot_be_replaced_is_an_error(fleet: Path) -> None:
    (fleet / f".attic.yaml.{os.getpid()}.part").mkdir()
    done = herd("check", "--fix", "attic.yaml")
    assert done.exit_code == 1
    assert "error: cannot write" in done.stderr
    assert (fleet / "attic.yaml").read_text() == RIG


@pytest.mark.usefixtures("fleet")
def test_machines_get_the_edits_and_what_was_fixed() -> None:
    found = envelope(herd("check", "attic.yaml", "--json").stdout)
    (finding,) = found["findings"]
    span = {"line": 18, "column": 5, "end_column": 11}
    assert finding["edits"] == [{"file": "attic.yaml", **span, "old": "contxt", "new": "context"}]
    assert (found["ok"], found["data"]) == (False, {"total": 1, "fixable": 1, "fixed": None})
    fixed = envelope(herd("check", "attic.yaml", "--json", "--fix").stdout)
    assert [each["code"] for each in fixed["data"]["fixed"]] == ["LH010", "LH020"]
    assert fixed["ok"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("quant: Q4_K_M", "quant: Q4_K_L"),
        ("model: RTX 3090", "model: RTX 3095"),
        ("cores: 8", "cores: eight"),
        ("port: 8080", "port: 8080\n    parallell: four"),
        ("port: 8080", "port: 8080\n    portt: 8081"),
        ("user: tom", "user: root@192.168.1.20"),
    ],
)
def test_a_guess_is_not_applied(fleet: Path, right: str, wrong: str) -> None:
    text = FIXED.replace(right, wrong)
    assert text != FIXED
    (fleet / "attic.yaml").write_text(text)
    herd("check", "--fix", "attic.yaml")
    assert (fleet / "attic.yaml").read_text() == text


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("Dockerfile", "RUN x\n", 2),
        ("a.container", "[Container]\n", 2),
        ("notes.txt", "buy milk\n", 2),
        ("k.yaml", "apiVersion: v1\nkind: Pod\n", 2),
        ("a.sh", "llama-server -m a.gguf -c 4096\n", 0),
        ("a.sh", "llama-server -m a.gguf -c 4096 --no-mmap\n", 1),
        ("r.sh", "llama-server --models-preset /x.ini\n", 0),
    ],
)
def test_a_file_of_which_nothing_was_read_ends_with_2(name: str, text: str, code: int, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["check", str(tmp_path / name)])
    assert result.exit_code == code
    assert ("The same in an inventory" in result.stdout) is (name == "a.sh")


def test_programs_that_check_the_rest_are_named_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    file = tmp_path / "compose.yaml"
    file.write_text("services: {a: {image: redis}}\n", encoding="utf-8")
    assert "The rest" not in CliRunner().invoke(main, ["check", str(file)]).stdout
    (tools / "docker").write_text("#!/bin/sh\n", encoding="utf-8")
    (tools / "docker").chmod(0o755)
    shown = CliRunner().invoke(main, ["check", str(file)]).stdout
    assert f"`docker compose -f {file} config --quiet`" in shown
