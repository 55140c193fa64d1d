"""Preflight's table as people read it."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from llamaherd.pipeline.preflight import Preflight
from llamaherd.text.terminal import printable

_STYLES = {"ok": "green", "note": "yellow", "refused": "bold red"}


def print_preflight(found: Preflight, to: Console) -> None:
    """What a rig is beside what is wanted of it; below, what is not so, with a way out each."""
    to.print(f"[bold]{found.rig}[/]")
    table = Table("", "found", "wanted", "", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for row in found.rows:
        verdict = f"[{_STYLES[row.verdict]}]{row.verdict}[/]"
        table.add_row(printable(row.what), printable(row.found), printable(row.wanted), verdict)
    to.print(table)
    for row in found.doubtful:
        to.print(
            f"[{_STYLES[row.verdict]}]{row.verdict}[/]: {printable(row.why)}\n  [bold]help[/]: {printable(row.help)}"
        )
