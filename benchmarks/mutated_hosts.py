"""Judges of what hosts, results and command lines may be, for benchmarks/mutate.py."""

from __future__ import annotations

import json
import os
import shlex
import signal
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from click.testing import CliRunner

from benchmarks.mutated import TOLD, printed, printed_as, refused, written
from llamaherd.cli.herd import main as herd
from llamaherd.cli.report_output import print_page
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet import gateway_snapshot as gateway
from llamaherd.fleet.gateway_snapshot import gateway_lines
from llamaherd.fleet.snapshot import FleetSnapshot
from llamaherd.fleet.status import check_status, rig_snapshot
from llamaherd.fleet.status_text import status_lines, to_html
from llamaherd.inventory.schema import Connect
from llamaherd.measure.report.export import render_report as report_of
from llamaherd.measure.report.export import report_json
from llamaherd.measure.report.page import gather_results, page
from llamaherd.measure.results import store
from llamaherd.measure.results.result import Result
from llamaherd.onhost.gateway import GatewayState
from llamaherd.onhost.releases import Stored, StoredRelease
from llamaherd.onhost.removal import Things
from llamaherd.onhost.status import HostStatus
from llamaherd.pipeline import diff
from llamaherd.pipeline.history import past_of
from llamaherd.pipeline.inspection import state_of
from llamaherd.pipeline.preview import preview_changes
from llamaherd.store.unused import items_of_host
from roles import ROLES
from tests.support.examples import EXAMPLES, fleet, planned
from tests.support.rigs import KEY, cpu_rig
from tests.support.rigs import planned as planned_of

NOW = {name: planned(name) for name in fleet().rigs} | {"box": planned_of(cpu_rig())}
AGAIN = "herd diff --save it"
LONGEST_LINE = 1200
"""Characters of what a command prints in one line to stderr: a message, or a list of names to choose from."""
LONGEST_CHANGE = 2000
"""Characters of a change. The accounts and folders of a new host are 1,216 for the example with most servers."""


def would_change(_: Path, data: bytes) -> str:
    """What the program on a host prints that inspects it, and what a run would do. The first line is the rig's name."""
    first, *rest = data.split(b"\n", 1)
    name = first.decode(errors="replace")
    made = NOW.get(name.removeprefix("# "), NOW["duo"])
    os.environ |= dict.fromkeys(("CHAT_KEY", "WSL_CHAT_KEY", "LLAMA_API_KEY", "SIX_CODER_KEY"), KEY)
    try:
        found = preview_changes(made, ROLES, state_of(printed(b"".join(rest)), ROLES), Connect(host="box"), {})
    except UserError as error:
        return refused(error.message, error.help)
    for problem in found.problems:
        assert len(problem) <= LONGEST_LINE, problem[:80]
    for change in found.changes:
        assert len(str(change)) <= LONGEST_CHANGE, str(change)[:80]
        assert str(change).isprintable(), repr(str(change))[:200]
    return "nothing to do" if found.as_planned else "problems" if found.problems else "changes"


def unused(_: Path, data: bytes) -> str:
    """What the program on a host prints that inspects what is unused."""
    try:
        found = items_of_host(NOW["duo"], printed_as(Things, data))
    except UserError as error:
        return refused(error.message, error.help)
    assert json.dumps(found.as_json())
    return "read"


def history(_folder: Path, data: bytes) -> str:
    """What a host keeps of a run: the JSON of a release."""
    past = past_of(Stored((StoredRelease(12, data.decode(errors="replace")),)))
    return "read" if past.releases else "left out"


def status(_: Path, data: bytes) -> str:
    """What a host answers that is asked how it is, and the page, the table and the JSON of that."""
    made = NOW["box"]
    try:
        found = check_status(printed_as(HostStatus, data), [each.service for each in made.instances])
    except UserError as error:
        return refused(error.message, error.help)
    now = FleetSnapshot("2026-11-25 10:00:00 UTC", (rig_snapshot(made, found, {}),))
    assert list(status_lines(now, 80, lambda text, _: text))
    assert to_html(now)
    assert json.dumps(now.rows(), allow_nan=False)
    return "read"


def gateway_now(_: Path, data: bytes) -> str:
    """What a gateway does, as its host tells it."""
    try:
        now = gateway.gateway_snapshot(printed_as(GatewayState, data))
    except UserError as error:
        return refused(error.message, error.help)
    assert [*gateway_lines(now)]
    return "read"


def saved_diff(_: Path, data: bytes) -> str:
    """A diff that was saved."""
    try:
        diff.parse_saved_diff(data, "monday.json", AGAIN)
    except UserError as error:
        return refused(error.message, error.help)
    return "read"


def result(folder: Path, data: bytes) -> str:
    """A result of ours, with the id of what is in it, and each report of it."""
    try:
        data = store.result_bytes(store.with_id(Result.model_validate_json(data)))
    except ValueError:
        pass
    except UserError as error:
        return refused(error.message, error.help)
    return _reported(written(folder, "20261123T201500Z-chat.json", data))


def foreign(folder: Path, data: bytes) -> str:
    """A result of another program, and each report of it."""
    return _reported(written(folder, "x.json", data))


def journal(_: Path, data: bytes) -> str:
    """A measurement that goes on, a line for each run."""
    try:
        store.fold_journal(data, "it.jsonl")
    except UserError as error:
        return refused(error.message, error.help)
    return "read"


def no_number(constant: str) -> float:
    """Refuse NaN and infinities, which JSON does not have. Raise AssertionError."""
    raise AssertionError(constant)


def _reported(file: Path) -> str:
    try:
        gathered = gather_results([str(file)], file.parent)
        for form in ("html", "markdown", "csv"):
            report_of(gathered, form)
        json.loads(json.dumps(report_json(gathered)), parse_constant=no_number)
        with redirect_stdout(StringIO()):
            print_page(page(gathered), TOLD)
    except UserError as error:
        return refused(error.message, error.help)
    return "read"


def command(folder: Path, data: bytes) -> str:
    """A command of `herd`, in a fleet whose host refuses connections."""
    text = (EXAMPLES / "duo.yaml").read_bytes()
    written(folder, "duo.yaml", text.replace(b"host: duo.lan", b"host: 127.0.0.1, port: 1"))
    signal.setitimer(signal.ITIMER_REAL, 0)  # a command has alarms of its own
    try:
        words = shlex.split(data.decode(errors="replace").replace("\0", ""))
    except ValueError:
        return "no words"
    if any(word.startswith("--watch") for word in words) or words[:1] != data.decode(errors="replace").split()[:1]:
        return "not run"
    ended = CliRunner().invoke(herd, ["-i", str(folder), *words])
    if ended.exception and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    for line in ended.stderr.split("\n"):
        assert len(line) <= LONGEST_LINE, f"{len(line)} characters: {line[:80]}"
        assert line.isprintable(), repr(line)[:200]
    return f"exit {ended.exit_code}"
