"""Servers for embeddings and rerank: each token of a batch is an output, and an encoder keeps no cache."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.gpu_rigs_cases import MODELS, Case
from benchmarks.gpu_rigs_rows import Row, again, rig_of
from benchmarks.memory_shapes_embedding import bge_m3, in_type, jina_v2, qwen3_embedding
from llamaherd.checks.command_line import check_conflicts, conflicting_commands
from llamaherd.checks.context import RigContext
from llamaherd.checks.placement import check_memory
from llamaherd.diagnostics.findings import Finding
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.compute import output_bytes
from llamaherd.memory.estimate import estimate
from llamaherd.memory.facts import rig_facts
from llamaherd.memory.instances import placement
from llamaherd.memory.overhead import cuda_on_gpus, in_ram, ram_growth
from llamaherd.memory.placement import Placement
from tests.support.headers import header
from tests.support.rigs import changed, gpu_rig

MIB = 1 << 20
DATA = Path(__file__).parents[1] / "data" / "gpu_rigs_embeddings_h200.jsonl"
NEW = DATA.with_name("gpu_rigs_embeddings_new_h200.jsonl")
"""Servers that were measured after the formulas were fixed."""
ON_CPU = DATA.with_name("ram_embeddings_cpu.jsonl")
SERVERS = {row["case"]: row for row in map(json.loads, DATA.read_text(encoding="utf-8").splitlines())}
"""Servers on an H200, each with batches that were full in every slot; `saved` is MiB of prompts saved by then."""

LLAMA = {"kind": "llama.cpp", "ref": "b11434"}
IK = {"kind": "ik_llama.cpp", "ref": "main", "flags": "67268c8fd"}
QWEN, BGE = header(qwen3_embedding()), header(bge_m3())


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.name: row for row in again(DATA)}


@pytest.mark.parametrize("name", SERVERS)
def test_a_plan_is_near_what_a_server_took_of_its_gpu(rows: dict[str, Row], name: str) -> None:
    (off,) = rows[name].off
    assert -0.002 <= off <= 0.013


def test_a_plan_of_servers_that_no_formula_was_fitted_to_is_near() -> None:
    off = {row.name: round(100 * row.off[0], 1) for row in again(NEW)}
    assert len(off) == 4
    assert all(-1 <= each <= 3 for each in off.values()), off


@pytest.mark.parametrize("name", SERVERS)
def test_a_plan_is_near_what_a_server_took_of_the_ram(rows: dict[str, Row], name: str) -> None:
    row = SERVERS[name]
    assert rows[name].planned_ram + row["saved"] == pytest.approx(row["ram"][-1]["VmRSS"], rel=0.05)


@pytest.mark.parametrize("name", [name for name, row in SERVERS.items() if "compute" in row])
def test_buffers_with_a_gpu_are_what_the_engine_logged(name: str) -> None:
    row = SERVERS[name]
    known, placed = placed_on(row, row["cards"])
    memory = estimate(known, placed)
    assert memory.devices[0].compute / MIB == pytest.approx(row["compute"], abs=0.8)
    computed = memory.host.compute - output_bytes(known, placed)
    assert computed / MIB == pytest.approx(row["host_compute"], abs=0.3)


def test_a_gate_within_another_matrix_takes_as_much_as_a_gate_of_its_own() -> None:
    made = jina_v2()
    joined = tuple(
        replace(each, shape=(each.shape[0], 2 * each.shape[1])) if each.name.endswith("ffn_up.weight") else each
        for each in made.tensors
        if not each.name.endswith("ffn_gate.weight")
    )
    placed = Placement(context=8192, batch=2048, ubatch=2048, embeddings=True)
    apart, within = (estimate(header(each), placed).devices[0] for each in (made, replace(made, tensors=joined)))
    assert within.compute == apart.compute
    assert within.weights == apart.weights


@pytest.mark.parametrize(("type_", "copied"), [("F16", 1024 + 151_669), ("BF16", 3072), ("F32", 0)])
def test_products_of_cublas_copy_what_they_read_and_write(type_: str, copied: int) -> None:
    """F16: inputs and outputs of the output matrix. BF16: inputs alone, of which those of `ffn_down` are the widest."""
    known = header(in_type(qwen3_embedding(), type_))
    small, large = (
        cuda_on_gpus((132,), known, Placement(ubatch=tokens, batch=2048, embeddings=True), drafts=False)[0]
        for tokens in (512, 1024)
    )
    assert (large - small) / MIB == pytest.approx(2 * copied * 512 / MIB, abs=1)


CPU = {row["case"]: row for row in map(json.loads, ON_CPU.read_text(encoding="utf-8").splitlines())}
"""Servers of llama.cpp b11434 on the CPU of two cores, in hollow shapes, each with a batch that was full, twice."""


def placed_on(row: dict[str, Any], cards: Sequence[Sequence[str]] = ()) -> tuple[Header, Placement]:
    case = Case(**row["server"])
    rig = rig_of(case, Path("/model.gguf"), cards)
    known = header(MODELS[case.model])
    return known, placement(rig, rig.instances["case"], known)


@pytest.mark.parametrize("name", CPU)
def test_buffers_on_the_cpu_are_what_the_engine_logged(name: str) -> None:
    known, placed = placed_on(CPU[name])
    computed = estimate(known, placed).host.compute - output_bytes(known, placed)
    assert computed / MIB == pytest.approx(CPU[name]["compute"], abs=0.6)


@pytest.mark.parametrize("name", CPU)
def test_a_plan_is_near_what_a_server_on_the_cpu_took(name: str) -> None:
    known, placed = placed_on(CPU[name])
    planned = (estimate(known, placed).host.total + in_ram(known, placed)) / MIB
    assert planned == pytest.approx(CPU[name]["ram"][-1]["VmRSS"], rel=0.03)


def test_rows_of_logits_are_in_the_buffer_of_a_model_that_computes_them() -> None:
    """151,669 tokens, 512 rows of 4 bytes, where a chat server has one for each slot."""
    chat = Placement(context=8192, batch=512)
    more = replace(chat, embeddings=True)
    rows = QWEN.vocabulary * 512 * 4
    gain = estimate(QWEN, more).devices[0].compute - estimate(QWEN, chat).devices[0].compute
    assert 0.9 * rows <= gain <= rows
    assert estimate(BGE, more).devices[0].compute == estimate(BGE, chat).devices[0].compute


@pytest.mark.parametrize("ubatch", [256, 512, 2048])
@pytest.mark.parametrize("shape", [QWEN, BGE])
def test_outputs_in_ram_grow_with_the_batch_whatever_the_model_computes(shape: object, ubatch: int) -> None:
    known = QWEN if shape is QWEN else BGE
    placed = Placement(context=8192, batch=ubatch, ubatch=ubatch, embeddings=True)
    assert output_bytes(known, placed) == (known.vocabulary + 1024) * ubatch * 4
    host = estimate(known, placed).host.compute - estimate(known, replace(placed, embeddings=False)).host.compute
    assert host == output_bytes(known, placed)


def test_outputs_in_ram_are_there_without_a_gpu_too() -> None:
    placed = Placement(context=8192, batch=512, devices=0, embeddings=True)
    more = estimate(BGE, placed).host.total - estimate(BGE, replace(placed, embeddings=False)).host.total
    assert more == output_bytes(BGE, placed)


def test_ik_llama_cpp_keeps_no_logits_of_embeddings_and_a_cache_of_encoders() -> None:
    placed = Placement(engine="ik_llama.cpp", context=8192, batch=512, embeddings=True)
    assert output_bytes(QWEN, placed) == 0
    assert estimate(BGE, placed).devices[0].kv > 0


def test_an_encoder_has_no_cache_no_output_and_saves_no_prompts() -> None:
    placed = Placement(context=8192)
    card = estimate(BGE, placed).devices[0]
    assert card.kv == 0
    layers = sum(tensor.bytes for tensor in BGE.each if tensor.layer is not None)
    assert layers <= card.weights < layers + MIB
    assert ram_growth(BGE, placed).total == 0
    assert ram_growth(QWEN, placed).total


@pytest.mark.parametrize(
    ("engine", "arguments", "environment", "embeddings", "rows"),
    [
        (LLAMA, "", {}, False, 4),
        (LLAMA, "--embeddings", {}, True, 512),
        (LLAMA, "--reranking", {}, True, 512),
        (LLAMA, "--embedding --pooling none", {}, True, 512),
        (LLAMA, "--pooling last", {}, False, 512),
        (LLAMA, "--pooling none", {}, False, 4),
        (LLAMA, "", {"LLAMA_ARG_EMBEDDINGS": "1"}, True, 512),
        (LLAMA, "", {"LLAMA_ARG_RERANKING": "on"}, True, 512),
        (LLAMA, "--embeddings", {"LLAMA_ARG_UBATCH": "1024"}, True, 1024),
        (LLAMA, "--embeddings -b 128", {}, True, 128),
        (IK, "--embedding", {}, True, 512),
    ],
)
def test_a_placement_knows_its_outputs(
    engine: dict[str, str], arguments: str, environment: dict[str, str], embeddings: bool, rows: int
) -> None:
    rig = changed(gpu_rig(), {"engines": {"main": engine}})
    first = {"engine": "main", "model": next(iter(rig["models"])), "context": 8192, "parallel": 4, "port": 8080}
    rig["instances"] = {"one": {**first, "extra_args": arguments.split(), "environment": environment}}
    known = Rig.model_validate(rig)
    placed = placement(known, known.instances["one"], QWEN)
    assert (placed.embeddings, placed.rows) == (embeddings, rows)


@pytest.mark.parametrize(
    ("keys", "rows"), [({}, 512), ({"ubatch": 1024}, 1024), ({"batch": 128}, 128), ({"extra_args": ["-ub", "64"]}, 64)]
)
@pytest.mark.parametrize("task", ["embeddings", "rerank"])
def test_a_placement_knows_the_outputs_of_the_key(keys: dict[str, object], rows: int, task: str) -> None:
    rig = changed(gpu_rig(), {"engines": {"main": LLAMA}})
    model = next(iter(rig["models"]))
    rig["instances"] = {"one": {"engine": "main", "model": model, "context": 8192, "port": 8080, "serve": task, **keys}}
    known = Rig.model_validate(rig)
    placed = placement(known, known.instances["one"], QWEN)
    assert (placed.embeddings, placed.rows, placed.tokens) == (True, rows, rows)


def of_bge(folder: Path, ram: str, **keys: object) -> list[Finding]:
    """What is found of a rig with this RAM whose only server embeds with bge m3."""
    rig = changed(gpu_rig(), {"engines": {"main": LLAMA}, "host/ram": ram})
    model = next(iter(rig["models"]))
    first = {"engine": "main", "model": model, "context": 8192, "port": 8080, "extra_args": ["--embeddings"]}
    rig["instances"] = {"one": {**first, **keys}}
    file = folder / "rig.yaml"
    file.write_text(yaml.safe_dump(rig))
    document = read_yaml(file)
    subject = RigContext(rig_facts(Rig.model_validate(rig), {model: BGE}), document)
    return [*check_memory(subject), *check_conflicts(conflicting_commands(subject))]


def test_ram_that_the_first_request_does_not_find_is_found_before(tmp_path: Path) -> None:
    """8 GiB hold the server until it gets a batch of 8,192 tokens, which takes 7,844 MiB more."""
    (found,) = of_bge(tmp_path, "8GiB", batch=8192, ubatch=8192)
    assert (found.code, found.severity) == ("LH151", "error")
    assert found.help is not None
    assert "7,845 MiB are for the outputs of a full batch. Write `ubatch: 4096`" in found.help
    assert [each.code for each in of_bge(tmp_path, "8GiB", batch=4096, ubatch=4096)] == ["LH225"]
    assert of_bge(tmp_path, "16GiB", batch=8192, ubatch=8192) == []


def test_advice_for_longer_inputs_is_taken(tmp_path: Path) -> None:
    (found,) = of_bge(tmp_path, "16GiB")
    assert (found.code, found.severity) == ("LH225", "warning")
    assert found.help == "write `batch: 8192` and `ubatch: 8192`, or a smaller context"
    (found,) = of_bge(tmp_path, "16GiB", extra_args=["--embeddings", "-ub", "1024"])
    assert found.help == "write `batch: 8192` and `--ubatch-size 8192`, or a smaller context"
    assert of_bge(tmp_path, "16GiB", parallel=16) == []
