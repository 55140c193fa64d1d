"""`herd models`: what lies in the stores of hosts, and what of it can go."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from llamaherd.cli.common import (
    FAILED,
    asking_or_exit,
    complete_rigs,
    inventory_option,
    json_option,
    keep_option,
    rigs_argument,
    say,
    usable_plans,
)
from llamaherd.layout import IN_REACH

if TYPE_CHECKING:
    from llamaherd.host.remote import Remote
    from llamaherd.onhost.removal import Outcome
    from llamaherd.store.holdings import Holdings

LIST = "list"


class RigsOrCommand(click.Group):
    """A group that takes rigs too: what is no command of it is for `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` before what does not begin with a command."""
        completing = ctx.resilient_parsing and not args
        first = _options(args)
        rest = args[first:]
        complete = first <= len(args)
        if complete and not completing and (not rest or rest[0] not in (*self.commands, *ctx.help_option_names)):
            args = [*args[:first], LIST, *rest]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, rigs, and the options of `list`."""
        listing = self.commands[LIST]
        return [
            *super().shell_complete(ctx, incomplete),
            *complete_rigs(ctx, listing.params[0], incomplete),
            *listing.shell_complete(click.Context(listing, parent=ctx), incomplete),
        ]


def _options(args: Sequence[str]) -> int:
    """How many arguments at the beginning are options that every command has, with their values."""
    count = 0
    while count < len(args) and re.match(r"-i|--(inventory|json)(=|$)", args[count]):
        count += 2 if args[count] in ("-i", "--inventory") else 1
    return count


@click.group(cls=RigsOrCommand, subcommand_metavar="[list|prune] [RIG]...")
@inventory_option
@json_option
def models(as_json: bool) -> None:
    """What models lie on the hosts, who uses them, and what can go.

    \b
    Examples:
      herd models                    what is in the store of each rig
      herd models duo --json         of one rig, for machines
      herd models prune --dry-run    what nobody uses any more, and what would come free
      herd models prune duo          show it, ask, and remove it
    """


@models.command(LIST)
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def list_(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Show revisions, their users, files on their way in.

    Changes nothing.
    """
    found, failed = _look(inventory, rigs)
    if as_json:
        values = [holdings.as_json() for holdings, _ in found] + failed
        click.echo(json.dumps(values[0] if len(rigs) == 1 else values))
    else:
        from llamaherd.store.show import console, print_holdings

        to = console()
        for holdings, _ in found:
            print_holdings(holdings, to)
    if failed:
        sys.exit(FAILED)


@models.command()
@rigs_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and remove nothing.")
@keep_option
@inventory_option
@json_option
@click.pass_obj
def prune(inventory: Path | None, rigs: tuple[str, ...], yes: bool, dry_run: bool, keep: int, as_json: bool) -> None:
    """Remove models that nothing uses.

    Neither an instance nor anything else on the host uses them. Parts that nothing wants go, too. What the newest
    releases that came out well need stays, so that `herd rollback` can go back to them. Each host looks again before it
    removes something. Nothing goes while models are being fetched. What is left by an interruption is nobody's model,
    and goes the next time.

    \b
    Examples:
      herd models prune --dry-run       what would go, and what would come free
      herd models prune duo --yes       remove it without asking
    """
    asking_or_exit("models", yes or dry_run, as_json)
    found, failed = _look(inventory, rigs, keep)
    if not as_json:
        _say_what_can_go(holdings for holdings, _ in found)
    going = [(holdings, remote) for holdings, remote in found if holdings.removals]
    sure = not dry_run and going and (yes or click.confirm("Remove it?"))
    outcomes = {holdings.rig: _remove(holdings, remote, keep) for holdings, remote in going} if sure else {}
    if as_json:
        values = [_as_json(holdings, outcomes.get(holdings.rig)) for holdings, _ in found] + failed
        click.echo(json.dumps(values[0] if len(rigs) == 1 else values))
    else:
        for rig, outcome in outcomes.items():
            say(f"{rig}: {_said(outcome)}", err=isinstance(outcome, str))
        if going and not sure and not dry_run:
            say("nothing was removed")
    if failed or any(isinstance(outcome, str) or not outcome.ok for outcome in outcomes.values()):
        sys.exit(FAILED)


def _look(
    inventory: Path | None, rigs: tuple[str, ...], keep: int = IN_REACH
) -> tuple[list[tuple[Holdings, Remote]], list[dict[str, object]]]:
    """The stores of the rigs that can be reached; the others are said, and given as JSON values."""
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.store.holdings import inspect_store

    found = []
    failed: list[dict[str, object]] = []
    for name, (rig, plan) in usable_plans(inventory, rigs).items():
        remote = Remote(rig.connect)
        try:
            found.append((inspect_store(plan, remote, keep), remote))
        except RemoteError as error:
            say(f"{name}: {error}", err=True)
            failed.append({"rig": name, "error": str(error)})
    return found, failed


def _say_what_can_go(every: Iterable[Holdings]) -> None:
    from llamaherd.store.show import console, print_removals

    to = console()
    for holdings in every:
        if holdings.removals:
            print_removals(holdings, to)
        else:
            to.print(f"[bold]{holdings.rig}[/]: nothing to remove")


def _remove(holdings: Holdings, remote: Remote, keep: int) -> Outcome | str:
    """What was removed, or why that is not known."""
    from llamaherd.host.remote import RemoteError
    from llamaherd.store.holdings import remove_unused

    try:
        return remove_unused(holdings, remote, keep)
    except RemoteError as error:
        return str(error)


def _said(outcome: Outcome | str) -> str:
    if isinstance(outcome, str):
        return outcome
    if outcome.busy is not None:
        return "another run fetches or removes models there: nothing was removed\n  help: try again when it has ended"
    kept = "".join(f"\n  kept {what}: {why}" for what, why in outcome.kept.items())
    return f"removed {', '.join(outcome.removed) or 'nothing'}{kept}"


def _as_json(holdings: Holdings, outcome: Outcome | str | None) -> dict[str, object]:
    from dataclasses import asdict

    value: dict[str, object] = {
        "rig": holdings.rig,
        "removals": [asdict(removal) for removal in holdings.removals],
        "frees": holdings.frees,
    }
    if isinstance(outcome, str):
        return value | {"error": outcome}
    return value | {"outcome": asdict(outcome) if outcome else None}
