"""The checks of a server's environment and of CMake options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.engines import DIALECTS
from llamaherd.engines.flags import Catalogue, catalogue, check_arguments, check_environment, check_options
from llamaherd.engines.flags.cmake import known_options
from llamaherd.pipeline.rules import rules


def known(kind: str, version: str) -> Catalogue:
    found = catalogue(kind, version)
    assert found is not None
    return found


LLAMA = known("llama.cpp", "b11434")
IK = known("ik_llama.cpp", "mtp")


@pytest.mark.parametrize(
    ("of", "name", "value", "codes"),
    [
        (LLAMA, "LLAMA_ARG_CTX_SIZE", "4096", []),
        (LLAMA, "LLAMA_ARG_CTX_SIZE", "many", ["LH124"]),
        (LLAMA, "LLAMA_ARG_CTX_SIZES", "4096", ["LH120"]),
        (LLAMA, "LLAMA_ARG_NO_CONT_BATCHING", "1", []),
        (LLAMA, "LLAMA_ARG_CONT_BATCHING", "off", []),
        (LLAMA, "LLAMA_ARG_CONT_BATCHING", "maybe", ["LH124"]),
        (LLAMA, "LLAMA_ARG_NO_CTX_SIZE", "1", ["LH120"]),
        (LLAMA, "LLAMA_ARG_OFFLINE", "yes", ["LH123"]),
        (LLAMA, "LLAMA_ARG_OFFLINE", "1", []),
        (LLAMA, "LLAMA_ARG_NO_HOST", "1", []),
        (LLAMA, "LLAMA_ARG_NO_MMAP", "1", ["LH120"]),
        (LLAMA, "LLAMA_ARG_MLOCK", "1", ["LH120"]),
        (LLAMA, "LLAMA_ARG_FLASH_ATTN", "on", []),
        (LLAMA, "LLAMA_ARG_DRAFT_MAX", "16", ["LH124"]),
        (LLAMA, "GGML_CUDA_P2P", "0", ["LH121"]),
        (LLAMA, "GGML_CUDA_P2P", "1", []),
        (LLAMA, "LLAMA_API_KEY", "sk-1", ["LH115"]),
        (LLAMA, "CUDA_VISIBLE_DEVICES", "0", []),
        (IK, "LLAMA_ARG_CTX_SIZE", "4096", ["LH122"]),
        (IK, "LLAMA_ARG_FLASH_ATTN", "on", ["LH122", "LH123"]),
        (IK, "LLAMA_ARG_FLASH_ATTN", "1", ["LH122"]),
        (IK, "LLAMA_ARG_LOAD_MODE", "none", ["LH120"]),
        (IK, "GGML_CUDA_P2P", "1", ["LH120"]),
        (IK, "GGML_CUDA_NO_PINNED", "0", ["LH121"]),
    ],
)
def test_each_trap_of_the_environment_has_its_code(of: Catalogue, name: str, value: str, codes: list[str]) -> None:
    assert [problem.rule.code for problem in check_environment(of, {name: value})] == codes


@given(st.dictionaries(st.sampled_from(sorted(LLAMA.environment | IK.environment | {"GGML_CUDA_P2P"})), st.text()))
def test_any_environment_gives_problems_and_never_an_exception(environment: dict[str, str]) -> None:
    for of in (LLAMA, IK):
        assert {problem.rule for problem in check_environment(of, environment)} <= set(rules().values())


@pytest.mark.parametrize(
    ("kind", "option", "code", "severity", "replacement"),
    [
        ("llama.cpp", "LLAMA_CUBLAS=ON", "LH130", "error", ("GGML_CUDA=ON",)),
        ("llama.cpp", "LLAMA_CUDA=ON", "LH133", "warning", ("GGML_CUDA=ON",)),
        ("llama.cpp", "GGML_CUDA_F16=ON", "LH130", "error", ()),
        ("llama.cpp", "CUDA_ARCH=86", "LH130", "error", ("CMAKE_CUDA_ARCHITECTURES=86",)),
        ("llama.cpp", "GGML_CUDA_FA_ALL_QUANTS=ON", "LH133", "warning", ("GGML_CUDA_FA_QUANTS=all",)),
        ("llama.cpp", "GGML_CUDA_FA_ALL_QUANTS=OFF", "LH133", "warning", ()),
        ("llama.cpp", "LLAMA_CURL=ON", "LH130", "error", ()),
        ("llama.cpp", "GGML_NCCL=OFF", "LH130", "error", ("GGML_CUDA_NCCL=OFF",)),
        ("llama.cpp", "LLAMA_SERVER_SSL=ON", "LH130", "error", ("LLAMA_OPENSSL=ON",)),
        ("llama.cpp", "GGML_IQK_FA_ALL_QUANTS=ON", "LH132", "error", ()),
        ("llama.cpp", "GGML_CUDDA=ON", "LH131", "error", None),
        ("llama.cpp", "GGML_QUUX=ON", "LH131", "error", ()),
        ("llama.cpp", "GGML_CUDA_FA_QUANTS=q8_0-q8_0;", "LH134", "error", ("GGML_CUDA_FA_QUANTS=q8_0-q8_0",)),
        ("llama.cpp", "GGML_CUDA_FA_QUANTS=", "LH134", "error", ("GGML_CUDA_FA_QUANTS=all",)),
        ("llama.cpp", "GGML_CUDA_FA_QUANTS=q8_0-iq4_nl", "LH134", "error", ("GGML_CUDA_FA_QUANTS=all",)),
        ("ik_llama.cpp", "GGML_CUDA_NCCL=ON", "LH130", "error", ("GGML_NCCL=ON",)),
        ("ik_llama.cpp", "GGML_CUDA_FA_QUANTS=all", "LH130", "error", ("GGML_CUDA_FA_ALL_QUANTS=ON",)),
        ("ik_llama.cpp", "LLAMA_BUILD_UI=OFF", "LH132", "error", ()),
        ("ik_llama.cpp", "GGML_CUDA_FA=ON", "LH130", "error", ()),
    ],
)
def test_old_and_foreign_options_are_said_in_today_s_words(
    kind: str, option: str, code: str, severity: str, replacement: tuple[str, ...] | None
) -> None:
    name, value = option.split("=")
    (problem,) = check_options(kind, {name: value})
    assert (problem.rule.code, problem.severity, problem.replacement) == (code, severity, replacement)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llama.cpp", "GGML_CANN"),
        ("llama.cpp", "GGML_CPU_RISCV64_SPACEMIT"),
        ("llama.cpp", "GGML_RV_ZBA"),
        ("ik_llama.cpp", "GGML_ARCH_FLAGS"),
        ("ik_llama.cpp", "GGML_MAX_SRC"),
        ("ik_llama.cpp", "GGML_EXPERT_CHUNKING"),
    ],
)
def test_options_that_are_declared_nowhere_and_read_nevertheless_are_known(kind: str, name: str) -> None:
    assert check_options(kind, {name: "ON"}) == ()


@pytest.mark.parametrize("kind", ["llama.cpp", "ik_llama.cpp"])
def test_options_that_are_right_are_left_alone(kind: str) -> None:
    right = {"CMAKE_BUILD_TYPE": "Release", "-DGGML_CUDA:BOOL": "ON", "GGML_RPC": "ON", "GGML_SCHED_MAX_COPIES": "1"}
    assert check_options(kind, dict(DIALECTS[kind].build_options(("86", "120"))) | right) == ()
    if kind == "llama.cpp":
        assert check_options(kind, {"LLAMA_BUILD_NUMBER": "11434", "LLAMA_BUILD_COMMIT": "0" * 40}) == ()


@pytest.mark.parametrize(("kind", "going"), [("llama.cpp", ["GGML_CUDA_FA_ALL_QUANTS"]), ("ik_llama.cpp", [])])
def test_options_that_the_sources_declare_are_known(kind: str, going: list[str]) -> None:
    assert len(known_options(kind)) > 80
    pairs = {"GGML_CUDA_FA_QUANTS": "all"}
    assert [name for name in known_options(kind) if check_options(kind, {name: pairs.get(name, "ON")})] == going


def test_what_llamaherd_says_to_its_own_engines_is_right() -> None:
    for of in (LLAMA, IK):
        assert not check_arguments(
            of, ["--alias", "a", "--ctx-size", "1", "--flash-attn", "on", "--metrics", "--jinja"]
        )


@given(st.dictionaries(st.text(), st.text()))
def test_any_options_give_problems_and_never_an_exception(options: dict[str, str]) -> None:
    for kind in ("llama.cpp", "ik_llama.cpp", "vllm"):
        assert {problem.rule for problem in check_options(kind, options)} <= set(rules().values())


@pytest.mark.parametrize(
    ("value", "replacement"),
    [
        ("86,120", "86;120"),
        ("8.6", "86"),
        ("sm_86;compute_120", "86;120"),
        *((value, None) for value in ("86;120", "86-real;120a-virtual", "native", "all-major", "$ARCH", "121f")),
    ],
)
def test_architectures_as_cmake_wants_them(value: str, replacement: str | None) -> None:
    found = check_options("llama.cpp", {"CMAKE_CUDA_ARCHITECTURES": value})
    instead = [(f"CMAKE_CUDA_ARCHITECTURES={replacement}",)] if replacement else []
    assert [(each.rule.code, each.replacement) for each in found] == [("LH134", each) for each in instead]


@pytest.mark.parametrize(
    ("option", "help_"),
    [
        ("CMAKE_BUILD_TYPE=Relase", "did you mean `CMAKE_BUILD_TYPE=Release`?"),
        ("CMAKE_BUILD_TYPE=debug", "leave it out, or write `CMAKE_BUILD_TYPE=RelWithDebInfo`"),
        ("CMAKE_BUILD_TYPE=Fast", "known are Release, RelWithDebInfo, MinSizeRel, Debug"),
        ("GGML_CUDA=flase", "did you mean `GGML_CUDA=FALSE`?"),
        ("GGML_CUDA=disabled", "did you mean `GGML_CUDA=OFF`?"),
        ("GGML_CUDA=of", "did you mean `GGML_CUDA=OFF`?"),
        *(
            (right, "")
            for right in ("CMAKE_BUILD_TYPE=RELEASE", "GGML_CUDA=no", "GGML_CUDA=y", "GGML_BLAS_VENDOR=FLAME")
        ),
        *((right, "") for right in ("GGML_CUDA_COMPRESSION_MODE=none", "GGML_NATIVE=0", "CMAKE_BUILD_TYPE=$TYPE")),
    ],
)
def test_values_that_cmake_takes_otherwise(option: str, help_: str) -> None:
    name, _, value = option.partition("=")
    found = check_options("llama.cpp", {name: value})
    assert [(each.rule.code, each.help) for each in found] == ([("LH276", help_)] if help_ else [])
