"""The tiny MoE: the same bytes for ever, and a file that the format's own reader understands."""

import hashlib
from pathlib import Path

import pytest
from gguf import GGUFReader

from box import tiny_moe

# Pinned by inventory/box.yaml too: whoever changes the model changes both, knowingly.
SHA256 = "041d6924ab124e1fe5230ffc9bfec6c179fc320fc320da87d1e5a6e71b8e674f"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny-moe.gguf"
    tiny_moe.write(path)
    return path


def test_the_same_bytes_every_time(model: Path) -> None:
    assert hashlib.sha256(model.read_bytes()).hexdigest() == SHA256


def test_it_is_written_over_an_older_file_and_leaves_nothing_else(tmp_path: Path, model: Path) -> None:
    path = tmp_path / "tiny-moe.gguf"
    path.write_text("older")
    tiny_moe.write(path)
    assert path.read_bytes() == model.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_the_header_declares_five_blocks_of_which_one_is_the_mtp_head(model: Path) -> None:
    fields = GGUFReader(model).fields
    assert fields["general.architecture"].contents() == "qwen35moe"
    assert fields["qwen35moe.block_count"].contents() == 5
    assert fields["qwen35moe.nextn_predict_layers"].contents() == 1
    assert fields["qwen35moe.expert_count"].contents() == 8


def test_each_kind_of_layer_is_there(model: Path) -> None:
    names = {tensor.name for tensor in GGUFReader(model).tensors}
    assert {f"blk.{layer}.ssm_out.weight" for layer in range(3)} <= names
    assert {f"blk.{layer}.attn_output.weight" for layer in (3, 4)} <= names
    assert {f"blk.{layer}.ffn_up_exps.weight" for layer in range(5)} <= names
    assert "blk.4.nextn.eh_proj.weight" in names


def test_the_vocabulary_spells_every_byte_once() -> None:
    tokens = tiny_moe.vocabulary()
    assert len(set(tokens)) == len(tokens)
    assert len(tokens) % 32 == 0
    assert tokens[ord("a")] == "a"
    assert tokens[ord("\n")] == "Ċ"
