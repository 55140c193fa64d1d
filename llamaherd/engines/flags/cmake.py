"""Checks of the engines' CMake options: renamed, removed, misspelt, and those of another engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from llamaherd.diagnostics.findings import Rule, Severity
from llamaherd.diagnostics.spelling import misspelled_name, nearest_name
from llamaherd.engines.flags.definitions import Problem
from llamaherd.reference.toolchains import DISTRIBUTION_NVCC, DISTRIBUTION_TOOLKITS

LLAMA, IK = "llama.cpp", "ik_llama.cpp"
RENAMED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    LLAMA: {
        "GGML_CUDA_FA_ALL_QUANTS": ("GGML_CUDA_FA_QUANTS", "all"),
        "GGML_NCCL": ("GGML_CUDA_NCCL", ""),
        "GGML_CUDA_USE_GRAPHS": ("GGML_CUDA_GRAPHS", ""),
        "LLAMA_BUILD_WEBUI": ("LLAMA_BUILD_UI", ""),
        "LLAMA_USE_PREBUILT_WEBUI": ("LLAMA_USE_PREBUILT_UI", ""),
        "HF_WEBUI_VERSION": ("HF_UI_VERSION", ""),
        "LLAMA_SERVER_SSL": ("LLAMA_OPENSSL", ""),
    },
    IK: {
        "GGML_CUDA_FA_QUANTS": ("GGML_CUDA_FA_ALL_QUANTS", "ON"),
        "GGML_CUDA_NCCL": ("GGML_NCCL", ""),
        "GGML_CUDA_GRAPHS": ("GGML_CUDA_USE_GRAPHS", ""),
        "LLAMA_OPENSSL": ("LLAMA_SERVER_SSL", ""),
    },
}
"""Old or foreign name to the name here, and the value where it is not the same one
(llama.cpp b11434: ggml/CMakeLists.txt:199-212; ik_llama.cpp: ggml/CMakeLists.txt:97-141)."""
BOTH: Mapping[str, str] = {
    "LLAMA_CUBLAS": "GGML_CUDA",
    **{f"LLAMA_{name}": f"GGML_{name}" for name in ("CUDA", "NATIVE", "RPC", "METAL", "SYCL", "BLAS", "VULKAN")},
    **dict.fromkeys(("CUDA_ARCH", "CUDA_ARCHS", "CUDA_ARCHITECTURES", "CUDA_DOCKER_ARCH"), "CMAKE_CUDA_ARCHITECTURES"),
}
OLD = ("LLAMA_CUDA", "LLAMA_NATIVE", "LLAMA_RPC", "LLAMA_METAL", "LLAMA_SYCL")
DEPRECATED_OPTIONS = {LLAMA: (*OLD, "GGML_CUDA_FA_ALL_QUANTS"), IK: OLD}
"""They work, with a warning (llama_option_depr in CMakeLists.txt); the rest does nothing or ends the configuration."""
GONE: Mapping[str, Mapping[str, str]] = {
    LLAMA: {
        "LLAMA_CURL": "downloads need no library, and HTTPS comes with LLAMA_OPENSSL, which is on",
        "GGML_CUDA_F16": "half precision is chosen at run time",
        "GGML_CUDA_DMMV_F16": "half precision is chosen at run time",
        "GGML_CUDA_DMMV_X": "the kernels choose by themselves",
        "GGML_CUDA_MMV_Y": "the kernels choose by themselves",
        "GGML_CUDA_FORCE_DMMV": "the kernels choose by themselves",
        "GGML_CUDA_KQUANTS_ITER": "the kernels choose by themselves",
        "GGML_CUDA_PEER_MAX_BATCH_SIZE": "copies between GPUs are switched by the variable GGML_CUDA_P2P",
    },
    IK: {"GGML_CUDA_FA": "flash attention is always built"},
}
OUR_PREFIXES = ("GGML_", "LLAMA_")
FA_TYPES = frozenset(("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "bf16", "f16"))
"""Types of a cache for which llama.cpp has kernels of flash attention (ggml/cmake/common.cmake:56)."""
OF_CMAKE = (
    *("CMAKE_BUILD_TYPE", "CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_CUDA_COMPILER", "CMAKE_CUDA_HOST_COMPILER"),
    *("CMAKE_CUDA_ARCHITECTURES", "CMAKE_C_FLAGS", "CMAKE_CXX_FLAGS", "CMAKE_CUDA_FLAGS", "CMAKE_C_STANDARD"),
    *("CMAKE_CXX_STANDARD", "CMAKE_CUDA_STANDARD", "CMAKE_INSTALL_PREFIX", "CMAKE_PREFIX_PATH", "CMAKE_TOOLCHAIN_FILE"),
    *("CMAKE_EXE_LINKER_FLAGS", "CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_HIP_ARCHITECTURES"),
    *("CMAKE_CUDA_COMPILER_LAUNCHER", "CMAKE_SYSTEM_NAME", "CMAKE_SYSTEM_PROCESSOR", "CMAKE_HIP_FLAGS"),
)
"""Variables of CMake's own that engines are built with; others are let be unless they are nearly one of these."""
BUILD_TYPES = ("Release", "RelWithDebInfo", "MinSizeRel", "Debug")
FALSE, TRUTHS = (
    ("OFF", "FALSE"),
    ("OFF", "FALSE", "NO", "N", "0", "IGNORE", "NOTFOUND", "", "ON", "TRUE", "YES", "Y", "1"),
)
"""The words for false that may be misspelt, and all words that `if()` of CMake reads as a truth value, in capitals."""

