"""`herd stop`, `start`, `restart`, `pause` and `resume`: one request to the host, and a line for each server."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    echo,
    fail,
    inventory_option,
    json_option,
    lock_wait_option,
    read_or_exit,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import roles_or_exit
from llamaherd.cli.targets import find_servers, servers_argument
from llamaherd.deploy.origin import origin
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.drain import drained_for_change
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Patience, Remote, RemoteError
from llamaherd.inventory.schema import Rig
from llamaherd.layout import LOCK_WAIT
from llamaherd.onhost.reservation import RunLockInput
from llamaherd.onhost.server_control import LONGEST_PAUSE, ControlInput, ControlledServer, ControlResult, ServerResult
from llamaherd.pipeline.load import inventory_path, plans, rigs
from llamaherd.plan import InstancePlan, Plan
from llamaherd.text.numbers import parse_duration

Verb = Literal["stop", "start", "restart", "pause", "resume"]

_VERBS = {"restart": "start"}
"""Verbs of the host with another name than the command."""
_LOAD_SECONDS = 7200
"""The longest that a server may take to load, if the host does not remember how long it took."""
_STOP_SECONDS = 600
_LEAST_SECONDS = 60
"""The shortest pause."""
_CLOCK = re.compile(r"(?:(\d{4})-(\d\d?)-(\d\d?)[ T])?(\d\d?):(\d\d)", re.ASCII)


@dataclass(frozen=True)
class ControlOptions:
    """A command that stops or starts servers, and its options. `seconds` is the length of a pause from `began` on."""

    verb: Verb
    inventory: Path | None
    target: str | None
    lock_wait: int
    as_json: bool
    seconds: int = 0
    began: datetime = field(default_factory=datetime.now)


def control_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument and the options that all of these commands have."""
    for each in (click.pass_obj, json_option, inventory_option, lock_wait_option, servers_argument):
        command = each(command)
    return command


@click.command()
@control_options
def stop(inventory: Path | None, /, **options: Any) -> None:
    """Stop a server, or all servers of a rig.

    Gateways send new requests to other servers first, and running requests may end. The server stays stopped, also
    after a reboot of its host, until `herd start` or the next `herd up`. `herd plan` and `herd status` show it as
    stopped. To free a GPU for some hours, use `herd pause`.

    Exit codes: 0 done; 1 a host cannot be reached, or a server still runs; 2 wrong usage, or an unusable inventory.

    \b
    Examples:
      herd stop duo/chat   one server
      herd stop duo        all servers of a rig
    """
    control_servers(ControlOptions("stop", inventory, **options))


@click.command()
@control_options
def start(inventory: Path | None, /, **options: Any) -> None:
    """Start a server, or all servers of a rig.

    It ends a stop or a pause, and starts the version that is on the host: `herd up` applies changes of the inventory.
    The command waits until the server is healthy. If the server fails, the command prints the engine's own last error.

    Exit codes: 0 all servers are healthy; 1 a host cannot be reached, or a server is not healthy; 2 wrong usage, or an
    unusable inventory.

    \b
    Examples:
      herd start duo/chat   one server
      herd start duo        all servers of a rig
    """
    control_servers(ControlOptions("start", inventory, **options))


@click.command()
@control_options
def restart(inventory: Path | None, /, **options: Any) -> None:
    """Restart a server, or all servers of a rig.

    Gateways send new requests to other servers first, and running requests may end. The command waits until the server
    is healthy. If the server fails, the command prints the engine's own last error.

    Exit codes: 0 all servers are healthy; 1 a host cannot be reached, or a server is not healthy; 2 wrong usage, or an
    unusable inventory.

    \b
    Examples:
      herd restart duo/chat   one server
      herd restart duo        all servers of a rig
    """
    control_servers(ControlOptions("restart", inventory, **options))


