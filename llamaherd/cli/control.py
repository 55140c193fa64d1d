"""The run of commands that stop, start, pause and resume servers: one request to the host, and a line for each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from llamaherd.cli.common import FAILED, UNUSABLE, echo, exit_on_error, fail, read_or_exit
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import quiet_plans
from llamaherd.cli.servers import ControlOptions
from llamaherd.cli.targets import find_servers
from llamaherd.deploy.origin import origin
from llamaherd.fleet.drain import drained_for_change
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Patience, Remote, RemoteError
from llamaherd.inventory.schema import Rig
from llamaherd.layout import LOCK_WAIT
from llamaherd.onhost.reservation import RunLockInput
from llamaherd.onhost.server_control import ControlInput, ControlledServer, ControlResult, ServerResult
from llamaherd.pipeline.load import inventory_path, rigs
from llamaherd.plan import InstancePlan, Plan

_VERBS = {"restart": "start"}
"""Verbs of the host with another name than the command."""
_LOAD_SECONDS = 7200
"""The longest that a server may take to load, if the host does not remember how long it took."""
_STOP_SECONDS = 600


def control_servers(options: ControlOptions) -> None:
    """Stop or start servers of one rig, and print the results. End the program if one of them failed."""
    path = inventory_path(options.inventory)
    declared = read_or_exit(lambda: rigs(path)).rigs
    with exit_on_error(UNUSABLE):
        targets = find_servers(declared, options.target)
        rig, plan = quiet_plans(options.inventory, (targets[0].rig,))[targets[0].rig]
    chosen = [each for each in plan.instances if each.name in {target.instance for target in targets}]
    try:
        with _drained(path, plan, chosen, options):
            result = query_verb(
                Remote(rig.connect),
                f"serve.control.{_VERBS.get(options.verb, options.verb)}",
                control_input(rig.rig, chosen, options, origin(path).author),
                ControlResult,
                Patience.within(_longest(chosen, options), f"`herd {options.verb}`"),
                lambda line: echo(f"{rig.rig}: {line}", err=True),
            )
    except RemoteError as error:
        fail(error, FAILED)
    _print_results(rig, chosen, result.servers, options)


def control_input(rig: str, chosen: Sequence[InstancePlan], options: ControlOptions, author: str) -> ControlInput:
    """Return the input of the verb."""
    servers = (ControlledServer(each.name, each.service, each.endpoint.port, each.drain) for each in chosen)
    lock = RunLockInput(rig, author, options.lock_wait)
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

    def report(line: str) -> None:
        # A gateway that sends to a stopped server again finds it down, and sends nothing.
        if not stopped or options.verb == "restart":
            echo(line, err=True)

    with drained_for_change(path, plan, seconds, report):
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
