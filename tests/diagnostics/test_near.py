"""A nearest name is asked about where it can only be a slip, and else not at all."""

from __future__ import annotations

import pytest

from llamaherd.diagnostics.spelling import nearest_name
from llamaherd.engines.flags import catalogue, check_arguments, check_environment, check_options
from llamaherd.engines.flags.cmake import known_options


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("GGML_CUDDA", ("GGML_CUDA", "GGML_RPC"), "GGML_CUDA"),
        ("GGML_CUDA_FA_ALL_QUANT", ("GGML_CUDA_FA_ALL_QUANTS", "GGML_CUDA_FA"), "GGML_CUDA_FA_ALL_QUANTS"),
        ("--size-ctx", ("--ctx-size", "--size"), "--ctx-size"),
        ("--flash-atnn", ("--flash-attn",), "--flash-attn"),
        ("--flashattn", ("--flash-attn",), "--flash-attn"),
        ("GGML_CANNN", ("GGML_CANN", "GGML_ZDNN"), "GGML_CANN"),
        ("GGML_XANN", ("GGML_ZDNN", "GGML_ET"), None),
        ("LLAMA_ARG_CONTEXT", ("LLAMA_ARG_CONTEXT_SHIFT",), None),
        ("LLAMA_ARG_NO_MMAP", ("LLAMA_ARG_NUMA",), None),
        ("GGML_ET", ("GGML_RPC",), None),
        ("q4_k", ("q4_0", "q4_1", "q5_0"), None),
        ("--abc", ("--abd", "--abe"), None),
    ],
)
def test_what_is_near(word: str, known: tuple[str, ...], meant: str | None) -> None:
    assert nearest_name(word, known) == meant


@pytest.mark.parametrize("kind", ["llama.cpp", "ik_llama.cpp"])
def test_names_of_options_are_not_near_to_each_other_s_backends(kind: str) -> None:
    """What one backend is called is no slip for another one's name."""
    backends = {"GGML_CANN", "GGML_ZDNN", "GGML_HIP", "GGML_RPC", "GGML_MUSA", "GGML_SYCL", "GGML_BLAS"}
    for name in backends:
        assert nearest_name(name, set(known_options(kind)) - {name}) is None


@pytest.mark.parametrize(
    ("version", "name", "value", "help_"),
    [
        ("b11434", "LLAMA_ARG_NO_MMAP", "1", "LLAMA_ARG_LOAD_MODE=none"),
        ("b11434", "LLAMA_ARG_MLOCK", "1", "LLAMA_ARG_LOAD_MODE=mmap+mlock"),
        ("b11434", "LLAMA_ARG_CONTEXT", "4096", "`LLAMA_ARG_CTX_SIZE`"),
        ("b11434", "LLAMA_ARG_API_KEY", "x", "`LLAMA_API_KEY`"),
        ("b11434", "LLAMA_ARG_QUUX", "x", "write it as a flag"),
    ],
)
def test_a_variable_by_another_name(version: str, name: str, value: str, help_: str) -> None:
    known = catalogue("llama.cpp", version)
    assert known is not None
    (problem,) = check_environment(known, {name: value})
    assert problem.rule.code == "LH120"
    assert help_ in problem.help


def test_a_type_of_a_cache_that_there_is_not_is_not_guessed() -> None:
    known = catalogue("llama.cpp", "b11434")
    assert known is not None
    (problem,) = check_arguments(known, ["-ctk", "q4_k"])
    assert problem.rule.code == "LH106"
    assert "did you mean" not in problem.help
    assert all(kind in problem.message for kind in ("q4_0", "q8_0", "f16"))


def test_a_guess_replaces_nothing() -> None:
    known = catalogue("llama.cpp", "b11434")
    assert known is not None
    guesses = (
        *check_arguments(known, ["--cahce-type-k", "f16", "-sm", "layr"]),
        *check_options("llama.cpp", {"GGML_CUDDA": "ON"}),
    )
    assert len(guesses) == 3
    for problem in guesses:
        assert problem.help.startswith("did you mean")
        assert problem.replacement is None


def test_long_words_are_not_compared_letter_by_letter() -> None:
    long = "a" * 20_000
    assert nearest_name(long, [f"{long[:-1]}b"]) is None
    assert nearest_name(long, [long]) == long
