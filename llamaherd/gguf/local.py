"""Headers of GGUF files that lie on this machine."""

from __future__ import annotations

import re
from pathlib import Path

from llamaherd.gguf.parse import parse_header, reach
from llamaherd.gguf.parsed import GgufError, Parsed

FIRST = 8 << 20
"""Bytes that are read before the first try: most headers are whole then, and each try begins anew."""

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf")


def read_header(path: Path) -> Parsed:
    """The header of one file, which is also seen to be as large as its tensors need. Raises GgufError."""
    try:
        # A pipe would be waited for, and a device has no end.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise GgufError("it is no file")
        with path.open("rb") as stream:
            size = path.stat().st_size
            data, wanted = bytearray(), FIRST
            while True:
                # No more than there is: a header may say that it is as large as memory.
                data += stream.read(min(wanted, size) - len(data))
                header = parse_header(data)
                if isinstance(header, Parsed):
                    break
                if len(data) < wanted:
                    raise GgufError(f"it ends inside its header, at byte {len(data)}")
                wanted = reach(len(data), header.needed)
    except OSError as error:
        raise GgufError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    except GgufError as error:
        raise GgufError(f"{path}: {error}") from None
    if size < header.size:
        raise GgufError(f"{path} has {size} bytes of {header.size}: it was not copied or fetched to its end")
    return header


def read_headers(path: Path) -> tuple[Parsed, ...]:
    """The headers of all shards of a model; `path` is its only file, or the first shard. Raises GgufError."""
    first = read_header(path)
    if first.shard != 0:
        raise GgufError(f"{path} is shard {first.shard + 1} of {first.shards}: name the first one, as for an engine")
    return (first, *(read_header(sibling) for sibling in _siblings(path, first.shards)))


def _siblings(path: Path, shards: int) -> list[Path]:
    """The other shards, by the names that engines look for (`llama_split_path`, src/llama.cpp:552 at b11434)."""
    if shards == 1:
        return []
    name = _SHARD.fullmatch(path.name)
    if name is None or (int(name["number"]), int(name["total"])) != (1, shards):
        raise GgufError(
            f"{path} is shard 1 of {shards} by its header, so its name must end in -00001-of-{shards:05}.gguf"
        )
    paths = [path.with_name(f"{name['stem']}-{number:05}-of-{name['total']}.gguf") for number in range(2, shards + 1)]
    absent = [sibling.name for sibling in paths if not sibling.is_file()]
    if absent:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise GgufError(f"{path.parent} lacks {len(absent)} of {shards} shards: {', '.join(absent[:3])}{more}")
    return paths
