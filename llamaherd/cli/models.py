"""`herd models`: list the models on the hosts, and remove unused ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from llamaherd.cli.common import (
    FAILED,
    complete_rigs,
    echo,
    inventory_option,
    json_option,
    keep_option,
    require_yes,
    rigs_argument,
    yes_option,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import plans_or_exit
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.layout import IN_REACH
from llamaherd.onhost.removal import Outcome
from llamaherd.store.holdings import Holdings, inspect_store, remove_unused
from llamaherd.store.show import console, print_holdings, print_removals

LIST = "list"


class RigsOrCommand(click.Group):
    """A group that also accepts rigs: a word that is no command of it is an argument of `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list` before arguments that do not begin with a command."""
        completing = ctx.resilient_parsing and not args
        first = _options(args)
        rest = args[first:]
        complete = first <= len(args)
        if complete and not completing and (not rest or rest[0] not in (*self.commands, *ctx.help_option_names)):
            args = [*args[:first], LIST, *rest]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, the rigs and the options of `list` that begin with a word."""
        listing = self.commands[LIST]
        return [
            *super().shell_complete(ctx, incomplete),
            *complete_rigs(ctx, listing.params[0], incomplete),
            *listing.shell_complete(click.Context(listing, parent=ctx), incomplete),
        ]


def _options(args: Sequence[str]) -> int:
    """Count the arguments at the beginning that are options of all commands, with their values."""
    count = 0
    while count < len(args) and re.match(r"-i|--(inventory|json)(=|$)", args[count]):
        count += 2 if args[count] in ("-i", "--inventory") else 1
    return count


@click.group(cls=RigsOrCommand, subcommand_metavar="[list|prune] [RIG]...")
@inventory_option
@json_option
def models(as_json: bool) -> None:
    """List the models on the hosts, or remove unused ones.

    \b
    Examples:
      herd models                    the models of each rig
      herd models duo --json         those of one rig, as JSON
      herd models prune --dry-run    show unused models and their size
      herd models prune duo          show them, ask, and remove them
    """


@models.command(LIST)
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def list_(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """List revisions, their users and running fetches.

    Changes nothing.
    """
    found, failed = _inspect_stores(inventory, rigs)
    if as_json:
        print_envelope(Envelope(not failed, [holdings.as_json() for holdings, _ in found] + failed))
    else:
        to = console()
        for holdings, _ in found:
            print_holdings(holdings, to)
    if failed:
        sys.exit(FAILED)


@models.command()
@rigs_argument
@yes_option("Do not prompt.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@keep_option
@inventory_option
@json_option
@click.pass_obj
def prune(inventory: Path | None, rigs: tuple[str, ...], yes: bool, dry_run: bool, keep: int, as_json: bool) -> None:
    """Remove unused models.

    A model is unused if no instance and nothing else on the host uses it. Unused partial downloads are removed too.
    Models of the newest successful releases are kept, so that `herd rollback` can restore them. Each host checks again
    before it removes something, and removes nothing while models are fetched. If a removal is interrupted, the next one
    completes it.

    \b
    Examples:
      herd models prune --dry-run       show unused models and their size
      herd models prune duo --yes       remove them without a question
    """
    require_yes("models", yes or dry_run, as_json)
    found, failed = _inspect_stores(inventory, rigs, keep)
    if not as_json:
        _print_removals(holdings for holdings, _ in found)
    going = [(holdings, remote) for holdings, remote in found if holdings.removals]
    sure = not dry_run and going and (yes or click.confirm("Remove it?"))
    outcomes = {holdings.rig: _remove(holdings, remote, keep) for holdings, remote in going} if sure else {}
    bad = [each for each in outcomes.values() if isinstance(each, str) or not each.ok]
    ok = not failed and not bad
    if as_json:
        print_envelope(Envelope(ok, [_as_json(holdings, outcomes.get(holdings.rig)) for holdings, _ in found] + failed))
    else:
        for rig, outcome in outcomes.items():
            echo(f"{rig}: {_outcome_text(outcome)}", err=isinstance(outcome, str))
        if going and not sure and not dry_run:
            echo("nothing was removed")
    if not ok:
        sys.exit(FAILED)


def _inspect_stores(
    inventory: Path | None, rigs: tuple[str, ...], keep: int = IN_REACH
) -> tuple[list[tuple[Holdings, Remote]], list[dict[str, object]]]:
    """Return the stores of the reachable rigs, and the other rigs as JSON values. Print errors at once."""
    found = []
    failed: list[dict[str, object]] = []
    for name, (rig, plan) in plans_or_exit(inventory, rigs).items():
        remote = Remote(rig.connect)
        try:
            found.append((inspect_store(plan, remote, keep), remote))
        except RemoteError as error:
            echo(f"{name}: {error}", err=True)
            failed.append({"rig": name, "error": str(error)})
    return found, failed


def _print_removals(every: Iterable[Holdings]) -> None:
    to = console()
    for holdings in every:
        if holdings.removals:
            print_removals(holdings, to)
        else:
            to.print(f"[bold]{holdings.rig}[/]: nothing to remove")


def _remove(holdings: Holdings, remote: Remote, keep: int) -> Outcome | str:
    """Return what was removed, or why the outcome is unknown."""
    try:
        return remove_unused(holdings, remote, keep)
    except RemoteError as error:
        return str(error)


def _outcome_text(outcome: Outcome | str) -> str:
    if isinstance(outcome, str):
        return outcome
    if outcome.busy is not None:
        return "nothing was removed: another run fetches or removes models\n  help: try again when it has ended"
    kept = "".join(f"\n  kept {what}: {why}" for what, why in outcome.kept.items())
    return f"removed {', '.join(outcome.removed) or 'nothing'}{kept}"


def _as_json(holdings: Holdings, outcome: Outcome | str | None) -> dict[str, object]:
    value: dict[str, object] = {
        "rig": holdings.rig,
        "removals": [asdict(removal) for removal in holdings.removals],
        "frees": holdings.frees,
    }
    if isinstance(outcome, str):
        return value | {"error": outcome}
    return value | {"outcome": asdict(outcome) if outcome else None}
