"""Servers of embeddings and rerank: what their engines and models can do, and keys that do nothing there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.memory_shapes_embedding import bge_m3, qwen3_embedding
from llamaherd.checks.command_line import check_conflicts, conflicting_commands
from llamaherd.checks.context import RigContext
from llamaherd.checks.models import check_task_keys, check_tasks
from llamaherd.diagnostics.findings import Finding
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.facts import rig_facts
from tests.support.gguf_files import Model, Weight
from tests.support.headers import header
from tests.support.rigs import changed, gpu_rig

LLAMA: dict[str, Any] = {"kind": "llama.cpp", "ref": "b11434"}
IK: dict[str, Any] = {"kind": "ik_llama.cpp", "ref": "main", "flags": "67268c8fd"}
RANK = 4


def named(model: Model, pooling: int | None, *more: Weight) -> Header:
    """The header of a shape with another type of pooling, or none, and further tensors."""
    given = {key: value for key, value in model.parameters.items() if key != "pooling_type"}
    given |= {} if pooling is None else {"pooling_type": pooling}
    return header(Model(model.architecture, model.name, given, (*model.tensors, *more), model.tokens))


ENCODER, EMBEDS = header(bge_m3()), header(qwen3_embedding())
RANKS = named(bge_m3(), RANK, Weight("cls.weight", (1024, 1024)))
CHAT = named(qwen3_embedding(), None)


def findings(folder: Path, known: Header, engine: dict[str, Any] = LLAMA, **keys: Any) -> list[Finding]:
    """Return what is found of a rig whose only server has this model."""
    rig = changed(gpu_rig(), {"engines": {"main": engine}})
    model = next(iter(rig["models"]))
    first = {"engine": "main", "model": model, "context": 512, "port": 8080}
    rig["instances"] = {"one": {**first, **keys}}
    file = folder / "rig.yaml"
    file.write_text(yaml.safe_dump(rig))
    subject = RigContext(rig_facts(Rig.model_validate(rig), {model: known}), read_yaml(file))
    together = check_conflicts(conflicting_commands(subject))
    return [*check_tasks(subject), *check_task_keys(subject), *together]


@pytest.mark.parametrize(
    ("known", "keys", "severity", "words"),
    [
        (ENCODER, {}, "error", "write `serve: embeddings`"),
        (RANKS, {}, "error", "write `serve: rerank`"),
        (RANKS, {"serve": "embeddings"}, "warning", "write `serve: rerank`"),
        (EMBEDS, {"serve": "rerank"}, "error", "serve a reranker"),
        (ENCODER, {"extra_args": ["--reranking"]}, "error", "serve a reranker"),
        (CHAT, {"serve": "embeddings"}, "error", "write `pooling: last`, or `mean`"),
    ],
)
def test_a_model_that_cannot_do_it_is_reported(
    tmp_path: Path, known: Header, keys: dict[str, Any], severity: str, words: str
) -> None:
    (found,) = findings(tmp_path, known, **keys)
    assert (found.code, found.severity) == ("LH178", severity)
    assert found.help is not None
    assert words in found.help


@pytest.mark.parametrize(
    ("known", "keys"),
    [
        (CHAT, {}),
        (EMBEDS, {}),
        (EMBEDS, {"serve": "embeddings"}),
        (ENCODER, {"serve": "embeddings"}),
        (ENCODER, {"serve": "embeddings", "pooling": "cls"}),
        (RANKS, {"serve": "rerank"}),
        (CHAT, {"serve": "embeddings", "pooling": "last"}),
        (CHAT, {"serve": "embeddings", "extra_args": ["--pooling", "mean"]}),
    ],
)
def test_a_model_that_can_do_it_is_not_reported(tmp_path: Path, known: Header, keys: dict[str, Any]) -> None:
    assert findings(tmp_path, known, **keys) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("draft", {"mtp": 2}),
        ("sampling", {"temperature": 0.7}),
        ("thinking", False),
        ("cache_reuse", 256),
        ("tune", {"for": "decode"}),
        ("gate", {"decode": "-3%"}),
    ],
)
def test_a_key_for_chats_does_nothing_there(tmp_path: Path, key: str, value: object) -> None:
    ways: list[dict[str, Any]] = [{"serve": "embeddings"}, {"extra_args": ["--embeddings"]}]
    for keys in ways:
        codes = {found.code: found for found in findings(tmp_path, EMBEDS, **{**keys, key: value})}
        assert codes["LH179"].message == f"`{key}` does nothing: `one` is a server of embeddings"
    chats: dict[str, Any] = {key: value}
    assert "LH179" not in {found.code for found in findings(tmp_path, EMBEDS, **chats)}


def test_an_engine_without_rerank_is_reported(tmp_path: Path) -> None:
    codes = [found.code for found in findings(tmp_path, RANKS, IK, serve="rerank")]
    assert "LH176" in codes
    assert "LH176" not in [found.code for found in findings(tmp_path, ENCODER, IK, serve="embeddings")]


def test_inputs_that_the_key_refuses_are_reported_as_those_of_the_flag(tmp_path: Path) -> None:
    """bge m3 takes 8,192 tokens, and a batch computes 512."""
    (found,) = findings(tmp_path, ENCODER, serve="embeddings", context=8192)
    assert (found.code, found.help) == ("LH225", "write `batch: 8192` and `ubatch: 8192`, or a smaller context")
    assert found.message.startswith("`serve` computes each input at once")
    assert findings(tmp_path, ENCODER, serve="embeddings", context=8192, batch=8192, ubatch=8192) == []
