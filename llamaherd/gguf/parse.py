"""Parse a GGUF header from the first bytes of its file, which may be incomplete or hostile."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from llamaherd.gguf.header import TENSOR_TYPES, tensor_bytes

# enum llama_ftype: mainline's (include/llama.h:117-159 at b11434), then ik_llama.cpp's own (its include/llama.h:197-245
# at 67268c8fd). Of 41, which is Q1_0_G128 to the latter, mainline's meaning is taken.
FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
    135: "Q6_0",
    136: "IQ1_BN",
    137: "IQ2_BN",
    138: "IQ2_K",
    139: "IQ3_K",
    140: "IQ4_K",
    141: "IQ5_K",
    142: "IQ6_K",
    145: "IQ4_KS",
    146: "IQ3_KL",
    147: "IQ2_KS",
    148: "IQ4_KSS",
    149: "Q8_KV",
    150: "IQ5_KS",
    151: "IQ2_KT",
    152: "IQ3_KT",
    153: "IQ4_KT",
    154: "IQ3_KS",
    155: "IQ2_KL",
    156: "IQ1_KT",
    202: "Q4_0_R8",
    207: "Q8_0_R8",
    208: "Q5_0_R4",
    210: "Q2_K_R4",
    211: "Q3_K_R4",
    214: "Q4_K_R4",
    216: "Q5_K_R4",
    218: "Q6_K_R4",
    219: "IQ2_XXS_R4",
    220: "IQ2_XS_R4",
    223: "IQ3_XXS_R4",
    224: "IQ1_S_R4",
    225: "IQ4_NL_R4",
    226: "IQ3_S_R4",
    229: "IQ2_M_R4",
    230: "IQ4_XS_R8",
    231: "IQ1_M_R4",
    232: "BF16_R16",
    335: "Q6_0_R4",
    337: "IQ2_BN_R4",
    338: "IQ2_K_R4",
    339: "IQ3_K_R4",
    340: "IQ4_K_R4",
    341: "IQ5_K_R4",
    345: "IQ4_KS_R4",
    350: "IQ5_KS_R4",
    398: "Q8_KV_R8",
    399: "Q8_K_R8",
}


Scalar = bool | int | float | str
Meta = Scalar | tuple[int | float, ...]


class GgufError(Exception):
    """A file from which no model can be sized; one sentence."""


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
    """One file's header. `metadata` leaves out arrays of texts or of more than MAX_KEPT entries; texts are cut.

    `data_offset` is where the tensors' bytes begin; `size` is the least size of the whole file, in bytes: writers may
    fill up the last tensor to `alignment`.
    """

    metadata: Mapping[str, Meta]
    vocabulary: int
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_offset: int
    size: int

    @property
    def architecture(self) -> str | None:
        """The architecture of the model; later shards of a set do not contain it."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) and value else None

    @property
    def quant(self) -> str | None:
        """The name of the file type, such as `Q4_K_M`."""
        return FILE_TYPES.get(self.number("general.file_type", -1))

    @property
    def shard(self) -> int:
        """The number of this shard, from 0."""
        return self.number("split.no", 0)

    @property
    def shards(self) -> int:
        """The number of files that the model has."""
        return max(1, self.number("split.count", 1))

    def number(self, key: str, default: int) -> int:
        """Return a value that is one whole number."""
        value = self.metadata.get(key, default)
        return value if isinstance(value, int) else default


MIB = 1024**2
MAX_HEADER = 128 * MIB  # bytes; with a vocabulary of 250,000 tokens a header has 6 to 12 MiB
MAX_PAIRS, MAX_TENSORS = 4096, 100_000  # models have some 50 pairs and at most a few thousand tensors
MAX_KEPT = 1024  # entries of an array, and bytes of a text, that are kept
CHUNK = 2 * MIB  # bytes of one read, at least

_PREAMBLE = struct.Struct("<4sIQQ")  # magic, version, counts of tensors and of pairs
_LENGTH = struct.Struct("<Q")
_KIND = struct.Struct("<I")
_KIND_AND_LENGTH = struct.Struct("<IQ")
_KIND_AND_OFFSET = struct.Struct("<iQ")
_LEAST_PAIR = 8 + 1 + 4 + 1  # bytes: a key of one letter, the value's type, and a value of one byte
_LEAST_TENSOR = 8 + 1 + 4 + 4 + 8  # bytes: a name of one letter, no dimension, type, offset

