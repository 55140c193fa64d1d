"""Results of llama-sweep-bench: `--output-format jsonl`, of ik_llama.cpp (examples/sweep-bench, 8337e4cd3)."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.bench.importers.base import Object, Whose, count, imported, number
from llamaherd.bench.results.provenance import Provenance, Server
from llamaherd.bench.results.result import Condition, Result, Run

NOTES = (
    "llama-sweep-bench feeds random tokens and samples none: no server has just this speed",
    "each depth was measured once; model, build, machine and driver are not told",
)
_SETTINGS = ("n_kv_max", "n_batch", "n_ubatch", "flash_attn", "n_gpu_layers", "n_threads", "n_threads_batch")


def is_sweep_bench(rows: Sequence[Object]) -> bool:
    """Whether rows are of llama-sweep-bench; those of llama-batched-bench tell how many prompts at once, in `pl`."""
    return bool(rows) and all({"pp", "tg", "n_kv", "t_pp", "t_tg"} <= row.keys() and "pl" not in row for row in rows)


def read_sweep_bench(rows: Sequence[Object], whose: Whose) -> tuple[Result, ...]:
    """One result, with a cell for each depth."""
    settings = tuple(f"{key}={rows[0][key]}" for key in _SETTINGS if key in rows[0])
    cells = [cell for row in rows for cell in _cells(row)]
    provenance = Provenance(server=Server(arguments=settings, context=count(rows[0].get("n_kv_max")) or None))
    return (imported(whose, "sweep-bench", cells, NOTES, provenance=provenance),)


def _cells(row: Object) -> list[tuple[Condition, list[Run]]]:
    """Generation and prompt at one depth: two cells, as one was not measured after the other's tokens."""
    depth, prompt, generated = count(row["n_kv"]), count(row["pp"]), count(row["tg"])
    prompt_s, generated_s = number(row["t_pp"]), number(row["t_tg"])
    found = []
    if prompt and prompt_s:
        run = Run(prompt_n=prompt, prompt_ms=prompt_s * 1000)
        found.append((Condition(kind="random", depth=depth, prompt=prompt), [run]))
    if generated and generated_s:
        run = Run(predicted_n=generated, predicted_per_second=generated / generated_s)
        found.append((Condition(kind="random", depth=depth, generated=generated), [run]))
    return found
