"""Headers of GGUF files: parsed from a prefix, joined, read from disk, and written with a hole for the weights."""

from __future__ import annotations

import os
import re
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from gguf import GGMLQuantizationType, GGUFReader
from gguf.constants import GGML_QUANT_SIZES, LlamaFileType
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from llamaherd.gguf.header import BLOCKS, ROW_EXTRA, TENSOR_TYPES, Header, TensorGroup, tensor_bytes
from llamaherd.gguf.parse import (
    CHUNK,
    FILE_TYPES,
    MIB,
    GgufError,
    Incomplete,
    Parsed,
    bytes_to_fetch,
    parse_header,
)
from llamaherd.gguf.shards import join_headers, read_header, read_headers
from tests.support import gguf_files
from tests.support.gguf_files import QWEN_122B, QWEN_MERGES, QWEN_TOKENS, Model, pair, raw, tensor, text

MODELS: dict[str, Model] = {
    "35b": gguf_files.qwen(experts="Q3_K", down="Q4_K"),
    "122b": gguf_files.qwen(QWEN_122B, experts="Q6_K"),
    "no-head": gguf_files.qwen(mtp=False),
    "gemma": gguf_files.gemma3(),
    "llama": gguf_files.llama(),
}
TEXT = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.fixture(scope="module")
def real(folder: Path) -> bytes:
    """The header of a 35B-A3B with its real vocabulary."""
    (path,) = gguf_files.write(gguf_files.qwen(tokens=QWEN_TOKENS, merges=QWEN_MERGES), folder / "real.gguf")
    with path.open("rb") as stream:
        data = stream.read(16 * MIB)
    return data[: whole(data).data_offset]


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


@pytest.mark.parametrize("name", MODELS)
def test_a_header_is_what_the_library_reads(folder: Path, name: str) -> None:
    (path,) = gguf_files.write(MODELS[name], folder / f"{name}.gguf")
    reader = GGUFReader(path)
    header = read_header(path)
    assert header.data_offset == reader.data_offset
    assert [(each.name, each.type, each.shape, header.data_offset + each.offset) for each in header.tensors] == [
        (each.name, each.tensor_type.name, tuple(each.shape.tolist()), int(each.data_offset)) for each in reader.tensors
    ]
    assert [tensor_bytes(each.type, each.shape) for each in header.tensors] == [int(e.n_bytes) for e in reader.tensors]
    # The last tensors are filled up to 32 bytes.
    assert 0 <= path.stat().st_size - header.size < 32
    read = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    tokens = read.pop("tokenizer.ggml.tokens")
    assert header.vocabulary == len(tokens)
    read.pop("tokenizer.ggml.merges")
    assert {key: list(value) if isinstance(value, tuple) else value for key, value in header.metadata.items()} == read


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("per_shard", "tensors_in_first"), [(0, True), (60, True), (100, False)])
def test_all_shards_together_are_the_model(tmp_path: Path, name: str, per_shard: int, tensors_in_first: bool) -> None:
    model = MODELS[name]
    paths = gguf_files.write(model, tmp_path / "m.gguf", per_shard, tensors_in_first=tensors_in_first)
    assert (len(paths) > 1) == bool(per_shard)
    header = join_headers(read_headers(paths[0]))
    assert sorted((each.name, each.type, each.shape) for each in header.each) == sorted(
        (each.name, each.type, each.shape) for each in model.tensors
    )
    assert sum(each.bytes for each in header.each) == sum(each.bytes for each in model.tensors)
    assert (header.architecture, header.name, header.vocabulary) == (model.architecture, model.name, model.tokens)
    assert header.quant == ("Q8_0" if name == "gemma" else "Q4_K_M")
    dropped = {"attention.layer_norm_rms_epsilon", "rope.freq_base"}
    kept = {key: value for key, value in model.parameters.items() if key not in dropped}
    tokenizer = {"tokenizer_model": "gpt2", "tokenizer_bos_token_id": 256}
    assert header.parameters == kept | tokenizer | {"has_chat_template": True}


