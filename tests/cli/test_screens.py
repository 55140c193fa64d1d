"""The tables of commands: golden at 80 and 100 columns and in a pipe, with and without colours.

Screens of check, plan, status, top, up and verify have tests of their own.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Literal

import click
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from llamaherd.cli.common import fitted
from llamaherd.cli.herd import main
from llamaherd.cli.report_output import print_page
from llamaherd.cli.verification import print_preflight
from llamaherd.measure.report.page import page
from llamaherd.measure.results.comparison import compare_results
from llamaherd.measure.results.comparison_table import measurement_outcome, print_comparison, print_outcome
from llamaherd.measure.tune.show import print_result
from llamaherd.pipeline.preview import Preflight
from llamaherd.role.preflight import PreflightRow
from llamaherd.store.show import print_holdings, print_removals
from tests.bench.test_compare import steady
from tests.bench.test_outcome import measured
from tests.diagnostics.test_more_mistakes import RIGHT
from tests.report.test_page import brief
from tests.store.test_store import ARRIVES, Q4, REASONER, SAID, judged
from tests.support.golden import assert_golden
from tests.support.rigs import ROOT
from tests.support.ssh_hosts import HERD
from tests.tune.test_ending import ended

GOLDEN = Path(__file__).parent / "golden"
_LINES = 50
"""Of each form of a screen, in its golden file."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LONG = "kernel 6.12.41 has the module of driver 570.172.08, and the next boot starts kernel 6.12.43 without a module"
ROWS = (
    PreflightRow("system", "debian-13 x86_64", "debian-13"),
    PreflightRow("GPU 1", "NVIDIA GeForce RTX 3090 at 0000:0b:00.0", "RTX 3090"),
    PreflightRow("disk /var/lib/llamaherd/models", "412 GB free", "39.1 GB", "note", LONG, "reboot when it suits"),
    PreflightRow("port 8001", "in use by python3 (process 4711)", "free", "refused", "port 8001 is in use", "stop it"),
)


def models(to: Console) -> None:
    found = judged(f"{SAID}fetch\t3 of 9 GB\n", Q4, ARRIVES, instances=(REASONER,))
    print_holdings(found, to)
    print_removals(found, to)


SCREENS: dict[str, Callable[[Console], None]] = {
    "bench": lambda to: print_outcome(measurement_outcome(measured(95.0), None, measured(100.0)), to),
    "compare": lambda to: print_comparison(compare_results(steady(1), steady(2, 96.0)), to),
    "models": models,
    "preflight": lambda to: print_preflight(Preflight("attic", ROWS), to),
    "report": lambda to: print_page(page(brief()), to),
    "tune": lambda to: print_result(ended(), "chat", to),
}


def printed(screen: Callable[[Console], None], width: int | None, *, colour: bool = False) -> str:
    """Return a screen on a terminal of so many columns, or in a pipe."""
    file = StringIO()
    system: Literal["standard"] | None = "standard" if colour else None
    screen(
        Console(
            file=file,
            width=width or 160,
            force_terminal=width is not None,
            color_system=system,
            highlight=False,
            soft_wrap=width is None,
        )
    )
    return without_blanks(file.getvalue())


