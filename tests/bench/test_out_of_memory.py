"""Whether a program lacked memory, by its last words: those of real programs, as people have reported them."""

from __future__ import annotations

import pytest

from llamaherd.measure.trials.trial import OUT_OF_MEMORY_WORDS, is_out_of_memory
from llamaherd.resources import ROOT

SAID = {
    "out of memory": "CUDA error: out of memory",
    "cudaMalloc": "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed",
    "failed to allocate": "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 292926534144",
    "unable to allocate": "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
    "bad_alloc": "terminate called after throwing an instance of 'std::bad_alloc'",
    "for lack of RAM": "the system ended it for lack of RAM; llama_kv_cache: size = 1024.00 MiB",
}


@pytest.mark.parametrize("word", OUT_OF_MEMORY_WORDS)
def test_each_word_tells_alone(word: str) -> None:
    others = [each for each in OUT_OF_MEMORY_WORDS if each != word and each.lower() in SAID[word].lower()]
    assert others == []
    assert is_out_of_memory(SAID[word])


@pytest.mark.parametrize(
    "says",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "Out of memory: Killed process 1411 (llama-server) total-vm:9437184kB",
    ],
)
def test_other_programs_are_understood(says: str) -> None:
    assert is_out_of_memory(says)


@pytest.mark.parametrize(
    "says",
    ["", "error: invalid argument: --ctx-siz", "couldn't bind HTTP server socket", "there is no room in /var/tmp"],
)
def test_what_is_not_about_memory_is_not_taken_for_it(says: str) -> None:
    assert not is_out_of_memory(says)


def test_our_own_words_are_those_of_the_program() -> None:
    program = (ROOT / "roles/serve/onhost/trials.py").read_text()
    (word,) = (word for word, who in OUT_OF_MEMORY_WORDS.items() if who.startswith("roles/"))
    assert f'"oom-kill": "the system ended it {word}; "' in program
