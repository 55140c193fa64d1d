"""`herd bench`: how fast a live server is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import FAILED, UNUSABLE, inventory_option, json_option, say, usable_plans
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.bench.job import Job, Measured
    from llamaherd.inventory.schema import Connect, Expect
    from llamaherd.plan import InstancePlan, Plan

_TIME = re.compile(r"([1-9]\d{0,4})(s|m|)")
_LEAST, _LONGEST = 10, 6000


class _Time(click.ParamType[int]):
    """`30s`, `3m`, or seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Seconds."""
        found = _TIME.fullmatch(str(value))
        seconds = int(found[1]) * (60 if found[2] == "m" else 1) if found else 0
        if not _LEAST <= seconds <= _LONGEST:
            self.fail(f"{value!r} is no time from {_LEAST}s to {_LONGEST // 60}m, such as 90s or 3m", param, ctx)
        return seconds


@click.command()
@click.argument("rig")
@click.argument("instance", required=False)
@click.option(
    "--time", "seconds", type=_Time(), default="3m", show_default=True, metavar="TIME", help="How long it may take."
)
@click.option("--anyway", is_flag=True, help="Measure although something is in the way; the result says so.")
@click.option(
    "--share", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write it without names."
)
@inventory_option
@json_option
@click.pass_obj
def bench(
    inventory: Path | None,
    rig: str,
    instance: str | None,
    seconds: int,
    anyway: bool,
    share: Path | None,
    as_json: bool,
) -> None:
    """Measure how fast an instance is that runs: decode by kind of text, prefill, the time to the first token.

    Beside that its energy, power, temperature, clocks and memory. What is measured is the server as it is declared,
    alone and warm, with its prompt cache defeated; else it says what is in the way. Each value has a 95 % interval. It
    is held against `expect`, and against the last measurement, with a verdict. INSTANCE may be left out where a rig has
    one. The result is a file in results/ beside the inventory; one that was cut off is gone on with.

    Exit codes: 0 measured; 1 below what is expected, or slower than before; 2 it could not be measured.

    \b
    Examples:
      herd bench duo chat                      three minutes
      herd bench duo chat --time 10m           narrower intervals
      herd bench duo chat --share chat.json    also for others, without names
    """
    from llamaherd.bench.store import results_folder
    from llamaherd.pipeline.load import inventory_path

    declared, plan = usable_plans(inventory, (rig,))[rig]
    chosen = _chosen(plan, instance)
    results = results_folder(inventory_path(inventory))
    job = _job(declared.connect, plan, chosen, results, seconds, anyway)
    measured = _measured(job)
    if share:
        _share(measured, share)
    if not _told(job, measured, chosen.expect, as_json):
        sys.exit(FAILED)


def _chosen(plan: Plan, name: str | None) -> InstancePlan:
    """The instance that is named, or the only one; else the program ends."""
    names = [each.name for each in plan.instances]
    found = [each for each in plan.instances if name in (None, each.name)]
    if len(found) == 1:
        return found[0]
    about = f"{plan.rig} has no instance {name}" if name else f"{plan.rig} has {len(names)} instances"
    say(f"error: {about}\n  help: name one of {', '.join(names) or 'those that are declared: there is none'}", err=True)
    sys.exit(UNUSABLE)


def _job(connect: Connect, plan: Plan, instance: InstancePlan, results: Path, seconds: int, anyway: bool) -> Job:
    import getpass
    import socket

    from llamaherd.bench.job import Job

    who = f"{getpass.getuser()} on {socket.gethostname()}"
    return Job(connect, plan, instance, results, float(seconds), who, anyway)


def _measured(job: Job) -> Measured:
    """The measurement; the program ends where there is none."""
    from llamaherd.bench.conductor import measure
    from llamaherd.bench.job import InTheWayError
    from llamaherd.bench.quick import quick
    from llamaherd.cli.bench_progress import telling

    say(f"measuring {job.plan.rig}/{job.instance.name}, for up to {_minutes(job.seconds)}", err=True)
    try:
        with telling(f"{job.plan.rig}/{job.instance.name}") as teller:
            return measure(job, lambda known: (quick(known),), teller)
    except InTheWayError as error:
        for each in error.obstacles:
            say(f"error: {each.code}: {each.message}" + (f"\n  help: {each.help}" if each.help else ""), err=True)
        say("`--anyway` measures what can be measured nevertheless", err=True)
    except UserError as error:
        say(f"error: {error}", err=True)
    sys.exit(UNUSABLE)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _share(measured: Measured, to: Path) -> None:
    from llamaherd.bench.document import to_bytes
    from llamaherd.bench.share import share

    try:
        to.write_bytes(to_bytes(share(measured.result)))
    except OSError as error:
        say(f"error: cannot write {to}: {error.strerror}\n  help: check the folder, its mode and its disk", err=True)
        sys.exit(UNUSABLE)


def _told(job: Job, measured: Measured, expect: Expect | None, as_json: bool) -> bool:
    """Whether all is fine, once it is printed."""
    from llamaherd.bench.document import to_bytes
    from llamaherd.bench.outcome import outcome
    from llamaherd.bench.show_outcome import print_outcome
    from llamaherd.bench.store import read_result, result_files
    from llamaherd.store.show import console

    name = (job.plan.rig, job.instance.name)
    earlier = [path for path in result_files(job.results, *name) if path.suffix == ".json" and path != measured.path]
    found = outcome(measured.result, expect, read_result(earlier[0]) if earlier else None)
    if as_json:
        click.echo(to_bytes(measured.result).decode(), nl=False)
    else:
        print_outcome(found, console())
        say(f"kept in {measured.path}")
    return found.fine
