"""`herd fit`: what a model would take on given GPUs, before it is in any inventory."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamaherd.cli.common import FAILED, UNUSABLE, fail, inventory_option, json_option, say, usable_or_exit

if TYPE_CHECKING:
    from llamaherd.gguf.header import Header
    from llamaherd.lock import Lock, ModelKey
    from llamaherd.measure.tune.prior_results import PriorResult
    from llamaherd.memory.fit import FitResult, Room
    from llamaherd.memory.placement import Placement
    from llamaherd.pipeline.fit import ArgumentPlacement

NAMED = 4
"""Changes that are named where a model does not fit."""


class Tokens(click.IntRange):
    """A number of tokens, of which `8k` is none: whether it is 8000 or 8192 is for its owner to say."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (match := re.fullmatch(r"(\d{1,5}) ?k", value, re.IGNORECASE)):
            self.fail(f"{value!r} is no whole number; did you mean {int(match[1]) * 1024}?", param, ctx)
        return super().convert(value, param, ctx)


class SizedEngine(click.ParamType[str]):
    """An engine whose memory is worked out; which there are is asked when one is named."""

    name = "engine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from llamaherd.engines import SIZED

        return click.Choice(tuple(SIZED)).convert(value, param, ctx)


@click.command()
@click.argument("model")
@click.option("--vram", default="", metavar="24G[,24G]", help="Memory of each GPU. None: everything on the CPU.")
@click.option("--ram", metavar="192G", help="Memory of the host. Default: as much as it takes.")
@click.option("--context", type=Tokens(256, 1 << 31), metavar="N", help="Tokens. Default: 32768, or the model's own.")
@click.option("--kv", default="f16", show_default=True, metavar="TYPE", help="Type of the cache, such as q8_0.")
@click.option("--parallel", type=click.IntRange(1, 256), default=1, show_default=True, metavar="N", help="Slots.")
@click.option(
    "--ubatch", type=click.IntRange(1, 1 << 20), default=512, show_default=True, metavar="N", help="As --ubatch-size."
)
@click.option(
    "--mtp", type=click.IntRange(0, 16), default=0, metavar="N", help="Tokens to draft with the model's head."
)
@click.option("--engine", type=SizedEngine(), metavar="KIND", help="Engine: llama.cpp, the default, or ik_llama.cpp.")
@click.option("--extra-args", default="", metavar="'-ot exps=CPU …'", help="More arguments, as in an inventory.")
@inventory_option
@json_option
@click.pass_obj
def fit(
    inventory: Path | None,
    /,
    model: str,
    vram: str,
    ram: str | None,
    extra_args: str,
    as_json: bool,
    **wanted: int | str | None,
) -> None:
    """What MODEL takes on these GPUs, and how it goes there. Fetches its header alone.

    MODEL is a GGUF file, a model on the hub (OWNER/NAME:QUANT), or one of the inventory that is locked. Sizes are in
    powers of two, as memory is sold. What `herd tune` has found best for this model, engine, context and slots on GPUs
    of these sizes is said, where the results beside the inventory have such a search.

    Exit codes: 0 it fits, 1 it does not, 2 it cannot be told.

    \b
    Examples:
      herd fit unsloth/Qwen3.6-35B-A3B-MTP-GGUF:UD-Q3_K_XL --vram 24G --context 262144 --kv q4_0 --mtp 3
      herd fit model-00001-of-00004.gguf --vram 24G,24G --ram 192G
      herd fit model.gguf --vram 24G --extra-args '-ot exps=CPU -ub 2048'
    """
    from llamaherd.memory.fit import changes
    from llamaherd.pipeline.fit import FitError, answer_table, parse_room

    try:
        there = parse_room(vram, ram)
        header, given = _answered(inventory, model, there, wanted, extra_args)
        others = () if given.fit.fits else changes(header, given.placement, there)[:NAMED]
    except (FitError, ValueError) as error:
        fail(error, UNUSABLE)
    texts = [change.text for change in others]
    measured = _measured(inventory, header, given, vram)
    if as_json:
        from llamaherd.measure.tune.prior_results import prior_result_json as told

        click.echo(json.dumps(_as_json(given) | {"changes": texts, "measured": [told(each) for each in measured]}))
    else:
        _show(header, given, answer_table(given))
        for text in texts:
            say(f"it would with: {text}")
        _show_measured(measured)
    if not given.fit.fits:
        sys.exit(FAILED)


