"""`herd stop`, `herd start`, `herd restart`, `herd pause` and `herd resume`: stop and start declared servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import click

from llamaherd.cli.common import inventory_option, json_option, lock_wait_option
from llamaherd.cli.targets import servers_argument

Verb = Literal["stop", "start", "restart", "pause", "resume"]


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


def _control_command(function: Callable[..., None]) -> click.Command:
    """Return the command of a function, with the argument and the options of commands that control servers."""
    command: Callable[..., Any] = click.pass_obj(function)
    for add in (json_option, inventory_option, lock_wait_option, servers_argument):
        command = add(command)
    return click.command()(command)


def run(options: ControlOptions) -> None:
    """Run a command that stops or starts servers."""
    from llamaherd.cli.control import control_servers  # late: the help needs none of it

    control_servers(options)


@_control_command
def stop(inventory: Path | None, target: str | None, lock_wait: int, as_json: bool) -> None:
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
    run(ControlOptions("stop", inventory, target, lock_wait, as_json))


@_control_command
def start(inventory: Path | None, target: str | None, lock_wait: int, as_json: bool) -> None:
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
    run(ControlOptions("start", inventory, target, lock_wait, as_json))


@_control_command
def restart(inventory: Path | None, target: str | None, lock_wait: int, as_json: bool) -> None:
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
    run(ControlOptions("restart", inventory, target, lock_wait, as_json))


_LEAST_SECONDS = 60
_CLOCK = re.compile(r"(?:(\d{4})-(\d\d?)-(\d\d?)[ T])?(\d\d?):(\d\d)", re.ASCII)


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
    from llamaherd.onhost.server_control import LONGEST_PAUSE  # late: the help needs none of it
    from llamaherd.text.numbers import parse_duration

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
@servers_argument
@click.option("--until", metavar="TIME", help="The end, in the time zone of this machine: 22:00, or 2026-12-01 08:00.")
@click.option("--for", "duration", metavar="TIME", help="The length: 90m, or 3h. At most 30 days.")
@lock_wait_option
@inventory_option
@json_option
@click.pass_obj
def pause(
    inventory: Path | None, target: str | None, until: str | None, duration: str | None, lock_wait: int, as_json: bool
) -> None:
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
    run(ControlOptions("pause", inventory, target, lock_wait, as_json, seconds))


@_control_command
def resume(inventory: Path | None, target: str | None, lock_wait: int, as_json: bool) -> None:
    """End the pause of a server, or of all servers of a rig.

    The command waits until they are healthy. Servers that are not paused are left as they are.

    Exit codes: 0 done; 1 a host cannot be reached, or a server is not healthy; 2 wrong usage, or an unusable inventory.

    \b
    Examples:
      herd resume duo/chat   one server
      herd resume duo        all paused servers of a rig
    """
    run(ControlOptions("resume", inventory, target, lock_wait, as_json))