ARCHITECTURE = re.compile(r"[1-9][0-9]{1,2}[af]?(?:-real|-virtual)?|all|all-major|native|OFF", re.IGNORECASE)
"""A name of an architecture that CMake accepts."""


def check_options(kind: str, options: Mapping[str, str], *, newer: str = "") -> tuple[Problem, ...]:
    """Return the problems of CMake options for an engine; a problem's `index` is that of the option.

    CMake itself accepts any name, and only lists unused ones at the end. `newer` is the engine's version if that is
    newer than all known ones: it may have more options, and the build decides.
    """
    found: list[Problem] = []
    for index, (name, value) in enumerate(options.items()):
        name = name.removeprefix("-D").partition(":")[0]
        for wrong in _problems(kind, name, value):
            if newer and wrong.new_here:
                close = wrong.help if wrong.help.startswith("did you mean") else ""
                help_ = close or f"nothing, if {newer} has it: the build stops at an option that its CMake does not use"
                message = f"{wrong.message} that is known here, and {newer} is newer"
                found.append(Problem(wrong.rule, index, 1, message, help_, "note"))
            else:
                problem = Problem(wrong.rule, index, 1, wrong.message, wrong.help, wrong.unusual, wrong.replacement)
                found.append(problem)
    return tuple(found)


OPTION_GONE = Rule(
    "LH130",
    "A CMake option was removed from this engine.",
    example="""
    engines:
      main: {options: {LLAMA_CUBLAS: true}}
    """,
    fix="write the option that replaced it. llamaherd switches CUDA on for instances that are `on` a GPU.",
)


OPTION_UNKNOWN = Rule(
    "LH131",
    "No known engine has such a CMake option.",
    why="""
    CMake would ignore it. llamaherd stops the build, since something else was meant. It is a note where the engine's
    version is newer than the catalogues.
    """,
    example="""
    engines:
      main: {options: {LLAMA_MTP: true}}
    """,
    fix="leave it out, or correct it. There is no build option for MTP.",
    sometimes=("note",),
)


OPTION_FOREIGN = Rule(
    "LH132",
    "A CMake option is another engine's.",
    example="""
    engines:
      main: {options: {GGML_IQK_FA_ALL_QUANTS: true}}
    """,
    fix="write this engine's name of it, as in the help line.",
)


OPTION_DEPRECATED = Rule(
    "LH133",
    "A CMake option works and will be removed.",
    example="""
    engines:
      main: {options: {GGML_CUDA_FA_ALL_QUANTS: true}}
    """,
    fix="write `GGML_CUDA_FA_QUANTS: all`, which is llamaherd's default.",
    severity="warning",
)


class WrongOption(NamedTuple):
    """The problem of one option, and `NAME=VALUE` to write instead; empty to leave it out."""

    rule: Rule
    message: str
    help: str
    replacement: tuple[str, ...] | None = None
    unusual: Severity | None = None
    new_here: bool = False
    """A newer version may have it."""


