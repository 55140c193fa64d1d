"""The shape of a model in a folder of safetensors, by config.json files of real architectures, shortened."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.gguf.folder import UNKNOWN, FolderShape, folder_shape

GIB = 1 << 30
QWEN3_8B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": 128,
    "hidden_size": 4096,
    "max_position_embeddings": 40960,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
}
FILES = {f"model-0000{number}-of-00002.safetensors": 8 * GIB for number in (1, 2)} | {"config.json": 900}


def shape(config: dict[str, Any], index: Any = None, files: dict[str, int] = FILES) -> FolderShape:
    return folder_shape(json.dumps(config).encode(), None if index is None else json.dumps(index).encode(), files)


def test_a_dense_model_keeps_keys_and_values_in_all_layers() -> None:
    found = shape(QWEN3_8B)
    assert (found.layers, found.whole, found.windowed, found.states) == (36, 36, 0, 0)
    assert (found.heads, found.kv_heads, found.head_width, found.latent) == (32, 8, 128, 0)
    assert (found.weights, found.dtype, found.positions, found.scaled) == (16 * GIB, "bfloat16", 40960, False)


@pytest.mark.parametrize(
    ("more", "whole", "windowed", "window", "states"),
    [
        ({"layer_types": ["sliding_attention"] * 5 + ["full_attention"], "sliding_window": 1024}, 1, 5, 1024, 0),
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"] * 3}, 3, 0, 0, 3),
        ({"full_attention_interval": 3}, 2, 0, 0, 4),
        ({"hybrid_override_pattern": "M-M*-E"}, 1, 0, 0, 5),
        ({"sliding_window": 4096, "use_sliding_window": True}, 0, 6, 4096, 0),
        ({"sliding_window": 4096, "use_sliding_window": False}, 6, 0, 0, 0),
    ],
)
def test_layers_of_all_kinds_are_counted(
    more: dict[str, Any], whole: int, windowed: int, window: int, states: int
) -> None:
    given_ = {key: value for key, value in QWEN3_8B.items() if "window" not in key}
    found = shape({**given_, "num_hidden_layers": 6, **more})
    assert (found.whole, found.windowed, found.window, found.states) == (whole, windowed, window, states)


def test_a_compressed_row_and_a_text_model_inside_are_read() -> None:
    text: dict[str, Any] = {
        "num_hidden_layers": 61,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "num_nextn_predict_layers": 1,
    }
    text |= {"num_attention_heads": 128, "dtype": "bfloat16"}
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    found = shape({"architectures": ["Kimi"], "text_config": text, "quantization_config": quantized})
    assert (found.latent, found.heads_ahead, found.quantization, found.dtype) == (576, 1, "fp8", "bfloat16")


def test_only_files_that_are_loaded_count() -> None:
    files = {**FILES, "consolidated.safetensors": 16 * GIB, "original/model.safetensors": 16 * GIB}
    assert shape(QWEN3_8B, files=files).weights == 16 * GIB
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"}}
    assert shape(QWEN3_8B, index, files).weights == 8 * GIB
    assert shape(QWEN3_8B, {"weight_map": {"a": "gone.safetensors"}}, files).weights == 16 * GIB
    assert shape(QWEN3_8B, files={"consolidated.safetensors": 7}).weights == 7


@pytest.mark.parametrize("config", [b"", b"{", b"[]", b"{}", b'{"architectures": [7]}', b"[" * 100_000, b"\xff"])
def test_what_describes_no_model_is_unknown(config: bytes) -> None:
    assert folder_shape(config, b"{", FILES) == FolderShape(architecture=UNKNOWN, weights=16 * GIB)


@given(
    st.dictionaries(
        st.sampled_from([*QWEN3_8B, "text_config", "layer_types", "quantization_config", "kv_lora_rank"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=99),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        ),
    )
)
def test_any_config_has_a_shape(config: dict[str, Any]) -> None:
    found = folder_shape(json.dumps(config).encode(), None, FILES)
    assert FolderShape.model_validate_json(found.model_dump_json()) == found
