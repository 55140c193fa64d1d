"""Units of systemd: it reads what was meant, finds nothing wrong, and holds them as tightly as they can be."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llamaherd.text.quoting import systemd_argument as unit_quote
from tests.render.pieces import (
    power,
)
from tests.render.plans import (
    HELD,
    WATCHING,
)
from tests.render.texts import UNITS
from tests.support.prometheus import monitored


def exec_start(unit: str) -> str:
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    return line.removeprefix("ExecStart=")


def systemd_split(line: str) -> list[str]:
    """ExecStart= as systemd reads it: C escapes in words and quotes, then `%%`, then `$$` (systemd.service(5))."""
    escapes = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "s": " "}
    words: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(line)
    for character in characters:
        if character == "\\":
            word = (word or "") + escapes[next(characters)]
        elif quote:
            if character == quote:
                quote = ""
            else:
                word = (word or "") + character
        elif character in "\"'" and word is None:
            quote, word = character, ""
        elif character in " \t\n\r":
            if word is not None:
                words.append(word)
            word = None
        else:
            assert character not in "\"'", "a quote inside a word is part of it; nothing here writes such"
            word = (word or "") + character
    assert not quote
    words += [word] if word is not None else []
    for each in words:
        rest = each.replace("%%", "").replace("$$", "")
        assert "%" not in rest, each
        assert "$" not in rest, each
    return [each.replace("%%", "%").replace("$$", "$") for each in words]


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
@example(["", ";", "a b", "'", '"', "\\", "$HOME", "${A}", "%n", "a\nb", "a\rb", "\t", "\\n", "#", "-"])
def test_systemd_reads_the_arguments_that_were_meant(arguments: list[str]) -> None:
    line = " ".join(["/bin/true", *map(unit_quote, arguments)])
    # A line of a unit file ends at either of these, and a word that is a bare semicolon starts another command.
    assert not set("\n\r") & set(line)
    assert ";" not in line.split()
    assert systemd_split(line) == ["/bin/true", *arguments]


@pytest.mark.parametrize("case", UNITS)
def test_a_unit_runs_the_planned_arguments(case: str) -> None:
    unit = UNITS[case]
    assert systemd_split(exec_start(unit.file.text)) == [unit.server.program, *unit.server.arguments]


run = partial(subprocess.run, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("case", UNITS)
def test_systemd_finds_nothing_wrong(case: str, tmp_path: Path) -> None:
    unit = UNITS[case]
    text = unit.file.text.replace(str(unit.server.program), "/bin/true")
    for program in ("wait-healthy", "gpu-gate", "gpu-check"):
        text = text.replace(f"/opt/llamaherd/libexec/{program}", "/bin/true")
    file = tmp_path / PurePosixPath(unit.file.path).name
    file.write_text(text, encoding="utf-8")
    done = run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)])
    said = [line for line in done.stderr.splitlines() if unit.service in line]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize("case", UNITS)
def test_a_unit_is_hardened(case: str, tmp_path: Path) -> None:
    unit = UNITS[case]
    file = tmp_path / PurePosixPath(unit.file.path).name
    file.write_text(unit.file.text, encoding="utf-8")
    threshold = "20" if "_cpu" in case and "lan" not in case else "30"
    done = run(["systemd-analyze", "security", "--offline=yes", f"--threshold={threshold}", str(file)])
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_the_unit_that_holds_cards_is_right_and_hardened(tmp_path: Path) -> None:
    file = tmp_path / "llamaherd-gpu-power.service"
    program = tmp_path / "gpu-power"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file.write_text(power(HELD).unit.text.replace(power(HELD).program.path, str(program)), encoding="utf-8")
    done = run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)])
    assert (done.returncode, [line for line in done.stderr.splitlines() if "gpu-power" in line]) == (0, [])
    # It has to be root with CAP_SYS_ADMIN, which is most of what is left.
    done = run(["systemd-analyze", "security", "--offline=yes", "--threshold=40", str(file)])
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


@pytest.mark.parametrize("rig", ["box", "duo"])
def test_the_units_that_watch_are_right_and_hardened(tmp_path: Path, rig: str) -> None:
    for unit in monitored(WATCHING[rig]).brought:
        name = PurePosixPath(unit.path).name
        if name.endswith((".service", ".timer")):
            text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.text, flags=re.MULTILINE)
            (tmp_path / name).write_text(text, encoding="utf-8")
    for file in sorted(tmp_path.iterdir()):
        done = run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)])
        assert (done.returncode, [line for line in done.stderr.splitlines() if file.name in line]) == (0, [])
        if file.suffix == ".service":  # what writes figures has to be root with GPUs
            threshold = "45" if "figures" in file.name else "25"
            done = run(["systemd-analyze", "security", "--offline=yes", f"--threshold={threshold}", str(file)])
            assert done.returncode == 0, done.stdout[-200:] + done.stderr
