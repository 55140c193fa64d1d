"""The memory of a server of vLLM on each of its GPUs: the share that it takes, its weights, and the cache of a request.

vLLM takes a share of each GPU whatever it loads, and fills with cache what weights and activations leave. It ends at
its start where one request of the longest context does not fit (v1/core/kv_cache_utils.py, _check_enough_kv_cache).
Activations and CUDA graphs are known only once vLLM has measured them, so each figure here is the least.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from llamaherd.engines.flags.effective import EffectiveOptions
from llamaherd.gguf.folder import FolderShape
from llamaherd.inventory.schema import Instance
from llamaherd.text.numbers import parse_real

SHARE, LEAST_SHARE = 0.92, 0.9
"""The default share of a GPU since 2026 and before (vLLM 0.30.0, config/cache.py:103, gpu_memory_utilization)."""
_BATCHED = 2048
"""Tokens of a batch that a window needs besides: the least default (config/scheduler.py)."""
_BYTES = {"auto": 2, "half": 2, "float16": 2, "bfloat16": 2, "float": 4, "float32": 4}
_FP8 = re.compile(r"fp8|int8|uint8")
_OTHER_WEIGHTS = ("--quantization", "--load-format", "--language-model-only")
"""Options with which the bytes of the files do not decide on those of the weights."""
_OTHER_CACHE = ("--kv-cache-memory-bytes", "--num-gpu-blocks-override", "--kv-offloading-size")
_OTHER_RANKS = ("--data-parallel-size", "--pipeline-parallel-size", "--decode-context-parallel-size", "--nnodes")
_LENGTH = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([kKmMgG]?)")
_UNITS = {"": 1, "k": 1000, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class VllmUse:
    """The least that a server takes of each of its GPUs, in bytes: weights, and the cache of one request.

    `request` is None where the cache is unknown, and `weights` where they are. `unknown` are sentences on both. Where
    no share is declared, `share` and `least_share` are the defaults of new and of old versions.
    """

    share: float
    least_share: float
    gpus: int
    context: int
    weights: int | None
    request: int | None
    unknown: tuple[str, ...] = ()

    @property
    def least(self) -> int:
        """The least bytes that must fit into the share."""
        return (self.weights or 0) + (self.request or 0)


def vllm_use(instance: Instance, effective: EffectiveOptions, shape: FolderShape | None) -> VllmUse | None:
    """Return what a server takes; None where its share is no number."""
    option = effective.get("--gpu-memory-utilization")
    try:
        share = parse_real(option.value) if option else SHARE
    except ValueError:
        return None
    if not 0 < share <= 1:
        return None
    ranks = int(effective.number("--tensor-parallel-size", default=max(1, len(instance.on))))
    context, doubts = served_context(instance, effective), []
    weights = request = None
    if shape is None:
        doubts.append("the shape of its model is not in the lock")
    elif other := _first(effective, tuple(name for name in _OTHER_RANKS if effective.number(name, default=1) > 1)):
        doubts.append(f"with {other}, what each GPU holds is unknown")
    else:
        if loaded := _first(effective, _OTHER_WEIGHTS):
            doubts.append(f"with {loaded}, the bytes of its weights are unknown")
        else:
            weights = _weights(shape, effective, ranks)
        if other := _first(effective, _OTHER_CACHE):
            doubts.append(f"with {other}, the cache is unknown")
        elif not shape.layers or not (shape.latent or (shape.kv_heads and shape.head_width)):
            doubts.append(f"the cache of architecture `{shape.architecture}` is unknown")
        else:
            request = request_bytes(shape, effective, ranks, context)
    return VllmUse(share, share if option else LEAST_SHARE, ranks, context, weights, request, tuple(doubts))


def served_context(instance: Instance, effective: EffectiveOptions) -> int:
    """Return the tokens of the longest request; `16k` are 16,000, and `16K` 16,384 (human_readable_int)."""
    option = effective.get("--max-model-len")
    found = _LENGTH.fullmatch(option.value) if option else None
    return int(float(found[1]) * _UNITS[found[2]]) if found else instance.context


def cache_bytes_per_number(shape: FolderShape, effective: EffectiveOptions) -> int:
    """Return the least bytes of one number in the cache: 1 of an FP8 cache, else as the model computes."""
    cache = effective.get("--kv-cache-dtype")
    kind = cache.value if cache else "auto"
    if kind == "auto" and shape.quantization in ("compressed-tensors", "modelopt", "quark"):
        return 1  # the model's files can name an FP8 cache
    if kind != "auto":
        return 1 if _FP8.match(kind) else 2
    option = effective.get("--dtype")
    return _BYTES.get(option.value if option else "auto", 2)


def request_bytes(shape: FolderShape, effective: EffectiveOptions, ranks: int, tokens: int) -> int:
    """Return the least bytes of one request's cache on each GPU. States of recurrent layers are not counted.

    Each GPU has its part of the heads, or a copy of one if there are fewer; a compressed row is on each GPU whole
    (config/model.py, get_num_kv_heads).
    """
    row = shape.latent or 2 * ceil(shape.kv_heads / ranks) * shape.head_width
    attended = min(tokens, shape.window + min(_BATCHED, tokens)) if shape.window else tokens
    cells = shape.whole * tokens + shape.windowed * min(attended, tokens)
    return row * cache_bytes_per_number(shape, effective) * cells


def longest_context(shape: FolderShape, effective: EffectiveOptions, ranks: int, room: int) -> int:
    """Return the longest context, a multiple of 1,024 tokens, whose request takes at most so many bytes; 0 for none."""
    low, high = 0, 1 << 14
    while low < high:
        middle = (low + high + 1) // 2
        fits = request_bytes(shape, effective, ranks, middle << 10) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return low << 10


def _weights(shape: FolderShape, effective: EffectiveOptions, ranks: int) -> int:
    """Return the least bytes of weights on each GPU."""
    size = shape.weights
    if shape.heads_ahead and effective.get("--speculative-config") is None:
        size = size * shape.layers // (shape.layers + shape.heads_ahead)
    if shape.dtype == "float32" and not shape.quantization:
        option = effective.get("--dtype")  # `auto` computes such a model in 16 bits
        size = size * _BYTES.get(option.value if option else "auto", 2) // 4
    offloaded = effective.get("--cpu-offload-gb")
    try:
        aside = parse_real(offloaded.value) * 2**30 if offloaded else 0.0
    except ValueError:
        aside = float(size)
    return max(0, size // ranks - int(aside))


def _first(effective: EffectiveOptions, names: tuple[str, ...]) -> str | None:
    option = next((option for name in names if (option := effective.get(name)) and option.on), None)
    return str(option) if option else None
