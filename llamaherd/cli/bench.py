"""`herd bench`: measure how fast a running server is, or import the results of another program."""

from __future__ import annotations

import getpass
import os
import re
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import (
    FAILED,
    RESUME_HINT,
    UNUSABLE,
    counted,
    echo,
    exit_on_error,
    fail,
    hint_after_interrupt,
    inventory_option,
    json_option,
    print_error,
)
from llamaherd.cli.envelope import Envelope, note_printed, print_envelope
from llamaherd.cli.progress import measuring_progress
from llamaherd.cli.rigs import plans_or_exit
from llamaherd.cli.targets import complete_rigs_and_targets, second_word_argument, split_words
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.drain import drained
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import Expect, Secret
from llamaherd.measure.bench.job import Job, ObstacleError, SavedResult
from llamaherd.measure.bench.measurement import measure_instance
from llamaherd.measure.bench.selection import Selection, parse_concurrency, parse_depths, parse_duration, parse_watts
from llamaherd.measure.bench.series import quick_series
from llamaherd.measure.bench.session import UrlTarget, measure_url, target_label
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.client.requests import inspect_url
from llamaherd.measure.results.comparison_table import measurement_outcome, print_outcome
from llamaherd.measure.results.lookup import read_results
from llamaherd.measure.results.store import last_result, redact_result, result_bytes, results_folder, write_result
from llamaherd.pipeline.load import inventory_path
from llamaherd.plan import InstancePlan, Plan
from llamaherd.plan.plan import instance_name_error, instances_of
from llamaherd.store.show import console

URL_KEY = "HERD_URL_KEY"
"""The environment variable with the key of the server at `--url`."""
_IMPORTED_PLACE = re.compile(r"([a-z0-9][a-z0-9._-]{0,39})/([a-z0-9][a-z0-9._-]{0,39})")
_TIME = re.compile(r"([1-9]\d{0,4})(s|m|)")
_LEAST, _LONGEST = 10, 6000


@dataclass(frozen=True)
class BenchOptions:
    """The options of `herd bench`: it measures an instance of a rig or a `url`, or imports a `file`."""

    inventory: Path | None
    rig: str | None
    instance: str | None
    seconds: int
    anyway: bool
    share: Path | None
    depth: str | None
    concurrency: str | None
    soak: str | None
    energy: bool
    power: str | None
    url: str | None
    model: str | None
    name: str | None
    key_file: Path | None
    file: Path | None
    place: str | None
    as_json: bool

    @property
    def results(self) -> Path:
        """The folder of the results."""
        return results_folder(inventory_path(self.inventory))

    def selection(self) -> Selection:
        """Return what is measured beyond the standard workloads. Raise UserError for an invalid value."""
        return Selection(
            parse_depths(self.depth) if self.depth else (),
            parse_concurrency(self.concurrency) if self.concurrency else (),
            parse_duration(self.soak) if self.soak else 0,
            self.energy,
            parse_watts(self.power) if self.power else (),
        )

    def check(self) -> None:
        """Raise UsageError unless one of a rig, a URL and a file is given, with options that belong to it."""
        if self.rig and self.rig.startswith(_SCHEMES):
            raise click.UsageError(f"a server by its URL needs an option: write --url {self.rig}")
        if sum(map(bool, (self.rig, self.url, self.file))) != 1:
            raise click.UsageError("name a rig, or a server by --url, or a file by --import")
        if not self.url and any((self.model, self.name, self.key_file)):
            raise click.UsageError("--model, --name and --key-file need --url")
        if self.place and not self.file:
            raise click.UsageError("--as needs --import")
        if self.power and not self.rig:
            raise click.UsageError("--power needs a rig: the GPUs behind a URL are unknown")


_SCHEMES = ("http://", "https://")


class _Time(click.ParamType[int]):
    """A duration such as `30s`, `3m`, or a number of seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds."""
        found = _TIME.fullmatch(str(value))
        seconds = int(found[1]) * (60 if found[2] == "m" else 1) if found else 0
        if not _LEAST <= seconds <= _LONGEST:
            self.fail(f"{value!r} is not a time from {_LEAST}s to {_LONGEST // 60}m, such as 90s or 3m", param, ctx)
        return seconds


