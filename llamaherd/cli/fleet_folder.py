"""The run of `herd init`: write the files of a fleet, with a rig from an inspection or an example."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from llamaherd.cli.common import FAILED, echo, exit_on_error, fail, report
from llamaherd.cli.fit import header_of
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.gguf.header import Header
from llamaherd.host.ssh import UnknownHostKeyError, host_key_prompt, place
from llamaherd.inventory.schema import LOCAL, Connect, Rig
from llamaherd.inventory.schema.rig import Host
from llamaherd.lock import Lock
from llamaherd.measure.results.store import RESULTS
from llamaherd.measure.tune.result import prior_result_lines, prior_results, results_of_machine
from llamaherd.onhost.hardware import FoundHost
from llamaherd.pipeline.discovery import find_fleet
from llamaherd.pipeline.fleet_files import FLEET
from llamaherd.pipeline.load import rigs as declared_rigs
from llamaherd.scaffold import (
    EXAMPLE,
    ScaffoldError,
    connect_to,
    example_rig,
    example_rigs,
    fleet_files,
    holds_rigs,
    inspect_hardware,
    parse_rig,
    propose_model,
    rig_name,
    rig_yaml,
    write_files,
    written_gpus,
)

_PROMPT_SECONDS = 600
"""Seconds in which the user confirms the key of a host."""


@dataclass(frozen=True)
class FirstRig:
    """The rig to write: by --from with `user`, `port` and `name`, or by --example; else an example to edit."""

    host: str | None
    user: str | None
    port: int | None
    name: str | None
    example: str | None


def create_fleet(folder: Path | None, first: FirstRig) -> None:
    """Write the missing files of a fleet folder, and print them and the next step. End the program on an error."""
    rigs: dict[str, str] = {}
    with exit_on_error(FAILED):
        folder = folder or _usual_folder()
        if first.host is not None:
            rig, text = _inspected_rig(folder, first)
            rigs[rig] = text
        elif first.example is not None:
            rigs = example_rigs(first.example)
        elif not holds_rigs(folder):
            rigs[EXAMPLE] = example_rig()
        outcomes = write_files(folder, fleet_files(rigs))
    for outcome in outcomes:
        echo(f"{outcome.what:9}  {outcome.file}")
    if first.host is not None and any(each.what == "kept" and each.file.stem in rigs for each in outcomes):
        help_ = "give the new rig another name with `--name`, or remove that file"
        fail(UserError(f"there is a rig in {folder / next(iter(rigs))}.yaml already, which was kept", help_), FAILED)
    for rig, text in rigs.items() if first.host is not None else ():
        if twin := twin_of(folder, rig, text):
            echo(f"{twin} has the same hardware: with `extends: {twin}`, {rig}.yaml needs only what differs", err=True)
    if rigs:
        echo(_next_step(folder, rigs, ready=first.host is not None), err=True)


def _usual_folder() -> Path:
    """Return the fleet folder that the command runs in, or the current folder if it is empty. Raise ScaffoldError."""
    found = find_fleet()
    if found is None and any(Path().iterdir()):
        help_ = "name a folder for the fleet, as in `herd init fleet`; `herd init .` is this folder"
        raise ScaffoldError("the current folder has other files", help_)
    return found or Path()


def _next_step(folder: Path, rigs: Iterable[str], *, ready: bool) -> str:
    """Return what to do with new rigs: one is ready, others are examples to edit."""
    first = f"{next(name for name in rigs if f'{name}.yaml' != FLEET)}.yaml"
    enter = "" if folder == Path() else f"run `cd {shlex.quote(str(folder))}`, "
    return f"next: {enter}{f'read {first}, and run `herd up`' if ready else f'edit {first}, and run `herd check`'}"


def twin_of(folder: Path, name: str, text: str) -> str:
    """Return another rig of the fleet with the same system, processor, memory and GPUs; empty if there is none."""
    try:
        fleet = declared_rigs(folder).rigs
    except InventoryError:
        return ""
    hardware = _hardware(parse_rig(text))
    return next((each for each, rig in fleet.items() if each != name and _hardware(rig) == hardware), "")


def _hardware(rig: Rig) -> tuple[Host, list[str]]:
    return rig.host, sorted(card.model for card in rig.gpus.cards.values()) if rig.gpus else []


def _connection(first: FirstRig) -> Connect:
    """Return the connection to `[USER@]HOST` or `local`. Raise ScaffoldError."""
    if first.host == "local":
        return connect_to(LOCAL, first.user, first.port)
    before, _, name = str(first.host).rpartition("@")
    return connect_to(name, first.user or before or None, first.port)


def inspected_host(first: FirstRig) -> tuple[str, Connect, FoundHost]:
    """Inspect the host of a new rig. Return the rig's name, the connection and the hardware. Raise UserError."""
    connect = _connection(first)
    rig_name(first.name, connect.host)  # report an invalid name before the inspection
    echo(f"inspecting {place(connect)}", err=True)
    try:
        found = inspect_hardware(connect)
    except UnknownHostKeyError:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(host_key_prompt(connect), check=False, timeout=_PROMPT_SECONDS)
        found = inspect_hardware(connect)
    return rig_name(first.name, connect.host, found.name), connect, found


def _inspected_rig(folder: Path, first: FirstRig) -> tuple[str, str]:
    """Return a rig's name and its file from an inspection of its host. Raise UserError."""
    rig, connect, found = inspected_host(first)
    measured = measured_lines(folder, found)
    if measured:
        echo("its file contains, as a comment, the best settings of `herd tune` on such GPUs", err=True)
    write = partial(rig_yaml, found, rig, connect, measured)
    proposal = propose_model(found, lambda each: parse_rig(write(each)), _header, report)
    return rig, write(proposal)


def _header(model: str) -> Header:
    """Return the header of a model on the hub. Raise UserError."""
    return header_of(model, {}, Lock())


def measured_lines(folder: Path, found: FoundHost) -> list[str]:
    """Return the best settings that searches found on the same GPUs with as many cores, as lines of a comment."""
    gpus = [(gpu.model, gpu.memory << 20) for gpu in written_gpus(found)]
    every = results_of_machine(prior_results(folder / RESULTS), gpus, found.cores or found.threads) if gpus else []
    return [line for each in every for line in prior_result_lines(each)]
