"""Files that were changed at random, as a bad disk or somebody hostile leaves them: findings, and no exception."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamaherd import lock
from llamaherd.lock import dumps
from llamaherd.pipeline.fleet_files import examine_fleet
from llamaherd.recipes import understand
from tests.support.examples import EXAMPLES, locked

RECIPES = Path(__file__).parents[1] / "data" / "recipes"
INSERTED = (
    *(
        "!!set ",
        "!!map ",
        "!!bool ",
        "&a ",
        "*a",
        "<<: *a\n",
        "? ",
        "- ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        "\n",
        "\t",
        " ",
        "#",
    ),
    *(
        "'",
        '"',
        "|",
        ">",
        "%",
        "$",
        "${",
        "\\",
        "\0",
        "\r",
        "\x1b",
        "\x85",
        "\u2028",
        "\ud800",
        "null",
        "~",
        "true",
        "-1",
    ),
    *(
        "9" * 40,
        "1e999",
        ".nan",
        "---\n",
        "...\n",
        "rig: x\n",
        "services:\n",
        "[wsl2]\n",
        "llama-server -c ",
        "\\\n",
        "<<END\n",
    ),
)
SEVERAL = settings(
    max_examples=max(40, settings().max_examples),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def mutated(draw: st.DrawFn, texts: tuple[str, ...]) -> str:
    """One of the texts, with parts of it cut out, doubled, moved, or with something odd in between."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.sampled_from((0, 1, 2, 8, 40, 400))))
        part = draw(st.sampled_from(("", text[begin:end] * 2, *INSERTED)))
        text = text[:begin] + part + text[end:]
    return text


def written(folder: str, name: str, text: str) -> Path:
    file = Path(folder, name)
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    return file


INVENTORIES = tuple(file.read_text(encoding="utf-8") for file in sorted(EXAMPLES.glob("*.yaml")))
LOCKS = (dumps(locked()),)
FILES = sorted(file for file in RECIPES.iterdir() if file.is_file())
PASTED = {
    suffix: tuple(file.read_text(encoding="utf-8") for file in FILES if file.suffix == suffix)
    for suffix in sorted({file.suffix for file in FILES})
}


@SEVERAL
@given(mutated(INVENTORIES))
def test_an_inventory(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for finding in examine_fleet(written(folder, "rig.yaml", text), locked())[1]:
            assert finding.message
            assert finding.help


@settings(SEVERAL, max_examples=max(10, settings().max_examples // 4))
@given(mutated(LOCKS))
def test_a_lock(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder, suppress(lock.LockError):
        lock.read_lock_file(written(folder, "herd.lock", text))


@pytest.mark.parametrize("suffix", PASTED)
@SEVERAL
@given(st.data())
def test_a_recipe(suffix: str, data: st.DataObject) -> None:
    text = data.draw(mutated(PASTED[suffix]))
    with tempfile.TemporaryDirectory() as folder:
        for finding in understand(written(folder, f"x{suffix}", text)).findings:
            assert finding.message
            assert finding.help