@click.command()
@click.argument("rig", metavar="[RIG[/INSTANCE]]", required=False, shell_complete=complete_rigs_and_targets)
@second_word_argument
@click.option(
    "--time", "seconds", type=_Time(), default="3m", show_default=True, metavar="TIME", help="The longest duration."
)
@click.option("--anyway", is_flag=True, help="Measure despite obstacles; the result lists them.")
@click.option(
    "--share", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write it without names."
)
@click.option("--depth", metavar="DEPTHS", help="Also at context depths: `4k,32k`, or `32k` and all below.")
@click.option("--concurrency", metavar="NUMBERS", help="Also so many parallel requests, 30 s each: `1,2,4,8`.")
@click.option("--soak", metavar="TIME", help="Also repeat one request for so long, to find drift: `15m`.")
@click.option("--energy", is_flag=True, help="Also the energy per token above idle, after a long rest.")
@click.option("--power", metavar="LIMITS", help="Also under each of these power limits: `200W..350W/10W`.")
@click.option("--url", metavar="URL", help="Measure the server at this URL instead: any with OpenAI's API.")
@click.option("--model", metavar="NAME", help="With --url: the model, if the server has several.")
@click.option("--name", metavar="NAME", help="With --url: the name of the results.")
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --url: the file with the key. Default: the variable HERD_URL_KEY.",
)
@click.option(
    "--import",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Measure nothing: import the results of another program.",
)
@click.option("--as", "place", metavar="RIG/INSTANCE", help="With --import: the measured instance. Default: none.")
@inventory_option
@json_option
@click.pass_obj
def bench(inventory: Path | None, /, **options: Any) -> None:
    """Measure how fast a running server is.

    It measures decode by kind of text, prefill and time to first token, and also energy, power, temperature, clocks and
    memory. The server must match the plan, be warm and have no other clients; its prompt cache is bypassed. Otherwise
    the command lists the obstacles. Gateways that have other servers of the model send this one no new requests
    meanwhile.

    Each value has a 95 % interval, and a verdict against `expect` and against the last measurement. INSTANCE may be
    left out if a rig has one. A group is measured instance by instance, each once its model is loaded. The result is a
    file in `results/` in the inventory folder. Run the same command again to resume an interrupted measurement.

    A server of embeddings or rerank is measured by single inputs and by many inputs in one request.

    --depth, --concurrency, --soak, --energy and --power measure more, after --time. After --power, the previous power
    limits are restored, also if the run is interrupted. --url measures a server that no inventory declares, without the
    values that need access to its host.

    Exit codes: 0 measured; 1 below `expect`, or slower than before; 2 not measured, or without a usable value.

    \b
    Examples:
      herd bench duo/chat                      three minutes
      herd bench duo/chat --time 10m           narrower intervals
      herd bench duo/chat --share chat.json    also a file without names
      herd bench duo/chat --depth 4k,32k --concurrency 1,2,4
      herd bench six/coder --power 200W..350W/10W
      herd bench --url http://gpu-server:8000/v1 --name vllm-fp8
      herd bench --import llama-bench.json --as duo/chat
    """
    if options["rig"] and not options["rig"].startswith(_SCHEMES):
        options["rig"], options["instance"] = split_words(inventory, options["rig"], options["instance"])
    run = BenchOptions(inventory, **options)
    run.check()
    with exit_on_error(UNUSABLE):
        selection = run.selection()
    if run.file:
        import_results(run.file, run)
    elif run.url:
        sys.exit(_finish(run, measure_by_url(run.url, run, selection), None))
    else:
        sys.exit(_measure_jobs(run, selection))


def import_results(file: Path, run: BenchOptions) -> None:
    """Store each result of a file of another program, and print where. End the program if it cannot be read."""
    with exit_on_error(UNUSABLE):
        where = _imported_place(run.place)
        found = [each.model_copy(update=where) for each in read_results(file)]
        paths = [write_result(run.results, each) for each in found]
    if run.as_json:
        print_envelope(Envelope(True, data={"kept": [str(path) for path in paths]}))
        return
    for each, path in zip(found, paths, strict=True):
        echo(f"{each.label}, {counted(len(each.cells), 'condition')}, by {each.source.kind}: saved to {path}")
        for note in each.source.notes:
            echo(f"  unknown: {note}")


def _imported_place(place: str | None) -> dict[str, str]:
    """Return the rig and the instance of an imported result."""
    if place is None:
        return {}
    found = _IMPORTED_PLACE.fullmatch(place)
    if not found:
        raise UserError(f"`{place[:90]}` is not RIG/INSTANCE", "write for example `--as duo/chat`")
    return {"rig": found[1], "instance": found[2]}


def bench_jobs(inventory: Path, rig: str, name: str | None, results: Path, seconds: int, *, anyway: bool) -> list[Job]:
    """Return a measurement for the named instance, or for each of the named group. End the program if there is none."""
    declared, plan = plans_or_exit(inventory, (rig,))[rig]
    server, instances = _named_instances(plan, name)
    user = f"{getpass.getuser()} on {socket.gethostname()}"
    group = server if server.members else None

    def drain(report: Callable[[str], None]) -> AbstractContextManager[None]:
        return drained(inventory, plan, (server,), report, wait=server.drain)

    return [
        Job(declared.connect, plan, each, results, float(seconds), user, anyway, drain, group) for each in instances
    ]


