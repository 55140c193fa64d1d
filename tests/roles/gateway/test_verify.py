"""Whether verify believes a gateway: by what curl was told on its host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamaherd.host.responses import ProbeOutputs
from llamaherd.onhost.system import Host
from roles.gateway import gateway_checks, probes
from tests.support.gateway import KEYS, Upstream, free_port, gateway_of, gateway_plans, made, rig_at, running, until
from tests.support.ours import probed

FINE: ProbeOutputs = {
    ("gateway unit", ""): "ActiveState=active\nUnitFileState=enabled",
    ("gateway files", ""): "700 llamaherd-gateway /etc/llamaherd/gateway\n600 llamaherd-gateway /e/keys.map",
    ("gateway keyless", ""): "HTTP/1.1 401 Unauthorized",
    ("gateway wrong", ""): "HTTP/1.1 401 Unauthorized",
    ("gateway elsewhere", ""): "HTTP/1.1 404 Not Found",
    ("gateway model", "coder"): "HTTP/1.1 200 OK\nx-herd-instance: box.chat",
    ("gateway model", "small"): "HTTP/1.1 200 OK\nX-Herd-Instance: box.drafter",
    ("gateway model", "last"): "HTTP/1.1 501 Not Implemented\nx-herd-instance: duo.worker",
}


def failed(answers: ProbeOutputs) -> list[str]:
    """The names of checks that do not pass."""
    return [each.name for each in gateway_checks(gateway_of(gateway_plans()[0]), answers, "box") if not each.ok]


def test_a_gateway_that_does_as_it_is_declared_passes() -> None:
    assert failed(FINE) == []


@pytest.mark.parametrize(
    ("section", "said", "check"),
    [
        ("unit", "ActiveState=failed\nUnitFileState=enabled", "gateway"),
        ("unit", "", "gateway"),
        ("files", "644 llamaherd-gateway /e/keys.map", "gateway files"),
        ("files", "600 root /e/keys.map", "gateway files"),
        ("files", "", "gateway files"),
        ("keyless", "HTTP/1.1 200 OK", "gateway without a key"),
        ("keyless", "", "gateway without a key"),
        ("wrong", "HTTP/1.1 200 OK", "gateway with a wrong key"),
        ("elsewhere", "HTTP/1.1 200 OK", "gateway, other paths"),
    ],
)
def test_what_is_not_so_fails(section: str, said: str, check: str) -> None:
    assert failed({**FINE, (f"gateway {section}", ""): said}) == [check]


@pytest.mark.parametrize(
    ("task", "path", "key"),
    [
        ("chat", "/v1/chat/completions", "messages"),
        ("embeddings", "/v1/embeddings", "input"),
        ("rerank", "/v1/rerank", "documents"),
    ],
)
def test_a_model_gets_a_request_that_it_is_for(monkeypatch: pytest.MonkeyPatch, task: str, path: str, key: str) -> None:
    monkeypatch.setenv("TOM_KEY", KEYS["tom"])
    plan = gateway_plans()[0]
    models = tuple(each.model_copy(update={"task": task}) for each in gateway_of(plan).models)
    changed_plan = plan.model_copy(update={"gateway": gateway_of(plan).model_copy(update={"models": models})})
    found = [each for each in probes(changed_plan) if each.what == "gateway model"]
    assert found
    for each in found:
        assert each.argv[-1].endswith(path)
        assert key in json.loads(each.argv[each.argv.index("-d") + 1])


@pytest.mark.parametrize(
    "said",
    [
        "HTTP/1.1 503 Service Unavailable",
        "HTTP/1.1 200 OK\nx-herd-instance: box.drafter\nx-herd-fallback: small",
        "HTTP/1.1 200 OK\nx-herd-instance: box.other",
        "HTTP/1.1 401 Unauthorized\nx-herd-instance: box.chat",
        "curl: (7) Failed to connect",
        "",
    ],
)
def test_a_model_that_its_servers_do_not_answer_for_fails(said: str) -> None:
    assert failed({**FINE, ("gateway model", "coder"): said}) == ["gateway model coder"]


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ("HTTP/1.1 503 Service Unavailable", "all its servers are paused; requests fail until then"),
        (
            "HTTP/1.1 200 OK\nx-herd-instance: box.chat\nx-herd-fallback: coder",
            "all its servers are paused; coder responds in its place",
        ),
    ],
)
def test_a_model_whose_servers_are_paused_is_a_doubt(said: str, detail: str) -> None:
    paused = {("gateway model", "small"): said, ("gateway paused", ""): "llama-chat\nllama-drafter"}
    checks = gateway_checks(gateway_of(gateway_plans()[0]), {**FINE, **paused}, "box")
    (small,) = [each for each in checks if each.name == "gateway model small"]
    assert (small.ok, small.doubt, small.detail) == (True, True, detail)
    assert failed({**FINE, **paused, ("gateway paused", ""): "llama-chat"}) == ["gateway model small"]


def test_a_model_is_asked_by_somebody_who_may_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANN_KEY", KEYS["ann"])
    requested = [probe.of for probe in probes(gateway_plans()[0]) if probe.what == "gateway model"]
    assert requested == ["small"], "Tom's key is not on this machine"
    kept = {name: said for name, said in FINE.items() if name != ("gateway model", "coder")}
    assert failed(kept) == []


def test_what_is_asked_says_no_key_where_processes_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments of a program are in a process list; its stdin is not."""
    monkeypatch.setenv("TOM_KEY", KEYS["tom"])
    found = [*probes(gateway_plans()[0])]
    assert KEYS["tom"] not in repr(found)
    assert any(KEYS["tom"] in probe.stdin.text for probe in found)


def test_a_gateway_that_runs_is_asked_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes themselves, by curl, of a gateway that runs."""
    monkeypatch.setenv("A", KEYS["tom"])
    server = Upstream()
    text = f"gateway: {{on: [box], port: {free_port()}, users: {{tom: {{key: {{env: A}}}}}}, "
    text += "models: {coder: {serve: [box.one]}}}"
    plan = made(text, [rig_at({"one": server.port})])
    whole = gateway_plans()[0].model_copy(update={"gateway": plan})
    try:
        with running(plan, tmp_path) as gateway:
            until(lambda: gateway.ask().status == 200)
            answers = probed(probes(whole), Host(print, print))
    finally:
        server.stop()
    checks = {each.name: each.ok for each in gateway_checks(plan, answers, "box")}
    assert {name for name, ok in checks.items() if not ok} == {"gateway", "gateway files"}, "there is no unit here"
