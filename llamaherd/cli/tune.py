"""`herd tune`: keys with which an instance does its owner's work faster."""

from __future__ import annotations

from pathlib import Path

import click

from llamaherd.cli.common import instance_argument, inventory_option, json_option, lock_wait_option, rig_argument
from llamaherd.cli.compare import parse_budget
from llamaherd.diagnostics.findings import UserError


def _budget(context: click.Context, parameter: click.Parameter, word: str | None) -> int | None:
    """Seconds, where it is said."""
    return None if word is None else parse_budget(context, parameter, word)


def _watts(_context: click.Context, _parameter: click.Parameter, word: str | None) -> tuple[int, ...]:
    """Power limits, where they are said."""
    from llamaherd.inventory.schema import MOST_LIMITS
    from llamaherd.measure.bench.selection import parse_watts

    try:
        return () if word is None else parse_watts(word, MOST_LIMITS)
    except UserError as error:
        raise click.BadParameter(f"{error.message}; {error.help}") from None


@click.command()
@rig_argument
@instance_argument
@click.option(
    "--for",
    "purpose",
    type=click.Choice(("turn", "decode", "throughput", "efficiency")),
    help="What it is to be best at: an agent's turn, one answer, as many as it has slots, or energy. Default: turn.",
)
@click.option("--budget", metavar="TIME", callback=_budget, help="The longest that it takes, 30s to 6h. Default: 45m.")
@click.option(
    "--power",
    "watts",
    metavar="LIMITS",
    callback=_watts,
    help="In the end under one power limit after the other: `200W..350W/25W`.",
)
@click.option("--apply", "applying", is_flag=True, help="Write what is found into the inventory.")
@click.option("--again", is_flag=True, help="Search anew, although the same search has come to an end.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first.")
@lock_wait_option
@inventory_option
@json_option
@click.pass_obj
def tune(
    inventory: Path | None,
    rig: str,
    instance: str | None,
    purpose: str | None,
    budget: int | None,
    watts: tuple[int, ...],
    applying: bool,
    again: bool,
    yes: bool,
    lock_wait: int,
    as_json: bool,
) -> None:
    """Search for keys with which an instance works faster.

    What is found is said as lines of YAML. What is tried are keys of the inventory: threads, ubatch, types of the cache
    that lose nothing, how many tokens are drafted, how GPUs share a model. How much of the model lies on GPUs is worked
    out for each, and what cannot fit is never tried. First one key after the other, then by a model of all that was
    seen (Optuna, `llamaherd[tune]`). In the end the best ones are started three times each beside what is declared, in
    turns. What is found is held against it once more at the full depth of the context, where the budget has room for
    that. What is slower there is said to be, and not written by --apply.

    With `--for efficiency` it is the energy that all its GPUs take for a turn, by their counters or their power. Where
    none of them tells it, nothing is stopped and nothing is tried.

    With --power, or `tune: {power: {max: 300W}}` of the instance, what is found serves in the end while its GPUs are
    held to one power limit after the other. What they were held to comes back, whatever ends this.

    Coarser types of the cache are tried only where `tune: {quality: {}}` of the instance says what they may cost, and
    other weights where it names them in `models`, too. Each that leads is judged first, by the engine's own
    llama-perplexity on the host: KL divergence beside f16, or beside the largest of the models.

    Each candidate is a unit of its own. The declared server is stopped meanwhile, and its host brings it back whatever
    ends the search; gateways that have others for it send it nothing new. What was measured is kept: the same command
    goes on with it, and answers at once where it had come to an end. Nothing of the inventory is changed without
    --apply, and nothing is served otherwise before `herd up`.

    `tune` of the instance also says what --for, --budget and --power are by default.

    Exit codes: 0 searched, whatever was found; 1 it could not be measured; 2 something cannot be read.

    \b
    Examples:
      herd tune duo chat
      herd tune duo chat --for decode --budget 10m
      herd tune duo chat --for efficiency
      herd tune six coder --power 200W..350W/25W
      herd tune duo chat --apply && herd diff duo
    """
    from llamaherd.cli.tune_run import SearchOptions, run_search

    wanted = SearchOptions(purpose or "", budget or 0, watts, applying, again, yes, lock_wait, as_json)
    run_search(inventory, rig, instance, wanted)
