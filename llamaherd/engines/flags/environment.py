"""The environment of a server: variables that the engine does not read, or reads unexpectedly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

from llamaherd.diagnostics.findings import Rule, Severity
from llamaherd.diagnostics.spelling import nearest_name
from llamaherd.engines.flags.advice import SECRET
from llamaherd.engines.flags.cmake import known_options
from llamaherd.engines.flags.definitions import Catalogue, Flag, Problem
from llamaherd.engines.flags.translations import load_mode

PREFIX, NEGATED = "LLAMA_ARG_", "LLAMA_ARG_NO_"
_PRESENT = (
    *("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "GGML_CUDA_NO_PINNED", "GGML_CUDA_DISABLE_GRAPHS"),
    *("GGML_CUDA_REGISTER_HOST", "GGML_NO_BACKTRACE"),
)
PRESENT: Mapping[str, frozenset[str]] = {
    "llama.cpp": frozenset((*_PRESENT, "GGML_CUDA_P2P", "GGML_RPC_NO_RDMA")),
    "ik_llama.cpp": frozenset((*_PRESENT, "GGML_CUDA_HOST_MALLOC_THP", "IK_LEGACY_GRAPH_REUSE")),
}
"""Read by std::getenv(name) != nullptr (llama.cpp b11434: ggml-cuda.cu:144-5219, common.cuh:1289, transport.cpp:594;
ik_llama.cpp 8337e4cd3: ggml-cuda.cu:179-5499, llama.cpp:577)."""
NO_PEERS = "build with -DGGML_CUDA_NO_PEER_COPY=ON instead"
ABSENT: Mapping[str, Mapping[str, str]] = {
    # A switch of 2025 that no catalogue's version has: the cache is always written by rows.
    "llama.cpp": {"LLAMA_SET_ROWS": "leave it out: it is always so"},
    "ik_llama.cpp": {"GGML_CUDA_P2P": NO_PEERS, "GGML_CUDA_NO_PEER_COPY": NO_PEERS},
}
OF_CUDA = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_CACHE_PATH", "CUDA_CACHE_DISABLE"),
    *("CUDA_CACHE_MAXSIZE", "CUDA_MODULE_LOADING", "CUDA_SCALE_LAUNCH_QUEUES", "CUDA_FORCE_PTX_JIT", "CUDA_HOME"),
    *("CUDA_PATH", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"),
    *("CUDA_VERSION", "CUDA_DEVICE_WAITS_ON_EXCEPTION", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
    *("CUDA_ARCHITECTURES", "CUDA_DOCKER_ARCH", "CUDA_COMPAT_PATH", "CUDA_TOOLKIT_ROOT_DIR", "CUDA_BIN_PATH"),
)
"""Variables of CUDA and of NVIDIA's container toolkit. Only names close to one of them are reported."""
SECRET_VARIABLES = ("LLAMA_API_KEY", "VLLM_API_KEY", "HF_TOKEN")
_WITHOUT = {"HF_TOKEN": "leave it out: downloads of models use the HF_TOKEN of the shell that runs `herd`"}
TRUE, FALSE = ("1", "true"), ("0", "false", "off", "no", "")
ON = "`on`, `enabled`, `true` and `1`"
SWITCHED = ("on", "enabled", "true", "1", "off", "disabled", "false", "0")
"""The values of a switch in llama.cpp's environment (common/arg.cpp, parse_bool_value)."""


