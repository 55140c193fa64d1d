"""The runs of `herd verify` and `herd preflight`: check hosts and the hashes of models, and print the results."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from llamaherd.cli.common import FAILED, echo
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.progress import hashing_progress, waiting_line
from llamaherd.cli.rigs import plans_or_exit, roles_or_exit
from llamaherd.host.remote import Remote, RemoteError, as_they_come, on_hosts
from llamaherd.host.ssh import UnreachableError
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.preview import Preflight, run_preflight
from llamaherd.pipeline.verify import verify_rig
from llamaherd.plan import Plan
from llamaherd.role.report import PROMPT, Check, Report
from llamaherd.role.role import Role
from llamaherd.store.files import ModelCheck, check_hashes
from llamaherd.store.show import console, print_checks
from llamaherd.text.tables import make_table, print_table
from llamaherd.text.terminal import printable, shown


@dataclass(frozen=True)
class VerifyOptions:
    """What to verify and to print: hashes of models, all checks, JSON."""

    deep: bool
    verbose: bool
    as_json: bool


def verify_rigs(inventory: Path | None, rigs: tuple[str, ...], options: VerifyOptions) -> None:
    """Verify the hosts at the same time, and print each result as it comes. End the program if one has a fault."""
    planned, roles = plans_or_exit(inventory, rigs), roles_or_exit(inventory)
    found: dict[str, dict[str, Any]] = {}
    with on_hosts(planned, partial(_verify, roles)) as begun, waiting_line("verifying", planned) as done:
        for name, report in as_they_come(begun):
            with done(name):
                found[name] = _print_result(name, *planned[name], report, options)
    reports = [found[name] for name in planned]
    ok = all(report["ok"] for report in reports)
    if options.as_json:
        print_envelope(Envelope(ok, reports))
    if not ok:
        sys.exit(FAILED)


def _verify(roles: Sequence[Role], rig_and_plan: tuple[Rig, Plan]) -> Report | RemoteError:
    rig, plan = rig_and_plan
    try:
        return verify_rig(rig, plan, roles, Remote(rig.connect))
    except RemoteError as error:
        return error


def _print_result(
    name: str, rig: Rig, planned: Plan, report: Report | RemoteError, options: VerifyOptions
) -> dict[str, Any]:
    """Return the result of one host as JSON values. Print it at once, unless JSON is printed at the end."""
    value: dict[str, Any] = {"rig": name, "ok": False, "instances": [], "installed": []}
    if isinstance(report, UnreachableError) and rig.wake:
        if not options.as_json:
            echo(f"{name}: asleep or off; a request for its models or `herd up {name}` wakes it")
        return {**value, "ok": True, "asleep": True}
    try:
        if isinstance(report, RemoteError):
            raise report
        value |= report.as_json()
        if not options.as_json:
            print_report(report, Console(highlight=False), verbose=options.verbose)
        if options.deep:
            models = _hashed(name, planned, Remote(rig.connect), options.as_json)
            value |= {"ok": report.ok and all(model.ok for model in models), "models": [m.as_json() for m in models]}
    except RemoteError as error:
        echo(f"{name}: {error}", err=True)
        value |= {"ok": False, "error": str(error)}
    return value


def _hashed(name: str, planned: Plan, remote: Remote, as_json: bool) -> tuple[ModelCheck, ...]:
    """Return the checks of the model files on one host. Raise RemoteError."""
    with hashing_progress(name) as tell:
        checks = check_hashes(planned, remote, tell)
    if not as_json:
        print_checks(name, checks, console())
    return checks


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
    """Return the checks that failed or are in doubt: of those with the same result the first, with their count."""
    found = [check for check in checks if not check.ok or check.doubt]
    counts = Counter(check.detail for check in found)
    first = {check.detail: check for check in reversed(found)}
    return [
        check if counts[detail] == 1 else replace(check, detail=f"{detail} ({counts[detail]} checks)")
        for detail, check in reversed(first.items())
    ]


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


def preflight_rigs(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Compare the hosts with their plans at the same time, and print each table as it comes. End with the exit code."""
    every, roles = plans_or_exit(inventory, rigs), roles_or_exit(inventory)
    found = {}
    with on_hosts(every, partial(_inspect, roles)) as begun:
        for name, each in as_they_come(begun):
            found[name] = each
            if not as_json:
                print_preflight(each, console())
    ok = all(each.ok for each in found.values())
    if as_json:
        print_envelope(Envelope(ok, [found[name].as_json() for name in every]))
    if not ok:
        sys.exit(FAILED)


def _inspect(roles: Sequence[Role], rig_and_plan: tuple[Rig, Plan]) -> Preflight:
    rig, plan = rig_and_plan
    return run_preflight(plan, roles, Remote(rig.connect))


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
