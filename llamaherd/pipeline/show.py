"""Print the results of preflight and verify on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from llamaherd.pipeline.preflight import Preflight
from llamaherd.role.report import PROMPT, Check, Report
from llamaherd.text.tables import make_table, print_table
from llamaherd.text.terminal import printable, shown

_STYLES = {"ok": "green", "note": "yellow", "refused": "bold red"}


def print_preflight(found: Preflight, to: Console) -> None:
    """Print a rig's table of what was found and what is required, and below it the problems with their help."""
    to.print(f"[bold]{found.rig}[/]")
    table = make_table("", "found", "wanted", "")
    for row in found.rows:
        verdict = f"[{_STYLES[row.verdict]}]{row.verdict}[/]"
        table.add_row(printable(row.what), printable(row.found), printable(row.wanted), verdict)
    print_table(table, to)
    for row in found.doubtful:
        to.print(
            f"[{_STYLES[row.verdict]}]{row.verdict}[/]: {printable(row.why)}\n  [bold]help[/]: {printable(row.help)}"
        )


def print_report(report: Report, to: Console, *, verbose: bool = False) -> None:
    """Print the result of a verification in a line, and below it the checks that failed or are in doubt.

    `verbose`: print all checks and each server's response. On a terminal, long lines go on at their own indentation.
    """
    style = "red" if not report.ok else "yellow" if any(check.doubt for check in report.checks) else "green"
    _print_line(to, Text.assemble((f"{report.rig}: ", "bold")), report.summary, style)
    for title, checks, response in _sections(report):
        found = checks if verbose else _problems(checks)
        if not found:
            continue
        _print_line(to, Text("  "), title, "bold")
        width = max(_NAME, *(len(check.name) for check in found))
        for check in found:
            mark, colour = _mark(check, to)
            _print_line(to, Text.assemble("    ", (mark, colour), f" {check.name:{width}} "), check.detail)
        if verbose and response:
            _print_line(to, Text(f"      {'response':{width}} "), f"{PROMPT} → {response}")


_NAME = 9
"""The width of a check's name, unless one is longer."""


def _problems(checks: Sequence[Check]) -> list[Check]:
    """Return the checks that failed or are in doubt: of those with the same result, the first one."""
    return list({check.detail: check for check in reversed(checks) if not check.ok or check.doubt}.values())[::-1]


def _sections(report: Report) -> Iterator[tuple[str, Sequence[Check], str]]:
    """Yield the parts of a report: the title, the checks, and the response of a server."""
    yield "NVIDIA driver", report.driver, ""
    yield "host", report.machine, ""
    yield "power limits, clocks and fans of GPUs", report.cards, ""
    for each in report.instances:
        title = f"{each.name}: {each.model} on {each.engine}, {each.backend}, port {each.port}"
        yield title, each.checks, each.answer


def _mark(check: Check, to: Console) -> tuple[str, str]:
    """Return the mark of a check, and its colour."""
    in_unicode = to.encoding.lower().startswith("utf")
    if not check.ok:
        return ("✗" if in_unicode else "FAILED"), "bold red"
    if check.doubt:
        return "?", "yellow"
    return ("-", "dim") if check.note else ("✓" if in_unicode else "ok", "green")


def _print_line(to: Console, head: Text, text: str, style: str = "") -> None:
    """Print a text after its head; on a terminal, continue long lines at the end of the head. A file has one line."""
    body = Text(shown(" ".join(text.split())), style)
    room = max(_LEAST, to.width - head.cell_len) if to.is_terminal else body.cell_len
    lines = body.wrap(to, max(1, room))
    for number, line in enumerate(lines):
        line.rstrip()
        to.print((head if number == 0 else Text(" " * head.cell_len)) + line, soft_wrap=True)


_LEAST = 20
"""Columns that a text has at least, however narrow the terminal is."""
