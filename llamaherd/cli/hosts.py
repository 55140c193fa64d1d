"""`herd`'s commands that reach hosts to bring or prove what is declared: up, verify."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import FAILED, INTERRUPTED, inventory_option, json_option, plans, rigs_argument, say


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
    from llamaherd.deploying import hold_endings
    from llamaherd.endings import HERD
    from llamaherd.planning import inventory_path
    from llamaherd.resources import ROOT

    planned = plans(inventory, rigs, deploying=True)
    command = [sys.executable, "-m", "llamaherd.deploying", "inventory.py", "deploy.py", "-y"]
    command += [argument for name in planned if rigs for argument in ("--limit", name)]
    command += ["-v"] * verbose
    environment = {**os.environ, "HERD_INVENTORY": str(inventory_path(inventory).resolve()), HERD: str(os.getpid())}
    if not sys.stderr.isatty():
        environment.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    try:
        ended = subprocess.run(command, cwd=ROOT, env=environment, check=False, preexec_fn=hold_endings)
    except KeyboardInterrupt:
        say("interrupted; what was begun on a host goes on or is left as it is, and `herd up` goes on from there")
        sys.exit(INTERRUPTED)
    if ended.returncode != 0:
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
    from llamaherd.remote import Remote, RemoteError
    from llamaherd.store.hashes import check
    from llamaherd.store.show import console, print_checks
    from llamaherd.verify import verify as verify_rig
    from llamaherd.verify_show import print_report

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
