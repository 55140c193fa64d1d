"""`herd`'s commands that reach hosts to bring or prove what is declared: up, verify."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import FAILED, inventory_option, json_option, plans, rigs_argument, say


@click.command()
@rigs_argument
@click.option("-v", "--verbose", count=True, help="Show facts (-v), commands (-vv) and their output (-vvv).")
@inventory_option
@click.pass_obj
def up(inventory: Path | None, rigs: tuple[str, ...], verbose: int) -> None:
    """Make the hosts as planned. The same run as `pyinfra inventory.py deploy.py`.

    A second run changes nothing. A run that is interrupted loses nothing: run it again.

    \b
    Examples:
      herd up            the whole fleet
      herd up duo six    two rigs
    """
    from llamaherd.deploy.lean import load

    planned = plans(inventory, rigs, deploying=True)
    load()  # what is refused needs none of it
    from llamaherd.deploy.deploying import deploy

    if not sys.stderr.isatty():
        os.environ.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    if not deploy(planned, verbose):
        say("not every host is as planned; the reason is above, and `herd up` goes on from there", err=True)
        sys.exit(FAILED)


@click.command()
@rigs_argument
@click.option("--deep", is_flag=True, help="Also read every file of the models, and compare its sha256.")
@inventory_option
@json_option
@click.pass_obj
def verify(inventory: Path | None, rigs: tuple[str, ...], deep: bool, as_json: bool) -> None:
    """Ask the live hosts whether they serve what is declared, and how fast.

    With --deep, also whether the models' files are what they were when they came: minutes for each 100 GB, with what
    disk and processor have to spare. A file that is damaged is no longer vouched for, and `herd up` brings it again.

    \b
    Examples:
      herd verify              the whole fleet
      herd verify --deep duo   one rig, and every byte of its models
    """
    from llamaherd.cli.progress import hashing
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.store.hashes import check
    from llamaherd.store.show import console, print_checks
    from llamaherd.verify.show import print_report
    from llamaherd.verify.verify import verify as verify_rig

    reports = []
    failed = False
    for name, (rig, each) in plans(inventory, rigs).items():
        remote = Remote(rig.connect)
        if not as_json:
            say(f"asking {name}", err=True)
        value: dict[str, Any] = {"rig": name, "ok": False, "instances": [], "installed": []}
        try:
            report = verify_rig(rig, each, remote)
            value |= report.as_json()
            if not as_json:
                print_report(report)
            if deep:
                with hashing(name) as tell:
                    checks = check(each, remote, tell)
                value |= {
                    "ok": report.ok and all(model.ok for model in checks),
                    "models": [model.as_json() for model in checks],
                }
                if not as_json:
                    print_checks(name, checks, console())
        except RemoteError as error:
            say(f"{name}: {error}", err=True)
            value |= {"ok": False, "error": str(error)}
        failed = failed or not value["ok"]
        reports.append(value)
    if as_json:
        click.echo(json.dumps(reports[0] if len(rigs) == 1 else reports))
    if failed:
        sys.exit(FAILED)