def test_a_header_is_short_in_a_lock_and_comes_back_whole(folder: Path) -> None:
    (path,) = gguf_files.write(MODELS["122b"], folder / "short.gguf")
    header = join_headers(read_headers(path))
    dumped = yaml.safe_dump(header.model_dump(mode="json", exclude_none=True), sort_keys=False)
    assert Header.model_validate(yaml.safe_load(dumped)) == header
    assert len(header.each) == 899
    assert len(header.tensors) == 32
    assert len(dumped) < 4096
    (experts,) = [group for group in header.tensors if group.name == "ffn_up_exps.weight"]
    assert (experts.type, experts.shape, experts.layers) == ("Q6_K", (3072, 1024, 256), "0-48")
    (attention,) = [group for group in header.tensors if group.name == "attn_q.weight"]
    assert attention.layers == "3,7,11,15,19,23,27,31,35,39,43,47-48"


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("type", "Q4_L", "`Q4_L` is not a known type of tensors"),
        ("shape", [100, 4], "rows of 100 numbers are not whole blocks of Q4_K"),
        ("shape", [-256], "greater than or equal to 0"),
        ("shape", [], "at least 1 item"),
        ("layers", "0-99999999", "should match pattern"),
    ],
)
def test_tensors_that_were_edited_are_refused(field: str, value: object, sentence: str) -> None:
    group = {"name": "ffn_up.weight", "type": "Q4_K", "shape": [256, 4], "layers": "0-3,5"}
    assert [each.bytes for each in Header(architecture="a", tensors=(TensorGroup.model_validate(group),)).each] == [
        576
    ] * 5
    with pytest.raises(ValidationError, match=sentence):
        TensorGroup.model_validate(group | {field: value})


def test_truth_values_of_layers_are_kept_as_numbers(folder: Path) -> None:
    model = gguf_files.gemma3()
    pattern = tuple(layer % 6 != 5 for layer in range(18))
    heads = tuple(1 + layer % 2 for layer in range(18))
    extra = {"attention.sliding_window_pattern": pattern, "attention.head_count_kv": heads}
    model = replace(model, parameters={**model.parameters, **extra})
    (path,) = gguf_files.write(model, folder / "arrays.gguf")
    parameters = join_headers(read_headers(path)).parameters
    assert parameters["attention.head_count_kv"] == heads
    window = parameters["attention.sliding_window_pattern"]
    assert isinstance(window, tuple)
    assert window == tuple(map(int, pattern))
    assert {type(value) for value in window} == {int}


