"""llama.cpp as of b11434 (LLAMA_VERSION 0.6.0-dev): its build options and its flags."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.engines.dialect import Arithmetic, LlamaFamily, Traits
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
    tells_memory=True,
    fits_only_when_told=False,
    counts_slots_itself=True,  # tools/server/server.cpp:168-173
    negative_layers_mean_all=True,  # src/llama-model.cpp, n_gpu_layers
    drafted=3,  # common/arg.cpp:4150
    spreads_experts=False,
)
TRAITS = Traits(
    kind="llama.cpp",
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


class LlamaCpp(LlamaFamily):
    """The mainline engine."""

    kind = "llama.cpp"
    traits = TRAITS
    lists_devices = True
    bytes_per_job = 1 << 30
    targets: tuple[str, ...] = ("llama-server", "llama-fit-params")

    def told(self, declared: Instance, /) -> Mapping[str, str]:
        """Return the web pages that may read responses of a server without a key: those of its own host (b10108)."""
        return {} if declared.api_key else {"LLAMA_ARG_CORS_ORIGINS": "localhost"}

    def build_options(self, architectures: tuple[str, ...]) -> dict[str, str]:
        """Return the build options: see ggml/CMakeLists.txt:199-212 for the CUDA options, tools/ui for the web page."""
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "BUILD_SHARED_LIBS": "OFF",  # one file to install: with ON the RPATH points into the build tree
            "GGML_NATIVE": "ON",  # built where it runs
            "GGML_CCACHE": "ON",
            "LLAMA_BUILD_TESTS": "OFF",
            "LLAMA_BUILD_EXAMPLES": "OFF",
            "LLAMA_USE_PREBUILT_UI": "OFF",  # it would be downloaded, of whatever version is newest
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
