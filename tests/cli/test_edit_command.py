"""`herd edit`, with programs as editors and a real terminal for its question."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

RIG = """\
rig: duo   # the big one
connect: {host: duo.lan, user: tom}
host: {os: debian-12, cpu: {cores: 4}, ram: 32GB}
engines:
  main: {kind: llama.cpp, ref: b11434}
models: {}
instances: {}
"""
COPIES = "herd-edit-"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "duo.yaml").write_text(RIG)
    (folder / "duo.yaml").chmod(0o640)
    (tmp_path / "tmp").mkdir()
    return folder


def editor(fleet: Path, *steps: tuple[str, str]) -> str:
    """Return the command of an editor that replaces a text by another one, another pair each time that it is called."""
    program = fleet.parent / "editor.py"
    program.write_text(
        "import sys, pathlib\n"
        f"steps, count = {steps!r}, pathlib.Path({str(fleet.parent / 'count')!r})\n"
        "number = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(number + 1))\n"
        "file = pathlib.Path(sys.argv[-1])\n"
        "assert file.stat().st_mode & 0o77 == 0 or file.parent.stat().st_mode & 0o77 == 0\n"
        "file.write_text(file.read_text().replace(*steps[number]))\n"
    )
    return f"{sys.executable} '{program}'"


def environment(fleet: Path, command: str | None, **more: str) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name not in ("VISUAL", "EDITOR")}
    return known | {"TMPDIR": str(fleet.parent / "tmp")} | ({"EDITOR": command} if command else {}) | more


def edit(fleet: Path, command: str | None, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llamaherd.cli", "edit", *words, "-i", str(fleet)],
        env=environment(fleet, command, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )


def edit_on_terminal(fleet: Path, command: str, answer: str) -> tuple[int, str]:
    """Run it on a terminal, and type an answer to its question."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "llamaherd.cli", "edit", "duo", "-i", str(fleet)],
        env=environment(fleet, command),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown, typed = b"", False
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 4096)
        except OSError:
            break
        shown += piece
        if not typed and b"discard the changes?" in shown:
            os.write(ours, f"{answer}\n".encode())
            typed = True
    os.close(ours)
    return process.wait(60), shown.decode()


def copies(fleet: Path) -> list[str]:
    return [each.name for each in (fleet.parent / "tmp").iterdir() if each.name.startswith(COPIES)]


@pytest.mark.parametrize("name", [["duo"], ["duo.yaml"], []], ids=str)
def test_a_valid_file_is_saved_with_its_mode(fleet: Path, name: list[str]) -> None:
    ended = edit(fleet, editor(fleet, ("32GB", "64GB")), *name)
    assert ended.returncode == 0, ended.stdout
    assert "saved" in ended.stdout
    file = fleet / "duo.yaml"
    assert file.read_text() == RIG.replace("32GB", "64GB")
    assert file.stat().st_mode & 0o777 == 0o640
    assert copies(fleet) == []


def test_visual_comes_first(fleet: Path) -> None:
    ended = edit(fleet, "false", VISUAL=editor(fleet, ("32GB", "64GB")))
    assert ended.returncode == 0, ended.stdout


def test_an_unchanged_file_is_not_written(fleet: Path) -> None:
    before = (fleet / "duo.yaml").stat()
    ended = edit(fleet, "true")
    assert (ended.returncode, "unchanged" in ended.stdout) == (0, True)
    assert (fleet / "duo.yaml").stat().st_ino == before.st_ino
    assert copies(fleet) == []


def test_without_a_terminal_the_changes_are_kept_aside(fleet: Path) -> None:
    ended = edit(fleet, editor(fleet, ("cores: 4", "cores: many")))
    assert ended.returncode == 1
    assert "LH012" in ended.stdout
    assert "cores: many" in ended.stdout, "the line is that of the changed text"
    assert (fleet / "duo.yaml").read_text() == RIG
    (copy,) = copies(fleet)
    assert (fleet.parent / "tmp" / copy / "duo.yaml").read_text() == RIG.replace("cores: 4", "cores: many")
    assert str(fleet.parent / "tmp" / copy / "duo.yaml") in ended.stdout.replace("\n", "")


def test_it_can_be_edited_again(fleet: Path) -> None:
    command = editor(fleet, ("cores: 4", "cores: many"), ("cores: many", "cores: 8"))
    code, shown = edit_on_terminal(fleet, command, "edit")
    assert code == 0, shown
    assert (fleet / "duo.yaml").read_text() == RIG.replace("cores: 4", "cores: 8")
    assert copies(fleet) == []


def test_it_can_be_discarded(fleet: Path) -> None:
    code, shown = edit_on_terminal(fleet, editor(fleet, ("engines:", "engines")), "discard")
    assert code == 1, shown
    assert (fleet / "duo.yaml").read_text() == RIG
    assert copies(fleet) == []


def test_a_mistake_elsewhere_does_not_hinder(fleet: Path) -> None:
    (fleet / "six.yaml").write_text("rig: six\nhost: 1\n")
    ended = edit(fleet, editor(fleet, ("32GB", "64GB")), "duo")
    assert ended.returncode == 0, ended.stdout
    broken = edit(fleet, editor(fleet, ("", ""), ("host: 1", "host: 2")), "six")
    assert broken.returncode == 1, broken.stdout


def test_a_file_that_another_program_changed_is_kept(fleet: Path) -> None:
    script = fleet.parent / "both.sh"
    script.write_text(f'#!/bin/sh\necho "# theirs" >>{fleet}/duo.yaml\necho "# ours" >>"$1"\n')
    script.chmod(0o755)
    ended = edit(fleet, str(script))
    assert ended.returncode == 1
    assert "was changed by another program meanwhile" in ended.stdout
    assert (fleet / "duo.yaml").read_text() == f"{RIG}# theirs\n"
    assert len(copies(fleet)) == 1


@pytest.mark.parametrize(
    ("command", "words", "code", "message"),
    [
        ("false", [], 1, "`false` ended with exit code 1"),
        ("/nowhere/editor", [], 1, "cannot run `/nowhere/editor`: No such file or directory"),
        ("'unclosed", [], 2, "EDITOR has a quote that is not closed"),
        ("true", ["dou"], 2, "did you mean `duo`?"),
    ],
)
def test_what_is_refused(fleet: Path, command: str, words: list[str], code: int, message: str) -> None:
    ended = edit(fleet, command, *words)
    assert (ended.returncode, message in ended.stdout) == (code, True), ended.stdout
    assert (fleet / "duo.yaml").read_text() == RIG


def test_of_several_rigs_one_is_named(fleet: Path) -> None:
    (fleet / "six.yaml").write_text(RIG.replace("duo", "six"))
    ended = edit(fleet, "true")
    assert (ended.returncode, "name one of duo, six" in ended.stdout) == (2, True), ended.stdout


def test_no_editor(fleet: Path) -> None:
    ended = edit(fleet, None, PATH="/nowhere")
    assert (ended.returncode, "there is no editor: neither nano, vim nor vi" in ended.stdout) == (2, True), ended.stdout
