"""`herd`: check, plan, lock, up, verify.

Exit codes: 0 done, or nothing to do; 1 something failed, or is not as declared; 2 wrong usage, or an inventory that
cannot be used; 130 interrupted. Imports stand inside the commands: --help and completion answer at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from llamaherd import __version__
from llamaherd.findings import Finding, InventoryError

if TYPE_CHECKING:
    from llamaherd.fleet import Rig
    from llamaherd.planned import Plan

ROOT = Path(__file__).resolve().parent.parent
FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130

T = TypeVar("T")


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n"
    "  herd check                      is the inventory right?\n"
    "  herd plan box                   what would be on the host\n"
    "  herd up box && herd verify box  make it so, and ask whether it is so\n"
    "  herd -i ~/fleet up              another inventory than ./inventory",
)
@click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    help="A rig's YAML file, or a folder of them. Default: HERD_INVENTORY, else ./inventory.",
)
@click.version_option(__version__, prog_name="herd")
@click.pass_context
def main(context: click.Context, inventory: Path | None) -> None:
    """From bare machines to verified LLM servers, declared in YAML."""
    context.obj = inventory


def _complete_rigs(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    from llamaherd.planning import inventory_path, rigs

    root = context.find_root()
    try:
        fleet = rigs(inventory_path(root.params.get("inventory")))
    except InventoryError:
        return []
    return [CompletionItem(name) for name in fleet.rigs if name.startswith(typed)]


_rigs = click.argument("rigs", metavar="[RIG]...", nargs=-1, shell_complete=_complete_rigs)
_json = click.option("--json", "as_json", is_flag=True, help="For machines: one JSON document on stdout.")


@main.command()
@_json
@click.pass_obj
def check(inventory: Path | None, as_json: bool) -> None:
    """Say everything that is wrong with the inventory. Touches no host."""
    from llamaherd.inventory import examine
    from llamaherd.planning import inventory_path

    fleet, findings = examine(inventory_path(inventory))
    ok = not any(finding.severity == "error" for finding in findings)
    if as_json:
        click.echo(json.dumps({"ok": ok, "findings": [finding.as_json() for finding in findings]}))
    else:
        _show(findings)
        click.echo(f"{len(fleet.rigs)} rigs, {len(findings)} findings")
    if not ok:
        sys.exit(UNUSABLE)


@main.command()
@_rigs
@_json
@click.pass_obj
def plan(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Show exactly what would be on each host. Touches no host.

    \b
    Examples:
      herd plan               every rig, for reading
      herd plan box --json    one rig, for machines
    """
    from llamaherd.show import show_plan

    planned = _plans(inventory, rigs)
    if as_json:
        click.echo(json.dumps({name: plan.model_dump(mode="json") for name, (_, plan) in planned.items()}))
        return
    for _, each in planned.values():
        click.echo(show_plan(each))


@main.command()
@click.pass_obj
def lock(inventory: Path | None) -> None:
    """Resolve the models' hub names to commits, files and hashes, and write them to herd.lock.

    What is locked already stays as it is; what no rig declares any more goes, when the inventory is a folder. The hub
    is the one in HF_ENDPOINT.
    """
    from llamaherd import hub
    from llamaherd import lock as locks
    from llamaherd.planning import inventory_path, lock_path, read_lock
    from llamaherd.planning import rigs as declared_rigs

    path = inventory_path(inventory)
    fleet = _usable(lambda: declared_rigs(path))
    old = _usable(lambda: read_lock(path))
    wanted = sorted(
        {(m.hf, m.revision, m.files) for rig in fleet.rigs.values() for m in rig.models.values() if m.hf is not None}
    )
    models = []
    for repo, revision, files in wanted:
        known = old.find(repo, revision, files)
        if known is None:
            click.echo(f"asking the hub for {repo} at {revision}, {files}", err=True)
            try:
                known = hub.resolve(repo, revision, files)
            except hub.HubError as error:
                click.secho(f"error: {error.message}\n  help: {error.help}", err=True)
                sys.exit(FAILED)
        models.append(known)
    if path.is_file():  # the other rigs beside it share its lock
        models += [model for model in old.models if model not in models]
    changed = locks.write(lock_path(path), locks.Lock(models=tuple(models)))
    click.echo(f"{lock_path(path)}: {'written' if changed else 'unchanged'}, {len(models)} models")


