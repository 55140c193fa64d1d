"""What `herd`'s commands share: the inventory's option, arguments, findings on the terminal, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from llamaherd.diagnostics.findings import MOST_SHOWN, Finding, InventoryError, UserError, to_print
from llamaherd.layout import IN_REACH, LOCK_WAIT
from llamaherd.text.terminal import plain

if TYPE_CHECKING:
    from llamaherd.inventory.api_keys import ServerKey
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.diff import Causes
    from llamaherd.pipeline.preview import Hosts, Preview
    from llamaherd.plan import Plan
    from llamaherd.role.role import Role

FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130
JSON = "llamaherd.json"
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}

KEPT = "what was measured by now, if anything, is kept: the same command goes on with it"

T = TypeVar("T")


def complete_rigs(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """The inventory's rigs, for the shell."""
    from llamaherd.pipeline.load import inventory_path, rigs

    try:
        fleet = rigs(inventory_path(context.obj))
    except InventoryError:
        return []
    return [CompletionItem(name) for name in fleet.rigs if name.startswith(typed)]


def complete_instances(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Instances of the rig that stands before, and its groups, for the shell."""
    from llamaherd.pipeline.load import inventory_path, rigs

    try:
        rig = rigs(inventory_path(context.obj)).rigs.get(context.params.get("rig") or "")
    except InventoryError:
        return []
    names = sorted({*rig.instances, *rig.servers}) if rig else []
    return [CompletionItem(name) for name in names if name.startswith(typed)]


def complete_parts(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """The inventory's instances and the roles, for the shell."""
    from llamaherd.pipeline.load import inventory_path, rigs
    from llamaherd.pipeline.own_roles import all_roles

    path = inventory_path(context.obj)
    try:
        instances = {name for rig in rigs(path).rigs.values() for name in rig.servers}
        roles = {role.thing for role in all_roles(path)}
    except InventoryError:
        return []
    return [CompletionItem(name) for name in sorted(instances | roles) if name.startswith(typed)]


def _keep_inventory(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    """Where the commands find it, as their object. Options further to the right are read later, and win."""
    if value is not None:
        context.obj = value


def _keep_json(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    """Whether it was asked for here or further to the left: a context shares `meta` with those of its commands."""
    context.meta[JSON] = value or context.meta.get(JSON, False)
    return bool(context.meta[JSON])


keep_option = click.option(
    "--keep",
    type=click.IntRange(0, 1000),
    metavar="N",
    default=IN_REACH,
    show_default=True,
    help="Releases that came out well whose builds, images and models stay.",
)
rigs_argument = click.argument("rigs", metavar="[RIG]...", nargs=-1, shell_complete=complete_rigs)
rig_argument = click.argument("rig", shell_complete=complete_rigs)
instance_argument = click.argument("instance", required=False, shell_complete=complete_instances)
inventory_option = click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    expose_value=False,
    callback=_keep_inventory,
    help="A rig's YAML file, or a folder of them. Default: HERD_INVENTORY, else ./inventory.",
)
lock_wait_option = click.option(
    "--lock-wait",
    type=click.IntRange(0, LOCK_WAIT),
    metavar="SECONDS",
    default=LOCK_WAIT,
    show_default=True,
    help="How long another run on a host is waited for.",
)
only_option = click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_parts,
    help="An instance, with what it needs, or a role; and nothing else. May be given several times.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_keep_json, help="For machines: one JSON document on stdout."
)


def usable_plans(
    inventory: Path | None,
    rigs: tuple[str, ...],
    *,
    deploying: bool = False,
    sound: Callable[[Mapping[str, Rig]], None] = lambda _: None,
    only: Sequence[str] = (),
    making: bool = False,
) -> dict[str, tuple[Rig, Plan]]:
    """The plans of the rigs that are named, or of all; errors end the program, warnings and notes are shown.

    `sound` is given the rigs once nothing is found wrong with them, before they are planned. `only` names a part of
    each: one that has nothing of it is left out. `making` makes keys of servers that are missing, and says so.
    """
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.load import plans as planned

    path = inventory_path(inventory)
    roles, made = roles_of(inventory), _say_made if making else None
    try:
        found = usable_or_exit(
            lambda: planned(path, roles, rigs, deploying=deploying, doubtful=show, sound=sound, only=only, made=made)
        )
    except UserError as error:
        fail(error, UNUSABLE)
    for name in rigs:
        if name not in found:
            say(f"{name}: it has no {' and no '.join(only)}, and is left alone", err=True)
    return found


def _say_made(key: ServerKey) -> None:
    say(key.made, err=True)


def outlooks_or_exit(
    inventory: Path | None,
    rigs: tuple[str, ...],
    *,
    retry: bool = False,
    sound: Callable[[Mapping[str, Rig]], None] = lambda _: None,
    only: Sequence[str] = (),
    making: bool = False,
) -> tuple[dict[str, tuple[Rig, Plan]], dict[str, Preview]]:
    """The plans of the rigs that are named, or of all, and what a run would do to each. As `usable_plans`."""
    from llamaherd.pipeline.load import inventory_folder, inventory_path

    with looking_or_exit(inventory, rigs, sound=sound, only=only, making=making) as (planned, hosts):
        folder = inventory_folder(inventory_path(inventory)) if making else None
        return planned, hosts.outlooks(planned, roles_of(inventory), retry=retry, folder=folder)


@contextmanager
def looking_or_exit(
    inventory: Path | None,
    rigs: tuple[str, ...],
    *,
    sound: Callable[[Mapping[str, Rig]], None] = lambda _: None,
    only: Sequence[str] = (),
    making: bool = False,
) -> Iterator[tuple[dict[str, tuple[Rig, Plan]], Hosts]]:
    """The plans of the rigs that are named, or of all, and their hosts, logged in to. As `usable_plans`."""
    from llamaherd.deploy.proposals import proposed_changes
    from llamaherd.host.program import packed_program
    from llamaherd.pipeline.load import inventory_folder, inventory_path
    from llamaherd.pipeline.preview import Hosts

    hosts: list[Hosts] = []

    def look(rigs_to_ask: Mapping[str, Rig]) -> None:
        sound(rigs_to_ask)
        say(f"--> Looking at {counted(len(rigs_to_ask), 'host')}...", err=True)
        path = inventory_path(inventory)
        program = packed_program(inventory_folder(path) / "roles")
        hosts.append(Hosts(rigs_to_ask, program, partial(proposed_changes, path)))

    try:
        planned = usable_plans(inventory, rigs, deploying=True, sound=look, only=only, making=making)
        yield planned, hosts[0]
    except BaseException:
        for waiting in hosts:
            waiting.leave()  # who is interrupted waits for no host
        raise


def show_changes(name: str, found: Preview, causes: Sequence[Causes] = ()) -> None:
    """What would be changed on a rig, each with its reason, and with what has moved, where that is known."""
    say(f"{name}: {counted(len(found.changes), 'change')}")
    for number, change in enumerate(found.changes):
        cause = str(causes[number]) if causes else ""
        say(f"  {change}{f' ({cause})' if cause else ''}{f'; {change.away}' if change.away else ''}")


def show_left(name: str, found: Preview) -> None:
    """One line of what was not chosen, where only a part was."""
    if found.left is None:
        say(f"{name}: others than those that were chosen cannot become as planned; `herd diff {name}` says why")
    elif found.left:
        its = "it" if len(found.left) == 1 else "them"
        say(f"{name}: {counted(len(found.left), 'change')} of others left: `herd up` makes {its}")


def roles_of(inventory: Path | None) -> tuple[Role, ...]:
    """The roles of the fleet; errors end the program."""
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.own_roles import all_roles

    return usable_or_exit(lambda: all_roles(inventory_path(inventory)))


def asking_or_exit(what: str, sure: bool, as_json: bool) -> None:
    """End the program where nobody can be asked whether to remove something, and nobody has said so."""
    if not sure and (as_json or not sys.stdin.isatty()):
        say(
            f"error: nobody can be asked whether to remove {what}\n"
            "  help: look with `--dry-run` at what would go, then say `--yes`",
            err=True,
        )
        sys.exit(UNUSABLE)


def usable_or_exit(read: Callable[[], T]) -> T:
    """What `read` gives; findings are shown and end the program."""
    try:
        return read()
    except InventoryError as error:
        show(error.findings)
        sys.exit(UNUSABLE)


@contextmanager
def measuring_or_exit() -> Iterator[None]:
    """What is measured on a host; what goes wrong, and Ctrl-C, end the program with a sentence."""
    try:
        yield
    except InventoryError as error:
        show(error.findings)
        sys.exit(FAILED)
    except UserError as error:
        fail(error, FAILED)
    except KeyboardInterrupt:
        say(KEPT, err=True)
        raise


def fail(error: Exception, code: int) -> NoReturn:
    """End the program with what went wrong, and the way out."""
    say(f"error: {error}", err=True)
    sys.exit(code)


def say(text: str, *, err: bool = False) -> None:
    """Text for people; whatever of it is a host's or a model's, a terminal obeys nothing in it."""
    click.echo(plain(text), err=err)


def show(findings: Sequence[Finding], *, err: bool = True) -> None:
    """Findings for people: the place, what is wrong, the way out."""
    for finding in to_print(findings):
        severity = click.style(finding.severity, fg=COLOURS[finding.severity], bold=True)
        help_ = click.style("help", bold=True)
        place, message, way_out = (plain(str(text)) for text in (finding.place, finding.message, finding.help))
        click.echo(f"{place}: {severity} {finding.code}: {message}\n  {help_}: {way_out}", err=err)
    if (left := len(findings) - MOST_SHOWN) > 0:
        click.echo(f"and {left:,} more", err=err)
    if codes := sorted({finding.code for finding in findings}):
        click.echo(f"explained by: herd explain {' '.join(codes)}", err=err)


def counted(number: int, what: str) -> str:
    """`1 rig`, `2 rigs`."""
    return f"{number} {what}{'s' if number != 1 else ''}"
