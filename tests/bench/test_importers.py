"""Results of others as ours, from what those programs and people really wrote; and what is doubtful in them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.results.comparison import correlation, find_doubts
from llamaherd.measure.results.lookup import ImportTarget, parse_foreign_results
from llamaherd.measure.results.metrics import DECODE, ENERGY, METRICS, PREFILL, STEP, TOKENS_PER_STEP, by_start
from llamaherd.measure.results.result import Cell, Condition, Host, Provenance, Result, Run
from llamaherd.measure.results.store import MOST_RESULT_BYTES, parse_result, result_bytes
from llamaherd.measure.statistics import Estimate, estimate
from tests.bench.made import result, run
from tests.support.rigs import ROOT

DATA = ROOT / "tests/data/bench"
WHOSE = ImportTarget("six", "chat", "2026-03-01T00:00:00Z")


def read(name: str) -> tuple[Result, ...]:
    return parse_foreign_results((DATA / name).read_bytes(), name, WHOSE)


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def rates(found: Result, metric: Any) -> list[float]:
    return [round(each.value, 4) for cell in found.cells if (each := estimate(by_start(cell.counted, metric)))]


def known(cell: Cell, metric: Any) -> Estimate:
    found = estimate(by_start(cell.counted, metric))
    assert found is not None
    return found


def test_llama_bench_as_its_page_shows_it() -> None:
    """The two rows of its README, for a prompt of 512 and 128 tokens out."""
    (found,) = read("llama-bench.json")
    assert [str(cell.condition) for cell in found.cells] == ["random, 512 in", "random, 128 out"]
    assert rates(found, PREFILL) == [pytest.approx(7100.002, rel=1e-3)]
    assert rates(found, DECODE) == [pytest.approx(118.881588, rel=1e-3)]
    assert [len(cell.runs) for cell in found.cells] == [5, 5]
    origin = found.provenance
    assert (origin.host.cpu, [gpu.name for gpu in origin.gpus]) == (
        "AMD Ryzen 7 7800X3D 8-Core Processor",
        ["NVIDIA GeForce RTX 4080"],
    )
    assert (origin.engine.version, origin.engine.commit, origin.files[0].name) == (
        "b5163",
        "8cf427ff",
        "Qwen2.5-7B-Instruct-Q4_K_M.gguf",
    )
    assert "type_k=f16" in origin.server.arguments
    assert (found.source.kind, found.began) == ("llama-bench", "2025-04-24T11:58:50Z")
    assert any("random tokens" in note for note in found.source.notes)
    assert [cell.condition for cell in read("llama-bench.jsonl")[0].cells] == [cell.condition for cell in found.cells]


def test_each_setting_of_llama_bench_is_a_result() -> None:
    rows = json.loads((DATA / "llama-bench.json").read_text())
    rows += [row | {"n_ubatch": 1024} for row in rows] + [rows[0] | {"n_gen": 128}]
    first, second = parse_foreign_results(json.dumps(rows).encode(), "a.json", WHOSE)
    assert len(first.cells) == len(second.cells) == 2
    assert "n_ubatch=1024" in second.provenance.server.arguments
    assert "1 rows of prompt and generation in one time are left out" in first.source.notes
    old = [{key: value for key, value in rows[0].items() if not key.startswith("samples")}]
    (mean,) = parse_foreign_results(json.dumps(old).encode(), "a.json", WHOSE)
    assert len(mean.cells[0].runs) == 1


SWEEP = [
    {"n_kv_max": 4096, "n_batch": 2048, "n_ubatch": 512, "flash_attn": 1, "n_gpu_layers": 99, "n_threads": 8}
    | {"n_threads_batch": 8, "pp": 512, "tg": 128, "n_kv": depth, "t_pp": 0.25, "speed_pp": 2048.0}
    | {"t_tg": seconds, "speed_tg": 128 / seconds}
    for depth, seconds in ((0, 1.0), (512, 1.1), (1024, 1.2))
]


def test_sweep_bench() -> None:
    """By the names of its source: a row for each depth, of prompt and generation."""
    (found,) = parse_foreign_results(lines(*SWEEP), "a.jsonl", WHOSE)
    assert [cell.condition.depth for cell in found.cells] == [0, 0, 512, 512, 1024, 1024]
    assert rates(found, PREFILL) == [2048.0] * 3
    assert rates(found, DECODE) == [128.0, pytest.approx(116.36, abs=0.01), pytest.approx(106.67, abs=0.01)]
    assert found.provenance.server.context == 4096
    assert find_doubts(found)[-1].startswith("each condition was measured once")


BENCHY: dict[str, Any] = {
    "version": "0.4.0",
    "timestamp": "2026-09-01 10:00:00Z",
    "latency_mode": "api",
    "latency_ms": 1.2,
    "model": "some/model",
    "prefix_caching_enabled": False,
    "max_concurrency": 2,
    "benchmarks": [
        {
            "concurrency": many,
            "context_size": depth,
            "prompt_size": 2048,
            "response_size": 128,
            "is_context_prefill_phase": False,
            "pp_throughput": {"mean": 2000.0, "std": 10.0, "values": [1990.0, 2000.0, 2010.0]},
            "pp_req_throughput": {"mean": 1000.0, "std": 5.0, "values": [995.0, 1000.0, 1005.0]},
            "tg_throughput": {"mean": 50.0, "std": 1.0, "values": [49.0, 50.0, 51.0]},
            "tg_req_throughput": {"mean": 25.0, "std": 0.5, "values": [24.5, 25.0, 25.5]},
            "peak_throughput": None,
            "e2e_ttft": {"mean": 1024.0, "std": 5.0, "values": [1029.0, 1024.0, 1019.0]},
            "throughput_over_time": None,
        }
        for many, depth in ((1, 0), (1, 4096), (2, 0))
    ],
}


def test_llama_benchy() -> None:
    """By the models of its source. Of several at once, the speed of each request counts."""
    (found,) = parse_foreign_results(json.dumps(BENCHY).encode(), "a.json", WHOSE)
    assert [(cell.condition.depth, cell.condition.concurrency) for cell in found.cells] == [(0, 1), (4096, 1), (0, 2)]
    assert rates(found, DECODE) == [50.0, 50.0, 25.0]
    assert rates(found, PREFILL) == [2000.0, 2000.0, 1000.0]
    assert (found.began, found.label) == ("2026-09-01T10:00:00Z", "some/model")
    assert {run.clock for cell in found.cells for run in cell.runs} == {"client"}


def test_llama_benchys_samples_are_read_and_its_mean_where_there_are_none() -> None:
    (samples,) = parse_foreign_results(json.dumps(BENCHY).encode(), "a.json", WHOSE)
    assert [known(cell, DECODE).n for cell in samples.cells] == [3, 3, 3]
    bare = {**BENCHY, "benchmarks": [_without_samples(each) for each in BENCHY["benchmarks"]]}
    (means,) = parse_foreign_results(json.dumps(bare).encode(), "a.json", WHOSE)
    assert [known(cell, DECODE).n for cell in means.cells] == [1, 1, 1]
    assert rates(means, DECODE) == rates(samples, DECODE)


def _without_samples(benchmark: dict[str, Any]) -> dict[str, Any]:
    return {key: value | {"values": []} if isinstance(value, dict) else value for key, value in benchmark.items()}


def test_the_table_of_six_contradicts_itself() -> None:
    """Its time to the first token at 198K is that of 7,648 tokens at its prefill speed, and so in every row."""
    (found,) = read("six.txt")
    assert [cell.condition.prompt for cell in found.cells] == [4096, 8192, 16384, 32768, 65536, 131072, 202752]
    assert rates(found, PREFILL)[-1] == 520.6
    assert rates(found, DECODE)[0] == 46.3
    said = find_doubts(found)
    assert said[0] == (
        "a time to the first token of 14.7 s is that of 7,648 tokens at the prefill speed of the same run, not of "
        "202,752: most came from a cache, or it is of another prompt. The same goes for 6 others."
    )
    assert said[1].startswith("each condition was measured once")
    assert found.source.notes[-1] == ("its tokens for a kilowatt-hour are decode divided by power, without prefill")
    other = (DATA / "six.txt").read_text().replace("203,854", "303,854")
    (wrong,) = parse_foreign_results(other.encode(), "six.txt", WHOSE)
    assert wrong.source.notes[-1] == "its tokens for a kilowatt-hour are not decode divided by power"


def test_the_tables_of_one_say_what_they_are_of() -> None:
    """Ten runs whose spread is of the text; five stacks; four contexts that were never filled."""
    runs, *stacks, contexts = read("one.md")
    (cell,) = runs.cells
    speed = known(cell, DECODE)
    assert speed.spread is not None
    assert speed.low is not None
    assert speed.high is not None
    assert (round(speed.value, 2), speed.n) == (249.30, 10)
    assert (round(speed.low, 1), round(speed.high, 1)) == (247.2, 251.5)
    assert round(STEP.shown(known(cell, STEP).value), 2) == 14.42
    assert round(known(cell, TOKENS_PER_STEP).value, 3) == 3.595
    assert find_doubts(runs) == (
        "unknown, 2,000 out: the spread of ± 1.2% is of the text and not of the machine: speed goes with the accepted "
        "drafts (r = 0.996), while a step takes 14.42 ms in all of them (± 0.1%)",
    )
    assert [each.stack for each in stacks][1] == "Nemotron-Labs Elastic 30B-A3B NVFP4 (vLLM + FlashInfer #40082)"
    assert [rates(each, DECODE) for each in stacks] == [[249.3], [182.14], [135.97], [107.54], [74.28]]
    assert [cell.condition.context for cell in contexts.cells] == [32768, 65536, 131072, 268288]
    assert "these were allocated" in find_doubts(contexts)[0]


@pytest.mark.parametrize("name", ["llama-bench.json", "llama-bench.jsonl", "six.txt", "one.md"])
def test_what_is_imported_is_a_result_like_any_other(name: str) -> None:
    for each in read(name):
        assert parse_result(result_bytes(each), "a.json") == each
        assert (each.rig, each.instance) == ("six", "chat")
        assert each.source.notes
    assert [each.id for each in read(name)] == [each.id for each in read(name)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no measurement in a supported"),
        (b"{}", "no measurement in a supported"),
        (b"[1, 2]", "no measurement in a supported"),
        (b"# A page\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "no measurement in a supported"),
        (b"\xff\xfe\x00", "is no text"),
        (b" " * (MOST_RESULT_BYTES + 1), "larger than 8 MiB"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b"[" + b"{}," * 500_000 + b"{}]", "too many values"),
        (lines({"pp": 512, "tg": 128, "pl": 4, "n_kv": 0, "t_pp": 1, "t_tg": 1}), "no measurement in a supported"),
        (lines({**SWEEP[0], "t_pp": "x", "t_tg": -1}), "no measurement in a supported"),
        (json.dumps(BENCHY | {"benchmarks": [7]}).encode(), "no measurement in a supported"),
        (lines(*SWEEP) + b"\n{", "no usable result"),
    ],
)
def test_what_is_none_of_these_is_a_sentence(data: bytes, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse_foreign_results(data, "a.txt", WHOSE)
    assert caught.value.help


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(["n_prompt", "n_gen", "n_depth", "samples_ns", "gpu_info", "test_time", "model_size"]), VALUES)
@settings(max_examples=150, deadline=None)
def test_a_wrong_value_is_unknown_or_a_sentence(key: str, value: Any) -> None:
    """Whatever stands in a file of llama-bench: what is read is a result, or there is a sentence."""
    rows = json.loads((DATA / "llama-bench.json").read_text())
    data = json.dumps([row | {key: value} for row in rows]).encode()
    try:
        found = parse_foreign_results(data, "a.json", WHOSE)
    except UserError:
        return
    assert all(parse_result(result_bytes(each), "a") == each for each in found)


@given(st.lists(st.sampled_from([*"|-: .,%#\t\n", "t/s", "Context", "4K", "Decode (t/s)", "Run", "12.5"]), max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_is_a_sentence(pieces: list[str]) -> None:
    try:
        found = parse_foreign_results("".join(pieces).encode(), "a.md", WHOSE)
    except UserError:
        return
    assert all(parse_result(result_bytes(each), "a") == each for each in found)


def test_long_lines_and_long_tables_take_no_time() -> None:
    began = time.monotonic()
    head = "| Run | t/s |\n|---|---|\n"
    (found, *_) = parse_foreign_results((head + "| 1 | 5.0 |\n" * 100_000).encode(), "a.md", WHOSE)
    assert len(found.cells[0].runs) == 2000
    with pytest.raises(UserError):
        parse_foreign_results((head + "|" + "-" * (MOST_RESULT_BYTES - 100) + "x").encode(), "a.md", WHOSE)
    assert time.monotonic() - began < 60


def test_what_else_is_doubtful() -> None:
    swapped = Provenance(host=Host(swapped_bytes=7))
    assert "in swap" in find_doubts(result(run(), run(), provenance=swapped))[0]
    cold = Cell(condition=Condition(kind="long", prompt=64, cache="cold"), runs=(Run(prompt_n=60, cache_n=4), Run()))
    assert find_doubts(Result(llamaherd="1", rig="a", instance="b", began="2026-01-01T00:00:00Z", cells=(cold,))) == (
        "long, 64 in: 4 tokens came from a cache, although the condition is cold",
    )
    honest = Run(prompt_n=1000, cache_n=0, prompt_ms=1000, first_token_ms=1010)
    assert find_doubts(result(honest, honest)) == ()
    assert correlation([1, 2, 3], [5, 5, 5]) is None
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)


def test_metrics_of_a_run() -> None:
    """A first token is free, a rate that was told is used where there are no times, and nothing comes of nothing."""
    whole = Run(predicted_n=257, predicted_ms=2560, draft_n=150, draft_n_accepted=128, prompt_n=100, prompt_ms=50)
    assert [round(sample.rate, 3) if (sample := each.of(whole)) else None for each in METRICS] == [
        100.0,
        50.0,
        2.0,
        2000.0,
        None,
        None,
        0.853,
        None,
    ]
    assert [each.of(Run()) for each in METRICS] == [None] * 8
    told = Run(predicted_per_second=50.0, prompt_per_second=900.0, first_token_ms=200.0)
    assert [round(sample.rate, 3) for each in METRICS if (sample := each.of(told))] == [50.0, 900.0, 5.0]
    assert DECODE.of(Run(predicted_n=1, predicted_ms=5)) is None
    assert DECODE.of(Run(predicted_n=8, predicted_ms=5)) is None  # asked for its prompt
    energy = ENERGY.of(Run(predicted_n=200, predicted_ms=2000, joules=300.0))
    assert energy
    assert ENERGY.shown(energy.rate) == 1.5
