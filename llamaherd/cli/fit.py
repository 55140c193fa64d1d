"""`herd fit`: show whether a model fits on given GPUs, before it is in an inventory, and parse what the user gives."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click

from llamaherd.cli.common import FAILED, UNUSABLE, echo, fail, inventory_option, json_option, read_or_exit
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.diagnostics.findings import HubError, UserError, nearest
from llamaherd.diagnostics.spelling import misspelled_name
from llamaherd.engines import SIZED, TRAITS, CommandLine
from llamaherd.engines.flags import Catalogue, catalogues, check_arguments
from llamaherd.engines.flags.advice import DOWNLOADS, ENDS, OPEN, SECRET
from llamaherd.engines.flags.conflicts import find_conflicts
from llamaherd.engines.flags.effective import ServerContext, effective_options
from llamaherd.gguf.header import Header
from llamaherd.gguf.parse import GgufError
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.inventory.schema.serving import CacheType, split_as_shell
from llamaherd.inventory.suggestions import candidate_values
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
from llamaherd.memory.instances import MOVING, SYSTEM_RAM, with_explicit_flags
from llamaherd.memory.placement import Placement
from llamaherd.pipeline.load import examined, inventory_path, read_lock
from llamaherd.reference.cards import usable_memory
from llamaherd.text.numbers import parse_size, show_mib, whole_number
from llamaherd.text.terminal import shown

PLACING = (*MOVING, "--gpu-layers", "--n-gpu-layers", "--tensor-split", "--split-mode", "--main-gpu", "--device")
"""Options that set the placement explicitly, so that no better one is searched for."""
BESIDE_MEMORY = frozenset((OPEN, SECRET, DOWNLOADS, ENDS))
"""Rules about arguments that have no effect on memory."""


class ArgumentPlacement(NamedTuple):
    """A placement that arguments have changed."""

    placement: Placement
    by_hand: bool
    """Whether the arguments set where the model goes."""
    errors: tuple[tuple[str, str], ...]
    """Arguments that the engine rejects or reads differently: a message and a help, each."""


def place_by_arguments(header: Header, wanted: Placement, room: Room, arguments: Sequence[str]) -> ArgumentPlacement:
    """Return the `wanted` placement, changed by arguments of the newest known version of its engine.

    Raises ValueError, with a sentence, for values that no engine takes and for memory that cannot be derived.
    """
    known = catalogues(wanted.engine)[-1]
    line = CommandLine(effective_options(known, arguments), keys=0)
    errors = tuple(_argument_errors(known, arguments, header, room))
    placed = replace(wanted, devices=len(room.cards), free=room.cards)
    if not errors:
        placed = with_explicit_flags(placed, line, header)
    return ArgumentPlacement(placed, any(line.effective.get(name) for name in PLACING), errors)


def _argument_errors(
    known: Catalogue, arguments: Sequence[str], header: Header, room: Room
) -> Iterator[tuple[str, str]]:
    others = [each for kind in TRAITS for each in catalogues(kind) if each != known]
    for problem in check_arguments(known, arguments, others):
        if problem.severity == "error" and problem.rule not in BESIDE_MEMORY:
            yield problem.message, problem.help
    around = ServerContext(cards=len(room.cards), tensors=tuple(tensor.name for tensor in header.each))
    for clash in find_conflicts(effective_options(known, arguments), around):
        if clash.severity == "error" and clash.rule not in BESIDE_MEMORY:
            yield clash.message, clash.help


_ON_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quant>[\w.-]+))?")


class FitError(UserError):
    """The memory cannot be computed: one sentence, and a help."""


def header_of(model: str, names: Mapping[str, ModelKey], lock: Lock) -> Header:
    """Return the header of a file, of a locked model by its name, or of a model on the hub, `OWNER/NAME:QUANT`.

    `names` are the models of the inventory, with their declarations. Raises FitError.
    """
    if model in names:
        locked = lock.find(*names[model])
        if locked is None or locked.header is None:
            raise FitError(f"model `{model}` is not in the lock", "run `herd lock` first")
        return locked.header
    if model.endswith(".gguf") or Path(model).is_file():
        return _header_from_file(Path(model))
    on_hub = _ON_HUB.fullmatch(model)
    if on_hub is None:
        known = f", or one of the inventory's: {', '.join(sorted(names))}" if names else ""
        if close := misspelled_name(model, names):
            raise FitError(f"`{model}` is no model", f"did you mean `{close}`?")
        if Path(model).is_dir():
            raise FitError(
                f"`{model}` is a folder, and no model", "give the GGUF file in it; of a set, the first shard"
            )
        raise FitError(f"`{model}` is no model", f"give a GGUF file, or OWNER/NAME:QUANT of a hub{known}")
    return _header_from_hub(on_hub["repo"], f"*{on_hub['quant']}*.gguf" if on_hub["quant"] else "*.gguf")


def parse_room(vram: str, ram: str | None) -> Room:
    """Return what GPUs such as `24G,12G` and RAM give to servers. Raises FitError for an invalid size."""
    gpus = tuple(map(usable_memory, parse_gpu_sizes(vram)))
    return Room(gpus, max(_parse_binary_size(ram) - SYSTEM_RAM, 0) if ram else None)


def parse_gpu_sizes(vram: str) -> tuple[int, ...]:
    """Return the bytes of each GPU of `24G,12G`. Raises FitError for an invalid size."""
    return tuple(_parse_binary_size(size) for size in vram.split(",") if size.strip())


def check_cache_type(name: str) -> None:
    """Raise FitError if this is no type of a cache."""
    types = get_args(CacheType)
    if name not in types:
        meant = next((each for each in candidate_values("Instance.kv", name) if each in types), None)
        help_ = f"did you mean `--kv {meant}`?" if meant else nearest(name, types)
        raise FitError(f"`{name}` is no type of a cache", help_)


def answer_table(answer: FitResult) -> list[tuple[str, ...]]:
    """Return the rows of the result in MiB, below a head."""
    rows: list[tuple[str, ...]] = [("", "weights", "kv", "state", "compute", "draft", "total", "of", "spare")]
    for row in answer.rows:
        use = row.use
        figures = (use.weights, use.kv, use.state, use.compute, use.draft.total, use.total)
        known = [show_mib(size).removesuffix(" MiB") if size is not None else "?" for size in (row.room, row.spare)]
        rows.append((row.name, *(show_mib(figure).removesuffix(" MiB") for figure in figures), *known))
    return rows


def _parse_binary_size(text: str) -> int:
    """Return the bytes of `24G`: memory is sold in powers of two, whatever is printed on its box."""
    written = re.sub(r"(?i)([kmgt])b?$", r"\1iB", text.strip())
    try:
        return parse_size(written)
    except ValueError:
        number = text.strip()
        unit = f"; is `{number}{'G' if len(number) < 4 else 'M'}` meant?" if whole_number(number) is not None else ""
        raise FitError(f"`{text}` is no size{unit}", "write it like 24G; several GPUs like 24G,24G,12G") from None


def _header_from_file(path: Path) -> Header:
    if not path.exists():
        siblings = [each.name for each in path.parent.glob("*.gguf")] if path.parent.is_dir() else []
        close = misspelled_name(path.name, siblings)
        help_ = f"did you mean `{path.with_name(close)}`?" if close else "check the path; of a set, give the first"
        raise FitError(f"there is no file {path}", help_)
    try:
        return join_headers(read_headers(path))
    except GgufError as error:
        raise FitError(f"this cannot be sized: {error}", "give a GGUF file; of a set, the first shard") from None


def _header_from_hub(repo: str, files: str) -> Header:
    from llamaherd.lock import hub

    try:
        header = hub.with_header(hub.resolve(repo, "main", files)).header
    except HubError as error:
        raise FitError(error.message, error.help) from None
    if header is None:
        raise FitError(f"{repo} has no GGUF that matches `{files}`", "name one of its quants: OWNER/NAME:QUANT")
    return header


NAMED = 4
"""The most changes to suggest for a model that does not fit."""


class Tokens(click.IntRange):
    """A number of tokens. `8k` is refused: it could mean 8000 or 8192."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (match := re.fullmatch(r"(\d{1,5}) ?k", value, re.IGNORECASE)):
            self.fail(f"{value!r} is no whole number; did you mean {int(match[1]) * 1024}?", param, ctx)
        return super().convert(value, param, ctx)


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
@click.option(
    "--engine", type=click.Choice(tuple(SIZED)), metavar="KIND", help="Engine: llama.cpp, the default, or ik_llama.cpp."
)
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
    asked = place_by_arguments(header, _placement(header, wanted), there, split_as_shell(extra_args))
    for message, help_ in asked.errors:
        raise FitError(message, help_)
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