def control_servers(options: ControlOptions) -> None:
    """Stop or start servers of one rig, and print the results. End the program if one of them failed."""
    path = inventory_path(options.inventory)
    declared = read_or_exit(lambda: rigs(path)).rigs
    try:
        targets = find_servers(declared, options.target)
        rig, plan = _planned(options.inventory, targets[0].rig)
    except UserError as error:
        fail(error, UNUSABLE)
    chosen = [each for each in plan.instances if each.name in {target.instance for target in targets}]
    try:
        with _drained(path, plan, chosen, options):
            result = query_verb(
                Remote(rig.connect),
                f"serve.control.{_VERBS.get(options.verb, options.verb)}",
                control_input(rig.rig, chosen, options, origin(path).who),
                ControlResult,
                Patience.within(_longest(chosen, options), f"`herd {options.verb}`"),
                lambda line: echo(f"{rig.rig}: {line}", err=True),
            )
    except RemoteError as error:
        fail(error, FAILED)
    _print_results(rig, chosen, result.servers, options)


def _planned(inventory: Path | None, rig: str) -> tuple[Rig, Plan]:
    """Return a rig with its plan. Print findings and end the program. Raise UserError."""
    roles = roles_or_exit(inventory)
    return read_or_exit(lambda: plans(inventory_path(inventory), roles, (rig,)))[rig]


def control_input(rig: str, chosen: Sequence[InstancePlan], options: ControlOptions, who: str) -> ControlInput:
    """Return the input of the verb."""
    servers = (ControlledServer(each.name, each.service, each.endpoint.port, each.drain) for each in chosen)
    lock = RunLockInput(rig, who, options.lock_wait)
    return ControlInput(lock, tuple(servers), anew=options.verb == "restart", seconds=options.seconds)


def _longest(chosen: Sequence[InstancePlan], options: ControlOptions) -> int:
    """Return the most seconds that a host may take: also for changes that an interrupted run began."""
    each = max((server.drain for server in chosen), default=0) + _STOP_SECONDS + _LOAD_SECONDS
    return options.lock_wait + LOCK_WAIT + len(chosen) * each


@contextmanager
def _drained(path: Path, plan: Plan, chosen: Sequence[InstancePlan], options: ControlOptions) -> Iterator[None]:
    """Drain servers at their gateways while they are stopped. Their health probes detect it afterwards."""
    stops = options.verb in ("stop", "restart", "pause")
    seconds = {each.name: each.drain + _STOP_SECONDS + each.server.start_seconds for each in chosen if stops}
    stopped: list[str] = []

    def say(line: str) -> None:
        # A gateway that sends to a stopped server again finds it down, and sends nothing.
        if not stopped or options.verb == "restart":
            echo(line, err=True)

    with drained_for_change(path, plan, seconds, say):
        yield
        stopped.append(options.verb)


def _print_results(
    rig: Rig, chosen: Sequence[InstancePlan], found: Mapping[str, ServerResult], options: ControlOptions
) -> None:
    """Print the result of each server, or all as JSON. End the program if one of them failed."""
    results = [(each, found[each.name]) for each in chosen if each.name in found]
    ok = len(results) == len(chosen) and not any(each.why for _, each in results)
    if options.as_json:
        servers = [_as_json(rig, server, each) for server, each in results]
        print_envelope(Envelope(ok, [{"rig": rig.rig, "servers": servers}]))
    else:
        for server, each in results:
            target = f"{rig.rig}/{server.name}"
            if each.why:
                echo(f"error: {target}: {each.why}\n  help: `herd logs {target}` shows more", err=True)
            else:
                echo(result_line(rig, server, each, options))
    if not ok:
        sys.exit(FAILED)


def _as_json(rig: Rig, server: InstancePlan, found: ServerResult) -> dict[str, Any]:
    return {
        "name": server.name,
        "ok": not found.why,
        "changed": found.changed,
        "seconds": round(found.seconds, 1),
        "url": server_url(rig, server),
        "error": found.why or None,
    }


def result_line(rig: Rig, server: InstancePlan, found: ServerResult, options: ControlOptions) -> str:
    """Return the result of a server that did not fail."""
    target, took = f"{rig.rig}/{server.name}", f"{found.seconds:.0f} s"
    if options.verb == "stop":
        done = f"stopped after {took}" if found.changed else "it was stopped before"
        return f"{target}: {done}; `herd start {target}` or `herd up` starts it"
    if options.verb == "pause":
        until = local_end(options.began, options.seconds)
        return f"{target}: paused until {until}; `herd resume {target}` starts it earlier"
    if options.verb == "resume" and not found.changed:
        return f"{target}: it is not paused"
    where = server_url(rig, server)
    local = "" if server.endpoint.for_others else f" on {rig.rig} itself"
    return f"{target}: healthy after {took}: {where}{local}" if found.changed else f"{target}: it runs: {where}{local}"


