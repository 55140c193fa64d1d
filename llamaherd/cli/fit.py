"""`herd fit`: show whether a model fits on given GPUs, before it is in an inventory."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import FAILED, UNUSABLE, echo, fail, inventory_option, json_option, read_or_exit
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.engines import SIZED
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema.serving import split_as_shell
from llamaherd.lock import Lock, ModelKey
from llamaherd.measure.results.store import results_folder
from llamaherd.measure.tune.result import (
    PriorResult,
    prior_result_json,
    prior_result_lines,
    prior_results,
    results_of_model,
)
from llamaherd.memory.fit import USUAL_CONTEXT, FitResult, Room, best_fit, changes
from llamaherd.memory.placement import Placement
from llamaherd.pipeline.fit import (
    ArgumentPlacement,
    FitError,
    answer_table,
    check_cache_type,
    header_of,
    parse_gpu_sizes,
    parse_room,
    place_by_arguments,
)
from llamaherd.pipeline.load import examined, inventory_path, read_lock
from llamaherd.text.terminal import shown

NAMED = 4
"""The most changes to suggest for a model that does not fit."""


class Tokens(click.IntRange):
    """A number of tokens. `8k` is refused: it could mean 8000 or 8192."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (match := re.fullmatch(r"(\d{1,5}) ?k", value, re.IGNORECASE)):
            self.fail(f"{value!r} is no whole number; did you mean {int(match[1]) * 1024}?", param, ctx)
        return super().convert(value, param, ctx)


class SizedEngine(click.ParamType[str]):
    """An engine whose memory can be computed."""

    name = "engine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return click.Choice(tuple(SIZED)).convert(value, param, ctx)


@click.command()
@click.argument("model")
@click.option("--vram", default="", metavar="24G[,24G]", help="Memory of each GPU. Default: no GPU.")
@click.option("--ram", metavar="192G", help="Memory of the host. Default: as much as needed.")
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
    """Show whether a model fits on given GPUs, and how.

    MODEL is a GGUF file, a model on the hub (OWNER/NAME:QUANT), or a locked model of the inventory. Only its header is
    fetched. Sizes are powers of two: 24G is 24 GiB. If `results/` has a search of `herd tune` for the same model,
    engine, context and slots on GPUs of these sizes, its best settings are printed too.

    Exit codes: 0 it fits; 1 it does not fit; 2 it cannot be computed.

    \b
    Examples:
      herd fit unsloth/Qwen3-4B-GGUF:Q4_K_M --vram 8G --context 65536 --kv q4_0
      herd fit model-00001-of-00004.gguf --vram 24G,24G --ram 192G
      herd fit model.gguf --vram 24G --extra-args '-ot exps=CPU -ub 2048'
    """
    try:
        there = parse_room(vram, ram)
        header, given = _fit_model(inventory, model, there, wanted, extra_args)
        others = () if given.fit.fits else changes(header, given.placement, there)[:NAMED]
    except (FitError, ValueError) as error:
        fail(error, UNUSABLE)
    texts = [change.text for change in others]
    measured = _prior_results(inventory, header, given, vram)
    if as_json:
        more = {"changes": texts, "measured": [prior_result_json(each) for each in measured]}
        print_envelope(Envelope(given.fit.fits, data=_as_json(given) | more))
    else:
        _print_fit(header, given, answer_table(given))
        for text in texts:
            echo(f"it would fit with: {text}")
        _print_prior_results(measured)
    if not given.fit.fits:
        sys.exit(FAILED)


def _fit_model(
    inventory: Path | None, model: str, there: Room, wanted: dict[str, int | str | None], extra_args: str
) -> tuple[Header, FitResult]:
    """Return the model's header, and how it fits. Raise FitError or ValueError."""
    check_cache_type(str(wanted["kv"]))
    header = header_of(model, *_locked_models(inventory))
    asked = _place(header, _placement(header, wanted), there, extra_args)
    return header, best_fit(header, there, asked.placement, by_hand=asked.by_hand)


def _locked_models(inventory: Path | None) -> tuple[dict[str, ModelKey], Lock]:
    """Return the models of the inventory and its lock; none without an inventory."""
    path = inventory_path(inventory)
    if inventory is None and not path.exists():
        return {}, Lock()
    models = [each for rig in examined(path)[0].rigs.values() for each in rig.models.items()]
    return {name: (m.hf, m.revision, m.files, m.mmproj) for name, m in models if m.hf}, read_or_exit(
        lambda: read_lock(path)
    )


def _place(header: Header, wanted: Placement, there: Room, extra_args: str) -> ArgumentPlacement:
    """Return the placement by options and `--extra-args`. Raise FitError or ValueError."""
    words = split_as_shell(extra_args)
    asked = place_by_arguments(header, wanted, there, words)
    for message, help_ in asked.errors:
        raise FitError(message, help_)
    return asked


def _placement(header: Header, options: dict[str, int | str | None]) -> Placement:
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


def _prior_results(inventory: Path | None, header: Header, given: FitResult, vram: str) -> list[PriorResult]:
    """Return what searches of `herd tune` found best for this model on such GPUs."""
    results = results_folder(inventory_path(inventory))
    if not vram or not results.is_dir():
        return []

    placed = given.placement
    return results_of_model(
        prior_results(results), placed.engine, header.digest, parse_gpu_sizes(vram), placed.context, placed.parallel
    )


def _print_prior_results(measured: list[PriorResult]) -> None:
    for each in measured:
        first, *rest = prior_result_lines(each)
        echo(f"measured: {shown(first)}")
        for line in rest:
            echo(f"  {shown(line)}")


def _print_fit(header: Header, given: FitResult, rows: list[tuple[str, ...]]) -> None:
    placement = given.placement
    name = header.name or header.architecture
    echo(f"{name}: {given.how}, {placement.context} tokens, cache in {placement.type_k}; MiB:")
    width = max(len(row[0]) for row in rows)
    for first, *cells in rows:
        echo(f"  {first:{width}}" + "".join(f"{cell:>10}" for cell in cells))
    if given.fit.fits:
        echo(f"It fits, with up to {given.largest_context} tokens.")
    else:
        echo("It does not fit.")
    for doubt in given.fit.memory.doubts:
        echo(f"uncertain: {doubt}")


def _as_json(given: FitResult) -> dict[str, object]:
    """Return the result as JSON values; sizes in bytes."""
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
