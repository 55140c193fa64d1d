"""Tables on a terminal of any width: no word is cut, and no line is wider than the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_WIDE = 100_000
"""Columns of a terminal on which every table fits."""
_NOTHING = ("", "-")
"""Cells that rows without room leave out."""
_INDENT = 4


def make_table(*headings: str) -> Table:
    """Return a table without rows. Its headings and cells may contain rich's markup."""
    return Table(*headings, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)


def print_table(table: Table, to: Console) -> None:
    """Print a table. If its longest words do not fit side by side on a terminal, print each row as a few lines."""
    sizes = [_sizes(column, to) for column in table.columns]
    between = _measured(table, to).maximum - sum(size.maximum for size in sizes)
    widths = _shared(sizes, to.width - between)
    if widths is None and to.is_terminal:
        for line in _lines(table, to):
            to.print(line, no_wrap=True, overflow="ignore", crop=False)
        return
    widths = widths or [size.minimum for size in sizes]
    # rich itself cuts words with wide characters.
    cells = [
        [_wrapped(each, width, to) for each in _cells(column)]
        for column, width in zip(table.columns, widths, strict=True)
    ]
    headings, *rows = zip(*cells, strict=True)
    fitting = make_table()
    for heading in headings:
        fitting.add_column(heading, no_wrap=True)
    for row, made in zip(rows, table.rows, strict=True):
        fitting.add_row(*row, style=made.style)
    usual = to.width
    to.width = max(usual, between + sum(widths))  # a file may have longer lines
    to.print(fitting)
    to.width = usual


def _wrapped(cell: RenderableType, width: int, to: Console) -> Text:
    """Return a cell with a line break wherever a line would be wider than its column."""
    return Text("\n").join(_filled([_text(cell, to)], width, 0))


def _shared(sizes: Sequence[Measurement], room: int) -> list[int] | None:
    """Return the width of each column, in which its longest word fits; None if there is no room for that."""
    least = sum(size.minimum for size in sizes)
    wanted = sum(size.span for size in sizes)
    spare = room - least
    if spare < 0:
        return None
    if wanted <= spare:
        return [size.maximum for size in sizes]
    return [size.minimum + spare * size.span // wanted for size in sizes]


def _sizes(column: Column, to: Console) -> Measurement:
    """Return the widths of the longest word of a column, and of its longest line."""
    found = [_measured(each, to) for each in _cells(column)]
    return Measurement(max(each.minimum for each in found), max(each.maximum for each in found))


def _cells(column: Column) -> list[RenderableType]:
    return [column.header, *column.cells]


def _measured(text: RenderableType, to: Console) -> Measurement:
    return Measurement.get(to, to.options.update(width=_WIDE, max_width=_WIDE), text)


def _lines(table: Table, to: Console) -> Iterator[Text]:
    """Yield the rows as lines: the first cell, and below it the other cells, each after its heading."""
    headings, *rows = zip(*([_text(each, to) for each in _cells(column)] for column in table.columns), strict=True)
    yield Text()
    for row, made in zip(rows, table.rows, strict=True):
        title, *rest = row
        title.stylize_before("bold")
        cells = [
            Text.assemble(heading, " " if heading.plain else "", cell)
            for heading, cell in zip(headings[1:], rest, strict=True)
            if cell.plain not in _NOTHING
        ]
        for line in (*_filled([title], to.width, 0), *_filled(cells, to.width, _INDENT)):
            line.stylize_before(made.style or "")
            yield line
    yield Text()


def _text(cell: RenderableType, to: Console) -> Text:
    return to.render_str(cell) if isinstance(cell, str) else cell if isinstance(cell, Text) else Text(str(cell))


def _filled(cells: Sequence[Text], width: int, indent: int) -> Iterator[Text]:
    """Yield cells in lines of at most a width. A wider cell is wrapped between words; a longer word stays whole."""
    line = Text()
    for at, cell in enumerate(cells):
        whole = cell if at == len(cells) - 1 else cell + Text(";")
        for part in [whole] if indent + whole.cell_len <= width else whole.split(" "):
            if line.plain and line.cell_len + 1 + part.cell_len > width:
                yield line
                line = Text()
            line.append(" " if line.plain else " " * indent)
            line.append_text(part)
    if line.plain:
        yield line
