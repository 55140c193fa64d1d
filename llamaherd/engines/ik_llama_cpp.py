"""ik_llama.cpp as of April 2026 (67268c8fd): its build options and its flags."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.engines.dialect import Arithmetic, LlamaFamily, Traits
from llamaherd.inventory.schema import Instance, Version

ARITHMETIC = Arithmetic(
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
    tells_memory=False,
    fits_only_when_told=True,  # src/llama.cpp:2447-2600
    counts_slots_itself=False,
    negative_layers_mean_all=False,  # src/llama.cpp:4935
    drafted=16,  # common/common.cpp:1009
    spreads_experts=True,
)
TRAITS = Traits(
    kind="ik_llama.cpp",
    arithmetic=ARITHMETIC,
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


class IkLlamaCpp(LlamaFamily):
    """The fork with fused MoE and its own quants. It needs AVX2 or better."""

    kind = "ik_llama.cpp"
    traits = TRAITS
    lists_devices = False
    bytes_per_job = 3 << 30  # the iqk kernels are heavy on the compiler
    targets: tuple[str, ...] = ("llama-server",)

    def told(self, declared: Instance, /) -> Mapping[str, str]:
        """Return the number of connections that it serves at once, each in a thread.

        The default is slots plus two, or all processors but one. As many idle connections would block the server
        (examples/server/server.cpp:2106 of 67268c8fd). A variable beats an argument here.
        """
        return {} if "--threads-http" in declared.extra_args else {"LLAMA_ARG_THREADS_HTTP": "1024"}

    def build_options(self, architectures: tuple[str, ...]) -> dict[str, str]:
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

    def version_options(self, _version: Version, /) -> dict[str, str]:
        """Return none: the version comes from git, or from an overlay of the file that runs git."""
        return {}
