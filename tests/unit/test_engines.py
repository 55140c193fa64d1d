"""The engines' dialects: argv and build options, word for word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.engines import DIALECTS, Server
from llamaherd.fleet import CacheTypes, Version

SERVER = Server(
    model_path="/m.gguf",
    alias="m",
    context=8192,
    kv=CacheTypes(),
    parallel=1,
    threads=6,
    mtp=0,
    on_gpu=False,
    listen="127.0.0.1",
    port=8080,
    api_key_file=None,
    extra_args=(),
)
COMMON = "--model /m.gguf --alias m --ctx-size 8192 --cache-type-k {k} --cache-type-v {v} --flash-attn {fa}"
PLACE = "--parallel {parallel} --threads 6 --host 127.0.0.1 --port 8080 --metrics"
LLAMA = f"{COMMON} {PLACE}"
IK = f"{COMMON} {PLACE} --jinja"
PLAIN = {"k": "f16", "v": "f16", "parallel": "1"}


@pytest.mark.parametrize(
    ("kind", "server", "argv"),
    [
        ("llama.cpp", SERVER, LLAMA.format(**PLAIN, fa="auto")),
        ("ik_llama.cpp", SERVER, IK.format(**PLAIN, fa="on")),
        (
            "llama.cpp",
            replace(SERVER, kv=CacheTypes(k="f16", v="q4_0"), parallel=4),
            LLAMA.format(k="f16", v="q4_0", parallel=4, fa="on"),
        ),
        (
            "llama.cpp",
            replace(SERVER, kv=CacheTypes(k="bf16", v="f32")),
            LLAMA.format(k="bf16", v="f32", parallel=1, fa="auto"),
        ),
        (
            "llama.cpp",
            replace(SERVER, on_gpu=True, mtp=3, api_key_file="/k", extra_args=("--no-mmap", "a b")),
            LLAMA.format(**PLAIN, fa="auto")
            + " --gpu-layers all --spec-type draft-mtp --spec-draft-n-max 3 --api-key-file /k --no-mmap a b",
        ),
        (
            "ik_llama.cpp",
            replace(SERVER, on_gpu=True, mtp=3, api_key_file="/k", extra_args=("--no-mmap", "a b")),
            IK.format(**PLAIN, fa="on") + " --n-gpu-layers 999 -mtp --draft-max 3 --api-key-file /k --no-mmap a b",
        ),
    ],
    ids=["llama", "ik", "llama, quantised V", "llama, other floats", "llama, all of it", "ik, all of it"],
)
def test_arguments(kind: str, server: Server, argv: str) -> None:
    assert " ".join(DIALECTS[kind].arguments(server)) == argv


def test_an_extra_argument_stays_one_argument() -> None:
    for dialect in DIALECTS.values():
        assert dialect.arguments(replace(SERVER, extra_args=("--x", "a b;$c")))[-2:] == ("--x", "a b;$c")


@pytest.mark.parametrize("kind", DIALECTS)
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


def test_what_is_built() -> None:
    assert {kind: dialect.targets for kind, dialect in DIALECTS.items()} == {
        "llama.cpp": ("llama-server", "llama-fit-params"),
        "ik_llama.cpp": ("llama-server",),
    }
