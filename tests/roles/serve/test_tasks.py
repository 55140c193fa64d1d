"""Planned servers of embeddings and rerank: their paths, longest inputs, gates, and what refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.trials.trial import variant_instance
from llamaherd.plan import InstancePlan
from llamaherd.plan.instance import longest_input, planned_task, task_path
from tests.support.rigs import cpu_rig, planned


def served(**keys: Any) -> InstancePlan:
    """Return the planned instance with these keys."""
    plan = planned(cpu_rig(), {f"instances/chat/{key}": value for key, value in keys.items()})
    return next(each for each in plan.instances if each.name == "chat")


@pytest.mark.parametrize(
    ("task", "path"), [("chat", "/v1/chat/completions"), ("embeddings", "/v1/embeddings"), ("rerank", "/v1/rerank")]
)
def test_the_key_decides_what_a_server_is_for(task: str, path: str) -> None:
    found = served(serve=task)
    assert planned_task(found) == task
    assert task_path(found.endpoint, planned_task(found)) == path


@pytest.mark.parametrize(
    ("keys", "longest"),
    [
        ({}, 512),
        ({"ubatch": 2048}, 2048),
        ({"ubatch": 2048, "batch": 1024}, 1024),
        ({"ubatch": 8192, "batch": 8192, "parallel": 4}, 1024),
        ({"extra_args": ["-ub", "64"]}, 64),
    ],
)
def test_the_longest_input_is_that_of_a_batch_and_of_a_slot(keys: dict[str, Any], longest: int) -> None:
    assert longest_input(served(serve="embeddings", context=4096, **keys)) == longest


@pytest.mark.parametrize("task", ["embeddings", "rerank"])
def test_no_trial_sends_it_chats(task: str) -> None:
    plan = planned(cpu_rig(), {"instances/chat/serve": task})
    with pytest.raises(UserError, match=f"chat is a server of {task}"):
        variant_instance(plan, plan.rig, "chat", 9000)


def test_its_gate_measures_nothing() -> None:
    gate = {"decode": "-3%"}
    assert served(gate=gate).gate is not None
    assert served(gate=gate, serve="embeddings").gate is None
