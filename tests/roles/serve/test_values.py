"""Settings with their old and new values: of a running server against its plan, and of two plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.servers import ServingState
from llamaherd.pipeline.preview import preview_changes
from llamaherd.plan import Plan
from llamaherd.role.values import (
    HIDDEN,
    ValueChange,
    argument_changes,
    command_changes,
    instance_changes,
    merged_changes,
)
from roles import ROLES
from tests.support.ours import parse_state
from tests.support.rigs import KEY, converged, cpu_rig, planned

BUILD = "/opt/llamaherd/builds/llama.cpp-{}/bin/llama-server"
NOW = planned(cpu_rig(), {"instances/chat/kv": "f16"})
WANTED = planned(cpu_rig())


def running(plan: Plan) -> HostState:
    """A host that runs the servers of a plan."""
    state = parse_state(converged(plan, {"chat": KEY}))
    serving = dict(state.servers.serving)
    for each in plan.instances:
        words = (each.server.program or "docker-init", *each.server.arguments)
        serving[each.service] = replace(serving.get(each.service, ServingState()), arguments=words)
    return state.with_parts(replace(state.servers, serving=serving))


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("--a 1 --b", "--b --a 1", ()),
        ("--a 1", "--a 2", (("--a", "1", "2"),)),
        ("--a", "--a --b", (("--b", None, ""),)),
        ("--a --b -1", "--a", (("--b", "-1", None),)),
        ("--seed -1", "--seed 7", (("--seed", "-1", "7"),)),
        ("-ot a=CPU -ot b=CPU", "-ot a=CPU", (("-ot", "a=CPU, b=CPU", "a=CPU"),)),
        ("--a=1", "--a 2", (("--a", "1", "2"),)),
        ("serve m --x 1", "serve n --x 1", (("", "serve m", "serve n"),)),
        ("--max-num-batched-tokens 1", "--max-num-batched-tokens 2", (("--max-num-batched-tokens", "1", "2"),)),
        ("--api-key sk-1", "--api-key-file /k", (("--api-key-file", None, "/k"), ("--api-key", HIDDEN, None))),
    ],
)
def test_command_lines(old: str, new: str, found: tuple[tuple[str, str | None, str | None], ...]) -> None:
    assert argument_changes(old.split(), new.split()) == tuple(ValueChange(*each) for each in found)


def test_another_build_is_named() -> None:
    old = (BUILD.format("aa"), "--port", "1")
    assert command_changes(old, BUILD.format("bb"), ("--port", "2")) == (
        ValueChange("build", "llama.cpp-aa", "llama.cpp-bb"),
        ValueChange("--port", "1", "2"),
    )
    assert command_changes((), BUILD.format("bb"), ("--port", "2")) == ()


def test_the_program_of_an_image_is_not_compared() -> None:
    assert command_changes(("tini", "vllm", "serve", "--port", "1"), None, ("m", "--port", "1")) == ()


def test_a_changed_key_is_shown_with_both_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)
    (change,) = preview_changes(WANTED, ROLES, running(NOW), Connect(host="box"), {}).changes
    assert change.action == "restart"
    assert change.values == (
        ValueChange("--cache-type-k", "f16", "q8_0"),
        ValueChange("--cache-type-v", "f16", "q8_0"),
        ValueChange("--flash-attn", "auto", "on"),
    )


def test_settings_that_are_no_arguments_come_from_the_last_plan() -> None:
    before = planned(cpu_rig(), {"instances/chat/environment": {"GGML_A": "1", "HF_TOKEN": "hf_x"}})
    after = planned(cpu_rig(), {"instances/chat/environment": {"GGML_A": "2", "HF_TOKEN": "hf_y"}})
    assert instance_changes(before, after, "llama-chat") == (
        ValueChange("GGML_A", "1", "2"),
        ValueChange("HF_TOKEN", HIDDEN, HIDDEN),
    )
    assert instance_changes(before, after, "llama-gone") == ()
    assert instance_changes(NOW, WANTED, "llama-chat")[0] == ValueChange("--cache-type-k", "f16", "q8_0")


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID_SECRET", "DB_PASSWD", "CIVITAI_KEY"])
def test_values_of_variables_that_may_be_secrets_are_hidden(name: str) -> None:
    before, after = (planned(cpu_rig(), {"instances/chat/environment": {name: value}}) for value in "ab")
    assert instance_changes(before, after, "llama-chat") == (ValueChange(name, HIDDEN, HIDDEN),)


def test_each_key_is_shown_once_and_hashes_only_alone() -> None:
    build, key = ValueChange("build", "a", "b"), ValueChange("--a", "1", "2")
    assert merged_changes((build, key), (ValueChange("--a", "0", "2"), ValueChange("X", None, "1"))) == (
        key,
        ValueChange("X", None, "1"),
    )
    assert merged_changes((build,)) == (build,)
