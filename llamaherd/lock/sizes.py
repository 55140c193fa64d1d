"""Whether the sizes of a model's files can be true beside what its header says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from llamaherd.gguf.header import Header, spread, tensor_bytes

# Each tensor begins at a multiple of the file's alignment: 32 by default, and no writer goes beyond a page.
_MOST_PADDING = 4096


class SizedFile(Protocol):
    """A file of a model; both in bytes."""

    @property
    def size(self) -> int: ...

    @property
    def data_offset(self) -> int | None: ...


def contradiction(files: Sequence[SizedFile], header: Header) -> str | None:
    """What is wrong with the sizes of a model's files, in one sentence; None where they can be."""
    tensors = weights = 0
    for group in header.tensors:
        layers = len(spread(group.layers)) if group.layers else 1
        weights += tensor_bytes(group.type, group.shape) * layers
        tensors += layers
    size = sum(file.size for file in files)
    if any(file.data_offset is None for file in files):
        least, most = weights, None
    else:
        least = weights + sum(file.data_offset or 0 for file in files)
        most = least + tensors * _MOST_PADDING
    if size < least:
        return f"its files have {size} bytes in all, and its header and tensors alone take {least}"
    if most is not None and size > most:
        return f"its files have {size} bytes in all, and its header and tensors take no more than {most}"
    return None
