"""Run changes with the screen of `herd up`: a live line for each host, or lines in a log; what failed, and why."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING

from llamaherd.cli.common import echo, is_quiet
from llamaherd.cli.rigs import sent_size, thing
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.signals import END_SIGNALS
from llamaherd.inventory.schema import Rig
from llamaherd.layout import APT_LOG
from llamaherd.onhost.reporting import find_reason
from llamaherd.onhost.servers import FailedSwitch
from llamaherd.plan import InstancePlan, Plan
from llamaherd.plan.instance import planned_task
from llamaherd.role.changes import Change
from llamaherd.text.numbers import show_seconds
from llamaherd.text.terminal import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from llamaherd.deploy.run import RunOptions, RunResult
    from llamaherd.deploy.run_state import Failure

LONG_STEP = 2.0
"""Seconds from which on a step is shown with its time once it has ended."""
_MOST_STEP = 100
_MOST_ABOVE = 20
"""Lines of a log that a failure shows if its sentence refers to them."""
_ABOVE = re.compile(r"\babove\b")
_WHOLE = ("connection", "preflight | can the plan be applied?")
"""Tasks whose failures are of the whole host."""


@dataclass
class HostRow:
    """What a host does now: its step, the last line of its progress, and when both began."""

    began: float
    step: str = ""
    step_began: float = 0.0
    detail: str = ""
    ended: float | None = None


@dataclass
class RunScreen:
    """Shows the steps of hosts. `write` prints a line that stays; `draw` shows the live lines at once; `clock` is in s.

    With `details`, lines of progress stay as well: in a log there is no live line. If `quiet`, only notes are shown.
    """

    write: Callable[[str], None]
    clock: Callable[[], float] = monotonic
    details: bool = True
    quiet: bool = False
    draw: Callable[[], None] = lambda: None
    rows: dict[str, HostRow] = field(default_factory=dict)

    def row(self, rig: str) -> HostRow:
        """Return the row of a host, which begins with its first step."""
        return self.rows.setdefault(rig, HostRow(self.clock()))

    def begin(self, rig: str, changes: Sequence[Change]) -> None:
        """Show that changes begin, which are made together."""
        row, step = self.row(rig), " and ".join(map(_step, changes))
        row.step, row.step_began, row.detail = one_line(step, _MOST_STEP), self.clock(), ""
        self.draw()
        if self.details:
            self.write(f"{rig}: {row.step}")

    def end(self, rig: str) -> None:
        """Show how long the step took, if that was long."""
        row = self.row(rig)
        seconds = self.clock() - row.step_began
        if row.step and seconds >= LONG_STEP and not self.quiet:
            self.write(f"{rig}: {row.step}: {show_seconds(seconds)}")
        row.step = row.detail = ""

    def detail(self, rig: str, line: str) -> None:
        """Show a line of progress."""
        self.row(rig).detail = line
        if self.details and line.strip():
            self.write(f"{rig}:   {line}")

    def note(self, rig: str, line: str) -> None:
        """Show a line that stays."""
        self.write(f"{rig}: {line}")

    def finish(self, rig: str) -> None:
        """Note that the run has ended on this host."""
        row = self.row(rig)
        row.ended, row.step, row.detail = self.clock(), "", ""

    def seconds(self, rig: str) -> float:
        """Return how long the run of a host took."""
        row = self.row(rig)
        return (row.ended if row.ended is not None else self.clock()) - row.began


def _step(change: Change) -> str:
    """Return what a change does; of a file that is sent, with its size."""
    size = sent_size(change)
    return f"{change.action} {thing(change)}{f' ({size})' if size else ''}"


@contextmanager
def run_screen(rigs: Mapping[str, object]) -> Iterator[RunScreen]:
    """Yield the screen of a run over these rigs: on a terminal with a live line for each, else with lines."""
    quiet = is_quiet()
    if quiet or not sys.stderr.isatty():
        stream = sys.stderr  # the run hides what others write to sys.stderr
        screen = RunScreen(lambda line: print(line, file=stream, flush=True), details=not quiet, quiet=quiet)
        for rig in rigs:
            screen.row(rig)
        yield screen
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr, highlight=False)
    live = RunScreen(lambda line: console.print(line, markup=False, soft_wrap=True), details=False)
    for rig in rigs:
        live.row(rig)
    lines = Live(
        console=console,
        get_renderable=lambda: live_lines(live, console.width),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    live.draw = lines.refresh
    with lines:
        yield live


def live_lines(screen: RunScreen, columns: int) -> RenderableType:
    """Return a line for each host: how long its run takes, its step, and the last line of its progress.

    A line that is wider than the terminal is cut after a word.
    """
    from rich.console import Group
    from rich.text import Text

    now, width = screen.clock(), max(map(len, screen.rows))
    lines = []
    for rig, row in screen.rows.items():
        seconds = (row.ended if row.ended is not None else now) - row.began
        step = (
            f"{row.step} ({now - row.step_began:.0f} s)" if row.step else "inspecting" if row.ended is None else "done"
        )
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{rig:{width}}", "bold").append(f"  {seconds:4.0f} s  {step}").append(f"  {row.detail}", "dim")
        if line.cell_len > columns and (end := line.plain.rfind(" ", 0, columns)) > len(rig):
            line.truncate(end, overflow="crop")
            line.rstrip()
            line.append("…")
        lines.append(line)
    return Group(*lines)


def failure_lines(rig: str, failure: Failure, fix: str = "") -> list[str]:
    """Return what a user reads of a failure: what failed, the engine's own reason, what serves now, what to type.

    `fix` is what to type if the failure has no help of its own; by default, that of `herd up`.
    """
    cross = marks()[1]
    # The screen has hidden what some sentences refer to as above.
    refers = _ABOVE.search(f"{failure.message} {failure.help}") is not None
    above = [f"{rig}:   {line}" for line in failure.log[-_MOST_ABOVE:]] if refers else []
    if failure.switch is None:
        reason = "" if above else find_reason(failure.log)
        task = f"{failure.task.rpartition(' | ')[2]}: " if failure.task not in _WHOLE else ""
        return [
            *above,
            f"{rig} {cross} {task}{failure.message}",
            *([f"  reason: {reason}"] if reason and reason not in failure.message else []),
            *(f"  help: {line.removeprefix('  help: ')}" for line in failure.help.splitlines()),
            *([f"  log: `herd ssh {rig} -- sudo cat {APT_LOG}`"] if str(APT_LOG) in failure.message else []),
        ]
    switch = failure.switch
    why = switch.why.removesuffix(f": {switch.reason}") if switch.reason else switch.why
    return [
        *above,
        f"{rig} {cross} {switch.service.removeprefix('llama-')}: {one_line(why)}",
        *([f"  engine: {switch.reason}"] if switch.reason and switch.reason not in why else []),
        f"  {_what_serves(switch)}",
        f"  help: {_what_to_type(rig, failure, fix)}",
    ]


def _what_serves(switch: FailedSwitch) -> str:
    if not switch.serves:
        return "no version of it serves now"
    if switch.downtime is None:
        return "the running version serves as before, without downtime"
    return f"the previous version serves again, after {show_seconds(switch.downtime)} of downtime"


def _what_to_type(rig: str, failure: Failure, fix: str) -> str:
    if failure.help and "--retry" not in failure.help:
        return failure.help.replace("\n", " ")
    return (
        fix or f"change the inventory and run `herd up {rig}`, or try it again with its log: `herd up {rig} --retry -v`"
    )


def served_lines(
    rig: Rig, plan: Plan, speeds: Mapping[str, float], paused: Container[str] = frozenset()
) -> Iterator[str]:
    """Yield each server that a run has applied: its URL, and its speed, if it was measured."""
    width = max((len(instance.name) for instance in plan.chosen), default=0)
    for instance in plan.chosen:
        if instance.name in paused:
            yield f"  {instance.name:{width}}  paused"
            continue
        speed = speeds.get(instance.service)
        shown = f"  {speed:.1f} tokens/s" if speed else ""
        yield f"  {instance.name:{width}}  {server_url(rig, instance)}{shown}"


def server_url(rig: Rig, instance: InstancePlan) -> str:
    """Return where clients reach a server, or where programs on its own host do."""
    endpoint = instance.endpoint
    if endpoint.for_others:
        return endpoint.url("/v1", address=rig.connect.host)
    return f"{endpoint.url('/v1')} on the host alone"


def next_command(
    planned: Mapping[str, tuple[Rig, Plan]], paused: Mapping[str, Container[str]] = MappingProxyType({})
) -> str:
    """Return the command to type after a run: a chat with the first server that chats, else a verification.

    `paused` contains the names of instances by the name of their rig: their servers do not chat.
    """
    for name, (_, plan) in planned.items():
        for instance in plan.chosen:
            if instance.name not in paused.get(name, ()) and planned_task(instance) == "chat":
                return f"herd chat {name}/{instance.name}"
    return f"herd verify {' '.join(planned)}"


def print_done(
    name: str,
    rig: Rig,
    plan: Plan,
    seconds: float,
    speeds: Mapping[str, float],
    paused: Container[str],
    downtimes: Mapping[str, float],
) -> None:
    """Print that a rig is up to date, how long its servers were down, and what it serves."""
    down = {each.name: downtimes[each.service] for each in plan.instances if each.service in downtimes}
    parts = (f"{each} was down for {show_seconds(away)}" for each, away in down.items())
    echo(", ".join((f"{name} {marks()[0]} {show_seconds(seconds)}", *parts)), fit=True)
    for line in served_lines(rig, plan, speeds, paused):
        echo(line)


def print_applied(
    run: RunResult, planned: Mapping[str, tuple[Rig, Plan]], paused: Mapping[str, Container[str]]
) -> None:
    """Print the rigs that are up to date after a run. `paused` contains the names of instances by rig."""
    for name, (rig, plan) in planned.items():
        if name not in run.failed:
            speeds, downtimes = run.speeds.get(name, {}), run.downtimes.get(name, {})
            print_done(name, rig, plan, run.seconds[name], speeds, paused.get(name, ()), downtimes)


def marks() -> tuple[str, str]:
    """Return the marks of success and of failure that stdout can show."""
    return ("✓", "✗") if (sys.stdout.encoding or "").lower().startswith("utf") else ("ok", "FAILED")


def run_screened(
    planned: Mapping[str, tuple[Rig, Plan]],
    path: Path,
    options: RunOptions,
    unreached: Mapping[str, str] = MappingProxyType({}),
) -> RunResult:
    """Apply plans to their hosts, and show that on the screen. pyinfra's own lines are not shown."""
    from llamaherd.deploy.run import deploy_on, load_pyinfra

    hide_progress(verbose=False)
    load_pyinfra()  # before the screen starts a thread
    with run_screen(planned) as screen:
        result = deploy_on(screen, planned, path, unreached, options)
    return replace(result, seconds={rig: screen.seconds(rig) for rig in planned})