def check_environment(catalogue: Catalogue, environment: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return the faults of a server's variables; a problem's `index` counts them in their order."""
    found = []
    for index, name in enumerate(environment):
        for rule, message, way_out in _problems(catalogue, name, environment):
            severity: Severity | None = "note" if _undecided(catalogue, rule, name) else None
            found.append(Problem(rule, index, 1, message, way_out, severity))
    return tuple(found)


def _undecided(catalogue: Catalogue, rule: Rule, name: str) -> bool:
    """Return whether the version is newer than all known ones, and may read the variable or take its value."""
    if not catalogue.outdated or not name.startswith((PREFIX, "GGML_")):
        return False
    if rule is ENV_UNKNOWN:
        return name not in OLD_SWITCHES and name not in known_options(catalogue.kind)
    flag = flag_of_variable(catalogue, name)
    return rule is ENV_VALUE and flag is not None and not flag.removed


ENV_UNKNOWN = Rule(
    "LH120",
    "A variable resembles one of the engine's, and the engine does not read it.",
    why="It is a note where the engine's version is newer than the catalogues: it may read more.",
    example="""
    instances:
      coder: {environment: {LLAMA_ARG_CTXSIZE: 4096}}
    """,
    fix="write the name of the help line, or better the key of the inventory.",
    severity="warning",
    sometimes=("note",),
)


ENV_PRESENCE = Rule(
    "LH121",
    "A variable counts by its presence, whatever its value.",
    why="`GGML_CUDA_P2P=0` switches copies between GPUs on.",
    example="""
    instances:
      coder: {environment: {GGML_CUDA_P2P: "0"}}
    """,
    fix="leave it out to have it off.",
)


ENV_BEATS = Rule(
    "LH122",
    "A variable overrides the command line.",
    why="ik_llama.cpp reads its `LLAMA_ARG_` variables last.",
    example="""
    engines:
      main: {kind: ik_llama.cpp, ref: main, flags: 8337e4cd3}
    instances:
      coder: {environment: {LLAMA_ARG_CTX_SIZE: "4096"}}
    """,
    fix="leave it out: `context` sets it.",
)


ENV_OFF = Rule(
    "LH123",
    "A variable's value switches off what it seems to switch on.",
    why="""
    ik_llama.cpp reads `1` and `true` of its switches as on, and anything else as off. That the variable overrides the
    command line is LH122.
    """,
    example="""
    engines:
      main: {kind: ik_llama.cpp, ref: main, flags: 8337e4cd3}
    instances:
      coder: {environment: {LLAMA_ARG_MLOCK: "yes"}}
    """,
    fix="write `1` or `true`, or the key of the inventory.",
)


def _problems(catalogue: Catalogue, name: str, environment: Mapping[str, str]) -> Iterator[tuple[Rule, str, str]]:
    """Yield rule, message and help of each problem with one variable."""
    value = environment[name]
    if name in SECRET_VARIABLES:
        yield (
            SECRET,
            f"`{name}` contains a secret, which would be in the unit",
            _WITHOUT.get(name, "set `api_key` to its place"),
        )
    if name in PRESENT.get(catalogue.kind, ()) and value.lower() in FALSE:
        yield (
            ENV_PRESENCE,
            f"`{name}={value}` switches it on: {catalogue.kind} checks only whether it is set",
            "leave the variable out",
        )
    yield from _unread(catalogue, name, value)
    if name.startswith(PREFIX) and catalogue.env:
        yield from _of_engine(catalogue, name, environment)


def _unread(catalogue: Catalogue, name: str, value: str) -> Iterator[tuple[Rule, str, str]]:
    """Yield the problems of variables of CUDA and of libraries that are not read here."""
    if name not in OF_CUDA and name.startswith(("CUDA_", "NVIDIA_")) and (slip := nearest_name(name, OF_CUDA)):
        yield ENV_UNKNOWN, f"no library reads `{name}`", f"did you mean `{slip}`?"
    if name.startswith("GGML_") and variables(catalogue.kind) and name not in variables(catalogue.kind):
        option = name in known_options(catalogue.kind)
        message = f"{catalogue.kind} does not read `{name}`" + (": it is an option of the build" if option else "")
        close = nearest_name(name, variables(catalogue.kind))
        help_ = f"give it to CMake, as `-D{name}={value}`" if option else f"did you mean `{close}`?" if close else ""
        if name not in ABSENT.get(catalogue.kind, {}):
            yield ENV_UNKNOWN, message, help_ or "leave it out"
    if way_out := ABSENT.get(catalogue.kind, {}).get(name):
        yield ENV_UNKNOWN, f"{catalogue.kind} does not read `{name}`", way_out


def _of_engine(catalogue: Catalogue, name: str, environment: Mapping[str, str]) -> Iterator[tuple[Rule, str, str]]:
    """Yield the problems of the engine's own variables, which set flags."""
    flag, value = flag_of_variable(catalogue, name), environment[name]
    if flag is None and name not in catalogue.environment:
        newer = f", and {catalogue.requested} is newer" if catalogue.outdated else ", and gives no warning"
        message = f"{catalogue} does not read `{name}`{newer}"
        yield ENV_UNKNOWN, message, _of_loading(catalogue, name, environment) or _instead(catalogue, name, value)
    elif catalogue.env == "above":
        yield (
            ENV_BEATS,
            f"`{name}` beats the command line in {catalogue.kind}: it is read again after the arguments",
            "leave the variable out, and write a flag or a key",
        )
        if name in catalogue.booleans and value not in (*TRUE, *FALSE):
            message = f"`{name}={value}` switches it off: {catalogue.kind} takes only `1` and `true` for on"
            yield ENV_OFF, message, "write 1 or 0"
    elif flag:
        yield from _of_flag(catalogue, flag, name, value)


MEANT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("LLAMA_ARG_CONTEXT", "LLAMA_ARG_CONTEXT_SIZE", "LLAMA_ARG_N_CTX"), ("LLAMA_ARG_CTX_SIZE",)),
    **dict.fromkeys(("LLAMA_ARG_NGL", "LLAMA_ARG_GPU_LAYERS"), ("LLAMA_ARG_N_GPU_LAYERS",)),
    **dict.fromkeys(("LLAMA_ARG_PARALLEL", "LLAMA_ARG_NP"), ("LLAMA_ARG_N_PARALLEL",)),
    **dict.fromkeys(("LLAMA_ARG_BATCH_SIZE", "LLAMA_ARG_N_BATCH"), ("LLAMA_ARG_BATCH",)),
    **dict.fromkeys(("LLAMA_ARG_UBATCH_SIZE", "LLAMA_ARG_N_UBATCH"), ("LLAMA_ARG_UBATCH",)),
    "LLAMA_ARG_METRICS": ("LLAMA_ARG_ENDPOINT_METRICS",),
    "LLAMA_ARG_SLOTS": ("LLAMA_ARG_ENDPOINT_SLOTS",),
    "LLAMA_ARG_ALIAS": ("LLAMA_ARG_MODEL_ALIAS",),
    "LLAMA_ARG_API_KEY": ("LLAMA_API_KEY",),
    "LLAMA_ARG_N_THREADS": ("LLAMA_ARG_THREADS",),
}
"""Wrong names of variables with the right ones; the first that the version has is suggested."""
MODE = "LLAMA_ARG_LOAD_MODE"
OLD_SWITCHES: Mapping[str, tuple[str, str]] = {
    "LLAMA_ARG_MMAP": ("--mmap", "--no-mmap"),
    "LLAMA_ARG_NO_MMAP": ("--no-mmap", "--no-mmap"),  # it counted by its presence
    "LLAMA_ARG_MLOCK": ("--mlock", ""),
    "LLAMA_ARG_DIO": ("--direct-io", ""),
}
"""Switches for loading that `--load-mode` replaced: their meanings if on, and if off."""


