"""The joined headers of a model's shards: hyperparameters and tensors, for sizing and checks.

Tensors are stored by name, type and shape, in groups that a person can review in a lock.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, StringConstraints, model_validator

from llamaherd.gguf.layers import Layer, model_layers
from llamaherd.text.characters import Line

ParameterValue = bool | int | FiniteFloat | Line | tuple[int, ...]
"""A hyperparameter. An array of numbers or truth values, one per layer, is a tuple; other arrays are left out."""

# Bytes and elements of one block of each type: the structs of ggml/src/ggml-common.h, as the table type_traits of
# ggml/src/ggml.c uses them. From Q6_0 on they are ik_llama.cpp's own (its ggml/src/ggml.c:643-1948 at 67268c8fd);
# what an engine makes of activations alone, such as Q8_K64, is in no file and left out.
BLOCKS: dict[str, tuple[int, int]] = {
    "F32": (4, 1),
    "F16": (2, 1),
    "Q4_0": (18, 32),
    "Q4_1": (20, 32),
    "Q5_0": (22, 32),
    "Q5_1": (24, 32),
    "Q8_0": (34, 32),
    "Q8_1": (36, 32),
    "Q2_K": (84, 256),
    "Q3_K": (110, 256),
    "Q4_K": (144, 256),
    "Q5_K": (176, 256),
    "Q6_K": (210, 256),
    "Q8_K": (292, 256),
    "IQ2_XXS": (66, 256),
    "IQ2_XS": (74, 256),
    "IQ3_XXS": (98, 256),
    "IQ1_S": (50, 256),
    "IQ4_NL": (18, 32),
    "IQ3_S": (110, 256),
    "IQ2_S": (82, 256),
    "IQ4_XS": (136, 256),
    "I8": (1, 1),
    "I16": (2, 1),
    "I32": (4, 1),
    "I64": (8, 1),
    "F64": (8, 1),
    "IQ1_M": (56, 256),
    "BF16": (2, 1),
    "TQ1_0": (54, 256),
    "TQ2_0": (66, 256),
    "MXFP4": (17, 32),
    "NVFP4": (36, 64),
    "Q1_0": (18, 128),
    "Q2_0": (18, 64),
    "Q6_0": (26, 32),
    "IQ1_BN": (13, 64),
    "IQ2_BN": (16, 64),
    "IQ2_K": (76, 256),
    "IQ3_K": (110, 256),
    "IQ4_K": (144, 256),
    "IQ5_K": (176, 256),
    "IQ6_K": (212, 256),
    "IQ4_KS": (136, 256),
    "IQ2_KS": (70, 256),
    "IQ4_KSS": (128, 256),
    "Q8_KV": (32, 32),
    "IQ5_KS": (168, 256),
    "IQ2_KT": (68, 256),
    "IQ3_KT": (100, 256),
    "IQ4_KT": (128, 256),
    "IQ3_KS": (102, 256),
    "IQ2_KL": (86, 256),
    "IQ1_KT": (56, 256),
    "Q4_0_R8": (18, 32),
    "Q5_0_R4": (22, 32),
    "Q8_0_R8": (34, 32),
    "Q2_K_R4": (84, 256),
    "Q3_K_R4": (110, 256),
    "Q4_K_R4": (144, 256),
    "Q5_K_R4": (176, 256),
    "Q6_K_R4": (210, 256),
    "IQ2_XXS_R4": (66, 256),
    "IQ2_XS_R4": (74, 256),
    "IQ3_XXS_R4": (98, 256),
    "IQ1_S_R4": (6, 32),
    "IQ4_NL_R4": (18, 32),
    "IQ3_S_R4": (110, 256),
    "IQ2_S_R4": (82, 256),
    "IQ4_XS_R8": (136, 256),
    "IQ1_M_R4": (7, 32),
    "BF16_R16": (2, 1),
    "Q6_0_R4": (26, 32),
    "IQ2_BN_R4": (16, 64),
    "IQ2_K_R4": (76, 256),
    "IQ3_K_R4": (110, 256),
    "IQ4_K_R4": (144, 256),
    "IQ5_K_R4": (176, 256),
    "IQ4_KS_R4": (136, 256),
    "IQ5_KS_R4": (168, 256),
    "Q8_K_R16": (258, 256),
    "Q8_KV_R8": (32, 32),
    "Q8_K_R8": (258, 256),
}

# Bytes that each row has besides its blocks: a scale of the whole row (row_meta_size in ik_llama.cpp's
# ggml/src/ggml.c:643-1948; ggml_row_size, ggml.c:4758).
ROW_EXTRA: dict[str, int] = {
    "IQ1_BN": 2,
    "IQ2_BN": 4,
    "IQ4_KS": 4,
    "IQ2_KS": 2,
    "IQ4_KSS": 4,
    "Q8_KV": 8,
    "IQ5_KS": 4,
    "IQ2_KT": 4,
    "IQ3_KT": 4,
    "IQ4_KT": 4,
    "IQ3_KS": 2,
    "IQ2_KL": 2,
    "IQ1_KT": 4,
    "IQ1_S_R4": 2,
    "IQ1_M_R4": 2,
    "IQ2_BN_R4": 4,
    "IQ4_KS_R4": 4,
    "IQ5_KS_R4": 4,
    "Q8_KV_R8": 4,
}


def tensor_bytes(kind: str, shape: tuple[int, ...]) -> int:
    """Return the size of a tensor in bytes; its rows are whole blocks. Raise KeyError for an unknown type."""
    size, elements = BLOCKS[kind]
    return (shape[0] // elements * size + ROW_EXTRA.get(kind, 0)) * math.prod(shape[1:])


class TensorGroup(BaseModel):
    """Tensors of one name, type and shape, in one layer or many. `shape` has the fastest axis first, as GGUF does.

    `layers` are ranges such as `0-2,4`, of `blk.N.`; None for a tensor outside of the layers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    name: Line
    type: str
    shape: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]
    layers: (
        Annotated[str, StringConstraints(pattern=r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$")] | None
    ) = None

    @model_validator(mode="after")
    def _has_a_size(self) -> TensorGroup:
        # A lock may have been edited, or written by a newer llamaherd.
        if self.type not in BLOCKS:
            raise ValueError(f"`{self.type}` is not a known type of tensors")
        if self.shape[0] % BLOCKS[self.type][1]:
            raise ValueError(f"rows of {self.shape[0]} numbers are not whole blocks of {self.type}")
        return self


@dataclass(frozen=True)
class Tensor:
    """One tensor as the file names it: `blk.3.ffn_up_exps.weight`; `layer` is None outside of the layers."""

    name: str
    layer: int | None
    type: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of values in the tensor."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size in the file and in memory, in bytes. Raises KeyError for an unknown type."""
        return tensor_bytes(self.type, self.shape)

    @property
    def is_expert(self) -> bool:
        """Return whether it holds routed experts, which `--n-cpu-moe` and similar flags move (common/common.h:1224)."""
        return re.search(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", self.name) is not None


class Header(BaseModel):
    """The headers of all shards together.

    `parameters` have no architecture in front: `block_count`, not `llama.block_count`.

    `vocabulary` counts tokens; `quant` is the name of the file type, if the header contains one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    architecture: Line
    name: Line | None = None
    quant: Line | None = None
    vocabulary: int = 0
    parameters: dict[Line, ParameterValue] = {}
    tensors: tuple[TensorGroup, ...] = ()

    @cached_property
    def digest(self) -> str:
        """The hash of everything that decides the speed: the same for all models of this shape whose tensors have these
        types.
        """
        parts = [self.architecture, str(self.vocabulary), *(each.model_dump_json() for each in self.tensors)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def each(self) -> tuple[Tensor, ...]:
        """Every single tensor."""
        return tuple(_each(self.tensors))

    @cached_property
    def each_layer(self) -> tuple[Layer, ...]:
        """Every layer, prediction heads included."""
        return model_layers(self)

    @cached_property
    def expert_layers(self) -> tuple[int, ...]:
        """The layers with routed experts, without prediction heads."""
        found = {tensor.layer for tensor in self.each if tensor.is_expert and tensor.layer is not None}
        return tuple(sorted(layer for layer in found if layer < self.trunk))

    def number(self, key: str, default: int = 0) -> int:
        """Return a hyperparameter that is one whole number."""
        value = self.parameters.get(key, default)
        return int(value) if isinstance(value, bool | int | float) else default

    def per_layer(self, key: str, default: int = 0) -> tuple[int, ...]:
        """Return a hyperparameter that may differ by layer, spread over all layers, prediction heads included."""
        value = self.parameters.get(key, default)
        if isinstance(value, tuple):
            return value
        return (int(value),) * self.layers if isinstance(value, bool | int | float) else (default,) * self.layers

    @property
    def layers(self) -> int:
        """All blocks, prediction heads (nextn) included."""
        return self.number("block_count")

    @property
    def heads(self) -> int:
        """Blocks at the end that are multi-token prediction heads."""
        return self.number("nextn_predict_layers")

    @property
    def trunk(self) -> int:
        """Blocks that every token passes."""
        return self.layers - self.heads


def spread(layers: str) -> tuple[int, ...]:
    """Return the numbers of ranges such as `0-2,4`."""
    numbers: list[int] = []
    for part in layers.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def ranges(numbers: Iterator[int] | list[int] | tuple[int, ...]) -> str:
    """Return numbers in ascending order as ranges: `0-2,4`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def _each(groups: tuple[TensorGroup, ...]) -> Iterator[Tensor]:
    for group in groups:
        if group.layers is None:
            yield Tensor(group.name, None, group.type, group.shape)
            continue
        for layer in spread(group.layers):
            yield Tensor(f"blk.{layer}.{group.name}", layer, group.type, group.shape)