def server_url(rig: Rig, server: InstancePlan) -> str:
    """Return the URL of a server; for one that listens on its own host alone, the URL there."""
    return server.endpoint.url(address=rig.address if server.endpoint.for_others else None)


def local_end(now: datetime, seconds: int) -> str:
    """Return the end of a pause in local time: with its date, unless it is today."""
    end = (now.astimezone() + timedelta(seconds=seconds)).astimezone()
    return f"{end:%H:%M}" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M}"


def seconds_until(text: str, now: datetime) -> int:
    """Return the seconds from `now` until a time like `22:00`, or `2026-12-01 08:00`, in the time zone of `now`.

    A time without a date is the next such time. `now` has no time zone: it is local time of this machine. Raise
    ValueError.
    """
    found = _CLOCK.fullmatch(text.strip())
    if not found:
        raise ValueError(f"`{text}` is no time; write it like 22:00 or 2026-12-01 08:00")
    year, month, day, hour, minute = (None if each is None else int(each) for each in found.groups())
    try:
        if year is None or month is None or day is None:
            end = now.replace(hour=hour or 0, minute=minute or 0, second=0, microsecond=0)
            end = end if end > now else end + timedelta(days=1)
        else:
            end = datetime(year, month, day, hour or 0, minute or 0)
        # By their time zones: a day has 23 hours where summer time begins.
        return round((end.astimezone() - now.astimezone()).total_seconds())
    except (ValueError, OverflowError):
        raise ValueError(f"`{text}` does not exist; write it like 22:00 or 2026-12-01 08:00") from None


def _pause_seconds(until: str | None, duration: str | None) -> int:
    """Return the length of a pause. Raise BadParameter or UsageError."""
    if until is not None and duration is not None:
        raise click.UsageError("--until and --for both give the end of the pause; leave out one of them")
    if until is None and duration is None:
        raise click.UsageError("give the end of the pause: --until 22:00, or --for 3h; `herd stop` has no end")
    try:
        seconds = parse_duration(duration) if duration is not None else seconds_until(until or "", datetime.now())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for" if until is None else "--until") from None
    if not _LEAST_SECONDS <= seconds <= LONGEST_PAUSE:
        hint, days = "--for" if until is None else "--until", LONGEST_PAUSE // 86_400
        raise click.BadParameter(f"the end must be in 1 minute to {days} days", param_hint=hint)
    return seconds


@click.command()
@click.option("--until", metavar="TIME", help="The end, in the time zone of this machine: 22:00, or 2026-12-01 08:00.")
@click.option("--for", "duration", metavar="TIME", help="The length: 90m, or 3h. At most 30 days.")
@control_options
def pause(inventory: Path | None, /, until: str | None, duration: str | None, **options: Any) -> None:
    """Stop a server for some time, so that its GPUs are free.

    A rig stands for all of its servers. The host starts the server again when the time is over, also if it was
    rebooted or switched off meanwhile. `herd status`, `herd verify` and the gateway show the server as paused, and no
    alert fires. `herd up` leaves it paused. `herd resume` ends a pause early.

    Exit codes: 0 done; 1 a host cannot be reached, or a server still runs; 2 wrong usage, or an unusable inventory.

    \b
    Examples:
      herd pause duo/chat --until 22:00   one server
      herd pause duo --for 3h             all servers of a rig
    """
    seconds = _pause_seconds(until, duration)
    control_servers(ControlOptions("pause", inventory, seconds=seconds, **options))


@click.command()
@control_options
def resume(inventory: Path | None, /, **options: Any) -> None:
    """End the pause of a server, or of all servers of a rig.

    The command waits until they are healthy. Servers that are not paused are left as they are.

    Exit codes: 0 done; 1 a host cannot be reached, or a server is not healthy; 2 wrong usage, or an unusable inventory.

    \b
    Examples:
      herd resume duo/chat   one server
      herd resume duo        all paused servers of a rig
    """
    control_servers(ControlOptions("resume", inventory, **options))
