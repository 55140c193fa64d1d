"""`herd bench`: measure how fast a running server is, or import what another program has measured."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    KEPT,
    UNUSABLE,
    complete_rigs,
    counted,
    fail,
    instance_argument,
    inventory_option,
    json_option,
    say,
    usable_plans,
)
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Connect, Expect
    from llamaherd.measure.bench.job import Drain, Job, SavedResult
    from llamaherd.measure.bench.selection import Selection
    from llamaherd.measure.bench.url_target import UrlTarget
    from llamaherd.plan import InstancePlan, Plan


_IMPORTED_PLACE = re.compile(r"([a-z0-9][a-z0-9._-]{0,39})/([a-z0-9][a-z0-9._-]{0,39})")


def keep_imported(file: Path, place: str | None, results: Path, as_json: bool) -> None:
    """Keep each result of a file, and say where; the program ends where it cannot be read."""
    from llamaherd.measure.results.lookup import read_results
    from llamaherd.measure.results.store import write_result

    try:
        where = _imported_place(place)
        found = [each.model_copy(update=where) for each in read_results(file)]
        paths = [write_result(results, each) for each in found]
    except UserError as error:
        fail(error, UNUSABLE)
    if as_json:
        click.echo(json.dumps({"kept": [str(path) for path in paths]}))
        return
    for each, path in zip(found, paths, strict=True):
        say(f"{each.label}, {counted(len(each.cells), 'condition')}, by {each.source.kind}: kept in {path}")
        for note in each.source.notes:
            say(f"  less known: {note}")


def _imported_place(place: str | None) -> dict[str, str]:
    """The rig and the instance that it is to be of."""
    if place is None:
        return {}
    found = _IMPORTED_PLACE.fullmatch(place)
    if not found:
        raise UserError(f"`{place[:90]}` is no RIG/INSTANCE", "say for example `--as duo/chat`")
    return {"rig": found[1], "instance": found[2]}


def jobs(inventory: Path, rig: str, name: str | None, results: Path, seconds: int, *, anyway: bool) -> list[Job]:
    """A measurement for each instance that is meant; the program ends where none is."""
    declared, plan = usable_plans(inventory, (rig,))[rig]
    server, instances = _chosen(plan, name)
    aside = _aside(inventory, plan, server)
    return [
        _job(declared.connect, plan, server, each, results, seconds, anyway=anyway, aside=aside) for each in instances
    ]


def _chosen(plan: Plan, name: str | None) -> tuple[InstancePlan, tuple[InstancePlan, ...]]:
    """The server that is named, or the only one, and the instances of it that are meant: of a group all, or one."""
    from llamaherd.plan.plan import instance_name_error, instances_of

    found = [(server, instances_of(server)) for server in plan.instances]
    if name is not None:
        found = [(server, tuple(each for each in every if name in (server.name, each.name))) for server, every in found]
    meant = [(server, every) for server, every in found if every]
    if len(meant) != 1:
        fail(instance_name_error(plan, name), UNUSABLE)
    return meant[0]


def _job(
    connect: Connect,
    plan: Plan,
    server: InstancePlan,
    instance: InstancePlan,
    results: Path,
    seconds: int,
    *,
    anyway: bool,
    aside: Drain,
) -> Job:
    import getpass
    import socket

    from llamaherd.measure.bench.job import Job

    who = f"{getpass.getuser()} on {socket.gethostname()}"
    group = server if server.members else None
    return Job(connect, plan, instance, results, float(seconds), who, anyway, aside, group)


def _aside(inventory: Path, plan: Plan, server: InstancePlan) -> Drain:
    from llamaherd.fleet.drain import drained

    return lambda tell: drained(inventory, plan, (server,), tell, wait=server.drain)


def measure_jobs(found: list[Job], wanted: Selection) -> Iterator[SavedResult]:
    """Each measurement as soon as it is over; the program ends at one that there is not."""
    for job in found:
        yield _measure_job(job, wanted)


def _measure_job(job: Job, wanted: Selection) -> SavedResult:
    """The measurement; the program ends where there is none."""
    from llamaherd.cli.progress import measuring_progress
    from llamaherd.measure.bench.job import ObstacleError
    from llamaherd.measure.bench.measurement import measure_instance
    from llamaherd.measure.bench.quick import quick_series

    of_group = f" of group {job.group.name}" if job.group else ""
    say(f"measuring {job.plan.rig}/{job.instance.name}{of_group}, for up to {_minutes(job.seconds)}", err=True)
    try:
        with measuring_progress(f"{job.plan.rig}/{job.instance.name}") as reporter:
            return measure_instance(job, lambda known: (quick_series(known), *wanted.series(known)), reporter, wanted)
    except ObstacleError as error:
        for each in error.obstacles:
            say(f"error: {each.code}: {each.message}" + (f"\n  help: {each.help}" if each.help else ""), err=True)
        say("`--anyway` measures what can be measured nevertheless", err=True)
    except UserError as error:
        say(f"error: {error}", err=True)
    except KeyboardInterrupt:
        say(KEPT, err=True)
        raise
    sys.exit(UNUSABLE)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


URL_KEY = "HERD_URL_KEY"
"""The variable that may hold the key."""


def measure_by_url(
    url: str,
    model: str | None,
    key_file: Path | None,
    name: str | None,
    results: Path,
    seconds: float,
    chosen: Selection,
) -> SavedResult:
    """The measurement; the program ends where there is none."""
    from llamaherd.measure.bench.url_target import UrlTarget, target_label
    from llamaherd.measure.client.endpoint import inspect_url
    from llamaherd.measure.client.http_client import Target

    try:
        served = inspect_url(Target(url, _url_key(key_file)), model)
        return _measure_visit(UrlTarget(served, target_label(served, name), results, seconds), chosen)
    except UserError as error:
        say(f"error: {error}", err=True)
    except KeyboardInterrupt:
        say(f"what was measured by now, if anything, is kept in {results}", err=True)
        raise
    sys.exit(UNUSABLE)


def _measure_visit(visit: UrlTarget, chosen: Selection) -> SavedResult:
    from llamaherd.cli.progress import measuring_progress
    from llamaherd.measure.bench.quick import quick_series
    from llamaherd.measure.bench.url_target import measure_url

    workloads, sentences = chosen.workloads(visit.served)
    unmetered = ("energy is left out: no meter reads what is behind a URL",) if chosen.energy else ()
    wanted = replace(chosen, energy=False)
    for sentence in (*unmetered, *sentences):
        say(sentence, err=True)
    with measuring_progress(visit.label) as reporter:
        return measure_url(visit, lambda known: (quick_series(known), *wanted.series(known)), workloads, reporter)


def _url_key(file: Path | None) -> str | None:
    """The key, of a file or of the environment: every process of a machine can read the arguments of all others."""
    from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
    from llamaherd.inventory.schema import Secret

    if file is None and URL_KEY not in os.environ:
        return None
    try:
        return read_key(Secret(file=file) if file else Secret(env=URL_KEY))
    except UnreadableKeyError as error:
        raise UserError(str(error), f"name a file with `--key-file`, or set {URL_KEY}") from None


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
@click.argument("rig", required=False, shell_complete=complete_rigs)
@instance_argument
@click.option(
    "--time", "seconds", type=_Time(), default="3m", show_default=True, metavar="TIME", help="How long it may take."
)
@click.option("--anyway", is_flag=True, help="Measure although something is in the way; the result says so.")
@click.option(
    "--share", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write it without names."
)
@click.option("--depth", metavar="DEPTHS", help="Also at depths, in one prefill: `4k,32k`, or `32k` and less.")
@click.option("--concurrency", metavar="NUMBERS", help="Also so many requests at once, 30 s each: `1,2,4,8`.")
@click.option("--soak", metavar="TIME", help="Also the same again and again: `15m`. It tells a drift.")
@click.option("--energy", is_flag=True, help="Also long answers after a long rest: energy a token beyond rest.")
@click.option("--power", metavar="LIMITS", help="Also under one power limit after the other: `200W..350W/10W`.")
@click.option("--url", metavar="URL", help="Measure the server there instead: any with OpenAI's API.")
@click.option("--model", metavar="NAME", help="With --url: its model, where it has several.")
@click.option("--name", metavar="NAME", help="With --url: what its results go by.")
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --url: the key. Else it is taken from HERD_URL_KEY, if that is set.",
)
@click.option(
    "--import",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Measure nothing: keep what another program has measured.",
)
@click.option("--as", "place", metavar="RIG/INSTANCE", help="With --import: what it is of. Else it is of elsewhere.")
@inventory_option
@json_option
@click.pass_obj
def bench(
    inventory: Path | None,
    rig: str | None,
    instance: str | None,
    seconds: int,
    anyway: bool,
    share: Path | None,
    depth: str | None,
    concurrency: str | None,
    soak: str | None,
    energy: bool,
    power: str | None,
    url: str | None,
    model: str | None,
    name: str | None,
    key_file: Path | None,
    file: Path | None,
    place: str | None,
    as_json: bool,
) -> None:
    """Measure how fast an instance is that runs.

    That is decode by kind of text, prefill, the time to the first token; beside them energy, power, temperature, clocks
    and memory. What is measured is the server as it is declared, alone and warm, with its prompt cache defeated; else
    it says what is in the way. Gateways that have others for it send it nothing new meanwhile. Each value has a 95 %
    interval. It is held against `expect`, and against the last measurement, with a verdict. INSTANCE may be left out
    where a rig has one; a group is measured instance by instance, each once its model is loaded. The result is a file
    in results/ beside the inventory; one that was cut off is gone on with.

    --depth, --concurrency, --soak, --energy and --power measure more, after --time. --power holds its GPUs to one limit
    after the other; what they are held to now comes back, whatever ends it. --url measures a server that no inventory
    declares, and knows less of it.

    Exit codes: 0 measured; 1 below what is expected, or slower than before; 2 it could not be measured, or nothing of
    it counts.

    \b
    Examples:
      herd bench duo chat                      three minutes
      herd bench duo chat --time 10m           narrower intervals
      herd bench duo chat --share chat.json    also for others, without names
      herd bench duo chat --depth 4k,32k --concurrency 1,2,4
      herd bench six coder --power 200W..350W/10W
      herd bench --url http://gpu-server:8000/v1 --name vllm-fp8
      herd bench --import llama-bench.json --as duo/chat
    """
    from llamaherd.measure.results.store import results_folder
    from llamaherd.pipeline.load import inventory_path

    _require_one_source(rig, url, file, (model, name, key_file), place)
    if power and not rig:
        raise click.UsageError("--power goes with a rig: of a URL, nobody knows the GPUs")
    wanted = _series(depth, concurrency, soak, energy, power)
    results = results_folder(inventory_path(inventory))
    if file:
        keep_imported(file, place, results, as_json)
        return
    if url:
        measured = measure_by_url(url, model, key_file, name, results, float(seconds), wanted)
        sys.exit(_ended(results, measured, None, share, as_json))
    found = jobs(inventory_path(inventory), rig or "", instance, results, seconds, anyway=anyway)
    sys.exit(_all_ended(found, wanted, results, share, as_json))


def _all_ended(jobs: list[Job], wanted: Selection, results: Path, share: Path | None, as_json: bool) -> int:
    """The gravest exit code, once all of them are measured and told."""

    if len(jobs) > 1 and (share or as_json):
        names = " or ".join(each.instance.name for each in jobs)
        fail(UserError("--share and --json are for one measurement", f"name {names}"), UNUSABLE)
    every = zip(jobs, measure_jobs(jobs, wanted), strict=True)
    return max(_ended(results, each, job.instance.expect, share, as_json) for job, each in every)


def _require_one_source(
    rig: str | None, url: str | None, file: Path | None, about_url: tuple[object, ...], place: str | None
) -> None:
    """End the program unless one of a rig, a URL and a file is named, with what goes with it."""
    if sum(map(bool, (rig, url, file))) != 1:
        raise click.UsageError("name a rig, or a server by --url, or a file by --import")
    if not url and any(about_url):
        raise click.UsageError("--model, --name and --key-file go with --url")
    if place and not file:
        raise click.UsageError("--as goes with --import")


def _series(depth: str | None, concurrency: str | None, soak: str | None, energy: bool, power: str | None) -> Selection:
    """What is asked for beside the quick measurement; the program ends where it is none."""
    from llamaherd.measure.bench.selection import (
        Selection,
        parse_concurrency,
        parse_depths,
        parse_duration,
        parse_watts,
    )

    try:
        return Selection(
            parse_depths(depth) if depth else (),
            parse_concurrency(concurrency) if concurrency else (),
            parse_duration(soak) if soak else 0,
            energy,
            parse_watts(power) if power else (),
        )
    except UserError as error:
        fail(error, UNUSABLE)


def _ended(results: Path, measured: SavedResult, expect: Expect | None, share: Path | None, as_json: bool) -> int:
    """The exit code, once all of a measurement is told."""
    if share:
        _share(measured, share)
    return _print_outcome(results, measured, expect, as_json)


def _share(measured: SavedResult, to: Path) -> None:
    from llamaherd.measure.results.document import redact_result, result_bytes

    try:
        to.write_bytes(result_bytes(redact_result(measured.result)))
    except OSError as error:
        say(f"error: cannot write {to}: {error.strerror}\n  help: check the folder, its mode and its disk", err=True)
        sys.exit(UNUSABLE)


def _print_outcome(results: Path, measured: SavedResult, expect: Expect | None, as_json: bool) -> int:
    """The exit code, once it is printed."""
    from llamaherd.measure.bench.outcome import measurement_outcome, print_outcome
    from llamaherd.measure.results.document import result_bytes
    from llamaherd.measure.results.store import last_result
    from llamaherd.store.show import console

    before = last_result(results, measured.result.rig, measured.result.instance, measured.path)
    found = measurement_outcome(measured.result, expect, before)
    if as_json:
        click.echo(result_bytes(measured.result).decode(), nl=False)
    else:
        print_outcome(found, console())
        say(f"kept in {measured.path}")
    if not found.known:
        return UNUSABLE
    return 0 if found.fine else FAILED
