"""llama.cpp as of b11434 (LLAMA_VERSION 0.6.0-dev): its build options and its flags."""

from __future__ import annotations

from llamaherd.engines.dialect import Server
from llamaherd.fleet import Version


class LlamaCpp:
    """The mainline engine."""

    kind = "llama.cpp"
    bytes_per_job = 1 << 30
    targets: tuple[str, ...] = ("llama-server", "llama-fit-params")

    def build_options(self, architectures: tuple[str, ...]) -> dict[str, str]:
        """See ggml/CMakeLists.txt:199-212 for the CUDA options, tools/ui for the web page."""
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
        """Without git history it would say `build 0, commit unknown`."""
        return {"LLAMA_BUILD_NUMBER": str(version.number), "LLAMA_BUILD_COMMIT": version.commit}

    def arguments(self, server: Server) -> tuple[str, ...]:
        """Every value that has a default which moves between versions is spelled out."""
        arguments = [
            *("--model", server.model_path),
            *("--alias", server.alias),
            *("--ctx-size", str(server.context)),
            *("--cache-type-k", server.kv.k),
            *("--cache-type-v", server.kv.v),
            *("--flash-attn", "on" if server.quantised_cache else "auto"),
            *("--parallel", str(server.parallel)),
            *("--threads", str(server.threads)),
            *("--host", server.listen),
            *("--port", str(server.port)),
            "--metrics",
        ]
        if server.on_gpu:
            arguments += ["--gpu-layers", "all"]
        if server.mtp:
            arguments += ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(server.mtp)]
        if server.api_key_file:
            arguments += ["--api-key-file", server.api_key_file]
        return (*arguments, *server.extra_args)