def without_blanks(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n"))


def words(text: str) -> set[str]:
    """Return the words of a screen, without lines of tables and marks between cells."""
    return {word.rstrip(";") for word in text.split() if word.strip("─")}


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen(name: str) -> None:
    shown = {str(width): printed(SCREENS[name], width) for width in (80, 100)}
    shown["pipe"] = printed(SCREENS[name], None)
    shown["colour"] = printed(SCREENS[name], 80, colour=True)
    assert without_blanks(COLOUR.sub("", shown["colour"])) == shown["80"]
    whole = words(shown["pipe"])
    for width in ("80", "100"):
        for line in shown[width].split("\n"):
            assert len(line) <= int(width) or len(line.split()) <= 1, line
        assert words(shown[width]) - whole == set(), "a word is cut"
    heads = {title: "\n".join(each.split("\n")[:_LINES]) for title, each in shown.items()}
    text = "".join(f"{title}:\n{each}\n" for title, each in heads.items()).replace("\x1b", "ESC")
    assert_golden(GOLDEN, f"{name}.txt", {f"{name}.txt": text})


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command and of each group."""
    yield words
    for name in group.commands:
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)
        else:
            yield (*words, name)


def test_no_help_is_wider_than_a_terminal() -> None:
    found = [*commands(main)]
    assert len(found) > 50
    for words_ in found:
        help_ = CliRunner().invoke(main, [*words_, "--help"], terminal_width=80)
        assert help_.exit_code == 0
        assert max(map(len, help_.output.split("\n"))) <= 80, words_


FAILING = (
    "plan ducks",
    "check",
    "fit no.gguf --context 512",
    "logs duo",
    "up --check",
    "pause duo",
)


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("columns", [80, 100])
def test_no_message_is_cut_or_wider_than_the_terminal(tmp_path: Path, columns: int) -> None:
    """The real command on a terminal, with and without colours, and in a pipe."""
    text = RIGHT.replace("port: 8003", "prot: 8003").replace("kind: llama.cpp", "kind: ollama")
    (tmp_path / "duo.yaml").write_text(text, encoding="utf-8")
    for command in FAILING:
        piped = on_terminal(tmp_path, command, None)
        plain = on_terminal(tmp_path, command, columns, NO_COLOR="1")
        assert COLOUR.sub("", on_terminal(tmp_path, command, columns)) == plain
        for line in plain.split("\n"):
            assert len(line) <= columns or len(line.split()) <= 1, line
        whole = words(piped)
        assert {word for word in words(plain) if not word.startswith(("^", "\u2026")) and "\u2026" not in word} <= whole


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("columns", [60, 100])
def test_a_page_is_laid_out_for_the_terminal(tmp_path: Path, columns: int) -> None:
    for name in ("LH010", "fleet"):
        markdown = on_terminal(tmp_path, f"explain {name}", None)
        plain = on_terminal(tmp_path, f"explain {name}", columns, NO_COLOR="1")
        assert without_blanks(COLOUR.sub("", on_terminal(tmp_path, f"explain {name}", columns))) == plain
        assert max(map(len, plain.split("\n"))) <= columns
        assert "\n## " in markdown or "\n# " in f"\n{markdown}"
        assert "\n# " not in f"\n{plain}"
        assert ".md)" in markdown
        assert ".md)" not in plain, "a terminal cannot follow a link to another page"
    assert "A fleet of your own" in map(str.strip, plain.split("\n"))


def test_a_page_has_a_whole_name_and_a_short_one() -> None:
    def explained(*names: str) -> Result:
        return CliRunner().invoke(main, ["explain", *names])

    for name in ("tune", "howto/uninstall", "uninstall", "DESIGN/hosts", "docs/measurements/hosts.md", "lh031"):
        assert explained(name).exit_code == 0, name
    assert explained("tune").output == (ROOT / "docs/tune.md").read_text("utf-8")
    ambiguous = explained("hosts")
    assert (ambiguous.exit_code, ambiguous.stdout) == (2, "")
    assert "2 pages have the name `hosts`\n  help: type `design/hosts` or `measurements/hosts`\n" in ambiguous.stderr


def test_the_pages_are_listed_with_their_titles() -> None:
    done = CliRunner().invoke(main, ["explain"])
    assert done.exit_code == 0
    titles = dict(line.split(maxsplit=1) for line in done.output.split("\n\n")[0].splitlines())
    assert titles["glossary"] == "Glossary"
    pages = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert set(titles) == {page for page in pages if not page.startswith("findings/")}


def on_terminal(folder: Path, command: str, columns: int | None, **variables: str) -> str:
    """Return what a command prints on a terminal of so many columns, or in a pipe."""
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns or ""), **variables}
    environment.pop("HERD_INVENTORY", None)
    ours, theirs = pty.openpty() if columns else os.pipe()
    words_ = [HERD, *shlex.split(command)]
    found = b""
    with subprocess.Popen(words_, cwd=folder, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment):
        os.close(theirs)
        with suppress(OSError):  # a terminal without a program
            while piece := os.read(ours, 100_000):
                found += piece
    os.close(ours)
    return without_blanks(found.decode().replace("\r\n", "\n"))


def test_a_message_is_wrapped_between_words_and_indented() -> None:
    text = (
        "error: /srv/models has 12.5 GB free, and the models of attic need 39.1 GB\n  help: `herd models prune attic`"
    )
    assert [*fitted(text, 40)] == [
        "error: /srv/models has 12.5 GB free, and",
        "    the models of attic need 39.1 GB",
        "  help: `herd models prune attic`",
    ]
    assert [*fitted(text, None)] == text.split("\n")
    assert [*fitted("    漢字漢字 漢字漢字 漢字", 16)] == ["    漢字漢字", "        漢字漢字", "        漢字"]
    assert [*fitted("/a/path/that/is/longer/than/the/terminal", 20)] == ["/a/path/that/is/longer/than/the/terminal"]
