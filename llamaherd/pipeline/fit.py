"""Parse the input of `herd fit`: a model, sizes of GPUs and RAM, and arguments of an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

from llamaherd.diagnostics.findings import HubError, UserError, nearest
from llamaherd.diagnostics.spelling import misspelled_name
from llamaherd.engines import TRAITS, CommandLine
from llamaherd.engines.flags import Catalogue, catalogues, check_arguments
from llamaherd.engines.flags.advice import DOWNLOADS, ENDS, OPEN, SECRET
from llamaherd.engines.flags.conflicts import find_conflicts
from llamaherd.engines.flags.effective import ServerContext, effective_options
from llamaherd.gguf.header import Header
from llamaherd.gguf.parse import GgufError
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.inventory.schema.serving import CacheType
from llamaherd.inventory.suggestions import candidate_values
from llamaherd.lock import Lock, ModelKey
from llamaherd.memory.fit import FitResult, Room
from llamaherd.memory.instances import MOVING, SYSTEM_RAM, with_explicit_flags
from llamaherd.memory.placement import Placement
from llamaherd.reference.cards import usable_memory
from llamaherd.text.numbers import parse_size, show_mib, whole_number

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
    return ArgumentPlacement(placed, any(line.meant.get(name) for name in PLACING), errors)


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
