"""What the box tells at the end: what is where, what it said, how fast, and how long everything took."""

import sys
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def report(verify_json: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
    """Print the report; `verify_json` is what `herd verify --json` says of one rig."""
    # In a log file nobody's window is narrow, and a folded address cannot be copied.
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 160)
    console.print()
    console.print(_installed(verify_json["installed"]))
    console.print(_instances(verify_json["instances"]))
    for instance in verify_json["instances"]:
        for check in instance["checks"]:
            if not check["ok"]:
                sentence = f"{instance['name']}: {check['name']}: {check['detail']}"
                console.print(f"[bold red]failed[/] {escape(sentence)}")
        answer = str(instance["answer"] or "").strip() or "(nothing)"
        console.print(f"[bold]{escape(instance['name'])}[/] answers: {escape(answer)}")
    console.print()
    console.print(_seconds(seconds))


def _table(*headings: str) -> Table:
    """A table that stays legible in a log file."""
    table = Table(*headings, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"  # a path that is cut short cannot be copied
    return table


def _installed(rows: list[Mapping[str, Any]]) -> Table:
    """What was installed where."""
    table = _table("installed", "where")
    for row in rows:
        table.add_row(escape(str(row["what"])), escape(str(row["where"])))
    return table


def _instances(rows: list[Mapping[str, Any]]) -> Table:
    """Every instance with its figures."""
    table = _table("instance", "backend", "engine", "model", "url", "tokens/s", "drafts accepted")
    for row in rows:
        speed, drafted = row["tokens_per_second"], row["draft_n"]
        table.add_row(
            *(escape(str(row[key])) for key in ("name", "backend", "engine", "model")),
            f"http://127.0.0.1:{row['port']}/v1",
            f"{speed:.1f}" if speed else "-",
            f"{row['draft_accepted']} of {drafted}" if drafted else "-",
        )
    return table


def _seconds(seconds: Mapping[str, float]) -> Table:
    """How long each part took."""
    table = _table("part", "seconds")
    table.columns[1].justify = "right"
    for part, spent in seconds.items():
        table.add_row(escape(part), f"{spent:.1f}")
    return table
