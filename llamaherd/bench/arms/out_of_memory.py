"""How the last words of a program tell that memory is what it lacked: of a GPU, or RAM."""

from __future__ import annotations

import re

WORDS = {
    "out of memory": (
        "CUDA's name of cudaErrorMemoryAllocation, which ggml/src/ggml-cuda/ggml-cuda.cu prints after `CUDA error: ` "
        "and PyTorch after `CUDA `; Linux' OOM killer, mm/oom_kill.c"
    ),
    "cudaMalloc": "ggml_backend_cuda_buffer_type_alloc_buffer in ggml/src/ggml-cuda/ggml-cuda.cu",
    "failed to allocate": "ggml_gallocr_reserve_n in ggml/src/ggml-alloc.c, and llama_context in src/llama-context.cpp",
    "unable to allocate": "load_tensors in src/llama-model.cpp; ik_llama.cpp's src/llama.cpp",
    "bad_alloc": "what() of C++'s std::bad_alloc, by libstdc++",
    "for want of RAM": "roles/serve/onhost/trials.py, where systemd reports that the result of a unit is `oom-kill`",
}
"""The words, in any case, and who says each."""
_PATTERN = re.compile("|".join(map(re.escape, WORDS)), re.IGNORECASE)


def lacked_memory(says: str) -> bool:
    """Whether a program that ended with these words lacked memory."""
    return bool(_PATTERN.search(says))
