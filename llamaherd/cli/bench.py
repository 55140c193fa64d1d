"""`herd bench`: how fast a live server is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    complete_rigs,
    fail,
    instance_argument,
    inventory_option,
    json_option,
    say,
)
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.bench.courses.chosen import Chosen
    from llamaherd.bench.job import Job, Measured
    from llamaherd.inventory.schema import Expect

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
    from llamaherd.bench.results.store import results_folder
    from llamaherd.cli.bench_import import keep_imported
    from llamaherd.cli.bench_rig import jobs
    from llamaherd.cli.bench_url import measured_by_url
    from llamaherd.pipeline.load import inventory_path

    _one_of(rig, url, file, (model, name, key_file), place)
    if power and not rig:
        raise click.UsageError("--power goes with a rig: of a URL, nobody knows the GPUs")
    wanted = _series(depth, concurrency, soak, energy, power)
    results = results_folder(inventory_path(inventory))
    if file:
        keep_imported(file, place, results, as_json)
        return
    if url:
        measured = measured_by_url(url, model, key_file, name, results, float(seconds), wanted)
        sys.exit(_ended(results, measured, None, share, as_json))
    found = jobs(inventory_path(inventory), rig or "", instance, results, seconds, anyway=anyway)
    sys.exit(_all_ended(found, wanted, results, share, as_json))


def _all_ended(jobs: list[Job], wanted: Chosen, results: Path, share: Path | None, as_json: bool) -> int:
    """The gravest exit code, once all of them are measured and told."""
    from llamaherd.cli.bench_rig import measured_one_by_one

    if len(jobs) > 1 and (share or as_json):
        names = " or ".join(each.instance.name for each in jobs)
        fail(UserError("--share and --json are for one measurement", f"name {names}"), UNUSABLE)
    every = zip(jobs, measured_one_by_one(jobs, wanted), strict=True)
    return max(_ended(results, each, job.instance.expect, share, as_json) for job, each in every)


def _one_of(
    rig: str | None, url: str | None, file: Path | None, about_url: tuple[object, ...], place: str | None
) -> None:
    """End the program unless one of a rig, a URL and a file is named, with what goes with it."""
    if sum(map(bool, (rig, url, file))) != 1:
        raise click.UsageError("name a rig, or a server by --url, or a file by --import")
    if not url and any(about_url):
        raise click.UsageError("--model, --name and --key-file go with --url")
    if place and not file:
        raise click.UsageError("--as goes with --import")


def _series(depth: str | None, concurrency: str | None, soak: str | None, energy: bool, power: str | None) -> Chosen:
    """What is asked for beside the quick measurement; the program ends where it is none."""
    from llamaherd.bench.courses.amounts import at_once, depths, seconds_of, watts
    from llamaherd.bench.courses.chosen import Chosen

    try:
        return Chosen(
            depths(depth) if depth else (),
            at_once(concurrency) if concurrency else (),
            seconds_of(soak) if soak else 0,
            energy,
            watts(power) if power else (),
        )
    except UserError as error:
        fail(error, UNUSABLE)


def _ended(results: Path, measured: Measured, expect: Expect | None, share: Path | None, as_json: bool) -> int:
    """The exit code, once all of a measurement is told."""
    if share:
        _share(measured, share)
    return _told(results, measured, expect, as_json)


def _share(measured: Measured, to: Path) -> None:
    from llamaherd.bench.results.document import to_bytes
    from llamaherd.bench.results.share import share

    try:
        to.write_bytes(to_bytes(share(measured.result)))
    except OSError as error:
        say(f"error: cannot write {to}: {error.strerror}\n  help: check the folder, its mode and its disk", err=True)
        sys.exit(UNUSABLE)


def _told(results: Path, measured: Measured, expect: Expect | None, as_json: bool) -> int:
    """The exit code, once it is printed."""
    from llamaherd.bench.outcome import outcome
    from llamaherd.bench.results.document import to_bytes
    from llamaherd.bench.results.store import last_result
    from llamaherd.bench.show_outcome import print_outcome
    from llamaherd.store.show import console

    before = last_result(results, measured.result.rig, measured.result.instance, measured.path)
    found = outcome(measured.result, expect, before)
    if as_json:
        click.echo(to_bytes(measured.result).decode(), nl=False)
    else:
        print_outcome(found, console())
        say(f"kept in {measured.path}")
    if not found.known:
        return UNUSABLE
    return 0 if found.fine else FAILED
