"""What a server is for, by what it is started with."""

from __future__ import annotations

import pytest

from llamaherd.engines.flags.task import server_task
from llamaherd.inventory.schema import Rig
from llamaherd.memory.facts import rig_facts
from tests.support.rigs import changed, gpu_rig

LLAMA = {"kind": "llama.cpp", "ref": "b11434"}
IK = {"kind": "ik_llama.cpp", "ref": "main", "flags": "67268c8fd"}
VLLM = {"kind": "vllm", "image": "vllm/vllm-openai:v0.33.0@sha256:" + "a" * 64}


def task(engine: dict[str, str], arguments: str = "", environment: dict[str, str] | None = None) -> str:
    """The task of a rig's only instance with these `extra_args` and this `environment`."""
    rig = changed(gpu_rig(), {"engines": {"main": engine}})
    first = {"engine": "main", "model": next(iter(rig["models"])), "context": 4096, "port": 8080}
    rig["instances"] = {"one": {**first, "extra_args": arguments.split(), "environment": environment or {}}}
    known = Rig.model_validate(rig)
    command = rig_facts(known, {}).instances["one"].command
    return server_task(command.effective) if command else "chat"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "chat"),
        ("--temp 0.5", "chat"),
        ("--embedding", "embeddings"),
        ("--embeddings --pooling last", "embeddings"),
        ("--pooling mean", "chat"),
        ("--pooling rank", "chat"),
        ("--rerank", "rerank"),
        ("--reranking --embeddings", "rerank"),
        ("--embedding --pooling rank", "rerank"),
        ("--pooling rank --embedding", "rerank"),
        ("--reranking --pooling cls", "embeddings"),
        ("--pooling cls --reranking", "rerank"),
        ("--embd-gemma-default", "embeddings"),
    ],
)
def test_arguments_of_llama_cpp(arguments: str, expected: str) -> None:
    assert task(LLAMA, arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ("", {"LLAMA_ARG_EMBEDDINGS": "1"}, "embeddings"),
        ("", {"LLAMA_ARG_EMBEDDINGS": "0"}, "chat"),
        ("", {"LLAMA_ARG_RERANKING": "true"}, "rerank"),
        ("", {"LLAMA_ARG_POOLING": "rank"}, "chat"),
        ("", {"LLAMA_ARG_EMBEDDINGS": "on", "LLAMA_ARG_POOLING": "rank"}, "rerank"),
        ("", {"LLAMA_ARG_RERANKING": "1", "LLAMA_ARG_POOLING": "mean"}, "rerank"),
        ("--embeddings", {"LLAMA_ARG_EMBEDDINGS": "0"}, "embeddings"),
        ("--pooling mean", {"LLAMA_ARG_RERANKING": "1"}, "embeddings"),
        ("--reranking", {"LLAMA_ARG_POOLING": "mean"}, "rerank"),
    ],
)
def test_variables_of_llama_cpp(arguments: str, environment: dict[str, str], expected: str) -> None:
    assert task(LLAMA, arguments, environment) == expected


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ("", {}, "chat"),
        ("--embedding", {}, "embeddings"),
        ("--embeddings --pooling cls", {}, "embeddings"),
        ("", {"LLAMA_ARG_EMBEDDINGS": "1"}, "embeddings"),
    ],
)
def test_ik_llama_cpp_has_no_rerank(arguments: str, environment: dict[str, str], expected: str) -> None:
    assert task(IK, arguments, environment) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "chat"),
        ("--runner generate", "chat"),
        ("--runner pooling", "embeddings"),
        ("--convert embed", "embeddings"),
        ("--runner pooling --convert classify", "rerank"),
    ],
)
def test_vllm(arguments: str, expected: str) -> None:
    assert task(VLLM, arguments) == expected
