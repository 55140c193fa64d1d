"""The catalogues of flags, and the check of arguments: against what the engines' own programs say."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.engines import DIALECTS
from llamaherd.engines.flags import Catalogue, Problem, catalogue, catalogues, check_arguments
from llamaherd.pipeline.rules import rules

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parents[1] / "data"
KINDS = tuple(DIALECTS)
VERDICTS = json.loads((DATA / "flags_verdicts_b11434.json").read_text(encoding="utf-8"))["cases"]
SILENT = (["--alias", "--metrics"],)
"""A text takes the next flag for its value, and the engine says nothing: `check` says more than it."""


def known(kind: str, version: str) -> Catalogue:
    found = catalogue(kind, version)
    assert found is not None
    return found


LLAMA = known("llama.cpp", "b11434")
IK = known("ik_llama.cpp", "67268c8fd")
EVERYTHING = [one for kind in KINDS for one in catalogues(kind)]


def found(text: str, of: Catalogue = LLAMA) -> list[Problem]:
    return list(check_arguments(of, shlex.split(text), EVERYTHING))


def mended(text: str, of: Catalogue = LLAMA) -> str:
    """The arguments with every replacement made, from the last to the first."""
    arguments = shlex.split(text)
    for problem in reversed(check_arguments(of, arguments, EVERYTHING)):
        if problem.replacement is not None:
            arguments[problem.index : problem.index + problem.length] = problem.replacement
    return shlex.join(arguments)


# Catalogues


def test_the_newest_catalogue_has_every_flag_that_the_program_lists() -> None:
    listed = set()
    for line in (DATA / "flags_help_b11434.txt").read_text(encoding="utf-8").splitlines():
        if re.match("-(?!-----)", line):
            head = re.split(r" {2,}(?=[^-\s])", line)[0]
            listed |= {word.rstrip(",") for word in head.split() if re.fullmatch(r"--?[A-Za-z][\w.-]*,?", word)}
    assert len(listed) > 400
    assert listed == set(LLAMA.flags)


def test_the_newest_catalogue_has_every_variable_that_the_program_lists() -> None:
    listed = re.findall(r"\(env: (\w+)\)", (DATA / "flags_help_b11434.txt").read_text(encoding="utf-8"))
    assert set(listed) == LLAMA.environment


@pytest.mark.parametrize("one", EVERYTHING, ids=str)
def test_every_catalogue_has_the_flags_that_every_server_has(one: Catalogue) -> None:
    for spelling in ("--host", "--port", "--api-key"):
        flag = one.find(spelling)
        assert flag is not None
        assert len(flag.values) == 1
    assert one.environment >= one.booleans


@pytest.mark.parametrize(
    ("kind", "version", "nearest", "exact"),
    [
        ("llama.cpp", "b11434", "b11434", True),
        ("llama.cpp", "11434", "b11434", True),
        ("llama.cpp", "b11433", "b10878", False),
        ("llama.cpp", "b99999", "b11434", False),
        ("ik_llama.cpp", "67268c8fd", "67268c8fd", True),
        ("ik_llama.cpp", "67268c8fd0000", "67268c8fd", True),
        ("ik_llama.cpp", "mtp", "67268c8fd", True),
        ("ik_llama.cpp", "2026-05-14", "67268c8fd", False),
        ("ik_llama.cpp", "2026-05-20", "spec-stage", False),
        ("ik_llama.cpp", "2026-12-24", "8337e4cd3", False),
    ],
)
def test_the_nearest_catalogue_is_the_newest_before(kind: str, version: str, nearest: str, exact: bool) -> None:
    one = known(kind, version)
    assert (one.version, one.exact) == (nearest, exact)


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("llama.cpp", "b1"),
        ("llama.cpp", "0.6.0-dev"),
        ("ik_llama.cpp", "2025-01-01"),
        ("ik_llama.cpp", "abcdef123"),
        ("ollama", "1.0"),
    ],
)
def test_what_cannot_be_placed_has_no_catalogue(kind: str, version: str) -> None:
    assert catalogue(kind, version) is None


def test_a_dialect_asks_for_the_spelling_of_a_version() -> None:
    names = [known("llama.cpp", version).first("--load-mode", "--no-mmap") for version in ("b9592", "b10108", "b11434")]
    assert names == ["--no-mmap", "--load-mode", "--load-mode"]
    assert LLAMA.first("--draft-max", "-mtp") is None


def test_three_versions_of_ik_spell_mtp_in_three_ways() -> None:
    spelled = [
        mended("--mtp-draft 2", known("ik_llama.cpp", dialect)) for dialect in ("mtp", "spec-stage", "spec-type")
    ]
    assert spelled == [
        "-mtp --draft-max 2",
        "--spec-stage mtp:n_max=2,p_min=0.0",
        "--spec-type mtp:n_max=2,p_min=0.0",
    ]


def test_catalogues_are_not_read_on_import() -> None:
    code = "import llamaherd.engines.flags.definitions as load; raise SystemExit(load.catalogues.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# The check, against the program

COMMAND_LINE = {rule for code, rule in rules().items() if "LH100" <= code < "LH110"}
"""What the engine itself refuses when it reads its command line; the rest it takes without a word."""


@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: " ".join(case["arguments"]))
def test_what_the_program_refuses_is_an_error_and_nothing_else_is(case: dict[str, object]) -> None:
    arguments = case["arguments"]
    assert isinstance(arguments, list)
    problems = check_arguments(LLAMA, arguments, EVERYTHING)
    refused = any(problem.severity == "error" and problem.rule in COMMAND_LINE for problem in problems)
    assert refused is (case["refused"] or arguments in SILENT), problems


@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: " ".join(case["arguments"]))
def test_what_is_to_be_written_instead_is_right(case: dict[str, list[str]]) -> None:
    for problem in check_arguments(LLAMA, case["arguments"], EVERYTHING):
        again = check_arguments(LLAMA, problem.replacement or (), EVERYTHING)
        assert not [one for one in again if one.severity == "error"]


@given(st.lists(st.one_of(st.sampled_from(sorted({name for one in EVERYTHING for name in one.flags})), st.text())))
def test_any_arguments_give_problems_and_never_an_exception(arguments: list[str]) -> None:
    for one in (LLAMA, IK, *catalogues("vllm")):
        for problem in check_arguments(one, arguments, EVERYTHING, {"--ctx-size": "context"}):
            assert problem.rule in rules().values()
            assert 0 <= problem.index < len(arguments)
            assert 1 <= problem.length <= len(arguments) - problem.index
            assert problem.message
            assert problem.help


# Recipes from the web


def test_the_recipe_for_wsl_is_mended() -> None:
    recipe = (
        "--model m.gguf --ctx-size 65536 --gpu-layers 99 --threads 24 --mtp-draft 2 --port 8080 --host 0.0.0.0 "
        "--flash-attn --cache-reuse --no-mmap --log-filename /app/logs/inference.log"
    )
    problems = found(recipe)
    assert [(problem.rule.code, problem.replacement) for problem in problems] == [
        ("LH100", ("--spec-type", "draft-mtp", "--spec-draft-n-max", "2")),
        ("LH118", None),
        ("LH103", ("--flash-attn", "on")),
        ("LH103", None),
        ("LH101", ("--load-mode", "none")),
        ("LH100", ("--log-file", "/app/logs/inference.log")),
    ]
    assert problems[3].message == "`--cache-reuse` needs a whole number and takes `--no-mmap` for it"


def test_the_recipe_for_six_cards_is_right_but_for_its_open_door() -> None:
    recipe = (
        "-m q6_k-00001-of-00004.gguf --host 0.0.0.0 --port 8000 -ngl 999 -c 262144 -ctk q8_0 -ctv q8_0 --parallel 1 "
        "--split-mode layer -ts 0.9,1,1,1,1,1 --no-warmup --temp 0.6 --top-p 0.95 --top-k 20 --min-p 0.0 --jinja"
    )
    assert [problem.rule.code for problem in found(recipe)] == ["LH118"]


def test_the_recipe_for_eight_gigabytes_is_mended() -> None:
    recipe = "-m m.gguf -ngl 27 -t 8 -b 32 -ub 16 --flash-attn --op-offload 1 -ctk q8_0 -ctv q8_0 -c 4096"
    assert [problem.rule.code for problem in found(recipe)] == ["LH103", "LH107"]
    assert mended(recipe) == (
        "-m m.gguf -ngl 27 -t 8 -b 32 -ub 16 --flash-attn on --op-offload -ctk q8_0 -ctv q8_0 -c 4096"
    )


def test_the_recipe_for_the_laptop_is_mended() -> None:
    recipe = (
        "--spec-type draft-mtp --spec-draft-n-max 3 --ctx-size 32768 --cache-type-k q4_0 --cache-type-v q4_0 "
        "--batch-size 512 --ubatch-size 512 --parallel 1 --flash-attn on "
    )
    thinking = """--chat-template-kwargs '{"enable_thinking": false}'"""
    assert [(problem.rule.code, problem.severity) for problem in found(recipe + thinking)] == [("LH114", "warning")]
    assert mended(recipe + thinking) == recipe + "--reasoning off"


# Single findings


@pytest.mark.parametrize(
    ("version", "given", "right"),
    [
        ("b11434", "--no-mmap", "--load-mode none"),
        ("b10867", "--no-mmap", "--load-mode none"),
        ("b9592", "--load-mode none", "--no-mmap"),
        ("b11434", "--mlock", "--load-mode mmap+mlock"),
        ("b11434", "-dio", "--load-mode dio"),
        ("b11434", "--draft-max 4", "--spec-draft-n-max 4"),
        ("b11434", "--draft 4", "--spec-draft-n-max 4"),
        ("b11434", "-mtp", "--spec-type draft-mtp"),
        ("b11434", "-mtp --draft-max 2", "--spec-type draft-mtp --spec-draft-n-max 2"),
        ("b11434", "--spec-type mtp:n_max=2,p_min=0.0", "--spec-type draft-mtp --spec-draft-n-max 2"),
        ("b11434", "--spec-type mtp", "--spec-type draft-mtp"),
        ("b11434", "--fit", "--fit on"),
        ("b11434", "--fit-margin 2048", "--fit-target 2048"),
        ("b11434", "--split-mode graph", "--split-mode tensor"),
        ("b11434", "-sm row", "-sm layer"),
        ("b11434", "-fmoe -ger -rtr -mla 3 -amb 512 -c 1", "-c 1"),
        ("b11434", "--ctx-size=4096", "--ctx-size 4096"),
        ("b11434", "--op-offload 0", "--no-op-offload"),
        ("b11434", "--defrag-thold 0.1 --jinja", "--jinja"),
        ("b11434", "--context-shift on", "--context-shift"),
        ("b11434", "--checkpoint-every-n-tokens 64", "--checkpoint-min-step 64"),
        ("b9246", "--checkpoint-min-step 64", "--checkpoint-every-n-tokens 64"),
        ("mtp", "-fa", "-fa on"),
        ("mtp", "--spec-type draft-mtp --spec-draft-n-max 3", "-mtp --draft-max 3"),
        ("mtp", "--gpu-layers all", "--gpu-layers 999"),
        ("mtp", "--load-mode none", "--no-mmap"),
        ("mtp", "--fit on", "--fit"),
        ("mtp", "--reasoning off", """--chat-template-kwargs '{"enable_thinking": false}'"""),
        ("mtp", "--temperature 0.6", "--temp 0.6"),
        ("0.33.0", "--ctx-size 4096", "--max-model-len 4096"),
        ("0.33.0", "m -np 4 --alias x", "m --max-num-seqs 4 --served-model-name x"),
        ("spec-type", "-mtp --draft-max 1", "--spec-type mtp:n_max=1,p_min=0.0"),
        ("spec-type", "--spec-stage mtp:n_max=3,draft-p-min=0.0", "--spec-type mtp:n_max=3,p_min=0.0"),
    ],
)
def test_what_one_version_understands_is_said_so_that_another_does(version: str, given: str, right: str) -> None:
    of = known("llama.cpp" if version.startswith("b") else "vllm" if "." in version else "ik_llama.cpp", version)
    assert mended(given, of) == right
    assert not [problem for problem in found(right, of) if problem.severity == "error"]


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ("-rtr", ["LH102"]),
        ("-fmoe", ["LH102"]),
        ("--max-model-len 4096", ["LH102"]),
        ("-sm graph", ["LH106"]),
        ("-sm row", ["LH113"]),
        ("--no-such-thing-at-all 3", ["LH100"]),
        ("--ctx-size", ["LH104"]),
        ("--ctx-size many", ["LH105"]),
        ("--ctx-size 32k", ["LH111"]),
        ("--temp -1", []),
        ("--n-predict -2", []),
        ("--logit-bias -inf", []),
        ("--chat-template -x", []),
        ("-c 1 -c 2", ["LH110"]),
        ("-c 1 --ctx-size 2", ["LH110"]),
        ("-ot a=CPU -ot b=CPU", []),
        ("hello", ["LH109"]),
        ("--api-key sk-1", ["LH115"]),
        ("--hf-token x", ["LH115"]),
        ("-hf ggml-org/x", ["LH117"]),
        ("--model-url http://x", ["LH117"]),
        ("--gpt-oss-20b-default", ["LH117"]),
        ("--host 0.0.0.0", ["LH118"]),
        ("--host 0.0.0.0 --api-key-file k", []),
        ("--host 127.0.0.1,::", ["LH118"]),
        ("--version", ["LH119"]),
        ("--list-devices", ["LH119"]),
        ("--defrag-thold 0.1", ["LH112"]),
        ("--alias --metrics", ["LH103"]),
    ],
)
def test_each_mistake_has_its_code(given: str, codes: list[str]) -> None:
    assert [problem.rule.code for problem in found(given)] == codes


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ("Qwen/Qwen3 --max-model-len 32k --tensor-parallel-size=2 --enforce_eager -O3", []),
        ("m --compilation-config.level 3 --no-enable-prefix-caching --disable-chunked-prefill", []),
        ("m --lora-modules a=b c=d --served-model-name x y", []),
        ("m other", ["LH109"]),
        ("m --dtype fp99", ["LH106"]),
        ("m --tensor-parallel-size=two", ["LH105"]),
        ("m --api-key a b", ["LH115"]),
        ("m --gpu-memory-utilisation 0.9", ["LH100"]),
        ("m --flash-attn on", ["LH102"]),
    ],
)
def test_vllm_is_read_by_its_own_rules(given: str, codes: list[str]) -> None:
    assert [problem.rule.code for problem in found(given, known("vllm", "0.33.0"))] == codes


def test_a_value_that_a_newer_version_takes_is_said_to_be_so() -> None:
    (problem,) = found("--spec-type draft-mtp", known("llama.cpp", "b9093"))
    assert (problem.rule.code, problem.help) == ("LH106", "llama.cpp b9246 takes it; here, choose one of those")


def test_a_flag_that_the_inventory_has_a_key_for() -> None:
    (problem,) = check_arguments(LLAMA, ["-c", "4096"], managed={"--ctx-size": "context"})
    assert (problem.rule.code, problem.severity, problem.help) == (
        "LH116",
        "warning",
        "write the key `context` instead",
    )
    assert not check_arguments(LLAMA, ["-b", "4096"], managed={"--ctx-size": "context"})


def test_a_flag_of_an_older_version_is_told_from_one_of_another_engine() -> None:
    (older,) = found("--license")
    (other,) = found("-muge")
    assert (older.rule.code, other.rule.code) == ("LH101", "LH102")
    assert "llama.cpp b9246 has it" in older.message
    assert "ik_llama.cpp" in other.message


def test_what_an_incomplete_catalogue_does_not_know_is_only_doubted() -> None:
    (problem,) = found("--brand-new-flag", known("ik_llama.cpp", "8337e4cd3"))
    assert (problem.rule.code, problem.severity) == ("LH100", "warning")


def test_other_keys_in_the_template_settings_are_kept() -> None:
    given = """--chat-template-kwargs '{"enable_thinking": true, "a": 1}'"""
    assert mended(given) == """--reasoning on --chat-template-kwargs '{"a": 1}'"""
