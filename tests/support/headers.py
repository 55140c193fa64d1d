"""Headers of models with real shapes."""

from __future__ import annotations

from functools import cache

from llamaherd.gguf.header import Header
from llamaherd.gguf.parse import Parsed, TensorInfo
from llamaherd.gguf.shards import join_headers
from tests.support import gguf_files
from tests.support.gguf_files import QWEN_35B, QWEN_122B, QWEN_TOKENS, Model


def header(model: Model) -> Header:
    """What a file of this shape says. That files are read so is tested where they are read."""
    said = {f"{model.architecture}.{key}": value for key, value in model.parameters.items()}
    about = {"general.architecture": model.architecture, "general.name": model.name}
    tensors = tuple(TensorInfo(weight.name, weight.type, weight.shape, 0) for weight in model.tensors)
    metadata = {**about, "general.file_type": model.file_type, **said}
    return join_headers([Parsed(metadata, model.tokens, tensors, alignment=32, data_offset=0, size=0)])


@cache
def qwen_35b(experts: str = "Q4_K", down: str = "", *, mtp: bool = True) -> Header:
    """Qwen3.6-35B-A3B. Q4_K with Q5_K is as large as UD-Q4_K_XL (22.4 GB), Q3_K as UD-Q3_K_XL (16.7 GB)."""
    shape = gguf_files.qwen(QWEN_35B, experts=experts, down=down, mtp=mtp, tokens=QWEN_TOKENS)
    return header(shape)


@cache
def qwen_122b(experts: str = "Q6_K", *, mtp: bool = True) -> Header:
    """Qwen3.5-122B-A10B. Q6_K is as large as UD-Q6_K_XL (104 GB), IQ3_S as UD-IQ3_S (57 GB)."""
    return header(gguf_files.qwen(QWEN_122B, experts=experts, mtp=mtp, tokens=QWEN_TOKENS))


@cache
def gemma3() -> Header:
    """Gemma 3 270M: dense, without a prediction head."""
    return header(gguf_files.gemma3())
