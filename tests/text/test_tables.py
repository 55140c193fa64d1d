"""Tables: nothing is cut in the middle of a word, and nothing is wider than the terminal but a single word."""

from __future__ import annotations

import re
from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.markup import escape

from llamaherd.text.tables import make_table, print_table

HEADINGS = ("cell", "value, t/s", "verdict")
ROWS = (
    ("code, 256 out", "95.01 (94.88 to 95.14), n = 4", "[red]slower[/]"),
    ("prose, 256 out", "60.00", "-"),
    ("a\\[bold]", "", ""),
)


def printed(rows: object, width: int, *, terminal: bool = True, headings: tuple[str, ...] = HEADINGS) -> str:
    """Return a table on a terminal of so many columns, or in a pipe."""
    file = StringIO()
    to = Console(file=file, width=width, force_terminal=terminal, color_system=None, highlight=False)
    table = make_table(*headings)
    assert isinstance(rows, (list, tuple))
    for row in rows:
        table.add_row(*row)
    print_table(table, to)
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n"))


def test_a_table_that_fits_has_a_line_for_each_row() -> None:
    assert printed(ROWS[:2], 80) == (
        "\n cell             value, t/s                      verdict\n"
        f" {'─' * 56}\n"
        " code, 256 out    95.01 (94.88 to 95.14), n = 4   slower\n"
        " prose, 256 out   60.00                           -\n\n"
    )


def test_cells_are_wrapped_between_words() -> None:
    assert printed(ROWS[:2], 44) == (
        "\n cell         value, t/s        verdict\n"
        f" {'─' * 38}\n"
        " code, 256    95.01 (94.88 to   slower\n"
        " out          95.14), n = 4\n"
        " prose, 256   60.00             -\n"
        " out\n\n"
    )


def test_a_table_without_room_has_its_rows_as_lines() -> None:
    """Cells that contain nothing are left out."""
    assert printed(ROWS, 24) == (
        "\ncode, 256 out\n"
        "    value, t/s 95.01\n"
        "    (94.88 to 95.14), n\n"
        "    = 4; verdict slower\n"
        "prose, 256 out\n"
        "    value, t/s 60.00\n"
        "a[bold]\n\n"
    )


def test_a_pipe_has_a_table_of_any_width() -> None:
    text = printed(ROWS[:2], 20, terminal=False)
    assert text.split("\n")[1:5] == [
        "          value,",
        " cell     t/s       verdict",
        " ──────────────────────────",
        " code,    95.01     slower",
    ]


WORDS = st.text("abcdefgh€漢", min_size=1, max_size=12)
CELLS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
TABLES = st.integers(1, 5).flatmap(
    lambda columns: st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=4)
)


@given(rows=TABLES, width=st.integers(20, 120))
def test_no_word_is_cut_and_no_line_is_too_wide(rows: list[list[str]], width: int) -> None:
    headings = tuple(f"h{number}" for number in range(len(rows[0])))
    text = printed([[escape(cell) for cell in row] for row in rows], width, headings=headings)
    found = re.findall(r"[a-h€漢]+", re.sub(r"\bh\d\b", " ", text))
    wanted = [word for row in rows for cell in row for word in cell.split() if not re.fullmatch(r"h\d", word)]
    assert sorted(found) == sorted(wanted)
    console = Console(width=1000)
    for line in text.split("\n"):
        assert console.measure(line).maximum <= width or len(line.split()) <= 1
