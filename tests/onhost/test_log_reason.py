"""The reason of a failed start, in logs of real engines: llama.cpp b11434, ik_llama.cpp and vLLM."""

from __future__ import annotations

import pytest

from llamaherd.onhost.reporting import find_reason

NO_MEMORY = """\
load_tensors: loading model tensors, this can take a while... (mmap = true)
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9126.80 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 9570103296
llama_model_load: error loading model: unable to allocate CUDA0 buffer
llama_model_load_from_file_impl: failed to load model
common_init_from_params: failed to load model '/m/q.gguf'
srv    load_model: failed to load model, '/m/q.gguf'
srv    operator(): operator(): cleaning up before exit...
main: exiting due to model loading error
llama-chat.service: Main process exited, code=exited, status=1/FAILURE
llama-chat.service: Failed with result 'exit-code'.
Failed to start llama-chat.service - LLM server chat: gemma on main.
"""
VLLM = """\
(EngineCore_0 pid=212) ERROR 11-27 10:00:00 [core.py:700] EngineCore failed to start.
(EngineCore_0 pid=212) ValueError: No available memory for the cache blocks.
Traceback (most recent call last):
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_0': 1}
"""


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (NO_MEMORY, "llama_model_load: error loading model: unable to allocate CUDA0 buffer"),
        ("error: unknown argument: --contxt\n", "error: unknown argument: --contxt"),
        (
            'error while handling argument "--ctx-size": stoi\n\nusage:\n--ctx-size N\n',
            'error while handling argument "--ctx-size": stoi',
        ),
        (
            "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8001\n"
            "srv  operator(): operator(): cleaning up before exit...\nmain: exiting due to HTTP server error\n",
            "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8001",
        ),
        (
            "0.00.211.003 E llama_model_load: error loading model: unknown model architecture: 'x'\n"
            "0.00.211.010 E main: exiting due to model loading error\n",
            "llama_model_load: error loading model: unknown model architecture: 'x'",
        ),
        ("\x1b[31mGGML_ASSERT(n > 0) failed\x1b[0m\nAborted\n", "GGML_ASSERT(n > 0) failed"),
        (
            "/b/llama-server: error: libcudart.so.13: cannot open shared object file\n",
            "/b/llama-server: error: libcudart.so.13: cannot open shared object file",
        ),
        (
            VLLM,
            "(EngineCore_0 pid=212) ValueError: No available memory for the cache blocks.",
        ),
        ("main: exiting due to model loading error\n", "main: exiting due to model loading error"),
        ("loading\nstill loading\n", ""),
        ("", ""),
    ],
)
def test_the_reason(log: str, reason: str) -> None:
    assert find_reason(log.splitlines()) == reason


def test_a_reason_is_short() -> None:
    assert len(find_reason(["error: " + "x" * 10_000])) == 200
