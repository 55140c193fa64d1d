"""The run of `herd logs`: stream the log of a server from its host, and print its lines with local times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from llamaherd.cli.common import FAILED, UNUSABLE, echo, exit_on_error, read_or_exit
from llamaherd.cli.envelope import note_printed
from llamaherd.cli.logs import DEFAULT_LINES, LogsOptions
from llamaherd.cli.targets import Target, find_target
from llamaherd.host.remote import Patience, Shell
from llamaherd.inventory.schema import Rig
from llamaherd.layout import service_of
from llamaherd.onhost.server_control import MOST_LINES, LogsInput
from llamaherd.pipeline.load import inventory_path, rigs
from llamaherd.text.terminal import shown

_SILENT_SECONDS = 90
"""In which a host sends at least an empty line, or ends."""
_MOST_TIME = 253_402_214_400
"""Seconds until the last day that has a date with four digits of the year."""


def print_log(options: LogsOptions) -> None:
    """Print the lines of a log. End the program if the host has none, or cannot be reached."""
    declared = read_or_exit(lambda: rigs(inventory_path(options.inventory))).rigs
    with exit_on_error(UNUSABLE):
        target = find_target(declared, options.target)
    count = 0
    with exit_on_error(FAILED):
        for line in _read_log(declared[target.rig], log_input(declared[target.rig], target, options)):
            click.echo(json_line(target, line) if options.as_json else log_line(line))
            note_printed()  # after lines of a log, an interruption prints no envelope
            count += 1
    if not count:
        chosen = options.grep or options.since is not None
        echo(f"{target}: its log has no such line" if chosen else f"{target}: its log is empty", err=True)


def log_input(rig: Rig, target: Target, options: LogsOptions) -> LogsInput:
    """Return the input of the verb. A member of a group has the log of the group's server."""
    server = target.server(rig)
    backend = rig.instances[rig.servers[server][0]].backend
    default = DEFAULT_LINES if options.since is None else MOST_LINES
    return LogsInput(
        name=server,
        service=service_of(server),
        unit=backend == "systemd",
        lines=default if options.lines is None else options.lines,
        since=options.since,
        grep=options.grep,
        follow=options.follow,
    )


def _read_log(rig: Rig, given: LogsInput) -> Iterator[str]:
    """Yield the lines of a log as the host sends them, `SECONDS TAB TEXT`. Raise UserError."""
    patience = Patience.within(_SILENT_SECONDS, "printing a log")
    with Shell(rig.connect) as shell:
        for line in shell.converse("serve.control.log", given, patience):
            patience.renew(_SILENT_SECONDS)
            if line:  # an empty line shows that the connection still exists
                yield line


def log_line(line: str) -> str:
    """Return a line of the host with its time in the time zone of this machine."""
    at, text = _parse_line(line)
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}  {text}" if at else f"{'':19}  {text}"


def json_line(target: Target, line: str) -> str:
    """Return a line of the host as a JSON object, with its time in UTC."""
    at, text = _parse_line(line)
    value = {"rig": target.rig, "instance": target.instance, "at": at.isoformat() if at else None, "text": text}
    return json.dumps(value, ensure_ascii=False)


def _parse_line(line: str) -> tuple[datetime | None, str]:
    """Return the time of a line, None if it has no valid one, and its text without control characters."""
    seconds, _, text = line.partition("\t")
    text = shown(text.expandtabs(4))
    if not (seconds.isascii() and seconds.isdecimal() and int(seconds[:20]) < _MOST_TIME):
        return None, text
    return datetime.fromtimestamp(int(seconds), UTC), text
