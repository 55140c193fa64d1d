"""What is right is left alone, and every way out that replaces something leads to what is right."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from llamaherd import recipes
from llamaherd.engines.flags import Catalogue, catalogue, catalogues, check_arguments, check_options

DATA = Path(__file__).parents[1] / "data"
RIGHT = [line for line in (DATA / "commands_right.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"]
KINDS = ("llama.cpp", "ik_llama.cpp")
OTHERS = [each for kind in KINDS for each in catalogues(kind)]

WRONG = [
    *("-mtp --draft-max 2 -np 1", "--mtp-draft 2", "--draft-max 4 -md d.gguf", "--spec-type mtp:n_max=2,p_min=0.0"),
    *("--no-mmap", "--mlock", "--mmap", "-dio", "--mlock --no-mmap", "--no-mmap -c 8192 --mlock", "--load-mode none"),
    *("-fa", "--flash-attn -c 8192", "-fa true", "--fit", "--fit on", "--fit-margin 2048", "--op-offload 1"),
    *("--jinja true", "--jinja=true", "--ctx-size=4096", "--ctx 8192", "--context-length 8192", "--n-threads 8"),
    *("--cache-type q8_0", "--kv-cache-type q4_0", "--max-tokens 128", "--num-gpu-layers 20", "--gpu-layer all"),
    *("-sm row", "-sm graph", "-sm tensor", "-rtr -ger -mla 3 -amb 512", "-fmoe", "--cache-reuse 256"),
    *("--log-filename x.log", "--webui none", "--no-webui", "--context-shift on", "--defrag-thold 0.1"),
    *("--max-model-len 4096", "--max-num-seqs 4", "--served-model-name x", "--gpu-layers all", "-ngl 99"),
    *("--reasoning off", "--temperature 0.6", "--rerank", "--checkpoint-every-n-tokens 64", "-no-fa"),
    *("\N{EN DASH}c 8192", "\N{EM DASH}ctx-size 8192", "--recurrent-ckpt-mode auto", "--verbosity 3"),
    """--chat-template-kwargs '{"enable_thinking": false}'""",
]


@pytest.mark.parametrize("command", RIGHT)
def test_what_is_right_is_left_alone(command: str, tmp_path: Path) -> None:
    recipe = tmp_path / "run.sh"
    recipe.write_text(f"{command}\n", encoding="utf-8")
    assert [str(finding) for finding in recipes.examine(recipe)] == []


def codes_of(of: Catalogue, words: list[str]) -> list[str]:
    return [problem.rule.code for problem in check_arguments(of, words, OTHERS)]


def applied(of: Catalogue, words: list[str]) -> tuple[list[str], int]:
    """The words with every replacement in place of what it replaces, and how many there were."""
    problems = [each for each in check_arguments(of, words, OTHERS) if each.replacement is not None]
    result = list(words)
    for problem in sorted(problems, key=lambda each: -each.index):
        result[problem.index : problem.index + problem.length] = problem.replacement or ()
    return result, len(problems)


@pytest.mark.parametrize("of", OTHERS, ids=str)
def test_every_way_out_is_taken_without_a_word(of: Catalogue) -> None:
    """Applied as it is said, it leaves neither its own finding nor a new one."""
    count = 0
    for line in WRONG:
        words = shlex.split(line)
        better, made = applied(of, words)
        count += made
        certain = [each for each in check_arguments(of, words, OTHERS) if each.replacement is None]
        assert codes_of(of, better) == [each.rule.code for each in certain], (line, better)
    assert count > 10


def test_two_switches_for_loading_become_one_mode() -> None:
    known = catalogue("llama.cpp", "b11434")
    assert known is not None
    for line in ("--mlock --no-mmap", "--no-mmap -c 1 --mlock", "--mlock -c 1 --no-mmap"):
        better, _ = applied(known, line.split())
        assert [word for word in better if word not in ("-c", "1")] == ["--load-mode", "mlock"], line
    assert applied(known, ["--mlock"])[0] == ["--load-mode", "mmap+mlock"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_out_of_an_option_is_taken_without_a_word(kind: str) -> None:
    names = [
        *("LLAMA_CUBLAS", "LLAMA_CUDA", "CUDA_ARCH", "GGML_NCCL", "GGML_CUDA_NCCL", "GGML_CUDA_GRAPHS", "LLAMA_CURL"),
        *("GGML_CUDA_F16", "GGML_CUDA_USE_GRAPHS", "LLAMA_SERVER_SSL", "LLAMA_OPENSSL", "GGML_CUDA_FA_ALL_QUANTS"),
        *("GGML_CUDA_FA_QUANTS", "GGML_CUDA_FA", "LLAMA_BUILD_WEBUI", "GGML_IQK_MUL_MAT", "GGML_MTP", "GGML_QUUX"),
    ]
    for name in names:
        for problem in check_options(kind, {name: "ON"}):
            if problem.replacement:
                new, _, value = problem.replacement[0].partition("=")
                assert check_options(kind, {new: value}) == (), (name, problem.replacement)