def _problems(kind: str, name: str, value: str) -> Iterator[WrongOption]:
    new, set_to = RENAMED.get(kind, {}).get(name, (BOTH.get(name, ""), ""))
    if new:
        off = set_to and value.upper() in ("OFF", "0", "FALSE", "NO")
        replacement: tuple[str, ...] | None = () if off else (f"{new}={set_to or value}",)
        way_out = f"write `{replacement[0]}`" if replacement else "leave it out"
        for wrong in _of_value(new, set_to or value) if replacement else ():
            # The value would not do under the new name either.
            instead = wrong.help if wrong.replacement else f"write `{new}=…`: {wrong.help.removeprefix('write ')}"
            replacement, way_out = wrong.replacement, instead
        works = name in DEPRECATED_OPTIONS.get(kind, ())
        message = f"`{name}` is `{new}` in {kind}" + (" now" if works else ", and not understood under this name")
        yield WrongOption(OPTION_DEPRECATED if works else OPTION_GONE, message, way_out, replacement)
    elif name.startswith(OUR_PREFIXES) and "MTP" in name:
        way_out = "leave it out: every build can draft with a model's head, which `draft: {mtp: 2}` switches on"
        yield WrongOption(OPTION_UNKNOWN, f"there is no option for MTP in the build of {kind}", way_out, ())
    elif reason := GONE.get(kind, {}).get(name):
        yield WrongOption(OPTION_GONE, f"{kind} has no `{name}` any more: {reason}", "leave it out", ())
    elif name.startswith(OUR_PREFIXES) and name not in known_options(kind):
        others = [other for other in (LLAMA, IK) if other != kind and name in known_options(other)]
        if others:
            message = f"`{name}` is an option of {others[0]}, and {kind} has none like it"
            yield WrongOption(OPTION_FOREIGN, message, "leave it out", ())
            return
        close = nearest_name(name, known_options(kind))
        way_out = f"did you mean `{close}`?" if close else "leave it out: CMake would accept and ignore it"
        message = f"{kind} has no option `{name}`"
        yield WrongOption(OPTION_UNKNOWN, message, way_out, None if close else (), new_here=True)
    elif name.startswith("CMAKE_") and name not in OF_CMAKE and (meant := nearest_name(name, OF_CMAKE)):
        message = f"CMake has no variable `{name}`, and would ignore it"
        yield WrongOption(OPTION_UNKNOWN, message, f"did you mean `{meant}`?")
    else:
        yield from _of_value(name, value)


OPTION_TAKEN = Rule(
    "LH276",
    "CMake accepts the value of an option, and uses it otherwise.",
    why="""
    CMake compiles a build type that it has no flags for without optimisation, and `Debug` too. Any word that does
    not mean off switches an option on, `flase` and `disabled` too.
    """,
    example="""
    engines:
      main: {options: {CMAKE_BUILD_TYPE: Relase}}
    """,
    fix="write the value of the help line, if that was meant.",
    sometimes=("warning",),
)


def _of_value(name: str, value: str) -> Iterator[WrongOption]:
    """Yield the problems of an option's value."""
    if name == "CMAKE_CUDA_ARCHITECTURES":
        yield from _architectures(value)
    elif name == "GGML_CUDA_FA_QUANTS":
        yield from _pairs(value)
    elif name == "CMAKE_BUILD_TYPE":
        yield from _build_type(value)
    elif name == "CMAKE_CUDA_COMPILER" and value == DISTRIBUTION_NVCC:
        these = ", ".join(f"{version} in {system}" for system, version in DISTRIBUTION_TOOLKITS.items())
        message = f"`{value}` is the distribution's CUDA ({these}), none of which compiles for RTX 50"
        help_ = "leave it out in a rig, where `cuda` of `gpus` decides; in a script, write /usr/local/cuda/bin/nvcc"
        yield WrongOption(OLD_NVCC, message, help_)
    elif name.startswith(OUR_PREFIXES) and value.upper() not in TRUTHS and (meant := _meant_off(value)):
        message = f"`{value}` is no word for off to CMake, and every other one switches `{name}` on"
        yield WrongOption(OPTION_TAKEN, message, f"did you mean `{name}={meant}`?")


OLD_NVCC = Rule(
    "LH135",
    "An engine is compiled by the distribution's CUDA toolkit.",
    why="""
    `/usr/bin/nvcc` is of the package `nvidia-cuda-toolkit`. It is older than the GPUs: the build stops at `Unsupported
    gpu architecture 'compute_120'`, or the engine has no code for the GPU
    ([#13271](https://github.com/ggml-org/llama.cpp/issues/13271)). A toolkit of NVIDIA is in /usr/local/cuda.
    """,
    example="""
    engines:
      main: {options: {CMAKE_CUDA_COMPILER: /usr/bin/nvcc}}
    """,
    fix="leave the option out: `cuda` of `gpus` decides which toolkit compiles.",
    severity="warning",
)


