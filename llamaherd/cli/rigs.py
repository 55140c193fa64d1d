"""The plans of the rigs that a command names, and what a run would change on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from llamaherd.cli.change_lines import change_row, print_rows
from llamaherd.cli.common import (
    UNUSABLE,
    counted,
    echo,
    fail,
    print_findings,
    print_warnings_line,
    progress,
    read_or_exit,
)
from llamaherd.deploy.proposals import proposed_changes
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.program import packed_program
from llamaherd.inventory.api_keys import ServerKey
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.diff import Causes, with_causes
from llamaherd.pipeline.load import inventory_folder, inventory_path, plans
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.preview import Hosts, Preview
from llamaherd.plan import Plan
from llamaherd.role.role import Role


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
    made = _print_created_key if create_keys else None
    try:
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
    except UserError as error:
        fail(error, UNUSABLE)
    for name in rigs:
        if name not in found:
            echo(f"{name}: skipped, it has no {' and no '.join(only)}", err=True)
    return found


def _print_created_key(key: ServerKey) -> None:
    echo(key.made, err=True)


def previews_or_exit(
    inventory: Path | None,
    rigs: tuple[str, ...],
    *,
    retry: bool = False,
    check_rigs: Callable[[Mapping[str, Rig]], None] = lambda _: None,
    only: Sequence[str] = (),
    create_keys: bool = False,
) -> tuple[dict[str, tuple[Rig, Plan]], dict[str, Preview]]:
    """Return the plans of rigs, and what a run would change on each. The arguments are those of `plans_or_exit`."""
    with inspecting_or_exit(inventory, rigs, check_rigs=check_rigs, only=only, create_keys=create_keys) as (
        planned,
        hosts,
    ):
        folder = inventory_folder(inventory_path(inventory)) if create_keys else None
        return planned, hosts.outlooks(planned, roles_or_exit(inventory), retry=retry, folder=folder)


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


def roles_or_exit(inventory: Path | None) -> tuple[Role, ...]:
    """Return the roles of the fleet. Print findings and end the program if one cannot be loaded."""
    return read_or_exit(lambda: all_roles(inventory_path(inventory)))