def _answered(
    inventory: Path | None, model: str, there: Room, wanted: dict[str, int | str | None], extra_args: str
) -> tuple[Header, FitResult]:
    """The model's header, and how it goes there. Raises FitError, and ValueError with a sentence."""
    from llamaherd.memory.fit import best_fit
    from llamaherd.pipeline.fit import check_cache_type, header_of

    check_cache_type(str(wanted["kv"]))
    header = header_of(model, *_known(inventory))
    asked = _told(header, _wanted(header, wanted), there, extra_args)
    return header, best_fit(header, there, asked.placement, by_hand=asked.by_hand)


def _known(inventory: Path | None) -> tuple[dict[str, ModelKey], Lock]:
    """The models of the inventory, if there is one, and its lock."""
    from llamaherd.lock import Lock
    from llamaherd.pipeline.load import examined, inventory_path, read_lock

    path = inventory_path(inventory)
    if inventory is None and not path.exists():
        return {}, Lock()
    models = [each for rig in examined(path)[0].rigs.values() for each in rig.models.items()]
    return {name: (m.hf, m.revision, m.files, m.mmproj) for name, m in models if m.hf}, usable_or_exit(
        lambda: read_lock(path)
    )


def _told(header: Header, wanted: Placement, there: Room, extra_args: str) -> ArgumentPlacement:
    """What is wanted, and what `--extra-args` say besides. Raises FitError, and ValueError with a sentence."""
    from llamaherd.inventory.schema.serving import split_as_shell
    from llamaherd.pipeline.fit import FitError, place_by_arguments

    words = split_as_shell(extra_args)
    asked = place_by_arguments(header, wanted, there, words)
    for message, help_ in asked.errors:
        raise FitError(message, help_)
    return asked


def _wanted(header: Header, options: dict[str, int | str | None]) -> Placement:
    from llamaherd.memory.fit import USUAL_CONTEXT
    from llamaherd.memory.placement import Placement

    trained = header.number("context_length") or USUAL_CONTEXT
    placement = Placement(context=int(options["context"] or min(trained, USUAL_CONTEXT)))
    return replace(
        placement,
        engine=str(options["engine"] or placement.engine),
        type_k=str(options["kv"]),
        type_v=str(options["kv"]),
        parallel=int(options["parallel"] or 1),
        ubatch=int(options["ubatch"] or placement.ubatch),
        batch=max(placement.batch, int(options["ubatch"] or 0)),
        mtp=int(options["mtp"] or 0),
    )


def _measured(inventory: Path | None, header: Header, given: FitResult, vram: str) -> list[PriorResult]:
    """What searches beside the inventory have found for this model on such GPUs."""
    from llamaherd.measure.results.store import results_folder
    from llamaherd.pipeline.fit import parse_gpu_sizes
    from llamaherd.pipeline.load import inventory_path

    results = results_folder(inventory_path(inventory))
    if not vram or not results.is_dir():
        return []
    from llamaherd.measure.tune.prior_results import prior_results, results_of_model

    placed = given.placement
    return results_of_model(
        prior_results(results), placed.engine, header.digest, parse_gpu_sizes(vram), placed.context, placed.parallel
    )


def _show_measured(measured: list[PriorResult]) -> None:
    from llamaherd.measure.tune.prior_results import prior_result_lines
    from llamaherd.text.terminal import shown

    for each in measured:
        first, *rest = prior_result_lines(each)
        say(f"measured: {shown(first)}")
        for line in rest:
            say(f"  {shown(line)}")


def _show(header: Header, given: FitResult, rows: list[tuple[str, ...]]) -> None:
    placement = given.placement
    name = header.name or header.architecture
    say(f"{name}: {given.how}, {placement.context} tokens, cache in {placement.type_k}; MiB:")
    width = max(len(row[0]) for row in rows)
    for first, *cells in rows:
        say(f"  {first:{width}}" + "".join(f"{cell:>10}" for cell in cells))
    if given.fit.fits:
        say(f"It fits; so would {given.largest_context} tokens.")
    else:
        say("It does not fit.")
    for doubt in given.fit.memory.doubts:
        say(f"not sure: {doubt}")


def _as_json(given: FitResult) -> dict[str, object]:
    """Bytes, as everywhere in JSON."""
    rows = [
        asdict(row.use) | {"where": row.name, "total": row.use.total, "of": row.room, "spare": row.spare}
        for row in given.rows
    ]
    return {
        "fits": given.fit.fits,
        "how": given.how,
        "context": given.placement.context,
        "largest_context": given.largest_context,
        "devices": rows,
        "doubts": list(given.fit.memory.doubts),
    }
