"""What llama-perplexity is told: the server's own words where it takes them, and none that it would refuse."""

from __future__ import annotations

import pytest

from llamaherd.engines import TRAITS
from llamaherd.engines.flags.definitions import assumed
from llamaherd.inventory.schema.key_flags import key_arguments
from llamaherd.memory.divergence import (
    KEPT,
    Pass,
    compared_arguments,
    counts_in_32_bits,
    kept_arguments,
    logits_bytes,
    run_bytes,
    words_with_cache,
)
from tests.engines.test_engines import K2, TWO, K, server

OF = Pass(8192, 2, 512, "/text", "/logits")
BOTH = "--ctx-size 8192 --batch-size 512 --ubatch-size 512 --kl-divergence-base /logits"
BASE = f"--cache-type-k f16 --cache-type-v f16 {BOTH} --file /text --chunks 2"
COARSE = f"--cache-type-k q4_0 --cache-type-v q4_0 {BOTH} --kl-divergence"
SPREAD = TWO | {"split": "layer", "tensor_split": [0.9, 1], "kv": "q4_0", "draft": {"mtp": 2}, "batch": 4096}


@pytest.mark.parametrize(
    ("engine", "flags", "extra", "kept"),
    [
        ("llama.cpp", "b11434", "--cache-ram 2048 -ot blk=CPU", "--gpu-layers all {split} -ot blk=CPU"),
        ("llama.cpp", "b9592", "--no-mmap --n-cpu-moe 3 -c 99", "--gpu-layers all {split} --no-mmap --n-cpu-moe 3"),
        ("ik_llama.cpp", K, "-khad --no-mmap -mla 3", "--n-gpu-layers 999 {split} -khad --no-mmap -mla 3"),
        ("ik_llama.cpp", K2, "-ger -ctk q8_0 --port 1", "--n-gpu-layers 999 {split} -ger"),
    ],
)
def test_it_has_the_servers_placement_in_the_servers_words(engine: str, flags: str, extra: str, kept: str) -> None:
    known = assumed(engine, flags)
    assert known
    declared = server(engine, flags, **SPREAD, extra_args=extra)
    arguments = key_arguments(engine, declared)
    base = kept_arguments(words_with_cache(known, arguments, "f16"), OF)
    coarse = compared_arguments(words_with_cache(known, arguments, "q4_0"), OF)
    split = "--split-mode layer --tensor-split 0.9,1"
    same = f"--model /m.gguf --flash-attn on --threads 6 {kept.format(split=split)}"
    assert " ".join(base) == f"{same} {BASE}"
    assert " ".join(coarse) == f"{same} {COARSE}"


def test_each_flag_that_is_kept_is_one_of_an_engine() -> None:
    versions = [("llama.cpp", version) for version in ("b11434", "b9592")] + [("ik_llama.cpp", K), ("ik_llama.cpp", K2)]
    catalogues = [found for each in versions if (found := assumed(*each))]
    assert [flag for flag in sorted(KEPT) if not any(known.find(flag) for known in catalogues)] == []


def test_the_fork_has_all_that_it_is_told() -> None:
    known = assumed("ik_llama.cpp", K)
    assert known
    flags = {word for word in f"{BASE} {COARSE}".split() if word.startswith("--")}
    assert [word for word in sorted(flags) if not known.find(word)] == []


def test_only_engines_that_read_gguf_have_it() -> None:
    assert {kind for kind, traits in TRAITS.items() if traits.divergence} == {"llama.cpp", "ik_llama.cpp"}


def test_the_size_of_what_is_kept_is_known_beforehand() -> None:
    # What b11434 wrote for Gemma 3 270M, 4 chunks of 512 tokens.
    assert 0 <= logits_bytes(262_144, 512, 4) - 534_790_132 < 64
    assert round(logits_bytes(248_320, 8192, 2) / 1e9, 1) == 4.1


def test_what_a_run_takes_of_the_ram_grows_with_the_text() -> None:
    assert round(run_bytes(248_320, 8192, 512, all_logits=False) / 1e9, 1) == 8.6
    assert round(run_bytes(248_320, 8192, 512, all_logits=True) / 1e9, 1) == 12.7
    assert run_bytes(248_320, 512, 512, all_logits=True) < 2e9


@pytest.mark.parametrize(("vocabulary", "context", "fits"), [(248_320, 8192, True), (262_144, 8192, False)])
def test_a_chunk_is_one_that_32_bits_can_count(vocabulary: int, context: int, fits: bool) -> None:
    assert counts_in_32_bits(vocabulary, context) is fits
