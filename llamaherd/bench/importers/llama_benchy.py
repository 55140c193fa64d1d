"""Results of llama-benchy: `--format json` (llama_benchy/results.py, 0.4.0)."""

from __future__ import annotations

from itertools import zip_longest

from llamaherd.bench.importers.base import Object, Whose, count, imported, number, numbers, text
from llamaherd.bench.results.provenance import Provenance
from llamaherd.bench.results.result import Condition, Result, Run

NOTES = (
    "llama-benchy takes its text from a book, and how many tokens a prompt had from what was asked for",
    "times are a client's; a latency that it has measured beforehand is taken off its prefill",
    "engine, build, machine, driver and hashes of the model are not told",
)


def is_llama_benchy(value: object) -> bool:
    """Whether a document is of llama-benchy."""
    return isinstance(value, dict) and {"benchmarks", "latency_mode", "prefix_caching_enabled"} <= value.keys()


def read_llama_benchy(value: Object, whose: Whose) -> tuple[Result, ...]:
    """One result, with a cell for each of its benchmarks."""
    benchmarks = value["benchmarks"] if isinstance(value["benchmarks"], list) else []
    model = text(value.get("model"))
    result = imported(
        whose,
        "llama-benchy",
        [_cell(each, value["prefix_caching_enabled"] is True) for each in benchmarks if isinstance(each, dict)],
        NOTES,
        stack=model,
        at=value.get("timestamp"),
        provenance=Provenance(model=model),
    )
    return (result,)


def _cell(each: Object, caching: bool) -> tuple[Condition, list[Run]]:
    """A benchmark; with prefix caching, its context was read in a phase of its own, and is cached in the next."""
    depth, prompt = count(each.get("context_size")), count(each.get("prompt_size"))
    alone = each.get("is_context_prefill_phase") is True
    many = max(1, count(each.get("concurrency")))
    condition = Condition(
        kind="unknown",
        depth=0 if alone else depth,
        prompt=(depth if alone else prompt) or None,
        generated=count(each.get("response_size")),
        concurrency=many,
        cache="warm" if caching and depth and not alone else "cold",
    )
    # Of several requests at once, the speed of each; of one, there is no other.
    of_each = "_req" if many > 1 else ""
    told = [
        _values(each, f"pp{of_each}_throughput"),
        _values(each, f"tg{of_each}_throughput"),
        _values(each, "e2e_ttft"),
    ]
    return condition, [
        Run(clock="client", prompt_per_second=prefill, predicted_per_second=decode, first_token_ms=first)
        for prefill, decode, first in zip_longest(*told)
    ]


def _values(each: Object, key: str) -> list[float]:
    """The samples of a metric; its mean where there are none."""
    metric = each.get(key)
    if not isinstance(metric, dict):
        return []
    return numbers(metric.get("values")) or [found for found in [number(metric.get("mean"))] if found]
