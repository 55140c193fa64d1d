"""The plans of the rigs that a command names, and what a run would change on them."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import click

from llamaherd.cli.common import (
    UNUSABLE,
    counted,
    echo,
    exit_on_error,
    print_findings,
    print_warnings_line,
    progress,
    read_or_exit,
    report,
)
from llamaherd.deploy.proposals import proposed_changes
from llamaherd.host.program import packed_program
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.diff import Causes, changed_values, with_causes
from llamaherd.pipeline.load import inventory_folder, inventory_path, plans
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.preview import Hosts, Preview
from llamaherd.plan import Plan
from llamaherd.role.changes import OTHER_SETTINGS, Action, Change, SendFile
from llamaherd.role.role import Role
from llamaherd.role.values import ValueChange
from llamaherd.text.numbers import show_size
from llamaherd.text.terminal import shown

SYMBOLS: Mapping[Action, str] = {
    **dict.fromkeys(("create", "install", "build", "fetch", "send"), "+"),
    **dict.fromkeys(("update", "start", "load"), "~"),
    **dict.fromkeys(("restart", "reboot"), "±"),
    **dict.fromkeys(("stop", "remove"), "-"),
}
COLOURS = {"+": "green", "~": "yellow", "±": "yellow", "-": "red"}
IN_ASCII = str.maketrans({"±": "+/-", "→": "->", "…": "..."})

MOST_VALUES, MOST_REASONS, MOST_NAMES = 10, 2, 3
"""Settings, reasons and names of things that are shown without `-v`, at most."""

_ACTIONS = ("restart", "reboot", "start", "stop")
"""Actions that the symbol alone does not explain."""
_TECHNICAL = (
    "its arguments are not the declared ones",
    "it has other variables than the declared ones: LLAMAHERD_SPEC",
)
"""Reasons that follow from changed settings."""
_HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{24,}\b")
_PATH = re.compile(r"(?<!\S)/[^\s,;]*/([^\s,;/]+)")


@dataclass(frozen=True)
class ChangeRow:
    """What is shown of a change: a symbol, the thing that changes, and what is different. `sentence` is for `-v`."""

    symbol: str
    thing: str
    details: tuple[str, ...]
    sentence: str


def change_row(change: Change, causes: Causes | None = None) -> ChangeRow:
    """Return what is shown of a change."""
    values = changed_values(change, causes)
    texts = _first([_value_text(each) for each in values], MOST_VALUES)
    kept = [_short(reason) for reason in change.reasons if not (values and _is_technical(reason))]
    reasons = _first([*dict.fromkeys(kept)], MOST_REASONS)
    effect = str(change.away) if change.away else change.action if change.action in _ACTIONS else ""
    cause = str(causes) if causes else ""
    drift = "drift" if causes and causes.drift else ""
    return ChangeRow(
        symbol=SYMBOLS[change.action],
        thing=thing(change),
        details=tuple(filter(None, (*texts, *reasons, sent_size(change), effect, drift))),
        sentence=f"{change}{f' ({cause})' if cause else ''}",
    )


def sent_size(change: Change) -> str:
    """Return the size of a file that is sent from this machine; empty for another change."""
    if isinstance(change.how, SendFile):
        with suppress(OSError):
            return show_size(change.how.local.stat().st_size)
    return ""


def _first(texts: Sequence[str], most: int) -> list[str]:
    left = len(texts) - most
    return [*texts[:most], *([f"and {left} more"] if left > 0 else [])]


def thing(change: Change) -> str:
    """Return the name of a server, or the kind and the name of another thing; of many names, the first ones."""
    if change.kind == "server":
        return ", ".join(name.removeprefix("llama-") for name in change.name.split(", "))
    names = change.name.split(", ")
    first, left = (names[:MOST_NAMES], len(names) - MOST_NAMES) if len(names) > MOST_NAMES + 1 else (names, 0)
    return f"{change.kind} {', '.join(map(_short, first))}{f' and {left} more' if left else ''}"


def _is_technical(reason: str) -> bool:
    """Return whether a reason is about a file or a hash, whose cause is shown as a changed setting."""
    return reason.startswith(("/", OTHER_SETTINGS)) or reason in _TECHNICAL


def _short(reason: str) -> str:
    """Return a text without hashes, and with the names of files instead of their paths."""
    return "other settings" if reason.startswith(OTHER_SETTINGS) else _HASH.sub(r"\1…", _PATH.sub(r"\1", reason))


def _value_text(value: ValueChange) -> str:
    """Return `--ctx-size 4096 → 8192`, `+ --mlock`, `- --mlock`; of paths, what differs."""
    old, new = (_short(each) if each else each for each in (value.old, value.new))
    if old == new and value.old and value.new:
        old, new = ("/".join(PurePosixPath(each).parts[-2:]) for each in (value.old, value.new))
    if old is None or new is None:
        return f"{'+' if old is None else '-'} {value.key} {old or new or ''}".rstrip()
    return f"{value.key} {old or '(no value)'} → {new or '(no value)'}"


def render_rows(rows: Sequence[ChangeRow], width: int | None, *, verbose: bool = False) -> Iterator[str]:
    """Yield lines of at most `width` characters, or one line for each row; a word that is longer stays whole."""
    for row in rows:
        begins = f"  {row.symbol} {row.thing}  "
        # A setting stays on one line.
        whole = [each.replace(" ", "\u00a0") if len(each) < (width or 0) // 2 else each for each in row.details]
        text = f"{begins.rstrip()}  {', '.join(whole)}".rstrip()
        if width is None:
            lines = [text]
        else:
            after = " " * min(len(begins), 14)
            lines = textwrap.wrap(
                text.replace("  ", "\u00a0\u00a0"),
                width,
                subsequent_indent=after,
                break_long_words=False,
                break_on_hyphens=False,
            )
        yield from (line.replace("\u00a0", " ") for line in lines)
        if verbose:
            yield f"      {row.sentence}"


def print_rows(rows: Sequence[ChangeRow], *, verbose: bool = False) -> None:
    """Print rows on stdout: wrapped and coloured on a terminal, else a line each."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    for line in render_rows(rows, width, verbose=verbose):
        text = shown(line)
        indent, symbol, rest = text[:2], text[2:3], text[3:]
        styled = indent + click.style(symbol, fg=COLOURS.get(symbol)) + rest
        click.echo(styled.translate(IN_ASCII) if ascii_only else styled)


