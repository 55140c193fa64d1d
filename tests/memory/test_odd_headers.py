"""What no engine takes of a header or a placement is refused with a sentence; what a GPU computes is counted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.gpu_rigs_cases import MODELS
from llamaherd.gguf.header import WITHOUT_LOGITS, Header
from llamaherd.memory import Placement, estimate
from llamaherd.memory.overhead import cuda_on_gpus
from tests.support.headers import header

MIB = 1 << 20


def with_parameters(**parameters: Any) -> Header:
    model = header(MODELS["Gemma 4 E4B"])
    changed = {key.replace("__", "."): value for key, value in parameters.items()}
    return model.model_copy(update={"parameters": {**model.parameters, **changed}})


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"block_count": -3, "nextn_predict_layers": -3}, "-3 for `block_count`"),
        ({"attention__head_count_kv": -8}, "-8 for `attention.head_count_kv`"),
        ({"attention__head_count_kv": (8, -8)}, "-8 for `attention.head_count_kv`"),
        ({"embedding_length": 2**63 - 1}, "9.22e.18 for `embedding_length`"),
        ({"expert_used_count": 1e300}, "1e.300 for `expert_used_count`"),
        ({"attention__shared_kv_layers": 1000}, "more than its 42 layers"),
        ({"attention__shared_kv_layers": -1}, "-1 for `attention.shared_kv_layers`"),
    ],
    ids=str,
)
def test_sizes_that_no_engine_takes(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        estimate(with_parameters(**parameters), Placement())


@pytest.mark.parametrize("split", [(1.0, -1.0), (math.nan, 1.0), (math.inf, 1.0)], ids=str)
def test_parts_that_are_none(split: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="tensor split"):
        estimate(header(MODELS["Llama 8B"]), Placement(devices=2, tensor_split=split))


def test_a_header_without_a_width_is_doubted() -> None:
    assert any(
        "no embedding length" in doubt for doubt in estimate(with_parameters(embedding_length=0), Placement()).doubts
    )


@pytest.mark.parametrize(
    "model", sorted(name for name, each in MODELS.items() if each.architecture not in WITHOUT_LOGITS)
)
def test_the_first_gpu_computes_with_what_is_in_ram(model: str) -> None:
    """With the output alone on it as with nothing: large batches are computed there, whatever the layers are.

    An encoder without an output has no matrix that large.
    """
    none = Placement(context=32_768, ubatch=2048, gpu_layers=0)
    one = replace(none, gpu_layers=1)
    of = header(MODELS[model])
    there, less = (estimate(of, each).devices[0].compute for each in (one, none))
    assert there >= 0.9 * less > 300 * MIB
    multiprocessors = (132,)
    assert cuda_on_gpus(multiprocessors, of, one, drafts=False) == cuda_on_gpus(multiprocessors, of, none, drafts=False)
