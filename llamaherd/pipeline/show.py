"""Print the results of preflight and verify on the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from llamaherd.pipeline.preflight import Preflight
from llamaherd.role.report import PROMPT, Check, Report
from llamaherd.text.terminal import printable

_STYLES = {"ok": "green", "note": "yellow", "refused": "bold red"}


def print_preflight(found: Preflight, to: Console) -> None:
    """Print a rig's table of what was found and what is required, and below it the problems with their help."""
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


def print_report(report: Report) -> None:
    """Print the report: a line for each check, and the response and speed of each server."""
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    good, bad, unsure = ("✓", "✗", "?") if console.encoding.lower().startswith("utf") else ("ok", "FAILED", "?")

    def show(checks: Iterable[Check]) -> None:
        for check in checks:
            passed = f"[yellow]{unsure}[/]" if check.doubt else f"[green]{good}[/]"
            mark = passed if check.ok else f"[bold red]{bad}[/]"
            console.print(f"  {mark} {check.name:9} {printable(check.detail)}")

    if report.driver:
        console.print(f"[bold]{report.rig}[/]: NVIDIA's driver")
        show(report.driver)
    if report.machine:
        console.print(f"[bold]{report.rig}[/]: the host")
        show(report.machine)
    if report.cards:
        console.print(f"[bold]{report.rig}[/]: power limits, clocks and fans of GPUs")
        show(report.cards)
    for instance in report.instances:
        what = f"{instance.model} on {instance.engine}, {instance.backend}, port {instance.port}"
        console.print(f"[bold]{report.rig} {instance.name}[/]: {printable(what)}")
        show(instance.checks)
        if instance.answer:
            console.print(f"  {PROMPT} → {printable(instance.answer)}")
