"""The shape of a model in a folder of safetensors: its weights, and what its cache takes, by config.json and index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llamaherd.text.numbers import parse_json
from llamaherd.text.quoting import Line

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
"""The files that describe a model and its weights."""
_MOST = 2**31
_MOST_LAYERS = 4096

Size = Annotated[int, Field(ge=0, lt=_MOST)]


class FolderShape(BaseModel):
    """What decides how much memory a model of safetensors takes. A size of 0 is unknown.

    `weights` are the bytes of the files that are loaded. `whole` is the number of layers that attend to all tokens,
    `windowed` that of layers with a window of `window` tokens, and `states` that of layers with a recurrent state.
    `latent` are the numbers per token of a compressed row that stands for keys and values, 0 without one. `positions`
    is the longest context, and `scaled` is set if the model stretches it. `heads_ahead` are layers that only drafts
    use.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    architecture: Line
    weights: Annotated[int, Field(ge=0, lt=2**62)]
    dtype: Line | None = None
    quantization: Line | None = None
    layers: Annotated[int, Field(ge=0, le=_MOST_LAYERS)] = 0
    whole: Size = 0
    windowed: Size = 0
    window: Size = 0
    states: Size = 0
    heads: Size = 0
    kv_heads: Size = 0
    head_width: Size = 0
    latent: Size = 0
    heads_ahead: Size = 0
    positions: Size = 0
    scaled: bool = False


UNKNOWN = "unknown"
"""The architecture of a model whose config.json names none."""


def folder_shape(config: bytes, index: bytes | None, sizes: Mapping[str, int]) -> FolderShape:
    """Return the shape of a model whose files have these sizes. What its config.json does not name is unknown.

    vLLM loads the files of the index, and without one every file of safetensors in the folder itself
    (model_executor/model_loader/weight_utils.py, filter_duplicate_safetensors_files).
    """
    found = _object(config)
    text = _part(found, "text_config") or found
    names = found.get("architectures")
    named = _text(names[0]) if isinstance(names, list) and names else None
    weights = sum(sizes[name] for name in _weight_files(index, sizes))
    quantized = found.get("quantization_config", text.get("quantization_config"))
    if named is None:
        return FolderShape(architecture=UNKNOWN, weights=weights)
    try:
        return FolderShape(
            architecture=named,
            weights=weights,
            dtype=_text(text.get("dtype", text.get("torch_dtype", found.get("dtype", found.get("torch_dtype"))))),
            quantization=_text(quantized.get("quant_method")) if isinstance(quantized, dict) else None,
            **_layers(text),
            **_attention(text),
            heads_ahead=_number(text, "num_nextn_predict_layers") or _number(text, "mtp_num_hidden_layers"),
            positions=_number(text, "max_position_embeddings"),
            scaled=isinstance(text.get("rope_scaling"), dict) or "factor" in _part(text, "rope_parameters"),
        )
    except ValidationError:
        return FolderShape(architecture=UNKNOWN, weights=weights)


def _weight_files(index: bytes | None, sizes: Mapping[str, int]) -> Sequence[str]:
    """Return the files that are loaded."""
    there = [name for name in sizes if name.endswith(".safetensors") and "/" not in name]
    mapped = _part(_object(index), "weight_map") if index is not None else {}
    named = {name for name in mapped.values() if isinstance(name, str)}
    return [name for name in there if name in named] or [n for n in there if not n.startswith("consolidated")] or there


def _layers(text: Mapping[str, Any]) -> dict[str, int]:
    """Return how many layers attend to all tokens, have a window, or have a recurrent state."""
    layers = min(_number(text, "num_hidden_layers"), _MOST_LAYERS)
    window = _number(text, "sliding_window") if text.get("use_sliding_window") is not False else 0
    kinds = text.get("layer_types", text.get("layers_block_type"))
    pattern, interval = text.get("hybrid_override_pattern"), _number(text, "full_attention_interval")
    if isinstance(kinds, list) and len(kinds) == layers:
        whole = sum(kind in ("full_attention", "attention") for kind in kinds)
        windowed = sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds)
        window = window or _number(text, "attention_chunk_size")
    elif isinstance(pattern, str):
        whole, windowed = pattern.count("*"), 0
    elif interval:
        whole, windowed = layers // interval, 0
    elif window:  # some architectures have a window in some layers: all of them is the least
        whole, windowed = 0, layers
    else:
        whole, windowed = layers, 0
    states = layers - whole - windowed
    return {"layers": layers, "whole": whole, "windowed": windowed, "window": window, "states": max(states, 0)}


def _attention(text: Mapping[str, Any]) -> dict[str, int]:
    heads = _number(text, "num_attention_heads")
    width = _number(text, "head_dim") or (_number(text, "hidden_size") // heads if heads else 0)
    rank = _number(text, "kv_lora_rank")
    return {
        "heads": heads,
        "kv_heads": _number(text, "num_key_value_heads") or heads,
        "head_width": width,
        "latent": rank + _number(text, "qk_rope_head_dim") if rank else 0,
    }


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = parse_json(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _part(found: Mapping[str, Any], key: str) -> dict[str, Any]:
    part = found.get(key)
    return part if isinstance(part, dict) else {}


def _number(found: Mapping[str, Any], key: str) -> int:
    """Return a whole number; 0 without one."""
    value = found.get(key)
    return value if type(value) is int and 0 <= value < _MOST else 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value and len(value) <= 80 and value.isprintable() else None
