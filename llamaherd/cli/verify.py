"""`herd verify`: whether live hosts serve what is declared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamaherd.cli.common import FAILED, inventory_option, json_option, rigs_argument, roles_of, say, usable_plans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.inventory.schema import Rig
    from llamaherd.plan import Plan
    from llamaherd.role.report import Report
    from llamaherd.role.role import Role
    from llamaherd.store.files import ModelCheck


@click.command()
@rigs_argument
@click.option("--deep", is_flag=True, help="Also read every file of the models, and compare its sha256.")
@inventory_option
@json_option
@click.pass_obj
def verify(inventory: Path | None, rigs: tuple[str, ...], deep: bool, as_json: bool) -> None:
    """Ask the hosts whether they serve what is declared.

    They also say how fast. With --deep, also whether the models' files are what they were when they came: minutes for
    each 100 GB, with what disk and processor have to spare. A file that is damaged is no longer vouched for, and `herd
    up` fetches it again.

    \b
    Examples:
      herd verify              the whole fleet
      herd verify --deep duo   one rig, and every byte of its models
    """
    from concurrent.futures import ThreadPoolExecutor

    from llamaherd.host.remote import AT_ONCE, as_they_come

    planned, roles = usable_plans(inventory, rigs), roles_of(inventory)
    found: dict[str, dict[str, Any]] = {}
    pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(planned))))
    try:
        begun = {}
        for name, each in planned.items():
            if not as_json:
                say(f"asking {name}", err=True)
            begun[name] = pool.submit(_asked, *each, roles)
        for name, report in as_they_come(begun):
            found[name] = _told(name, *planned[name], report, deep, as_json)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # who is interrupted waits for no host
    reports = [found[name] for name in planned]
    if as_json:
        click.echo(json.dumps(reports[0] if len(rigs) == 1 else reports))
    if not all(report["ok"] for report in reports):
        sys.exit(FAILED)


def _asked(rig: Rig, planned: Plan, roles: Sequence[Role]) -> Report | RemoteError:
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.pipeline.verify import verify_rig

    try:
        return verify_rig(rig, planned, roles, Remote(rig.connect))
    except RemoteError as error:
        return error


def _told(
    name: str, rig: Rig, planned: Plan, report: Report | RemoteError, deep: bool, as_json: bool
) -> dict[str, Any]:
    """What one host said, for machines; for people it is printed at once."""
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.pipeline.show import print_report

    value: dict[str, Any] = {"rig": name, "ok": False, "instances": [], "installed": []}
    try:
        if isinstance(report, RemoteError):
            raise report
        value |= report.as_json()
        if not as_json:
            print_report(report)
        if deep:
            models = _hashed(name, planned, Remote(rig.connect), as_json)
            value |= {"ok": report.ok and all(model.ok for model in models), "models": [m.as_json() for m in models]}
    except RemoteError as error:
        say(f"{name}: {error}", err=True)
        value |= {"ok": False, "error": str(error)}
    return value


def _hashed(name: str, planned: Plan, remote: Remote, as_json: bool) -> tuple[ModelCheck, ...]:
    """What every byte of the models on one host comes to. Raises RemoteError."""
    from llamaherd.cli.progress import hashing_progress
    from llamaherd.store.files import check_hashes
    from llamaherd.store.show import console, print_checks

    with hashing_progress(name) as tell:
        checks = check_hashes(planned, remote, tell)
    if not as_json:
        print_checks(name, checks, console())
    return checks
