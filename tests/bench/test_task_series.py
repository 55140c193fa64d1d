"""The series of servers of embeddings and rerank: its inputs, its cells, and the runs of its requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.engines.flags.task import Task
from llamaherd.measure.bench.measurement import MANY, QUERY, TaskSeries, task_series
from llamaherd.measure.bench.series import FEWEST_RUNS, MOST_RUNS
from llamaherd.measure.bench.session import warm_up_inputs
from llamaherd.measure.client.http_client import Failure, StreamedResponse, Target
from llamaherd.measure.client.requests import RequestSpec, SeriesProgress, TaskRequests, run_from_response
from llamaherd.measure.results.comparison_table import measurement_outcome
from llamaherd.measure.results.metrics import FIRST_TOKEN, PREFILL, RESPONSE
from llamaherd.measure.results.result import Cell, Condition, Result, Run
from tests.bench.played import Part, Played

TASKS: tuple[Task, ...] = ("embeddings", "rerank")


def words(text: str) -> int:
    """Count as a tokenizer with one token for each word."""
    return len(text.split())


def series(task: Task, longest: int = 8192) -> TaskSeries:
    return task_series(task, longest, 60.0, "session", words)


def progress(of: TaskSeries, runs: Sequence[Sequence[Run]], left: float = 30.0) -> SeriesProgress:
    cells = tuple(Cell(condition=each, runs=tuple(own)) for each, own in zip(of.conditions, runs, strict=True))
    return SeriesProgress(cells, left, sum(map(len, runs)))


def sent(text: str) -> list[Part]:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    return [(0.02, (head + text).encode())]


def response(body: dict[str, Any]) -> list[Part]:
    inputs = body.get("documents") or body["input"]
    tokens = sum(words(each) for each in inputs)
    return sent(json.dumps({"data": [{"embedding": [0.5] * 8}] * len(inputs), "usage": {"prompt_tokens": tokens}}))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("longest", "lengths"), [(8192, (128, 2048)), (2048, (128, 2048)), (512, (128, 512)), (100, (64,)), (4, (16,))]
)
def test_no_input_is_longer_than_the_server_takes(task: Task, longest: int, lengths: tuple[int, ...]) -> None:
    made = series(task, longest)
    assert made.lengths == lengths
    step = made.next_step(progress(made, [[]] * len(made.conditions)))
    assert step is not None
    inputs = step.requests[0].more.get("documents") or step.requests[0].more["input"]
    query = words(QUERY) if task == "rerank" else 0
    assert max(words(each) for each in inputs) + query <= max(lengths[0], 25)


@pytest.mark.parametrize("task", TASKS)
def test_a_cell_with_many_inputs_has_so_many_that_differ(task: Task) -> None:
    made = series(task)
    assert [(each.prompt, each.concurrency) for each in made.conditions] == [(128, 1), (2048, 1), (128, MANY)]
    step = made.next_step(progress(made, [[Run()], [Run()], []]))
    assert step is not None
    inputs = step.requests[0].more["documents" if task == "rerank" else "input"]
    assert len(set(inputs)) == MANY
    assert str(made.conditions[2]) == f"{task}, 128 in, {MANY} at once"


def test_it_ends_once_each_interval_is_narrow_or_the_time_is_over() -> None:
    made = series("embeddings")
    steady = [Run(at=n, prompt_n=128, prompt_ms=10, predicted_n=0, total_ms=10 + n / 1000) for n in range(FEWEST_RUNS)]
    apart = [Run(at=n, prompt_n=128, prompt_ms=10 + 9 * n, predicted_n=0, total_ms=10 + 9 * n) for n in range(4)]
    assert made.next_step(progress(made, [steady] * 3)) is None
    assert made.share_done(progress(made, [steady] * 3)) == 1
    step = made.next_step(progress(made, [steady, apart, steady]))
    assert step is not None
    assert step.requests[0].cell == 1
    assert made.next_step(progress(made, [steady, apart, steady], left=0.0)) is None
    assert made.next_step(progress(made, [steady, [*apart * (MOST_RUNS // 4)], steady])) is None


@pytest.mark.parametrize("task", TASKS)
def test_a_request_becomes_a_run_with_its_tokens_and_its_time(task: Task) -> None:
    made = series(task)
    step = made.next_step(progress(made, [[], [], []]))
    assert step is not None
    with Played(response) as server:
        requests = TaskRequests(Target(server.url, "a-key"), f"/v1/{task}", "a-model", "salts")
        answer = requests.send(step.requests[0], 10)
        assert warm_up_inputs(requests, made.warm_up_request, 10).prefill
        (path, headers, body), *_ = server.requests
    assert isinstance(answer, StreamedResponse)
    assert (path, headers["authorization"], body["model"]) == (f"/v1/{task}", "Bearer a-key", "a-model")
    run = run_from_response(answer, made.conditions[0], at=1.0)
    assert run.excluded is None
    assert run.prompt_n == words((body.get("documents") or body["input"])[0])
    assert run.total_ms is not None
    assert run.total_ms >= 20
    assert PREFILL.of(run)
    assert RESPONSE.of(run)
    assert FIRST_TOKEN.of(run) is None


def test_a_server_that_refuses_ends_the_warming_up() -> None:
    refusal = '{"error": {"code": 500, "message": "input is too large to process"}}'
    head = f"HTTP/1.1 500 No\r\nContent-Type: application/json\r\nContent-Length: {len(refusal)}\r\n\r\n"
    with Played(lambda _: [(0.0, (head + refusal).encode())]) as server:
        requests = TaskRequests(Target(server.url), "/v1/embeddings", "a-model", "salts")
        assert isinstance(requests.send(RequestSpec(0, "", 0, more={"input": ["a"]}), 10), Failure)
        with pytest.raises(UserError, match="input is too large"):
            warm_up_inputs(requests, series("embeddings").warm_up_request, 10)


def test_its_outcome_has_the_speed_of_inputs_and_the_time_of_a_response() -> None:
    condition = Condition(kind="embeddings", prompt=128, cache="cold", sampling="instance")
    runs = tuple(Run(at=n, prompt_n=128, prompt_ms=64, predicted_n=0, total_ms=64) for n in range(3))
    cells = (Cell(condition=condition, runs=runs),)
    result = Result(llamaherd="0", rig="duo", instance="v", began="2026-11-29T10:00:00Z", cells=cells)
    found = {each.metric.name: round(each.found.value) for each in measurement_outcome(result, None, None).values}
    assert found == {"prefill": 2000, "response": 16}