def test_blocks_are_the_librarys() -> None:
    """All but Q8_1, a type of activations, whose sums the library takes for 32-bit floats (ggml-common.h:235)."""
    theirs = {kind.name: (size, elements) for kind, (elements, size) in GGML_QUANT_SIZES.items()}
    assert {name: BLOCKS[name] for name in theirs if name != "Q8_1"} == {
        name: block for name, block in theirs.items() if name != "Q8_1"
    }
    assert {number: TENSOR_TYPES[number][0] for number in GGMLQuantizationType} == {
        kind.value: kind.name for kind in GGMLQuantizationType
    }
    assert len(BLOCKS) == len(TENSOR_TYPES)
    assert set(ROW_EXTRA) < set(BLOCKS)
    names = {kind.value: re.sub("^(MOSTLY|ALL)_", "", kind.name) for kind in LlamaFileType if kind.name != "GUESSED"}
    assert {number: FILE_TYPES[number] for number in names} == names


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [
        (144, (512, 3), 3 * (4 + 2 * 136)),  # IQ4_KS: a 32-bit scale in front of each row
        (145, (256, 2, 2), 4 * (2 + 70)),  # IQ2_KS: a 16-bit one
        (138, (256, 5), 5 * 110),  # IQ3_K: none
        (219, (64, 4), 4 * (2 + 2 * 6)),  # IQ1_S_R4
        (42, (128, 2), 2 * 2 * 18),  # Q2_0, mainline's newest
    ],
)
def test_types_of_ik_llama_cpp_are_sized_by_row(kind: int, shape: tuple[int, ...], size: int) -> None:
    after = -(-size // 32) * 32
    header = whole(raw(tensor("a", kind, shape), tensor("b", offset=after), tensors=2))
    assert [each.offset for each in header.tensors] == [0, after]
    assert header.size == header.data_offset + after + 16
    with pytest.raises(GgufError, match="tensor b does not begin where the one before it ends"):
        parse_header(raw(tensor("a", kind, shape), tensor("b", offset=after + 32), tensors=2))


def test_version_2_is_read_alike(folder: Path) -> None:
    data = small(folder)
    assert parse_header(data[:4] + struct.pack("<I", 2) + data[8:]) == parse_header(data)


def test_a_header_without_tensors_is_not_filled_up() -> None:
    data = raw(pair("general.name", TEXT, text("x")), pairs=1)
    header = whole(data)
    assert (header.data_offset, header.size, header.architecture) == (len(data), len(data), None)


def test_a_real_vocabulary_is_passed_over_quickly(real: bytes) -> None:
    started = time.process_time()
    header = whole(real)
    taken = time.process_time() - started
    assert (header.vocabulary, len(header.tensors)) == (QWEN_TOKENS, 753)
    assert len(real) > 10 * MIB
    # Measured: 0.01 s per MiB. The limit allows for a slow machine.
    assert taken < 0.1 * len(real) / MIB


def test_a_real_header_is_asked_for_in_few_steps(real: bytes) -> None:
    have, steps = CHUNK, 1
    while isinstance(found := parse_header(real[:have]), Incomplete):
        assert have < found.needed <= len(real)
        have, steps = bytes_to_fetch(have, found.needed), steps + 1
    assert steps <= 6
    assert have <= len(real) + CHUNK


@settings(deadline=None)
@given(st.data())
def test_a_header_cut_anywhere_is_incomplete(folder: Path, data: st.DataObject) -> None:
    full = small(folder)
    header = whole(full)
    end = len(full.rstrip(b"\0")) + 8  # the last offset ends in zeros, and so does what fills up
    cut = data.draw(st.integers(0, end))
    found = parse_header(full[:cut])
    if isinstance(found, Incomplete):
        assert cut < found.needed <= len(full)
    else:
        assert cut >= end - 16
        assert found == header


def test_shards_that_are_not_one_model_are_refused(tmp_path: Path) -> None:
    paths = gguf_files.write(MODELS["gemma"], tmp_path / "m.gguf", 60)
    first, *others = read_headers(paths[0])
    assert len(others) == 3
    with pytest.raises(GgufError, match="one of 4 shards, and there are 3"):
        join_headers([first, *others[:2]])
    with pytest.raises(GgufError, match="file 2 of 4 is shard 3 of 4"):
        join_headers([first, others[1], others[0], others[2]])
    with pytest.raises(GgufError, match="shard 2 is of architecture llama, shard 1 of gemma3"):
        join_headers(
            [first, replace(others[0], metadata={**others[0].metadata, "general.architecture": "llama"}), *others[1:]]
        )
    with pytest.raises(GgufError, match="hold 235 tensors; the first one lists 236"):
        join_headers([first, *others[:2], replace(others[2], tensors=others[2].tensors[1:])])
    with pytest.raises(GgufError, match="same name twice"):
        join_headers([first, *others[:2], replace(others[2], tensors=first.tensors)])
    with pytest.raises(GgufError, match=re.escape("(general.architecture)")):
        join_headers([whole(raw())])


def test_a_set_on_disk_must_be_whole(tmp_path: Path) -> None:
    paths = gguf_files.write(MODELS["gemma"], tmp_path / "m.gguf", 60)
    with pytest.raises(GgufError, match=r"m-00002-of-00004\.gguf is shard 2 of 4: name the first one"):
        read_headers(paths[1])
    renamed = paths[0].rename(tmp_path / "other.gguf")
    with pytest.raises(GgufError, match="its name must end in -00001-of-00004"):
        read_headers(renamed)
    renamed.rename(paths[0])
    paths[2].unlink()
    with pytest.raises(GgufError, match=r"lacks 1 of 4 shards: m-00003-of-00004\.gguf$"):
        read_headers(paths[0])


def test_a_file_on_disk_must_have_its_end(tmp_path: Path) -> None:
    (path,) = gguf_files.write(MODELS["llama"], tmp_path / "m.gguf")
    header = read_header(path)
    with path.open("r+b") as stream:
        stream.truncate(header.size)
        assert read_header(path) == header
        stream.truncate(header.size - 1)
    with pytest.raises(GgufError, match=rf"has {header.size - 1} bytes of {header.size}: it was not copied"):
        read_header(path)
    with path.open("r+b") as stream:
        stream.truncate(header.data_offset // 2)
    with pytest.raises(GgufError, match=f"ends inside its header, at byte {header.data_offset // 2}"):
        read_header(path)
    path.write_bytes(b"")
    with pytest.raises(GgufError, match="the file is empty"):
        read_header(path)
    with pytest.raises(GgufError, match="cannot be read: No such file"):
        read_header(tmp_path / "absent.gguf")
    with pytest.raises(GgufError, match="cannot be read: Is a directory"):
        read_header(tmp_path)


def test_a_pipe_or_a_device_is_no_model(tmp_path: Path) -> None:
    """The one would be waited for, the other has no end."""
    os.mkfifo(tmp_path / "pipe.gguf")
    for path in (tmp_path / "pipe.gguf", Path("/dev/zero")):
        with pytest.raises(GgufError, match="it is no file"):
            read_header(path)
