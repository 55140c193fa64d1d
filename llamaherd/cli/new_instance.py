"""The run of `herd add`: find a model, propose an instance of it, and write both to the file of a rig."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from llamaherd.cli.common import FAILED, UNUSABLE, echo, fail, print_findings, read_or_exit
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.file_edits import confirm_write, print_edit, resolved_lock_or_exit, write_edits
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock
from llamaherd.pipeline.fleet_files import Survey, choose_rigs, survey_fleet
from llamaherd.pipeline.load import inventory_folder, inventory_path, read_lock
from llamaherd.pipeline.new_instance import (
    FoundModel,
    InstanceOptions,
    NewInstance,
    UnwrittenError,
    declare_instance,
    find_model,
    other_options,
    parse_source,
    smaller_quants,
)
from llamaherd.text.numbers import show_mib, show_size


@dataclass(frozen=True)
class AddOptions:
    """The options of `herd add`."""

    inventory: Path | None
    model: str
    rig: str | None
    name: str | None
    context: int | None
    port: int | None
    on: str | None
    yes: bool
    dry_run: bool
    as_json: bool

    @property
    def options(self) -> InstanceOptions:
        """The values that the user sets."""
        on = None if self.on is None else tuple(name.strip() for name in self.on.split(",") if name.strip())
        return InstanceOptions(self.name, self.context, self.port, () if on == ("cpu",) else on)


def run_add(run: AddOptions) -> None:
    """Declare an instance of a model. End the program if it does not fit, or if the user does not confirm."""
    if run.as_json and not (run.yes or run.dry_run):
        raise click.UsageError("--json needs --yes, or --dry-run to write nothing")
    path = inventory_path(run.inventory)
    lock = read_or_exit(lambda: read_lock(path))
    survey = survey_fleet(path, lock)
    if not survey.ok:
        print_findings(survey.findings)
        sys.exit(UNUSABLE)
    rigs = read_or_exit(lambda: choose_rigs(survey.fleet, (run.rig,) if run.rig else (), path)).rigs
    try:
        found = find_model(parse_source(run.model), inventory_folder(path).resolve())
        made = _best(run, path, lock, survey, rigs, found)
        if made is None:
            _print_unfit(run, path, lock, survey, rigs, found)
        _write(run, path, lock, survey, found, made)
    except UnwrittenError as error:
        echo("the rig with the new instance has mistakes; nothing was written", err=True)
        print_findings(error.findings, texts=error.texts)
        sys.exit(FAILED)
    except UserError as error:
        fail(error, FAILED)


def _best(
    run: AddOptions, path: Path, lock: Lock, survey: Survey, rigs: dict[str, Rig], found: FoundModel
) -> NewInstance | None:
    """Return the instance on the rig with the fewest parts outside of GPUs, and there with the most context.

    Raise UserError or UnwrittenError if no rig can have it for another reason than memory.
    """
    made: list[NewInstance] = []
    errors: list[UserError | UnwrittenError] = []
    for rig in rigs.values():
        try:
            made += filter(None, [declare_instance(path, lock, survey, rig, found, run.options)])
        except (UserError, UnwrittenError) as error:
            errors.append(error)
    if errors and len(errors) == len(rigs):
        raise errors[0]
    return min(made, key=_slowness, default=None)


def _slowness(made: NewInstance) -> tuple[bool, bool, int, int]:
    keys = made.placement.keys
    return not keys.get("on"), "experts_on_cpu" in keys, len(keys.get("on") or ()), -made.placement.context


def _write(run: AddOptions, path: Path, old: Lock, before: Survey, found: FoundModel, made: NewInstance) -> None:
    """Show the new lines, confirm, and write them and the lock."""
    if not run.as_json:
        _print_proposal(found, made)
        print_edit(made.edit)
        print_findings(made.findings(before), texts={made.edit.file: made.edit.new})
    if run.dry_run:
        _print_json(run, made, written=False)
        return
    confirm_write(run.yes, "Write these lines?")
    new = resolved_lock_or_exit(path, made.survey, made.lock)
    write_edits(path, [made.edit], old, new)
    _print_json(run, made, written=True)
    if not run.as_json:
        inventory = f" -i {run.inventory}" if run.inventory else ""
        echo(f"{made.edit.file} and the lock are written")
        echo(f"next: herd{inventory} up {made.rig}")


def _print_proposal(found: FoundModel, made: NewInstance) -> None:
    """Print where the instance goes, what it takes there, and what is left."""
    placed = made.placement
    echo(f"{made.rig}/{made.name}: {placed.layout.how}, {placed.context:,} tokens, port {made.port}")
    echo(f"  model: {found.shown}, {show_size(found.size)}")
    for where, taken, left in _memory(made):
        echo(f"  {where}: takes {show_mib(taken)}, leaves {show_mib(left)}")
    if found.projectors and not isinstance(found.keys.get("mmproj"), str):
        echo(f"  to read images, add `mmproj: {found.projectors[0]}` to the model")


def _memory(made: NewInstance) -> Iterator[tuple[str, int, int]]:
    """Yield each GPU and the RAM with the bytes that the instance takes, and those that are left."""
    sized = made.placement.sized
    for (gpu, taken), left in zip(sized.held.on_gpus.items(), sized.fit.spare, strict=True):
        yield gpu, taken, left
    if sized.fit.spare_ram is not None:
        yield "RAM", sized.ram, sized.fit.spare_ram


def _print_json(run: AddOptions, made: NewInstance, *, written: bool) -> None:
    if not run.as_json:
        return
    keys = made.placement.keys
    row = {
        "rig": made.rig,
        "instance": made.name,
        "file": str(made.edit.file),
        "on": list(keys.get("on") or ()),
        "context": made.placement.context,
        "port": made.port,
        "experts_on_cpu": keys.get("experts_on_cpu"),
        "kv": keys.get("kv"),
        "memory": [{"where": where, "takes": taken, "leaves": left} for where, taken, left in _memory(made)],
        "lines": list(made.edit.lines()),
        "written": written,
    }
    print_envelope(Envelope(True, [row]))


def _print_unfit(
    run: AddOptions, path: Path, lock: Lock, survey: Survey, rigs: dict[str, Rig], found: FoundModel
) -> NoReturn:
    """Print what would fit instead, and end the program."""
    ways: dict[str, list[str]] = {}
    for name, rig in rigs.items():
        given = (path, lock, survey, rig, found, run.options)
        repo = found.keys.get("hf")
        ways[name] = [f"another quant: {repo}:{quant}" for quant in smaller_quants(*given)]
        ways[name] += other_options(*given)
    if run.as_json:
        rows = [{"rig": name, "fits": False, "would_fit": each} for name, each in ways.items()]
        print_envelope(Envelope(False, rows))
    else:
        what = f"{found.shown} ({show_size(found.size)})"
        tokens = f" with {run.context:,} tokens" if run.context else ""
        echo(f"error: {what} does not fit{tokens} on {' or '.join(rigs)}", err=True)
        for name, each in ways.items():
            for way in each:
                echo(f"  it would fit on {name} with {way}", err=True)
        if not any(ways.values()):
            echo("  help: take a smaller model, or another rig", err=True)
    sys.exit(FAILED)