@main.command()
@_rigs
@click.option("-v", "--verbose", count=True, help="Show facts (-v), commands (-vv) and their output (-vvv).")
@click.pass_obj
def up(inventory: Path | None, rigs: tuple[str, ...], verbose: int) -> None:
    """Make the hosts as planned. The same run as `pyinfra inventory.py deploy.py`.

    A second run changes nothing. A run that is interrupted loses nothing: run it again.

    \b
    Examples:
      herd up            the whole fleet
      herd up duo six    two rigs
    """
    from llamaherd.fleet import LOCAL
    from llamaherd.planning import inventory_path

    planned = _plans(inventory, rigs, deploying=True)
    hosts = [LOCAL if rig.connect.host == LOCAL else name for name, (rig, _) in planned.items()]
    command = [str(Path(sys.executable).parent / "pyinfra"), "inventory.py", "deploy.py", "-y"]
    command += [argument for host in hosts if rigs for argument in ("--limit", host)]
    command += ["-v"] * verbose
    environment = {**os.environ, "HERD_INVENTORY": str(inventory_path(inventory).resolve())}
    if not sys.stderr.isatty():
        environment.setdefault("PYINFRA_PROGRESS", "off")  # its spinner fills a log with escape codes
    try:
        ended = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    except KeyboardInterrupt:
        click.echo(
            "interrupted; what was begun on a host goes on or is left as it is, and `herd up` goes on from there"
        )
        sys.exit(INTERRUPTED)
    if ended.returncode != 0:
        click.echo("not every host is as planned; the reason is above, and `herd up` goes on from there", err=True)
        sys.exit(FAILED)


@main.command()
@_rigs
@_json
@click.pass_obj
def verify(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Ask the live hosts whether they serve what is declared, and how fast."""
    from llamaherd.remote import Remote, RemoteError
    from llamaherd.verify import print_report
    from llamaherd.verify import verify as verify_rig

    reports = []
    failed = False
    for name, (rig, each) in _plans(inventory, rigs).items():
        if not as_json:
            click.echo(f"asking {name}", err=True)
        try:
            report = verify_rig(rig, each, Remote(rig.connect))
        except RemoteError as error:
            click.echo(f"{name}: {error}", err=True)
            reports.append({"rig": name, "ok": False, "error": str(error), "instances": [], "installed": []})
            failed = True
            continue
        failed = failed or not report.ok
        reports.append(report.as_json())
        if not as_json:
            print_report(report)
    if as_json:
        click.echo(json.dumps(reports[0] if len(rigs) == 1 else reports))
    if failed:
        sys.exit(FAILED)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete commands and rigs.

    \b
    Example:
      herd completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(kind(main, {}, "herd", "_HERD_COMPLETE").source())


def _plans(inventory: Path | None, rigs: tuple[str, ...], *, deploying: bool = False) -> dict[str, tuple[Rig, Plan]]:
    from llamaherd.planning import inventory_path, plans

    return _usable(lambda: plans(inventory_path(inventory), rigs, deploying=deploying))


def _usable(read: Callable[[], T]) -> T:
    """What `read` gives; findings are shown and end the program."""
    try:
        return read()
    except InventoryError as error:
        _show(error.findings)
        sys.exit(UNUSABLE)


def _show(findings: Iterable[Finding]) -> None:
    for finding in findings:
        colour = "red" if finding.severity == "error" else "yellow"
        severity = click.style(finding.severity, fg=colour, bold=True)
        help_ = click.style("help", bold=True)
        click.echo(
            f"{finding.place}: {severity} {finding.code}: {finding.message}\n  {help_}: {finding.help}", err=True
        )
