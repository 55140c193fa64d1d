"""The scripts that take flags out of sources: on small sources in the engines' own forms."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
ARG_CPP = r"""
const std::vector<ggml_type> kv_cache_types = { GGML_TYPE_F16, GGML_TYPE_Q8_0 };
static std::initializer_list<enum llama_example> image_examples = { LLAMA_EXAMPLE_SERVER };
    add_opt(common_arg(
        {"-t", "--threads"}, "N", // with a "quoted" comment, (and a bracket
        string_format("threads (default: %d), or so", params.n),
        [](common_params & params, int value) {
            if (value < 1 || value > 512) { throw std::invalid_argument("invalid value"); }
            params.n = value;
        }
    ).set_env("LLAMA_ARG_THREADS"));
    add_opt(common_arg({"-ctk"}, "TYPE", "type", [](common_params & params, const std::string & value) {
        params.k = kv_cache_type_from_str(value);
    }));
    add_opt(common_arg({"--ui"}, {"--no-ui"}, "page", [](common_params & params, bool value) { params.ui = value; }
    ).set_examples(image_examples));
    add_opt(common_arg({"--bench"}, "only elsewhere", [](common_params & params) { params.b = true; }
    ).set_examples({LLAMA_EXAMPLE_BENCH}));
    add_opt(common_arg({"--prompt"}, "P", "not here", [](common_params & params, const std::string & value) {
        params.p = value;
    }).set_excludes({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg({"--draft"}, "N", "gone", [](common_params & /*params*/, int /*value*/) {
        arg_removed("use --more");
    }));
    add_opt(common_arg({"--numa"}, "TYPE", "numa", [](common_params & params, const std::string & value) {
        /**/ if (value == "isolate") { params.m = 1; }
        else { throw std::invalid_argument("invalid value"); }
    }));
    add_opt(common_arg({"--version"}, "show", [](common_params &) { exit(0); }));
"""
COMMON_CPP = r"""
void from_env(gpt_params & params) {
    get_env("LLAMA_ARG_CTX_SIZE", params.n_ctx);
    get_env("LLAMA_ARG_MLOCK",    params.use_mlock);
}
bool find(int argc, char ** argv, const std::string & arg) {
    if (arg == "-c" || arg == "--ctx-size") {
        CHECK_ARG
        params.n_ctx = std::stoi(argv[i]);
        return true;
    }
    if (arg == "--mlock") { params.use_mlock = true; return true; }
    if (arg == "-mtp") {
        throw common_speculative_legacy_option_error(arg,
            "--spec-type mtp:n_max=" + std::string(argv[i]) + ",p_min=0.0");
    }
    if (arg == "--lora-scaled") {
        CHECK_ARG
        params.file = argv[i];
        CHECK_ARG
        params.loras.push_back({ params.file, std::stof(argv[i]) });
        return true;
    }
    if (arg == "-rcache") { fprintf(stderr, "-rcache is no longer supported"); return true; }
}
"""
LOG_H = """
inline bool log_param_single_parse(const std::string & param) {
    if ( param == "--log-new") { return true; }
}
inline bool log_param_pair_parse(bool check, const std::string & param) {
    if ( param == "--log-file") { return true; }
}
"""
ARG_UTILS = """
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        model_kwargs = get_kwargs(ModelConfig)
        group = parser.add_argument_group(title="ModelConfig")
        group.add_argument("--dtype", **model_kwargs["dtype"])
        group.add_argument("--enable-eager", "-ee", **model_kwargs["enable_eager"])
        group.add_argument("--seed", **model_kwargs["seed"])
        group.add_argument("--files", **model_kwargs["files"])
        group.add_argument("--disable-log-stats", action="store_true")
"""
CONFIG = """
DType = Literal["auto", "half"]

@config
class ModelConfig:
    dtype: DType | torch.dtype = "auto"
    enable_eager: bool = False
    seed: int = 0
    files: list[str] | None = None
"""
CLI_ARGS = """
class FrontendArgs:
    host: str | None = None

def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser.add_argument("--servers", "-s", type=int, default=None)
"""


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def printed(script: str, *arguments: str) -> Any:
    command = [sys.executable, str(SCRIPTS / script), *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.fixture
def llama_cpp(tmp_path: Path) -> Path:
    files = {"common/arg.cpp": ARG_CPP, "common/chat.cpp": "", "common/speculative.cpp": ""}
    return written(tmp_path, files)


def test_flags_of_llama_cpp(llama_cpp: Path) -> None:
    taken = printed("catalogue", "llama.cpp", "--source", str(llama_cpp), "--version", "b1")
    assert taken["flags"] == [
        {
            "spellings": ["-t", "--threads"],
            "values": [{"kind": "int", "minimum": 1, "maximum": 512}],
            "env": "LLAMA_ARG_THREADS",
        },
        {"spellings": ["-ctk"], "values": [{"kind": "word", "choices": ["f16", "q8_0"]}]},
        {"spellings": ["--ui"], "negated": ["--no-ui"]},
        {"spellings": ["--draft"], "values": [{"kind": "int"}], "removed": "use --more"},
        {"spellings": ["--numa"], "values": [{"kind": "word", "choices": ["isolate"]}]},
        {"spellings": ["--version"], "ends": True},
    ]


def test_a_program_with_other_flags_is_told_apart(llama_cpp: Path, tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho '-t,    --threads N            threads'\necho '--odd                    new'\n")
    program.chmod(0o755)
    command = [
        sys.executable,
        str(SCRIPTS / "catalogue"),
        "llama.cpp",
        "--source",
        str(llama_cpp),
        "--binary",
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "in --help only: --odd" in done.stderr
    assert "in the source only: --numa" in done.stderr
    assert "--threads" not in done.stderr


def test_flags_of_ik_llama_cpp(tmp_path: Path) -> None:
    header = "struct gpt_params { int n_ctx = 0; bool use_mlock = false; };"
    files = {"common.cpp": COMMON_CPP, "log.h": LOG_H, "common.h": header}
    source = written(tmp_path, {f"common/{name}": text for name, text in files.items()})
    taken = printed("catalogue", "ik_llama.cpp", "--source", str(source), "--version", "abc", "--date", "2026-01-01")
    assert taken["flags"] == [
        {"spellings": ["-c", "--ctx-size"], "values": [{"kind": "int"}], "env": "LLAMA_ARG_CTX_SIZE"},
        {"spellings": ["--mlock"], "env": "LLAMA_ARG_MLOCK"},
        {"spellings": ["-mtp"], "removed": "--spec-type mtp:n_max=N,p_min=0.0"},
        {"spellings": ["--lora-scaled"], "values": [{"kind": "text"}, {"kind": "text"}], "repeats": True},
        {"spellings": ["-rcache"], "idle": True},
        {"spellings": ["--log-new"]},
        {"spellings": ["--log-file"], "values": [{"kind": "text"}]},
    ]
    assert (taken["env"], taken["booleans"]) == ("above", ["LLAMA_ARG_MLOCK"])


def test_options_of_cmake(tmp_path: Path) -> None:
    text = """
    option(GGML_CUDA "ggml: use CUDA" OFF)
    # option(GGML_GONE "in a comment" OFF)
    set   (GGML_CUDA_FA_QUANTS "f16-f16" CACHE STRING
           "which (kernels)")
    set(GGML_NO_OPTION 1)
    if (NOT DEFINED LLAMA_BUILD_NUMBER)
    """
    source = written(tmp_path, {"ggml/CMakeLists.txt": text})
    assert printed("catalogue", "options", "--source", str(source)) == [
        "GGML_CUDA",
        "GGML_CUDA_FA_QUANTS",
        "LLAMA_BUILD_NUMBER",
    ]


def test_flags_of_vllm(tmp_path: Path) -> None:
    files = {"engine/arg_utils.py": ARG_UTILS, "config/model.py": CONFIG, "entrypoints/cli_args.py": CLI_ARGS}
    source = written(tmp_path, {f"vllm/{name}": text for name, text in files.items()})
    taken = printed("catalogue-vllm", "--source", str(source), "--version", "1.0")
    assert taken["flags"][2:] == [
        {"spellings": ["--host"], "values": [{"kind": "text"}]},
        {"spellings": ["--servers", "-s"], "values": [{"kind": "int"}]},
        {"spellings": ["--dtype"], "values": [{"kind": "word", "choices": ["auto", "half"]}]},
        {"spellings": ["--enable-eager", "-ee"], "negated": ["--no-enable-eager", "--disable-eager"]},
        {"spellings": ["--seed"], "values": [{"kind": "int"}]},
        {"spellings": ["--files"], "values": [{"kind": "text"}], "many": True},
        {"spellings": ["--disable-log-stats"]},
    ]
