"""Headers that nobody's converter wrote: read or refused in a sentence, at little cost."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamaherd.gguf.parse import MAX_HEADER, MAX_TENSORS, MIB, GgufError, Incomplete, Parsed, parse_header
from llamaherd.gguf.shards import join_headers, read_header
from tests.support import gguf_files
from tests.support.gguf_files import pair, raw, tensor, text
from tests.support.sample import ALL

U32, TEXT, ARRAY = 4, 8, 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


def small(folder: Path) -> bytes:
    """The header of a small Llama: a few kilobytes with everything that a header has."""
    path = folder / "small.gguf"
    if not path.exists():
        gguf_files.write(gguf_files.llama(layers=2), path)
    header = read_header(path)
    with path.open("rb") as stream:
        return stream.read(header.data_offset)


def whole(data: bytes) -> Parsed:
    header = parse_header(data)
    assert isinstance(header, Parsed)
    return header


def outcome(data: bytes | bytearray) -> Parsed | Incomplete | str:
    """What a header is read as, or the sentence that refuses it; any other exception fails the test."""
    try:
        return parse_header(data)
    except GgufError as error:
        return str(error)


@settings(deadline=None, max_examples=400 if ALL else 80)
@given(st.data())
def test_a_mutated_header_is_read_or_refused(folder: Path, data: st.DataObject) -> None:
    changed = bytearray(small(folder))
    places = st.integers(0, len(changed) - 8)
    # Half of all changes go where counts, types and tensors are, and not into the vocabulary.
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.one_of(places, st.integers(0, 400), st.integers(len(changed) - 1200, len(changed) - 8)))
        part = data.draw(
            st.one_of(
                st.binary(min_size=1, max_size=8),
                st.sampled_from([2**60, 2**63, 2**64 - 1, 2**31, MAX_HEADER]).map(lambda n: struct.pack("<Q", n)),
            )
        )
        changed[place : place + len(part)] = part
    started = time.process_time()
    tracemalloc.start()
    found = outcome(changed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if isinstance(found, str):
        assert len(found) < 400
        assert found.isprintable()
    elif isinstance(found, Incomplete):
        assert len(changed) < found.needed <= MAX_HEADER
    assert peak < 20 * MIB
    assert time.process_time() - started < 5


@settings(deadline=None)
@given(st.binary(max_size=400), st.integers(0, 3), st.integers(0, 3))
def test_any_bytes_behind_the_counts_are_read_or_refused(junk: bytes, tensors: int, pairs: int) -> None:
    found = outcome(raw(junk, tensors=tensors, pairs=pairs))
    assert not isinstance(found, str) or found.isprintable()


ALIGNED = pair("general.alignment", U32, struct.pack("<I", 48))
REFUSED: dict[str, tuple[bytes, str]] = {
    "another file": (
        b"version https://git-lfs.github.com/spec/v1\n",
        "not a GGUF file: it begins with b'version https:/",
    ),
    "a page": (b"<!doctype html>", "not a GGUF file"),
    "version 1": (raw(version=1), "GGUF version 1;"),
    "version 4": (raw(version=4), "GGUF version 4;"),
    "version 0": (raw(version=0), "GGUF version 0;"),
    "big-endian": (struct.pack(">4sIQQ", b"GGUF", 3, 1, 1), "big-endian"),
    "many tensors": (raw(tensors=MAX_TENSORS + 1), "100001 tensors"),
    "many keys": (raw(pairs=2**63), "keys, which no model has"),
    "a long key": (raw(struct.pack("<Q", 2**60), pairs=1), "larger than 128 MiB"),
    "a long text": (raw(pair("k", TEXT, struct.pack("<Q", 2**64 - 1)), pairs=1), "larger than 128 MiB"),
    "many texts": (raw(pair("k", ARRAY, struct.pack("<IQ", TEXT, 2**62)), pairs=1), "larger than 128 MiB"),
    "a long text of many": (
        raw(pair("k", ARRAY, struct.pack("<IQ", TEXT, 3) + struct.pack("<Q", 2**63) + bytes(16)), pairs=1),
        "larger than 128 MiB",
    ),
    "many numbers": (raw(pair("k", ARRAY, struct.pack("<IQ", U32, 2**61)), pairs=1), "larger than 128 MiB"),
    "an array of arrays": (
        raw(pair("k", ARRAY, struct.pack("<IQ", ARRAY, 1)), pairs=1),
        "key k has a value of the unknown type 9",
    ),
    "an unknown value": (raw(pair("k", 13, b""), pairs=1), "key k has a value of the unknown type 13"),
    "a key twice": (raw(pair("k", 7, b"\1"), pair("k", 7, b"\1"), pairs=2), "the key k twice"),
    "no key": (raw(pair("", 7, b"\1"), pairs=1), "a key has a name that cannot be read"),
    "an odd alignment": (raw(ALIGNED, pairs=1), "not a power of two"),
    "a wide alignment": (raw(pair("general.alignment", 10, bytes(8)), pairs=1), "not a 32-bit number"),
    "a tensor twice": (raw(tensor("a"), tensor("a", offset=32), tensors=2), "tensor a twice"),
    "a gap": (raw(tensor("a"), tensor("b", offset=64), tensors=2), "tensor b does not begin where"),
    "five dimensions": (raw(tensor("a", shape=(1,) * 5), tensors=1), "tensor a has 5 dimensions"),
    "a long name": (raw(tensor("a" * 64), tensors=1), "is too long"),
    "an odd name": (raw(tensor(b"a\x1b[31m"), tensors=1), "a tensor has a name that cannot be read"),
    "a name of no letters": (raw(tensor(b"\xff\xfe"), tensors=1), "a tensor has a name that cannot be read"),
    "an unknown type": (raw(tensor("a", 43), tensors=1), "tensor a is of the unknown type 43"),
    "a removed type": (raw(tensor("a", 4), tensors=1), "tensor a is of the unknown type 4:"),
    "a negative type": (raw(tensor("a", -1), tensors=1), "tensor a is of the unknown type -1"),
    "half a block": (raw(tensor("a", 2, (48,)), tensors=1), "not whole blocks of 32 \\(Q4_0\\)"),
    "a huge tensor": (raw(tensor("a", shape=(2**32, 2**32)), tensors=1), "tensor a would be larger than any file"),
    "huge tensors": (raw(tensor("a", shape=(2**62,)), tensors=1), "its tensors would be larger than any file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_header_is_refused_in_a_sentence(name: str) -> None:
    data, sentence = REFUSED[name]
    with pytest.raises(GgufError, match=sentence):
        parse_header(data)


def test_the_worst_header_costs_little() -> None:
    """Texts of no letters: as many steps as bytes can make."""
    count = 8 * MIB // 8
    data = raw(pair("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", TEXT, count) + bytes(8 * count)), pairs=1)
    started = time.process_time()
    assert whole(data).vocabulary == count
    assert time.process_time() - started < 4


def test_texts_from_a_header_are_fit_to_be_shown() -> None:
    name = pair("general.name", TEXT, text("A\x1b[31m\nmodel \xff".encode("latin-1")))
    parts = [
        pair("general.architecture", TEXT, text("llama")),
        name,
        pair("llama.rope.scaling.type", TEXT, text("x" * 5000)),
        pair("llama.rope.scaling.factor", 6, struct.pack("<f", float("nan"))),
        pair("llama.attention.key_length", 10, struct.pack("<Q", 128)),
        pair("other.attention.value_length", 10, struct.pack("<Q", 128)),
    ]
    header = join_headers([whole(raw(*parts, pairs=len(parts)))])
    assert header.name == "A [31m model �"
    assert header.parameters == {"attention.key_length": 128, "rope.scaling.type": "x" * 1024}


@pytest.mark.parametrize("architecture", ["g\x0emma3", "a\nb", "\u202eb", "a\x85b"])
def test_an_architecture_that_is_no_name_is_refused(architecture: str) -> None:
    parts = [
        pair("general.architecture", TEXT, text(architecture.encode())),
        pair("x.block_count", U32, struct.pack("<I", 1)),
    ]
    with pytest.raises(GgufError, match="not a text or number of a model: architecture"):
        join_headers([whole(raw(*parts, pairs=len(parts)))])
