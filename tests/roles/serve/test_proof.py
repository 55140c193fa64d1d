"""What the proof of a server is given: its prompt, its purpose, and what identifies an attempt."""

from __future__ import annotations

import json

import pytest

from llamaherd.plan import digest
from llamaherd.plan.instance import planned_task
from roles.serve.transaction import attempt_identity, proof_prompt, speed_identity
from tests.support.rigs import cpu_rig, gpu_rig, planned

NAMES = {"chat": (), "embeddings": ("--embeddings",), "rerank": ("--reranking",)}


@pytest.mark.parametrize(("kind", "arguments"), [*NAMES.items(), ("rerank", ("--embedding", "--pooling", "rank"))])
def test_what_a_server_is_for_is_known_by_its_plan(kind: str, arguments: tuple[str, ...]) -> None:
    chat = planned(cpu_rig()).instances[0]
    server = chat.server.model_copy(update={"arguments": (*chat.server.arguments, *arguments)})
    assert planned_task(chat.model_copy(update={"server": server})) == kind


def test_a_prompt_is_longer_where_drafts_or_a_speed_are_declared() -> None:
    plan = planned(cpu_rig(), {"instances/chat/expect": {"decode": 30}})
    found = {each.name: proof_prompt(each) for each in plan.instances}
    assert [(each["floor"], each["drafts"]) for each in found.values()] == [(15, 0), (0, 16)]
    assert all('"max_tokens": 64' in json.dumps(each) for each in found.values())


def test_an_attempt_that_was_refused_stays_refused() -> None:
    """The identity of an attempt contains no speed: nothing is tried again because more is measured."""
    chat = planned(cpu_rig()).instances[0]
    assert set(proof_prompt(chat)) == {"url", "metrics", "key", "seconds", "drafts", "floor", "body"}
    assert attempt_identity(chat) == digest(chat.spec, proof_prompt(chat))


def test_the_same_model_has_one_speed() -> None:
    chat, drafter = planned(cpu_rig()).instances
    context = planned(cpu_rig(), {"instances/chat/context": 512}).instances[0]
    assert speed_identity(chat) == speed_identity(context) != speed_identity(drafter)
    small, *_ = planned(gpu_rig()).instances
    assert speed_identity(small) != speed_identity(
        small.model_copy(update={"server": small.server.model_copy(update={"gpus": None})})
    )
