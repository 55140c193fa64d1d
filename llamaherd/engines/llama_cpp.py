"""llama.cpp as of b11434 (LLAMA_VERSION 0.6.0-dev) and its fork ik_llama.cpp as of April 2026 (67268c8fd).

It has their traits and build options, and llama-server as a router.

A router is one server at one port, which runs one of several command lines at a time. Each command line is a section
of a preset file (b11434, common/preset.cpp). A request names the section by its model. The router ends the running
process when it has no more requests, and starts the requested one (tools/server/server-models.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from llamaherd.engines.dialect import Arithmetic, Dialect, Traits
from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.inventory.schema import Instance, Version

ARITHMETIC = Arithmetic(
    cuts_by_bytes=False,
    pipelines=True,
    slots_share_cells=False,
    windows_cut_cache=True,
    heads_also_in_cache=False,
    copies_state_to_draft=True,
    saves_drafts=True,
    saves_one_at_least=False,
    shares_tied_embeddings=True,
    caches_encoders=False,  # src/llama-model.cpp:2364-2381
    keeps_logits=True,  # src/llama-context.cpp:2129, output_reserve
    reserves_all_logits=False,
    maps_ranges=True,
    repacks=True,
    scratch_in_cuda=False,
    makes_communicators=False,
    drafts_for_one_slot=False,
    most_slots=256,  # LLAMA_MAX_SEQ (src/llama-cparams.h)
    reports_memory=True,
    fits_on_request=False,
    counts_slots_itself=True,  # tools/server/server.cpp:168-173
    negative_layers_mean_all=True,  # src/llama-model.cpp, n_gpu_layers
    drafted=3,  # common/arg.cpp:4150
    spreads_experts=False,
)
TRAITS = Traits(
    arithmetic=ARITHMETIC,
    images=("ghcr.io/ggml-org/llama.cpp",),
    branch="master",
    numbers_builds=True,
    server_options=("LLAMA_BUILD_SERVER", "LLAMA_BUILD_TOOLS"),  # CMakeLists.txt:132-136, tools/CMakeLists.txt
    variants_need_libraries=True,  # ggml/src/CMakeLists.txt
    splits=frozenset({"layer", "none", "row", "tensor"}),
    cache_types_not=frozenset({"q6_0"}),  # common/arg.cpp:304-314
    cache_types_slow=frozenset({"iq4_nl"}),  # ggml-cuda/fattn.cu:525-539
    pairs=frozenset({"q4_0-q4_0", "q8_0-q8_0", "f16-f16", "bf16-bf16"}),  # ggml/CMakeLists.txt:208
    chooses_pairs=True,
    reads_experts_for_each=True,
    answers_any_name=True,  # tools/server/README.md:1483
    swaps=True,  # tools/server/server-models.cpp
    help_lists_flags=True,  # compared by `scripts/catalogue --binary`
    divergence="llama-perplexity",  # tools/perplexity
)


class LlamaCpp(Dialect):
    """The mainline engine."""

    kind = "llama.cpp"
    traits = TRAITS
    lists_devices = True
    bytes_per_job = 1 << 30
    targets = ("llama-server", "llama-fit-params")

    def variables(self, declared: Instance, /) -> Mapping[str, str]:
        """Return the web pages that may read responses of a server without a key: those of its own host (b10108)."""
        return {} if declared.api_key else {"LLAMA_ARG_CORS_ORIGINS": "localhost"}

    def build_options(self, architectures: tuple[str, ...], /) -> dict[str, str]:
        """Return the build options: see ggml/CMakeLists.txt:199-212 for the CUDA options, tools/ui for the web page."""
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "BUILD_SHARED_LIBS": "OFF",  # one file to install: with ON the RPATH points into the build tree
            "GGML_NATIVE": "ON",  # built where it runs
            "GGML_CCACHE": "ON",
            "LLAMA_BUILD_TESTS": "OFF",
            "LLAMA_BUILD_EXAMPLES": "OFF",
            "LLAMA_USE_PREBUILT_UI": "OFF",  # a download without a locked hash: roles/engines adds the locked page
        }
        if architectures:
            options |= {
                "GGML_CUDA": "ON",
                "CMAKE_CUDA_ARCHITECTURES": ";".join(architectures),
                "GGML_CUDA_FA_QUANTS": "all",
            }
        return options

    def version_options(self, version: Version, /) -> dict[str, str]:
        """Return number and commit. Without git history the build would print `build 0, commit unknown`."""
        return {"LLAMA_BUILD_NUMBER": str(version.number), "LLAMA_BUILD_COMMIT": version.commit}


IK_ARITHMETIC = Arithmetic(
    cuts_by_bytes=True,  # src/llama.cpp:2059-2260, 2340-2470
    pipelines=False,
    slots_share_cells=True,
    windows_cut_cache=False,
    heads_also_in_cache=True,  # src/llama.cpp:737, 853
    copies_state_to_draft=False,
    saves_drafts=False,
    saves_one_at_least=True,
    shares_tied_embeddings=False,
    caches_encoders=True,  # src/llama.cpp:717, llama_kv_cache_init
    keeps_logits=False,  # src/llama.cpp:3626, has_logits
    reserves_all_logits=True,
    maps_ranges=False,
    repacks=False,
    scratch_in_cuda=True,
    makes_communicators=True,  # ggml-cuda.cu:257-290
    drafts_for_one_slot=True,  # examples/server/server-context.cpp:117-139
    most_slots=None,
    reports_memory=False,
    fits_on_request=True,  # src/llama.cpp:2447-2600
    counts_slots_itself=False,
    negative_layers_mean_all=False,  # src/llama.cpp:4935
    drafted=16,  # common/common.cpp:1009
    spreads_experts=True,
)
IK_TRAITS = Traits(
    arithmetic=IK_ARITHMETIC,
    images=("ghcr.io/ikawrakow/ik-llama-cpp",),
    branch="main",
    # The server is one of the examples (8337e4cd3, examples/CMakeLists.txt:45).
    server_options=("LLAMA_BUILD_SERVER", "LLAMA_BUILD_EXAMPLES"),
    splits=frozenset({"layer", "none", "graph"}),
    cache_types_not_on_cpu=frozenset({"q5_0", "q5_1"}),  # ggml/src/iqk/iqk_flash_attn.cpp:173
    # ggml/src/CMakeLists.txt:357-375; its images are built so (docker/ik_llama-cuda.Containerfile:38-44)
    pairs=frozenset(
        {"q4_0-q4_0", "q8_0-q8_0", "f16-f16", "q8_0-iq4_nl", "iq4_nl-iq4_nl", "q6_0-q5_0", "q8_0-q6_0"},
    ),
    mtp_for_one_slot=True,
    divergence="llama-perplexity",  # examples/perplexity
    # Before ik#1745: it searches for the head's tensors among the trunk's (examples/server/server-context.cpp:103-110).
    loads_no_heads=("67268c8fd",),
    answers_any_name=True,
    health_waits=True,  # 8337e4cd3, examples/server/server.cpp:728: a task in the queue
)


class IkLlamaCpp(Dialect):
    """The fork with fused MoE and its own quants. It needs AVX2 or better.

    Its version comes from git, or from an overlay of the file that runs git.
    """

    kind = "ik_llama.cpp"
    traits = IK_TRAITS
    bytes_per_job = 3 << 30  # the iqk kernels are heavy on the compiler
    targets = ("llama-server",)

    def variables(self, declared: Instance, /) -> Mapping[str, str]:
        """Return the number of connections that it serves at once, each in a thread.

        The default is slots plus two, or all processors but one. As many idle connections would block the server
        (examples/server/server.cpp:2106 of 67268c8fd). A variable beats an argument here.
        """
        return {} if "--threads-http" in declared.extra_args else {"LLAMA_ARG_THREADS_HTTP": "1024"}

    def build_options(self, architectures: tuple[str, ...], /) -> dict[str, str]:
        """Return the options. There is no fit-params, and the server needs LLAMA_BUILD_EXAMPLES, which stays on."""
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "BUILD_SHARED_LIBS": "OFF",
            "GGML_NATIVE": "ON",
            "GGML_CCACHE": "ON",
            "GGML_IQK_FA_ALL_QUANTS": "ON",
            "LLAMA_BUILD_TESTS": "OFF",
        }
        if architectures:
            options |= {
                "GGML_CUDA": "ON",
                "CMAKE_CUDA_ARCHITECTURES": ";".join(architectures),
                "GGML_CUDA_FA_ALL_QUANTS": "ON",
            }
        return options


ROUTED_SINCE = "2026-07"
"""In earlier versions, a swap ended running requests (ggml-org/llama.cpp#22447, #24849)."""
ROUTER_FLAGS = ("--models-preset", "--models-max")
"""Flags of a version that has a router."""

_OVERWRITTEN = frozenset({"--host", "--port", "--alias", "--api-key-file"})
"""Flags that the router itself sets for each section: its address, no key, and the section's name."""
ROUTERS_OWN = (
    *("--ssl-key-file", "--ssl-cert-file", "--api-key", "--api-prefix", "--path", "--reuse-port", "--timeout"),
    *("--threads-http", "--cors-origins", "--cors-methods", "--cors-headers", "--cors-credentials", "--hf-repo"),
    *("--models-dir", "--models-preset", "--models-max", "--models-autoload", "--model-url"),
)
"""Flags for the router only. In a section they are dropped, or have no effect."""
_FLAG = re.compile(r"--?[A-Za-z]")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ENDS_VALUE = re.compile(r"[;#\r\n]")
"""Characters that end a value and begin a comment."""


class NotRoutedError(ValueError):
    """A command line that a preset file cannot express, with the reason."""


def router_arguments(preset_path: str, listen: str, port: int, api_key_file: str | None) -> tuple[str, ...]:
    """Return the arguments of the router."""
    key = ("--api-key-file", api_key_file) if api_key_file else ()
    return ("--models-preset", preset_path, "--models-max", "1", "--host", listen, "--port", str(port), *key)


def router_preset(served: Sequence[tuple[str, tuple[str, ...]]], known: Catalogue | None, rig: str, group: str) -> str:
    """Return the preset file of command lines by the names of their models. The first model is loaded at the start.

    Raise NotRoutedError.
    """
    sections = [_section(model, arguments, known, first=not at) for at, (model, arguments) in enumerate(served)]
    head = f"; Written by llamaherd for group `{group}` of rig `{rig}`: change the inventory, not this file."
    return "\n".join([head, "version = 1\n", *sections])


def _section(model: str, arguments: tuple[str, ...], known: Catalogue | None, *, first: bool) -> str:
    lines = [f"[{model}]", *(["load-on-startup = true"] if first else [])]
    lines += [f"{key} = {value}".rstrip() for key, value in router_section(arguments, known).items()]
    return "\n".join(lines) + "\n"


def router_section(arguments: tuple[str, ...], known: Catalogue | None) -> Mapping[str, str]:
    """Return the keys and values that express a command line. Raise NotRoutedError."""
    found: dict[str, str] = {}
    written: set[str] = set()
    for flag, values in _options(arguments, known):
        spellings = _spellings(flag, known)
        if not spellings.isdisjoint(ROUTERS_OWN):
            raise NotRoutedError(f"`{flag}` is for the server in front of all of a group, which has no such key")
        if not spellings.isdisjoint(_OVERWRITTEN):
            continue
        if len(values) > 1:
            raise NotRoutedError(f"`{flag}` has {len(values)} values, and a preset file takes one")
        if not spellings.isdisjoint(written):
            raise NotRoutedError(f"`{flag}` is given twice, and a preset file takes it once")
        written |= spellings
        found[_key(flag)] = _value(flag, values)
    return found


def _options(arguments: tuple[str, ...], known: Catalogue | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the flags with their values. All words up to the next flag are values of an unknown flag."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if not _FLAG.match(word):
            raise NotRoutedError(f"`{word[:60]}` belongs to no flag")
        flag = known.find(word) if known else None
        most = len(flag.values) if flag and not flag.many else len(arguments)
        sure = flag is not None and not flag.many and not flag.optional
        values: list[str] = []
        while len(values) < most and at + 1 + len(values) < len(arguments):
            following = arguments[at + 1 + len(values)]
            if not sure and _FLAG.match(following):
                break
            values.append(following)
        yield word, tuple(values)
        at += 1 + len(values)


def _spellings(flag: str, known: Catalogue | None) -> frozenset[str]:
    found = known.find(flag) if known else None
    return frozenset((*found.spellings, *found.negated)) if found else frozenset({flag})


def _key(flag: str) -> str:
    """Return a flag as a key of the file: without leading dashes, in the spelling of the router's table."""
    bare = flag.lstrip("-")
    key = bare.replace("_", "-") if flag.startswith("--") else bare
    if not _KEY.fullmatch(key):
        raise NotRoutedError(f"`{flag[:60]}` is no name that a preset file takes")
    return key


def _value(flag: str, values: tuple[str, ...]) -> str:
    """Return the value of a key: `true` for a switch. The negation of a switch is a key of its own."""
    if not values:
        return "true"
    if _ENDS_VALUE.search(values[0]) or values[0] != values[0].strip():
        raise NotRoutedError(f"a preset file ends the value of `{flag}` at its `;` or `#`, or at a blank at its edge")
    return values[0]