def _meant_off(value: str) -> str | None:
    return "OFF" if value.lower() in ("disable", "disabled") else misspelled_name(value.upper(), FALSE)


def _build_type(value: str) -> Iterator[WrongOption]:
    """Report build types without flags for optimisation.

    CMake accepts any name, and has flags for four, in capitals or not (CMAKE_BUILD_TYPE in its documentation).
    """
    known = next((each for each in BUILD_TYPES if each.lower() == value.lower()), None)
    if known == "Debug":
        message = "`CMAKE_BUILD_TYPE=Debug` compiles without optimisation: the engine is many times slower"
        help_ = "leave it out, or write `CMAKE_BUILD_TYPE=RelWithDebInfo`"
        yield WrongOption(OPTION_TAKEN, message, help_, unusual="warning")
    elif known is None and value and "$" not in value:
        close = misspelled_name(value, BUILD_TYPES)
        way_out = f"did you mean `CMAKE_BUILD_TYPE={close}`?" if close else f"known are {', '.join(BUILD_TYPES)}"
        message = f"`{value}` is no build type that CMake has flags for: it compiles without optimisation"
        yield WrongOption(OPTION_TAKEN, message, way_out, unusual=None if close else "warning")


OPTION_VALUE = Rule(
    "LH134",
    "A CMake option has a value at which the build stops.",
    why="""
    `GGML_CUDA_FA_QUANTS` is `all`, or pairs of a K and a V type with `;` or `,` between. An empty element ends the
    configuration. A pair of other types is a note where the engine's version is newer than the catalogues.
    """,
    example="""
    engines:
      main: {options: {GGML_CUDA_FA_QUANTS: "q8_0-q8_0;"}}
    """,
    fix="write the value of the help line.",
    sometimes=("note",),
)


def _architectures(value: str) -> Iterator[WrongOption]:
    """Report names of architectures at which CMake stops (its documentation, CUDA_ARCHITECTURES)."""
    wrong = next((part for part in value.split(";") if part and not ARCHITECTURE.fullmatch(part)), None)
    if wrong is None or "$" in value:
        return
    meant = [re.sub(r"^(?:sm|compute)_|(?<=\d)\.(?=\d)", "", part.strip()) for part in re.split("[;, ]+", value)]
    message = f"`{wrong}` is no architecture to CMake, which stops at it"
    if all(ARCHITECTURE.fullmatch(part) for part in meant):
        fix = f"CMAKE_CUDA_ARCHITECTURES={';'.join(meant)}"
        yield WrongOption(OPTION_VALUE, message, f"write `{fix}`", (fix,))
    else:
        yield WrongOption(OPTION_VALUE, message, "write numbers such as `86;120`")


def _pairs(value: str) -> Iterator[WrongOption]:
    """Report K-V pairs at which CMake stops (llama.cpp b11434, ggml/cmake/common.cmake:54-122)."""
    parts = [part.strip() for part in value.strip().lower().replace(",", ";").split(";")]
    if parts == ["all"]:
        return
    right = [part for part in parts if is_pair(part)]
    wrong = next((part for part in parts if part not in right), None)
    if wrong is None:
        return
    message = f"`{wrong}` in `GGML_CUDA_FA_QUANTS` is no pair of K and V types" if wrong else ""
    message = message or "`GGML_CUDA_FA_QUANTS` has an empty element, at which CMake stops"
    fix = f"GGML_CUDA_FA_QUANTS={';'.join(right) if right and not wrong else 'all'}"
    help_ = f"write `{fix}`; types are {', '.join(sorted(FA_TYPES))}"
    yield WrongOption(OPTION_VALUE, message, help_, (fix,), new_here=wrong.count("-") == 1)


def is_pair(text: str) -> bool:
    """Return whether CMake accepts this as a K type and a V type that have kernels."""
    return text.count("-") == 1 and set(text.split("-")) <= FA_TYPES


@cache
def known_options(kind: str) -> tuple[str, ...]:
    """Return the names of an engine's own CMake options; none for an engine that is not built by CMake."""
    text = files("llamaherd.engines.flags").joinpath("catalogues", "options.json").read_text(encoding="utf-8")
    return tuple(json.loads(text).get(kind, ()))
