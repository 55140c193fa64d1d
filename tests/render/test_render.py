"""Every text that goes to a host, against the golden files beside this: units, compose projects and scripts.

After a wanted change, `REWRITE_GOLDEN=1 .venv/bin/pytest tests/render` writes them anew; read their diff like code.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from jinja2 import UndefinedError

from llamaherd.render import render
from tests.render.texts import GOLDEN, texts
from tests.support.golden import assert_golden
from tests.support.rigs import ROOT
from tests.support.shell import expands


@pytest.mark.parametrize("case", texts())
def test_golden(case: str) -> None:
    assert_golden(GOLDEN, case, texts())


def test_no_golden_file_is_left_over() -> None:
    assert {file.name for file in GOLDEN.iterdir() if file.is_file()} == set(texts())


def test_every_template_is_rendered_here() -> None:
    """The longest piece that a template does not fill in stands in one of the texts."""
    everything = "\n".join(texts().values())
    for file in sorted((ROOT / "templates").rglob("*")):
        if file.is_dir() or file.parent.name in ("scaffold", "report") or file.name.endswith(".html.j2"):
            continue  # what `herd init` writes and asks, and pages for a browser, have tests of their own
        if file.suffix in (".py", ".pyc"):
            continue  # a program: it is sent as it is, and has tests of its own
        pieces = re.split(r"\{\{.*?\}\}|\{%.*?%\}|\n", file.read_text(encoding="utf-8"))
        assert max(pieces, key=len).strip() in everything, f"{file.name} is rendered by no case"


def test_a_name_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("host/install-python.sh.j2")


@pytest.mark.parametrize("case", [case for case in texts() if case.endswith(".sh")])
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_scripts_parse(case: str, shell: str) -> None:
    # As they are sent: a text in braces, which must not close them early.
    text = f"{{\n{texts()[case]}\n}} </dev/null\n"
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("script", "expanded"),
    [
        ("echo $(id)", True),
        ('echo "$(id)"', True),
        ("echo '$(id)'", False),
        ("""echo "'$(id)'" """, True),
        ("""echo "$(cat '$(id)')" '"' '$(id)'""", False),
        ("cat <<'END'\n$(id)\nEND\necho", False),
        ("cat <<'END' || exit\nx\nEND\necho $(id)", True),
        ("echo # $(id)\n", False),
    ],
)
def test_how_a_shell_reads(script: str, expanded: bool) -> None:
    assert expands(script, "$(id)") is expanded