# enum gguf_type, ggml/include/gguf.h: numbers and truth values by their struct codes.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_UINT32, _TEXT, _ARRAY = 4, 8, 9
_MAX_KEY = 256  # bytes of a key that are read; the longest known has some 60
_MAX_NAME, _MAX_AXES = 64, 4  # GGML_MAX_NAME, which counts a final zero, and GGML_MAX_DIMS (ggml.h:222-229)
_LIMIT = 2**63  # the engines count in int64_t


def parse_header(data: bytes | bytearray) -> Parsed | Incomplete:
    """Return the header at the start of `data`. Raise GgufError as soon as the bytes show that it cannot be used."""
    try:
        return _parse(_Cursor(data))
    except _ShortError as short:
        return Incomplete(short.needed)


def bytes_to_fetch(have: int, needed: int) -> int:
    """Return the bytes to have before the next try: whole chunks, so that all tries together cost linear time."""
    return max(needed, have + max(CHUNK, have // 8))


class _ShortError(Exception):
    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


@dataclass
class _Cursor:
    """A position in the bytes. `rest` is how many bytes the header has at least after the current value."""

    data: bytes | bytearray
    at: int = 0
    rest: int = 0

    def take(self, count: int) -> int:
        """Skip `count` bytes, and return where they begin."""
        start, stop = self.at, self.at + count
        if stop + self.rest > MAX_HEADER:
            raise GgufError(f"its header would be larger than {MAX_HEADER // MIB} MiB: its own sizes cannot be true")
        if stop > len(self.data):
            raise _ShortError(stop + self.rest)
        self.at = stop
        return start

    def one(self, layout: struct.Struct) -> int:
        """Read a whole number."""
        (value,) = layout.unpack_from(self.data, self.take(layout.size))
        return int(value)

    def two(self, layout: struct.Struct) -> tuple[int, int]:
        """Read two whole numbers."""
        first, second = layout.unpack_from(self.data, self.take(layout.size))
        return int(first), int(second)

    def text(self, keep: int) -> bytes:
        """Read the first `keep` bytes of a text."""
        length = self.one(_LENGTH)
        start = self.take(length)
        return bytes(self.data[start : start + min(length, keep)])

    def numbers(self, code: str, count: int) -> tuple[int | float, ...]:
        """Read numbers or truth values; return none if there are too many to keep."""
        start = self.take(count * struct.calcsize(f"<{code}"))
        return struct.unpack_from(f"<{count}{code}", self.data, start) if count <= MAX_KEPT else ()

    def pass_texts(self, count: int) -> None:
        """Skip texts, of which a vocabulary has hundreds of thousands."""
        start, data, length = self.at, self.data, _LENGTH.unpack_from
        self.take(8 * count)
        at = start
        for left in range(count, 0, -1):
            try:
                at += 8 + length(data, at)[0]
            except (struct.error, OverflowError):
                # It begins behind the end of the bytes, maybe by more than an index can say.
                self.at = at
                self.take(8 * left)
        self.at = at
        self.take(0)


@dataclass
class _Pairs:
    """The part of the metadata that is kept."""

    metadata: dict[str, Meta] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    vocabulary: int = 0
    alignment: int = 32  # GGUF_DEFAULT_ALIGNMENT, ggml/include/gguf.h


def _parse(cursor: _Cursor) -> Parsed:
    tensors, pairs = _preamble(cursor)
    kept = _Pairs()
    for left in range(pairs - 1, -1, -1):
        cursor.rest = left * _LEAST_PAIR + tensors * _LEAST_TENSOR
        _pair(cursor, kept)
    infos: dict[str, TensorInfo] = {}
    offset = end = 0
    for left in range(tensors - 1, -1, -1):
        cursor.rest = left * _LEAST_TENSOR
        info = _tensor(cursor)
        if info.name in infos:
            raise GgufError(f"it lists tensor {info.name} twice")
        if info.offset != offset:
            raise GgufError(f"tensor {info.name} does not begin where the one before it ends")
        infos[info.name] = info
        end = offset + tensor_bytes(info.type, info.shape)
        offset = _padded(end, kept.alignment)
        if offset >= _LIMIT:
            raise GgufError("its tensors would be larger than any file")
    # Without a tensor nothing is filled up (gguf.cpp:781).
    data_offset = _padded(cursor.at, kept.alignment) if tensors else cursor.at
    return Parsed(kept.metadata, kept.vocabulary, tuple(infos.values()), kept.alignment, data_offset, data_offset + end)


def _preamble(cursor: _Cursor) -> tuple[int, int]:
    """Return the number of tensors and of pairs."""
    start = bytes(cursor.data[:16])
    if start[:4] != b"GGUF"[: len(start)]:
        raise GgufError(f"it is not a GGUF file: it begins with {start!r}")
    _, version, tensors, pairs = _PREAMBLE.unpack_from(cursor.data, cursor.take(_PREAMBLE.size))
    if version and version & 0xFFFF == 0:
        raise GgufError("it is a big-endian GGUF file, which no engine on a PC reads")
    if version not in (2, 3):
        raise GgufError(f"it is GGUF version {version}; versions 2 and 3 can be read")
    if tensors > MAX_TENSORS or pairs > MAX_PAIRS:
        raise GgufError(f"its header lists {tensors} tensors and {pairs} keys, which no model has")
    return tensors, pairs


def _pair(cursor: _Cursor, kept: _Pairs) -> None:
    key = _name(cursor.text(_MAX_KEY), "a key")
    if key in kept.keys:
        raise GgufError(f"it has the key {key} twice")
    kept.keys.add(key)
    kind = cursor.one(_KIND)
    if key == "general.alignment" and kind != _UINT32:
        raise GgufError("its general.alignment is not a 32-bit number")
    if kind == _TEXT:
        kept.metadata[key] = cursor.text(MAX_KEPT).decode(errors="replace")
    elif kind == _ARRAY:
        _array(cursor, key, kept)
    else:
        (kept.metadata[key],) = cursor.numbers(_number(kind, key), 1)
    if key == "general.alignment":
        kept.alignment = _alignment(kept.metadata[key])


def _alignment(value: Meta) -> int:
    if not isinstance(value, int) or value < 1 or value & (value - 1):
        raise GgufError("its general.alignment is not a power of two")
    return value


def _array(cursor: _Cursor, key: str, kept: _Pairs) -> None:
    kind, count = cursor.two(_KIND_AND_LENGTH)
    if key == "tokenizer.ggml.tokens":
        kept.vocabulary = count
    if kind == _TEXT:
        cursor.pass_texts(count)
    else:
        values = cursor.numbers(_number(kind, key), count)
        if len(values) == count:
            kept.metadata[key] = values


def _number(kind: int, key: str) -> str:
    """Return the struct code of a type of numbers. Arrays of arrays are read by no engine (gguf.cpp:606)."""
    if kind not in _NUMBERS:
        raise GgufError(f"its key {key} has a value of the unknown type {kind}")
    return _NUMBERS[kind]


def _tensor(cursor: _Cursor) -> TensorInfo:
    name = _name(cursor.text(_MAX_NAME), "a tensor")
    if len(name.encode()) >= _MAX_NAME:
        raise GgufError(f"the name of tensor {name}… is too long")
    axes = cursor.one(_KIND)
    if axes > _MAX_AXES:
        raise GgufError(f"tensor {name} has {axes} dimensions; {_MAX_AXES} are the most")
    shape = struct.unpack_from(f"<{axes}Q", cursor.data, cursor.take(8 * axes)) or (1,)
    kind, offset = cursor.two(_KIND_AND_OFFSET)
    if kind not in TENSOR_TYPES:
        raise GgufError(f"tensor {name} is of the unknown type {kind}: no engine in use writes it")
    type_, _, block = TENSOR_TYPES[kind]
    if math.prod(shape) >= _LIMIT or max(shape) >= _LIMIT:
        raise GgufError(f"tensor {name} would be larger than any file")
    if shape[0] % block:
        raise GgufError(
            f"tensor {name} has rows of {shape[0]} numbers, which are not whole blocks of {block} ({type_})"
        )
    return TensorInfo(name, type_, shape, offset)


def _name(raw: bytes, what: str) -> str:
    """Return a name that is safe to show and to write into a lock."""
    name = raw.decode(errors="replace")
    if not name or not name.isprintable() or "�" in name:
        raise GgufError(f"{what} has a name that cannot be read: {raw[:40]!r}")
    return name


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
