"""The engines' dialects: argv and build options, word for word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from llamaherd.engines import DIALECTS, Server, flags_of
from llamaherd.engines.flags import catalogues, check_arguments
from llamaherd.inventory.schema import Engine, Instance, Version
from llamaherd.inventory.schema.key_flags import key_arguments
from llamaherd.inventory.schema.software import PUBLISHED, UPSTREAM, EngineKind

INSTANCE: dict[str, Any] = {"engine": "e", "model": "m", "context": 8192, "port": 8080}


def server(engine: str = "llama.cpp", flags: str = "", **changes: Any) -> Server:
    """What a server of a version of an engine is told, with these keys declared."""
    said = Engine.model_validate({"kind": engine, "image": "i", **({"flags": flags} if flags else {})})
    declared = Instance.model_validate(INSTANCE | changes)
    drafting = "/s.gguf" if declared.draft and declared.draft.model else None
    return Server(declared, "/m.gguf", 6, "127.0.0.1", flags=flags_of(said), draft_path=drafting)


COMMON = "--model /m.gguf --alias m --ctx-size 8192 --cache-type-k {k} --cache-type-v {v} --flash-attn {fa}"
PLACE = "--parallel {parallel} --threads 6 --host 127.0.0.1 --port 8080 --metrics"
LLAMA = f"{COMMON} {PLACE}"
IK = f"{COMMON} {PLACE} --jinja"
PLAIN = {"k": "f16", "v": "f16", "parallel": "1"}


CARD = {"on": ["a"]}
TWO = {"on": ["a", "b"]}
K, K2 = "67268c8fd", "8337e4cd3"


@pytest.mark.parametrize(
    ("engine", "flags", "changes", "argv"),
    [
        ("llama.cpp", "", {}, LLAMA.format(**PLAIN, fa="auto")),
        ("ik_llama.cpp", "", {}, IK.format(**PLAIN, fa="on")),
        (
            "llama.cpp",
            "",
            {"kv": {"v": "q4_0"}, "parallel": 4},
            LLAMA.format(k="f16", v="q4_0", parallel=4, fa="on"),
        ),
        (
            "llama.cpp",
            "",
            {"kv": {"k": "bf16", "v": "f32"}},
            LLAMA.format(k="bf16", v="f32", parallel=1, fa="auto"),
        ),
    ],
    ids=["llama", "ik", "llama, quantised V", "llama, other floats"],
)
def test_plain_arguments(engine: str, flags: str, changes: dict[str, Any], argv: str) -> None:
    assert " ".join(key_arguments(engine, server(engine, flags, **changes))) == argv


@pytest.mark.parametrize(
    ("engine", "flags", "changes", "said"),
    [
        ("llama.cpp", "", CARD, "--gpu-layers all"),
        ("llama.cpp", "", CARD | {"gpu_layers": 27}, "--gpu-layers 27"),
        ("ik_llama.cpp", "", CARD, "--n-gpu-layers 999"),
        ("ik_llama.cpp", "", CARD | {"gpu_layers": "all"}, "--n-gpu-layers 999"),
        (
            "llama.cpp",
            "",
            TWO | {"split": "layer", "tensor_split": [0.9, 1]},
            "--gpu-layers all --split-mode layer --tensor-split 0.9,1",
        ),
        ("ik_llama.cpp", "", TWO | {"split": "graph"}, "--n-gpu-layers 999 --split-mode graph"),
        ("llama.cpp", "", {"batch": 32, "ubatch": 16}, "--batch-size 32 --ubatch-size 16"),
        ("llama.cpp", "", {"numa": "distribute"}, "--numa distribute"),
        ("llama.cpp", "b11434", {"mmap": False}, "--load-mode none"),
        ("llama.cpp", "b11434", {"mmap": True}, "--load-mode mmap"),
        ("llama.cpp", "b11434", {"mlock": True}, "--load-mode mmap+mlock"),
        ("llama.cpp", "b11434", {"mlock": True, "mmap": False}, "--load-mode mlock"),
        ("llama.cpp", "b9592", {"mlock": True, "mmap": False}, "--no-mmap --mlock"),
        ("ik_llama.cpp", "", {"mlock": True, "mmap": False}, "--no-mmap --mlock"),
        ("llama.cpp", "", {"warmup": False}, "--no-warmup"),
        ("llama.cpp", "", {"draft": {"mtp": 3}}, "--spec-type draft-mtp --spec-draft-n-max 3"),
        (
            "llama.cpp",
            "",
            {"draft": {"mtp": 3, "p_min": 0.5}},
            "--spec-type draft-mtp --spec-draft-n-max 3 --spec-draft-p-min 0.5",
        ),
        ("ik_llama.cpp", K, {"draft": {"mtp": 2}}, "-mtp --draft-max 2"),
        ("ik_llama.cpp", K2, {"draft": {"mtp": 2}}, "--spec-type mtp:n_max=2"),
        ("ik_llama.cpp", "", {"draft": {"mtp": 2, "p_min": 0.1}}, "--spec-type mtp:n_max=2,p_min=0.1"),
        (
            *("llama.cpp", "", {"draft": {"model": "s"}}),
            "--spec-type draft-simple --spec-draft-n-max 16 --spec-draft-model /s.gguf",
        ),
        (
            *("llama.cpp", "b9246", CARD | {"draft": {"model": "s", "max": 8, "p_min": 0.5}}),
            "--gpu-layers all --spec-type draft-simple --spec-draft-n-max 8 --spec-draft-p-min 0.5"
            " --spec-draft-model /s.gguf --spec-draft-ngl all",
        ),
        (
            *("llama.cpp", "b9093", {"draft": {"model": "s", "max": 4}}),
            "--spec-draft-n-max 4 --spec-draft-model /s.gguf",
        ),
        (
            *("llama.cpp", "", {"draft": {"mtp": 2, "model": "s"}}),
            "--spec-type draft-mtp --spec-draft-n-max 2 --spec-draft-model /s.gguf",
        ),
        (
            *("ik_llama.cpp", K, CARD | {"draft": {"model": "s", "max": 4, "p_min": 0.5}}),
            "--n-gpu-layers 999 --draft-max 4 --draft-p-min 0.5 --model-draft /s.gguf --n-gpu-layers-draft 999",
        ),
        (
            *("ik_llama.cpp", K2, {"draft": {"model": "s", "max": 4, "p_min": 0.5}}),
            "--spec-type draft:n_max=4,p_min=0.5 --model-draft /s.gguf",
        ),
        (
            *("ik_llama.cpp", K2, CARD | {"draft": {"mtp": 2, "model": "s"}}),
            "--n-gpu-layers 999 --spec-type mtp:n_max=2 --model-draft /s.gguf --n-gpu-layers-draft 999",
        ),
        ("llama.cpp", "", {"thinking": False}, "--reasoning off"),
        ("llama.cpp", "", {"thinking": True}, "--reasoning on"),
        ("ik_llama.cpp", K, {"thinking": False}, '--chat-template-kwargs {"enable_thinking": false}'),
        (
            "llama.cpp",
            "",
            {"sampling": {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0}},
            "--temp 0.6 --top-p 0.95 --top-k 20 --min-p 0.0",
        ),
        ("llama.cpp", "", {"cache_reuse": 256}, "--cache-reuse 256"),
        ("llama.cpp", "", {"serve": "embeddings", "pooling": "last"}, "--embeddings --pooling last"),
        ("llama.cpp", "", {"serve": "rerank"}, "--reranking"),
        ("ik_llama.cpp", "", {"serve": "embeddings"}, "--embeddings"),
        ("llama.cpp", "", {"extra_args": "--temp 1 # so\n--top-k 'a b'"}, "--temp 1 --top-k a b"),
    ],
)
def test_what_a_key_says(engine: str, flags: str, changes: dict[str, Any], said: str) -> None:
    plain = key_arguments(engine, server(engine, flags))
    arguments = key_arguments(engine, server(engine, flags, **changes))
    assert " ".join(arguments[len(plain) :]) == said


FLASH: tuple[dict[str, Any], ...] = ({}, {"kv": "q8_0"}, {"flash_attention": "off"})


@pytest.mark.parametrize("engine", ["llama.cpp", "ik_llama.cpp"])
def test_every_version_is_told_of_a_projector_and_of_a_model_that_drafts_in_words_that_it_knows(engine: str) -> None:
    for known in catalogues(engine):
        told = replace(server(engine, known.version, **CARD, draft={"model": "s"}), mmproj_path="/p.gguf")
        arguments = key_arguments(engine, told)
        assert arguments[arguments.index("/p.gguf") - 1] == "--mmproj"
        assert [problem.message for problem in check_arguments(known, arguments) if problem.severity == "error"] == []


def test_a_quantised_cache_switches_flash_attention_on_unless_it_is_switched_off() -> None:
    for engine, plain in (("llama.cpp", "auto"), ("ik_llama.cpp", "on")):
        said = [key_arguments(engine, server(engine, **changes))[11] for changes in FLASH]
        assert said == [plain, "on", "off"]


def test_experts_go_where_they_are_sent() -> None:
    overridden = replace(server(on=["a"]), overrides=("x=CPU",))
    assert key_arguments("llama.cpp", overridden)[-2:] == ("--override-tensor", "x=CPU")


def test_vllm() -> None:
    changes: dict[str, Any] = {"draft": {"mtp": 1}, "thinking": False, "sampling": {"repeat_penalty": 1.1}, **TWO}
    assert key_arguments("vllm", server("vllm", parallel=8, **changes)) == (
        *("--model", "/m.gguf", "--served-model-name", "m", "--max-model-len", "8192", "--max-num-seqs", "8"),
        *("--host", "127.0.0.1", "--port", "8080", "--tensor-parallel-size", "2"),
        *("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}'),
        *("--override-generation-config", '{"repetition_penalty": 1.1}'),
        *("--default-chat-template-kwargs", '{"enable_thinking": false}'),
    )


def test_an_extra_argument_stays_one_argument() -> None:
    for kind in DIALECTS:
        assert key_arguments(kind, server(kind, extra_args=["--x", "a b;$c"]))[-2:] == ("--x", "a b;$c")


@pytest.mark.parametrize("kind", ["llama.cpp", "ik_llama.cpp"])
def test_a_build_for_the_cpu_knows_no_cuda(kind: str) -> None:
    options = DIALECTS[kind].build_options(())
    assert [name for name in options if "CUDA" in name] == []
    assert (options["CMAKE_BUILD_TYPE"], options["BUILD_SHARED_LIBS"]) == ("Release", "OFF")


@pytest.mark.parametrize(
    ("kind", "quants"),
    [("llama.cpp", ("GGML_CUDA_FA_QUANTS", "all")), ("ik_llama.cpp", ("GGML_CUDA_FA_ALL_QUANTS", "ON"))],
)
def test_a_build_for_cards_names_them(kind: str, quants: tuple[str, str]) -> None:
    dialect = DIALECTS[kind]
    added = dialect.build_options(("86", "120")).items() - dialect.build_options(()).items()
    assert added == {("GGML_CUDA", "ON"), ("CMAKE_CUDA_ARCHITECTURES", "86;120"), quants}


def test_versions_are_told_to_the_engine_that_has_them() -> None:
    version = Version(number=11434, commit="abc")
    assert DIALECTS["llama.cpp"].version_options(version) == {
        "LLAMA_BUILD_NUMBER": "11434",
        "LLAMA_BUILD_COMMIT": "abc",
    }
    assert DIALECTS["ik_llama.cpp"].version_options(version) == {}


def test_each_kind_that_may_be_declared_has_a_dialect_and_comes_from_somewhere() -> None:
    kinds = set(get_args(EngineKind))
    assert set(DIALECTS) == kinds
    assert set(UPSTREAM) ^ set(PUBLISHED) == kinds


@pytest.mark.parametrize("kind", PUBLISHED)
def test_what_is_not_built_here_needs_an_image(kind: str) -> None:
    with pytest.raises(ValidationError, match=f"{kind} is run from an image"):
        Engine.model_validate({"kind": kind, "source": {"git": "https://git.lan/engine", "ref": "main"}})
    Engine.model_validate({"kind": kind, "image": PUBLISHED[kind]})


def test_what_is_built() -> None:
    assert {kind: dialect.targets for kind, dialect in DIALECTS.items()} == {
        "llama.cpp": ("llama-server", "llama-fit-params"),
        "ik_llama.cpp": ("llama-server",),
        "vllm": (),
    }
