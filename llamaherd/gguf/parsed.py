"""What a GGUF header says, as values; and why a file cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llamaherd.gguf.codes import FILE_TYPES

Scalar = bool | int | float | str
Meta = Scalar | tuple[int | float, ...]


class GgufError(Exception):
    """A file that no model can be sized from; one sentence."""


@dataclass(frozen=True)
class Incomplete:
    """The bytes end before the header does, which goes on to byte `needed` at least."""

    needed: int


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as listed: `shape` has the fastest axis first, `offset` counts bytes from the start of the data."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Parsed:
    """One file's header. From `metadata`, arrays of texts or of more than MAX_KEPT entries are left out; texts are cut.

    `data_offset` is where the tensors' bytes begin; `size` is what the whole file has at least, in bytes: writers
    may fill up the last tensor to `alignment`.
    """

    metadata: Mapping[str, Meta]
    vocabulary: int
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_offset: int
    size: int

    @property
    def architecture(self) -> str | None:
        """What the model is built like; later shards of a set do not say."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) and value else None

    @property
    def quant(self) -> str | None:
        """What the file type is called, such as `Q4_K_M`."""
        return FILE_TYPES.get(self.number("general.file_type", -1))

    @property
    def shard(self) -> int:
        """Which of the shards this is, from 0."""
        return self.number("split.no", 0)

    @property
    def shards(self) -> int:
        """How many files the model has."""
        return max(1, self.number("split.count", 1))

    def number(self, key: str, default: int) -> int:
        """A value that is one whole number."""
        value = self.metadata.get(key, default)
        return value if isinstance(value, int) else default
