"""The probes of a verification, with a server that serves well or misbehaves: each result, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from roles.serve.onhost.model import ProbeResult
from roles.serve.onhost.session import Limits
from roles.serve.onhost.verification import probe_server
from roles.serve.transaction import probe_question
from tests.render.plans import GROUP
from tests.support.bad_engine import COMPLETIONS, EMBEDDINGS, RERANKS, SHAPES, TEXTS, WIRE, serving
from tests.support.rigs import cpu_rig, planned
from tests.support.sample import drawn

LIMITS = Limits(later=15, step=1.5, page=1.5, steps=10)
FLAGS = {"chat": (), "embeddings": ("--embeddings",), "rerank": ("--reranking",)}
KEY = "canary-7e1f"


def probed(
    mode: str, kind: str = "chat", *, key: str | None = None, limits: Limits = LIMITS
) -> tuple[ProbeResult, ...]:
    """Run the bad engine and probe it."""
    chat = planned(cpu_rig()).instances[0]
    needs = ("--api-key", KEY) if key else ()
    with serving(mode, "--alias", chat.model, *FLAGS[kind], *needs) as (port, _):
        server = chat.server.model_copy(
            update={
                "endpoint": chat.endpoint.model_copy(update={"port": port}),
                "arguments": (*chat.server.arguments, *FLAGS[kind]),
            }
        )
        return probe_server(probe_question(chat.model_copy(update={"server": server})), key, limits)


CHAT = (
    ProbeResult("prompt", "passed", "text in a response that is not streamed"),
    ProbeResult("schema", "passed", "an object that matches its schema"),
    ProbeResult("tools", "passed", "a call that matches its schema"),
)
RIGHT = {
    "chat": CHAT,
    "embeddings": (ProbeResult("embeddings", "passed", "vectors of 32 numbers, which differ"),),
    "rerank": (ProbeResult("rerank", "passed", "of 3 documents, the relevant one ranks highest"),),
}


@pytest.mark.parametrize("kind", RIGHT)
@pytest.mark.parametrize("key", [None, KEY])
def test_a_right_server_passes_each_probe(kind: str, key: str | None) -> None:
    assert probed("", kind, key=key) == RIGHT[kind]


def failures(modes: list[str], kind: str) -> dict[str, tuple[ProbeResult, ...]]:
    """Return the results for servers that misbehave."""
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(modes, pool.map(lambda mode: probed(mode, kind), modes), strict=True))


@pytest.mark.parametrize(
    ("kind", "modes"),
    [
        ("chat", (*TEXTS, *COMPLETIONS, *SHAPES, "fails-always", *WIRE)),
        ("embeddings", EMBEDDINGS),
        ("rerank", (*RERANKS, "scores-upside-down")),
    ],
)
def test_a_server_without_right_responses_fails_its_first_probe(kind: str, modes: tuple[str, ...]) -> None:
    """No further probe is sent to it."""
    ended = failures(drawn(modes), kind)
    failed = [(RIGHT[kind][0].name, "failed")]
    outcomes = {mode: [(each.name, each.outcome) for each in found] for mode, found in ended.items()}
    assert {mode: found for mode, found in outcomes.items() if found != failed} == {}
    assert [found for (found,) in ended.values() if not found.detail or "\n" in found.detail] == []


@pytest.mark.parametrize(
    ("mode", "name", "detail"),
    [
        ("fails-schemas", "schema", "a prompt with a JSON schema returns HTTP 500: it fails-schemas"),
        ("schema-ignored", "schema", "a prompt with a JSON schema returns text that does not match that schema"),
        ("fails-tools", "tools", "a prompt with tools returns HTTP 500: it fails-tools"),
        ("tool-text", "tools", "a prompt with tools returns no call, which was required"),
        ("tool-bad-arguments", "tools", "a prompt with tools returns a call that is not one of the tool"),
        ("tool-other-name", "tools", "a prompt with tools returns a call that is not one of the tool"),
    ],
)
def test_what_the_template_supports_and_the_server_does_wrong_fails(mode: str, name: str, detail: str) -> None:
    """The other probes are sent nevertheless."""
    found = {each.name: each for each in probed(mode)}
    assert found[name].outcome == "failed"
    assert found[name].detail.startswith(detail)
    assert [each for each in CHAT if each.name != name] == [each for each in found.values() if each.name != name]


def test_a_template_without_tools_has_no_probe_of_them() -> None:
    assert probed("no-tools") == CHAT[:2]


def test_what_a_slow_server_has_no_time_for_is_a_note() -> None:
    found = probed("", limits=Limits(later=60, step=15, page=15, steps=0.001))
    assert found[0] == CHAT[0]
    assert [(each.name, each.outcome) for each in found[1:]] == [("schema", "note"), ("tools", "note")]
    assert all("not tried, since it writes" in each.detail for each in found[1:])


def test_what_a_busy_server_does_not_respond_to_is_a_note() -> None:
    """Another client has a request in flight, and this one is queued."""
    (prompt, *others) = probed("silent busy", limits=Limits(later=2, step=1, page=1, steps=10))
    assert prompt == ProbeResult("prompt", "note", "not tried, since it responds to other clients")
    assert {each.outcome for each in others} == {"note"}


def test_a_silent_server_costs_one_step() -> None:
    began = time.monotonic()
    (found,) = probed("silent")
    assert (found.outcome, found.detail) == (
        "failed",
        "a prompt that is not streamed gets no response: timed out",
    )
    assert time.monotonic() - began < 10


def questions() -> Iterator[tuple[str, object, object]]:
    """Yield the model, the page of properties and the metrics of each member of a group."""
    for member in GROUP.members:
        asked = probe_question(GROUP, member)
        yield member.model, asked["body"], (asked["props_path"], asked["metrics"])


def test_the_probes_of_a_group_name_each_model() -> None:
    found = list(questions())
    assert len(found) > 1
    for model, body, pages in found:
        assert body == {"model": model}
        assert str(pages).count(f"model={model}&autoload=false") == 2
