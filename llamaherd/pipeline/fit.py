"""`herd fit`: where the header of a model comes from that may be in no inventory, and the answer as people read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from llamaherd.diagnostics.findings import HubError, UserError, nearest
from llamaherd.diagnostics.near import slip
from llamaherd.gguf.header import Header
from llamaherd.gguf.join import join
from llamaherd.gguf.local import read_headers
from llamaherd.gguf.parsed import GgufError
from llamaherd.inventory.repairs import candidates
from llamaherd.inventory.schema.serving import CacheType
from llamaherd.lock import Lock, ModelKey
from llamaherd.memory.answer import Answer
from llamaherd.memory.fit import Room
from llamaherd.memory.instances import SYSTEM_RAM
from llamaherd.reference.cards import usable
from llamaherd.text.numbers import whole
from llamaherd.text.units import parse_size, show_mib

_ON_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quant>[\w.-]+))?")


class FitError(UserError):
    """The question cannot be answered: one sentence, and a way out."""


def header_of(model: str, names: Mapping[str, ModelKey], lock: Lock) -> Header:
    """The header of a file, of a model that is locked under a name, or of one on the hub, `OWNER/NAME:QUANT`.

    `names` are the inventory's models: what they are declared with. Raises FitError.
    """
    if model in names:
        locked = lock.find(*names[model])
        if locked is None or locked.header is None:
            raise FitError(f"model `{model}` is not in the lock", "run `herd lock` first")
        return locked.header
    if model.endswith(".gguf") or Path(model).is_file():
        return _from_file(Path(model))
    on_hub = _ON_HUB.fullmatch(model)
    if on_hub is None:
        known = f", or one of the inventory's: {', '.join(sorted(names))}" if names else ""
        if close := slip(model, names):
            raise FitError(f"`{model}` is no model", f"did you mean `{close}`?")
        if Path(model).is_dir():
            raise FitError(
                f"`{model}` is a folder, and no model", "give the GGUF file in it; of a set, the first shard"
            )
        raise FitError(f"`{model}` is no model", f"give a GGUF file, or OWNER/NAME:QUANT of a hub{known}")
    return _from_hub(on_hub["repo"], f"*{on_hub['quant']}*.gguf" if on_hub["quant"] else "*.gguf")


def room(vram: str, ram: str | None) -> Room:
    """What GPUs such as `24G,12G` and RAM give to servers. Raises FitError for what is no size."""
    gpus = tuple(map(usable, gpu_sizes(vram)))
    return Room(gpus, max(_binary(ram) - SYSTEM_RAM, 0) if ram else None)


def gpu_sizes(vram: str) -> tuple[int, ...]:
    """Bytes of each GPU of `24G,12G`. Raises FitError for what is no size."""
    return tuple(_binary(size) for size in vram.split(",") if size.strip())


def cache_type(name: str) -> None:
    """Raise FitError for what is no type of a cache."""
    types = get_args(CacheType)
    if name not in types:
        meant = next((each for each in candidates("Instance.kv", name) if each in types), None)
        help_ = f"did you mean `--kv {meant}`?" if meant else nearest(name, types)
        raise FitError(f"`{name}` is no type of a cache", help_)


def table(answer: Answer) -> list[tuple[str, ...]]:
    """The answer's rows in MiB, below a head."""
    rows: list[tuple[str, ...]] = [("", "weights", "kv", "state", "compute", "draft", "total", "of", "spare")]
    for row in answer.rows:
        use = row.use
        figures = (use.weights, use.kv, use.state, use.compute, use.draft.total, use.total)
        known = [show_mib(size).removesuffix(" MiB") if size is not None else "?" for size in (row.room, row.spare)]
        rows.append((row.name, *(show_mib(figure).removesuffix(" MiB") for figure in figures), *known))
    return rows


def _binary(text: str) -> int:
    """Bytes of `24G`: memory is sold in powers of two, whatever is printed on its box."""
    written = re.sub(r"(?i)([kmgt])b?$", r"\1iB", text.strip())
    try:
        return parse_size(written)
    except ValueError:
        number = text.strip()
        unit = f"; is `{number}{'G' if len(number) < 4 else 'M'}` meant?" if whole(number) is not None else ""
        raise FitError(f"`{text}` is no size{unit}", "write it like 24G; several GPUs like 24G,24G,12G") from None


def _from_file(path: Path) -> Header:
    if not path.exists():
        beside = [each.name for each in path.parent.glob("*.gguf")] if path.parent.is_dir() else []
        close = slip(path.name, beside)
        help_ = f"did you mean `{path.with_name(close)}`?" if close else "check the path; of a set, give the first"
        raise FitError(f"there is no file {path}", help_)
    try:
        return join(read_headers(path))
    except GgufError as error:
        raise FitError(f"this cannot be sized: {error}", "give a GGUF file; of a set, the first shard") from None


def _from_hub(repo: str, files: str) -> Header:
    from llamaherd.lock.resolve import hub

    try:
        header = hub.with_header(hub.resolve(repo, "main", files)).header
    except HubError as error:
        raise FitError(error.message, error.help) from None
    if header is None:
        raise FitError(f"{repo} has no GGUF that matches `{files}`", "name one of its quants: OWNER/NAME:QUANT")
    return header