def run_screened_within(planned: Mapping[str, tuple[Rig, Plan]], path: Path, options: RunOptions) -> RunResult:
    """Apply plans as `run_screened` does, in a command that goes on after it with its own handlers of signals."""
    handlers = {each: signal.getsignal(each) for each in END_SIGNALS}
    try:
        return run_screened(planned, path, options)
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def hide_progress(*, verbose: bool) -> None:
    """Switch pyinfra's spinner off, unless its lines are shown on a terminal: it fills a log with escape codes."""
    if not (verbose and sys.stderr.isatty()):
        os.environ.setdefault("PYINFRA_PROGRESS", "off")


def print_failures(run: RunResult, fix: str = "") -> None:
    """Print why rigs failed. `fix` is as for `failure_lines`."""
    for name in run.failed:
        failures = run.failures.get(name, ())
        for line in (line for failure in failures for line in failure_lines(name, failure, fix)):
            echo(line, err=True)
        if not failures:
            # An operation of a fleet's own role, or pyinfra itself.
            printed = printed_of(name, run.output)
            if printed:
                echo(printed, err=True)
            why = "the reason is above" if printed else "the run has printed no reason"
            shown = "" if fix else f"; `herd up {name} -v` shows all of the run"
            echo(f"{name} {marks()[1]} {why}{shown}", err=True)


def printed_of(rig: str, output: str) -> str:
    """Return what pyinfra has printed of a rig; all of it, if it has printed nothing of that rig."""
    lines = output.strip().splitlines()
    own = [line for line in lines if f"[{rig}]" in line]
    return "\n".join(own or lines)


TRIAL_ROLES = ("engines", "models")
"""The roles that install what a trial needs. They change no server."""


def install_for_trial(part: Mapping[str, tuple[Rig, Plan]], inventory: Path, lock_wait: int) -> None:
    """Apply the plans of these roles. Raise UserError if that fails."""
    from llamaherd.deploy.run import RunOptions

    ended = run_screened_within(part, inventory, RunOptions(lock_wait=lock_wait))
    print_failures(ended, "run the command again to resume")
    if ended.failed:
        raise UserError("the new versions could not be installed", "the reason is above; run it again to resume")
