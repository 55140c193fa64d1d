"""Matrices in another layout: what llama.cpp b11434 logged of its buffers, beside the arithmetic.

Servers without a GPU, on a Xeon with AMX and on an EPYC with AVX-512, `-c 4096 -np 1`; docs/measurements/memory.md
has what they held.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.memory_shapes import models, with_experts
from llamaherd.gguf.header import Header
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.inventory.schema import Rig
from llamaherd.memory import Placement, estimate
from llamaherd.memory.instances import placement
from llamaherd.memory.overhead import Repacked, in_ram, mapped_between, repacked_bytes
from tests.support.gguf_files import Model, Weight, gemma3, llama, write

MIB = 1 << 20
CPU = Placement(devices=0, context=4096)
XEON, EPYC = replace(CPU, layouts=("amx", "vector")), replace(CPU, layouts=("vector",))

LARGE = {0, 1, 4, 7, 10, 13, 15, 16, 17}
"""Layers of which Gemma's Q4_K_M has some matrices in a larger type."""


def gemma_q4_k_m() -> Model:
    """The file that the box serves, by its header."""
    model = gemma3(tokens=262_144)
    types = {"attn_k": "Q5_0", "attn_q": "Q5_0", "attn_output": "Q4_K", "ffn_gate": "Q5_0", "ffn_up": "Q5_0"}

    def typed(weight: Weight) -> Weight:
        _, number, name, *_ = f"{weight.name}...".split(".")
        large = weight.name.startswith("blk.") and int(number) in LARGE
        mixed = {"attn_v": "Q8_0" if large else "Q5_0", "ffn_down": "Q6_K" if large else "Q4_K"}
        return replace(weight, type={**types, **mixed}.get(name, weight.type))

    return replace(model, tensors=tuple(map(typed, model.tensors)))


SHAPES = {
    "gemma": gemma_q4_k_m(),
    "llama": models()["Llama 3.1 8B"],
    "experts": with_experts(models()["Qwen3 30B-A3B"], 8),
}
LOGGED = {
    ("gemma", "amx"): 213.91,
    ("gemma", "vector"): 12.66,
    ("llama", "amx"): 4439.16,
    ("experts", "amx"): 1269.43 + 972.00,
    ("Q4_0", "amx"): 502.64,
    ("Q4_1", "amx"): 546.64,
    ("Q8_0", "amx"): 942.64,
    ("Q5_K", "amx"): 601.64,
    ("Q2_K", "amx"): 106.64 + 231.00,
    ("IQ4_XS", "amx"): 486.14,
    ("IQ4_NL", "amx"): 106.64 + 396.00,
    ("F16", "amx"): 1514.64,
}
"""MiB of the buffers AMX and CPU_REPACK; a type stands for four layers of a Llama of it."""


def header(shape: str, folder: Path) -> Header:
    """The header of a shape as the engine loaded it."""
    model = SHAPES[shape] if shape in SHAPES else llama(dense=shape, layers=4)
    return join_headers(read_headers(write(model, folder / "model.gguf")[0]))


@pytest.mark.parametrize(("shape", "layout"), LOGGED)
def test_copies_are_what_the_engine_says(shape: str, layout: str, tmp_path: Path) -> None:
    placed = XEON if layout == "amx" else EPYC
    assert repacked_bytes(header(shape, tmp_path), placed).copies / MIB == pytest.approx(
        LOGGED[shape, layout], abs=0.01
    )


RSS = {
    ("gemma", "amx", True): (544, 635),
    ("gemma", "amx", False): (523, 613),
    ("gemma", "vector", True): (343, 370),
    ("gemma", "", True): (331, 428),
    ("llama", "amx", True): (9637, 10028),
    ("llama", "amx", False): (5439, 5820),
    ("llama", "", True): (5317, 5716),
    ("experts", "amx", True): (5038, 5329),
    ("experts", "amx", False): (2931, 3220),
    ("experts", "", True): (2818, 3115),
}
"""MiB that a server held right after it had started, and after three prompts, with and without mmap."""


@pytest.mark.parametrize(("shape", "layout", "mmap"), RSS)
def test_a_plan_is_what_a_server_holds(shape: str, layout: str, mmap: bool, tmp_path: Path) -> None:
    """Never more than 1 % too small, and at most 5 % or 200 MB too large."""
    placed = replace({"amx": XEON, "vector": EPYC, "": CPU}[layout], mmap=mmap)
    model = header(shape, tmp_path)
    planned = estimate(model, placed).host.total + in_ram(model, placed) + mapped_between(model, placed)
    started, _ = RSS[shape, layout, mmap]
    assert 0.99 * started < planned / MIB < started + max(0.05 * started, 200)


def test_embeddings_that_are_no_matrix_are_not_copied(tmp_path: Path) -> None:
    """A lock file may contain any shape."""
    model = header("gemma", tmp_path)
    tensors = tuple(
        each.model_copy(update={"shape": each.shape[:1]}) if each.name == "token_embd.weight" else each
        for each in model.tensors
    )
    assert (
        repacked_bytes(model.model_copy(update={"tensors": tensors}), XEON).copies < repacked_bytes(model, XEON).copies
    )


def test_with_a_gpu_nothing_is_copied(tmp_path: Path) -> None:
    assert repacked_bytes(header("llama", tmp_path), replace(XEON, devices=1)) == Repacked(0, 0)


WRITTEN: dict[str, tuple[dict[str, object], dict[str, object], dict[str, object], tuple[str, ...]]] = {
    "as it is": ({}, {}, {}, ("vector",)),
    "AMX": ({"amx": True}, {}, {}, ("amx", "vector")),
    "told not to": ({"amx": True}, {}, {"extra_args": "--no-repack"}, ()),
    "told not to, by a variable": ({}, {}, {"environment": {"LLAMA_ARG_REPACK": "false"}}, ()),
    "told to": ({"amx": True}, {}, {"extra_args": "--repack"}, ("amx", "vector")),
    "built without": ({"amx": True}, {"options": {"GGML_CPU_REPACK": "OFF"}}, {}, ("amx",)),
    "built for any processor": ({"amx": True}, {"options": {"GGML_NATIVE": False}}, {}, ("vector",)),
    "ik_llama.cpp": ({"amx": True}, {"kind": "ik_llama.cpp"}, {}, ()),
}


@pytest.mark.parametrize(("cpu", "engine", "instance", "layouts"), WRITTEN.values(), ids=WRITTEN)
def test_a_rig_says_which_layouts(
    cpu: dict[str, object], engine: dict[str, object], instance: dict[str, object], layouts: tuple[str, ...]
) -> None:
    rig = Rig.model_validate(
        {
            "rig": "one",
            "connect": "local",
            "host": {"os": "debian-13", "cpu": {"cores": 8, **cpu}, "ram": "32GB"},
            "engines": {"main": {"kind": "llama.cpp", "source": {"git": "https://a.lan/x", "ref": "b11434"}, **engine}},
            "models": {"small": {"file": "/small.gguf", "sha256": "0" * 64}},
            "instances": {"chat": {"engine": "main", "model": "small", "context": 4096, "port": 8080, **instance}},
        }
    )
    shape = Header(architecture="llama", parameters={"block_count": 1}, tensors=())
    assert placement(rig, rig.instances["chat"], shape).layouts == layouts
