"""ik_llama.cpp as of April 2026 (67268c8fd): its build options and its flags."""

from __future__ import annotations

from llamaherd.engines.dialect import Server
from llamaherd.fleet import Version


class IkLlamaCpp:
    """The fork with fused MoE and its own quants. It needs AVX2 or better."""

    kind = "ik_llama.cpp"
    bytes_per_job = 3 << 30  # the iqk kernels are heavy on the compiler
    targets: tuple[str, ...] = ("llama-server",)

    def build_options(self, architectures: tuple[str, ...]) -> dict[str, str]:
        """No fit-params here, and the server hides under LLAMA_BUILD_EXAMPLES, which stays on."""
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
        """None: the version text comes from git, or from an overlay of the file that asks git."""
        return {}

    def arguments(self, server: Server) -> tuple[str, ...]:
        """The chat template is off by default here, so that `--jinja` is said."""
        arguments = [
            *("--model", server.model_path),
            *("--alias", server.alias),
            *("--ctx-size", str(server.context)),
            *("--cache-type-k", server.kv.k),
            *("--cache-type-v", server.kv.v),
            *("--flash-attn", "on"),
            *("--parallel", str(server.parallel)),
            *("--threads", str(server.threads)),
            *("--host", server.listen),
            *("--port", str(server.port)),
            "--metrics",
            "--jinja",
        ]
        if server.on_gpu:
            arguments += ["--n-gpu-layers", "999"]
        if server.mtp:
            arguments += ["-mtp", "--draft-max", str(server.mtp)]
        if server.api_key_file:
            arguments += ["--api-key-file", server.api_key_file]
        return (*arguments, *server.extra_args)