def _named_instances(plan: Plan, name: str | None) -> tuple[InstancePlan, tuple[InstancePlan, ...]]:
    """Return the named server, or the only one, and its instances: of a group all, or the named one."""
    found = [(server, instances_of(server)) for server in plan.instances]
    if name is not None:
        found = [(server, tuple(each for each in every if name in (server.name, each.name))) for server, every in found]
    named = [(server, every) for server, every in found if every]
    if len(named) != 1:
        fail(instance_name_error(plan, name), UNUSABLE)
    return named[0]


def _measure_jobs(run: BenchOptions, selection: Selection) -> int:
    """Measure all instances and print their results. Return the worst exit code."""
    jobs = bench_jobs(
        inventory_path(run.inventory), run.rig or "", run.instance, run.results, run.seconds, anyway=run.anyway
    )
    if len(jobs) > 1 and (run.share or run.as_json):
        names = " or ".join(each.instance.name for each in jobs)
        fail(UserError("--share and --json are for one measurement", f"name {names}"), UNUSABLE)
    return max(_finish(run, _measure_job(job, selection), job.instance.expect) for job in jobs)


def _measure_job(job: Job, selection: Selection) -> SavedResult:
    """Return the result of a measurement. Print errors and end the program if it fails."""
    of_group = f" of group {job.group.name}" if job.group else ""
    echo(f"measuring {job.plan.rig}/{job.instance.name}{of_group}, for up to {_minutes(job.seconds)}", err=True)
    try:
        with measuring_progress(f"{job.plan.rig}/{job.instance.name}") as progress:
            return measure_instance(
                job, lambda server: (quick_series(server), *selection.series(server)), progress, selection
            )
    except ObstacleError as error:
        for each in error.obstacles:
            print_error(UserError(f"{each.code}: {each.message}", each.help))
        echo("use `--anyway` to measure despite this", err=True)
        sys.exit(UNUSABLE)
    except UserError as error:
        fail(error, UNUSABLE)
    except KeyboardInterrupt:
        hint_after_interrupt(RESUME_HINT)
        raise


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def measure_by_url(url: str, run: BenchOptions, selection: Selection) -> SavedResult:
    """Return the result of measuring the server at a URL. Print an error and end the program if that fails."""
    try:
        server = inspect_url(Target(url, _url_key(run.key_file)), run.model)
        target = UrlTarget(server, target_label(server, run.name), run.results, float(run.seconds))
        workloads, notes = selection.workloads(server)
        if selection.energy:
            echo("energy is not measured: there is no meter behind a URL", err=True)
        for note in notes:
            echo(note, err=True)
        wanted = replace(selection, energy=False)
        with measuring_progress(target.label) as progress:
            return measure_url(target, lambda known: (quick_series(known), *wanted.series(known)), workloads, progress)
    except UserError as error:
        fail(error, UNUSABLE)
    except KeyboardInterrupt:
        hint_after_interrupt(f"results so far are saved in {run.results}")
        raise


def _url_key(file: Path | None) -> str | None:
    """Return the key from a file or the environment: other processes can read the arguments of a command."""
    if file is None and URL_KEY not in os.environ:
        return None
    try:
        return read_key(Secret(file=file) if file else Secret(env=URL_KEY))
    except UnreadableKeyError as error:
        raise UserError(str(error), f"name a file with `--key-file`, or set {URL_KEY}") from None


def _finish(run: BenchOptions, measured: SavedResult, expect: Expect | None) -> int:
    """Write the shared file, print the result, and return the exit code."""
    if run.share:
        _share(measured, run.share)
    before = last_result(run.results, measured.result.rig, measured.result.instance, measured.path)
    outcome = measurement_outcome(measured.result, expect, before)
    if run.as_json:
        note_printed()
        click.echo(result_bytes(measured.result).decode(), nl=False)
    else:
        print_outcome(outcome, console())
        echo(f"saved to {measured.path}")
    if not outcome.known:
        return UNUSABLE
    return 0 if outcome.fine else FAILED


def _share(measured: SavedResult, to: Path) -> None:
    try:
        to.write_bytes(result_bytes(redact_result(measured.result)))
    except OSError as error:
        fail(UserError(f"cannot write {to}: {error.strerror}", "check the folder, its mode and its disk"), UNUSABLE)
