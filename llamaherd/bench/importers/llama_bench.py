"""Results of llama-bench: `-o json` and `-o jsonl`, of llama.cpp and ik_llama.cpp (tools/llama-bench, b11434)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from llamaherd.bench.importers.base import Object, Whose, count, imported, numbers, text
from llamaherd.bench.results.provenance import Engine, Gpu, Host, ModelFile, Provenance, Server
from llamaherd.bench.results.result import Condition, Result, Run

NOTES = (
    "llama-bench feeds random tokens and samples none: no server has just this speed, and mixtures of experts route "
    "random tokens otherwise",
    "driver, power limit, clocks and hashes of the model are not told",
)
_SETTINGS = (
    *("n_batch", "n_ubatch", "n_threads", "cpu_mask", "type_k", "type_v", "n_gpu_layers", "n_cpu_moe", "split_mode"),
    *("main_gpu", "no_kv_offload", "flash_attn", "devices", "tensor_split", "tensor_buft_overrides", "load_mode"),
    *("lazy_mode", "use_mmap", "use_direct_io", "embeddings", "no_op_offload", "no_host", "repack", "fit_target"),
    *("fit_min_ctx", "fused_moe", "ger", "rtr", "mqkv", "muge", "mla_attn", "attn_max_batch"),
)
"""What a row tells of how it was run; a file may hold rows of many settings, of which each is a result."""


def is_llama_bench(rows: Sequence[Object]) -> bool:
    """Whether rows are of llama-bench."""
    return bool(rows) and all({"n_prompt", "n_gen", "model_filename"} <= row.keys() for row in rows)


def read_llama_bench(rows: Sequence[Object], whose: Whose) -> tuple[Result, ...]:
    """A result for each model and setting."""
    groups: dict[tuple[str, ...], list[Object]] = {}
    for row in rows:
        told = [row.get(key) for key in ("model_filename", "build_commit", "gpu_info", *_SETTINGS)]
        groups.setdefault(tuple(map(str, told)), []).append(row)
    return tuple(_result(group, whose) for group in groups.values())


def _result(rows: list[Object], whose: Whose) -> Result:
    combined = sum(1 for row in rows if count(row.get("n_prompt")) and count(row.get("n_gen")))
    left_out = [f"{combined} rows of prompt and generation in one time are left out"] if combined else []
    return imported(
        whose,
        "llama-bench",
        [(_condition(row), _runs(row)) for row in rows if _is_of_one(row)],
        [*NOTES, *left_out],
        stack=text(rows[0].get("model_type")),
        at=rows[0].get("test_time"),
        provenance=_provenance(rows[0]),
    )


def _is_of_one(row: Object) -> bool:
    return bool(count(row.get("n_prompt"))) != bool(count(row.get("n_gen")))


def _condition(row: Object) -> Condition:
    prompt, generated = count(row.get("n_prompt")), count(row.get("n_gen"))
    depth = count(row.get("n_depth"))
    return Condition(kind="random", depth=depth, prompt=prompt or None, generated=generated, cache="cold")


def _runs(row: Object) -> list[Run]:
    """A run for each sample; where an older version tells none, one with the mean."""
    prompt, generated = count(row.get("n_prompt")), count(row.get("n_gen"))
    times = numbers(row.get("samples_ns")) or numbers([row.get("avg_ns")])
    if prompt:
        return [Run(prompt_n=prompt, cache_n=0, prompt_ms=each / 1e6) for each in times]
    # Each of its tokens is a step that was timed: there is no first one that comes free.
    return [Run(predicted_n=generated, predicted_per_second=generated * 1e9 / each) for each in times]


def _provenance(row: Object) -> Provenance:
    name = PurePath(str(row.get("model_filename") or "unknown")).name
    settings = tuple(f"{key}={row[key]}" for key in _SETTINGS if key in row)
    gpus = tuple(Gpu(name=each.strip()) for each in (text(row.get("gpu_info")) or "").split(",") if each.strip())
    build = count(row.get("build_number"))
    return Provenance(
        host=Host(cpu=text(row.get("cpu_info"))),
        gpus=gpus,
        engine=Engine(version=f"b{build}" if build else None, commit=text(row.get("build_commit"))),
        model=text(row.get("model_type")),
        files=(ModelFile(name=name, size=count(row.get("model_size")) or None),),
        server=Server(arguments=settings),
    )