def plans_or_exit(
    inventory: Path | None,
    rigs: tuple[str, ...],
    *,
    deploying: bool = False,
    check_rigs: Callable[[Mapping[str, Rig]], None] = lambda _: None,
    only: Sequence[str] = (),
    create_keys: bool = False,
) -> dict[str, tuple[Rig, Plan]]:
    """Return the plans of the named rigs, or of all. Print the number of warnings; print errors and end the program.

    `check_rigs` is called with the rigs after the inventory's checks passed and before they are planned. `only` names
    instances and roles: rigs with none of them are left out. `create_keys` creates missing server keys, and prints
    where they are.
    """
    path, roles = inventory_path(inventory), roles_or_exit(inventory)
    made = (lambda key: report(key.made)) if create_keys else None
    with exit_on_error(UNUSABLE):
        found = read_or_exit(
            lambda: plans(
                path,
                roles,
                rigs,
                deploying=deploying,
                doubtful=print_warnings_line,
                of_run=print_findings,
                sound=check_rigs,
                only=only,
                made=made,
            )
        )
    for name in rigs:
        if name not in found:
            echo(f"{name}: skipped, it has no {' and no '.join(only)}", err=True)
    return found


@contextmanager
def inspecting_or_exit(
    inventory: Path | None,
    rigs: tuple[str, ...],
    *,
    check_rigs: Callable[[Mapping[str, Rig]], None] = lambda _: None,
    only: Sequence[str] = (),
    create_keys: bool = False,
) -> Iterator[tuple[dict[str, tuple[Rig, Plan]], Hosts]]:
    """Yield the plans of rigs, and their hosts with a connection each. The arguments are those of `plans_or_exit`."""
    hosts: list[Hosts] = []

    def connect(found: Mapping[str, Rig]) -> None:
        check_rigs(found)
        progress(f"--> Inspecting {counted(len(found), 'host')}...")
        path = inventory_path(inventory)
        program = packed_program(inventory_folder(path) / "roles")
        hosts.append(Hosts(found, program, partial(proposed_changes, path)))

    try:
        planned = plans_or_exit(inventory, rigs, deploying=True, check_rigs=connect, only=only, create_keys=create_keys)
        yield planned, hosts[0]
    except BaseException:
        for each in hosts:
            each.leave()  # an interrupted run waits for no host
        raise


def print_changes(name: str, found: Preview, causes: Sequence[Causes] = (), *, verbose: bool = False) -> None:
    """Print the changes of a rig, a line each; with `verbose`, also every reason with its files and hashes."""
    echo(f"{name}: {counted(len(found.changes), 'change')}")
    print_rows([change_row(*each) for each in with_causes(found.changes, causes)], verbose=verbose)


def print_problems(name: str, found: Preview, unreached: str) -> None:
    """Print why a rig cannot become in sync, or cannot be inspected."""
    for sentence in (*found.problems, *filter(None, [unreached])):
        echo(f"{name}: {sentence}", err=True)


def print_left_out(name: str, found: Preview) -> None:
    """Print one line about the changes that `--only` leaves out."""
    if found.left is None:
        echo(f"{name}: the rest of the rig cannot become in sync; run `herd plan {name}` to see why")
    elif found.left:
        them = "it" if len(found.left) == 1 else "them"
        echo(f"{name}: {counted(len(found.left), 'change')} left out by --only; run `herd up` to apply {them}")


def quiet_plans(inventory: Path | None, rigs: tuple[str, ...]) -> dict[str, tuple[Rig, Plan]]:
    """Return the plans of the named rigs, or of all. Warnings are left to `herd check`."""
    roles = roles_or_exit(inventory)
    with exit_on_error(UNUSABLE):
        return read_or_exit(lambda: plans(inventory_path(inventory), roles, rigs))


def roles_or_exit(inventory: Path | None) -> tuple[Role, ...]:
    """Return the roles of the fleet. Print findings and end the program if one cannot be loaded."""
    return read_or_exit(lambda: all_roles(inventory_path(inventory)))
