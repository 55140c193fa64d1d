"""Run the changes of rigs with the screen of `herd up`, and print what failed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from llamaherd.cli.common import echo
from llamaherd.cli.run_screen import RunScreen, failure_lines, marks, run_screen
from llamaherd.host.signals import END_SIGNALS
from llamaherd.inventory.schema import Rig
from llamaherd.plan import Plan

if TYPE_CHECKING:
    from llamaherd.deploy.run import RunOptions, RunResult


@dataclass(frozen=True)
class ScreenedRun:
    """A run that has ended: its result, and the screen that measured its time."""

    result: RunResult
    screen: RunScreen

    @property
    def failed(self) -> tuple[str, ...]:
        """Return the rigs that failed."""
        return self.result.failed


def run_screened(
    planned: Mapping[str, tuple[Rig, Plan]],
    path: Path,
    options: RunOptions,
    unreached: Mapping[str, str] = MappingProxyType({}),
) -> ScreenedRun:
    """Apply plans to their hosts, and show that on the screen. pyinfra's own lines are not shown."""
    from llamaherd.deploy.run import deploy_on, load_pyinfra

    hide_progress(verbose=False)
    load_pyinfra()  # before the screen starts a thread
    with run_screen(planned) as screen:
        result = deploy_on(screen, planned, path, unreached, options)
    return ScreenedRun(result, screen)


def run_screened_within(planned: Mapping[str, tuple[Rig, Plan]], path: Path, options: RunOptions) -> ScreenedRun:
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


def print_failures(run: ScreenedRun, fix: str = "") -> None:
    """Print why rigs failed. `fix` is as for `failure_lines`."""
    for name in run.failed:
        failures = run.result.failures.get(name, ())
        for line in (line for failure in failures for line in failure_lines(name, failure, fix)):
            echo(line, err=True)
        if not failures:
            # An operation of a fleet's own role, or pyinfra itself.
            echo(printed_of(name, run.result.output), err=True)
            shown = "" if fix else f"; `herd up {name} -v` shows all of the run"
            echo(f"{name} {marks()[1]} the reason is above{shown}", err=True)


def printed_of(rig: str, output: str) -> str:
    """Return what pyinfra has printed of a rig; all of it, if it has printed nothing of that rig."""
    lines = output.strip().splitlines()
    own = [line for line in lines if f"[{rig}]" in line]
    return "\n".join(own or lines)