@cache
def variables(kind: str) -> tuple[str, ...]:
    """Return the variables that an engine reads by name, without those of flags."""
    text = files("llamaherd.engines.flags").joinpath("catalogues", "variables.json").read_text(encoding="utf-8")
    return tuple(json.loads(text).get(kind, ()))


def _of_loading(catalogue: Catalogue, name: str, environment: Mapping[str, str]) -> str:
    """Return the help for a switch for loading: one mode for all such variables. Empty for other variables."""
    if name not in OLD_SWITCHES:
        return ""
    if not _switch(name, environment[name]):
        return "leave it out: it switches nothing on"
    if MODE not in catalogue.environment:
        return ""
    modes = [value if each == MODE else _switch(each, value) for each, value in environment.items()]
    mode = load_mode(catalogue, [each for each in modes if each])
    if environment.get(MODE) == mode:
        return f"leave it out: `{MODE}={mode}` stands for it"
    return f"did you mean `{MODE}={mode}`?"


def _switch(name: str, value: str) -> str:
    """Return the switch for loading that a variable set; empty for other variables, and if it sets nothing."""
    on, off = OLD_SWITCHES.get(name, ("", ""))
    return off if value.lower() in (*FALSE, "disabled") else on


def _instead(catalogue: Catalogue, name: str, value: str) -> str:
    """Return the help for an unread variable: the variable with this meaning, or with a similar name."""
    slots = name == "LLAMA_ARG_SLOTS" and re.fullmatch("(?!0*[01]$)-?[0-9]+", value.strip())  # a number, no switch
    names = ("LLAMA_ARG_N_PARALLEL",) if slots else MEANT.get(name, ())
    known = (each for each in names if each in {*catalogue.environment, "LLAMA_API_KEY"})
    instead = next(known, None) or nearest_name(name, sorted(catalogue.environment))
    return f"did you mean `{instead}`?" if instead else "write it as a flag"


ENV_VALUE = Rule(
    "LH124",
    "A variable has a value that the engine does not accept, or is of a flag that was removed.",
    why="It is a note where the engine's version is newer than the catalogues: it may accept more.",
    example="""
    instances:
      coder: {environment: {LLAMA_ARG_FLASH_ATTN: maybe}}
    """,
    fix="apply the fix of the help line, or better write the key of the inventory.",
    sometimes=("note",),
)


def _of_flag(catalogue: Catalogue, flag: Flag, name: str, value: str) -> Iterator[tuple[Rule, str, str]]:
    """Yield the problems of a variable that sets a flag, if the command line beats it."""
    if flag.removed:
        message = f"`{name}` stands for `{flag.spellings[-1]}`, which has been removed: the server does not start"
        yield ENV_VALUE, message, f"{catalogue.kind} says: {flag.removed}"
    elif not flag.values and not flag.negated and value not in SWITCHED:
        message = f"`{name}={value}` does not switch it on: {catalogue.kind} takes only {ON} for on"
        yield ENV_OFF, message, "write 1 or 0"
    elif flag.negated and flag.env == name and value not in SWITCHED:
        yield ENV_VALUE, f"`{name}` takes on or off, not `{value}`", "write 1 or 0"
    elif len(flag.values) == 1 and flag.values[0].wrong(value) not in (None, "rest"):
        yield (
            ENV_VALUE,
            f"`{name}` takes {flag.values[0].says}, not `{value}`",
            f"write {flag.values[0].says}",
        )


def flag_of_variable(catalogue: Catalogue, name: str) -> Flag | None:
    """Return the flag of a variable; a flag with a negation has LLAMA_ARG_NO_X too, whose value has no effect."""
    flags = dict.fromkeys(catalogue.flags.values())
    same = sorted((flag for flag in flags if flag.env == name), key=lambda flag: flag.spellings[-1].startswith("--no-"))
    exact = next(iter(same), None)
    if exact or not name.startswith(NEGATED):
        return exact
    return next((flag for flag in flags if flag.negated and flag.env == PREFIX + name.removeprefix(NEGATED)), None)
