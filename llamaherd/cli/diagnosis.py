"""The run of `herd doctor`: check this machine and inspect the hosts, and print the results as they come."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, counted, echo, fitted, print_findings, terminal_columns
from llamaherd.cli.controller_checks import Inventory, disk_check, hub_check, key_checks, program_checks
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.diagnostics.findings import InventoryError
from llamaherd.host.protocol import query_host, query_verb
from llamaherd.host.remote import AT_ONCE, Remote, RemoteError, as_they_come
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.doctor import DoctorFacts
from llamaherd.pipeline.doctor import (
    VERB,
    Examined,
    diagnosis_lines,
    doctor_input,
    doctor_request,
    examine_facts,
    examine_host,
    unreached,
)
from llamaherd.pipeline.inspection import INSPECT_SECONDS, program_for
from llamaherd.plan import Plan
from llamaherd.role.role import Role

_SECONDS = 20
"""The limit for a host whose plan is unknown."""
_COLOURS = {"ok": "green", "note": "yellow", "wrong": "red"}
_CONTROLLER = "this machine"


def diagnose(inventory: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Check this machine and the hosts, and print the results. End the program if something is wrong."""
    try:
        fleet = Inventory(inventory, names)
    except InventoryError as error:
        print_findings(error.findings)
        sys.exit(UNUSABLE)
    hosts: dict[str, Examined] = {}
    pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(fleet.rigs))))
    try:
        begun = {name: pool.submit(partial(_examine, fleet, rig)) for name, rig in fleet.rigs.items()}
        controller = check_controller(fleet)
        if not as_json:
            _print(controller)
        for name, found in as_they_come(begun):
            hosts[name] = found
            if not as_json:
                _print(found)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interrupted command waits for no host
    examined = [controller, *(hosts[name] for name in fleet.rigs)]
    ok = all(each.ok for each in examined)
    if as_json:
        checks = [asdict(each) for each in controller.diagnoses]
        print_envelope(Envelope(ok, [each.as_json() for each in examined[1:]], {"controller": checks}))
    else:
        _print_summary(examined)
    if not ok:
        sys.exit(FAILED)


def check_controller(fleet: Inventory) -> Examined:
    """Return the diagnoses of this machine."""
    found = [*program_checks(), *key_checks(fleet.rigs), disk_check(fleet.folder), *fleet.diagnoses]
    return Examined(_CONTROLLER, (*found, *hub_check(fleet.rigs)))


def _examine(fleet: Inventory, rig: Rig) -> Examined:
    """Return the diagnoses of a host, by one login. Without a plan, its parts are not inspected."""
    try:
        planned = fleet.planned.get(rig.rig)
        return _with_plan(*planned, fleet.roles) if planned else examine_without_plan(rig)
    except RemoteError as error:
        return unreached(rig.rig, error)


def _with_plan(rig: Rig, plan: Plan, roles: Sequence[Role]) -> Examined:
    began = time.time()
    result = query_host(Remote(rig.connect), program_for(roles), doctor_request(plan, roles), INSPECT_SECONDS)
    return examine_host(rig, plan, roles, result, (began, time.time()))


def examine_without_plan(rig: Rig) -> Examined:
    """Return the diagnoses of a host that need no plan. Raise RemoteError."""
    began = time.time()
    facts = query_verb(Remote(rig.connect), VERB, doctor_input(None), DoctorFacts, _SECONDS)
    return Examined(rig.rig, tuple(examine_facts(rig.rig, facts, (began, time.time()))))


def _print(found: Examined) -> None:
    encoding = (sys.stdout.encoding or "utf-8").lower()
    click.echo(click.style(found.name, bold=True))
    for verdict, line in diagnosis_lines(found, unicode=encoding.startswith("utf")):
        text = line.encode(encoding, "replace").decode(encoding)
        for part in fitted(text, terminal_columns(err=False)):
            click.echo(part if verdict == "ok" else click.style(part, fg=_COLOURS[verdict]))


def _print_summary(examined: Sequence[Examined]) -> None:
    """Print a last line: what is wrong where."""
    wrong = {each.name: sum(one.verdict == "wrong" for one in each.diagnoses) for each in examined if not each.ok}
    if wrong:
        places = ", ".join(f"{name} ({count})" for name, count in wrong.items())
        echo(f"{counted(sum(wrong.values()), 'fault')}: {places}")
    else:
        echo("nothing is wrong")
