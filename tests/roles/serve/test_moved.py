"""Servers that move to another backend, what is left where they were, and the keys that go with them."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from llamaherd.host.serving import ServingState
from llamaherd.host.state import HostState
from llamaherd.layout import container_user
from roles.base.changes import base_changes
from roles.serve.removal import removal_changes
from tests.support.drifts import (
    CHAT,
    CPU,
    KEYED,
    seen_of,
    switch,
)
from tests.support.ours import refusals
from tests.support.rigs import KEY, cpu_rig, planned


@pytest.mark.parametrize(
    ("name", "backend", "stops", "forgets", "reason"),
    [
        (
            "chat",
            "compose",
            "systemctl stop llama-chat.service",
            "rm -f /etc/systemd/system/llama-chat.service",
            "it runs as a unit until now",
        ),
        (
            "drafter",
            "systemd",
            "docker stop llama-drafter",
            "rm -rf /etc/llamaherd/compose/drafter",
            "it runs in a container until now",
        ),
    ],
)
def test_one_that_moves_is_kept_until_it_serves_where_it_goes(
    name: str, backend: str, stops: str, forgets: str, reason: str
) -> None:
    moved = planned(cpu_rig(), {f"instances/{name}/backend": backend})
    seen = seen_of(CPU)
    assert removal_changes(moved, seen) == []
    (step,) = switch(next(i for i in moved.instances if i.name == name), seen)
    assert (step.action, step.reasons[0]) == ("restart", reason)
    assert step.script.index(stops) < step.script.rindex('proved "$asked"') < step.script.rindex(forgets)
    assert refusals(moved, seen, {}) == []


def test_what_is_left_where_one_was_goes_once_it_serves_where_it_is() -> None:
    """A run that was killed may have left it."""
    seen = seen_of(CPU)
    seen.projects.add("chat")
    (removal,) = removal_changes(CPU, seen)
    assert "docker rm -f llama-chat" in removal.script
    assert "/etc/llamaherd/keys/chat" not in removal.script


def test_what_is_left_where_one_was_stays_until_it_has_answered_where_it_is() -> None:
    """It may be all that there is to go back to."""
    seen = seen_of(CPU)
    seen.projects.add("chat")
    seen.serving["llama-chat"] = ServingState(untried=[CHAT.spec])
    assert removal_changes(CPU, seen) == []
    (step,) = switch(CHAT, seen)
    assert (step.action, step.reasons) == ("start", ("it has not answered a prompt yet",))
    assert step.script.rindex('proved "$asked"') < step.script.rindex("docker rm -f llama-chat")


def test_a_key_goes_with_its_instance() -> None:
    declared = cpu_rig()
    del declared["instances"]["chat"]
    (removal,) = removal_changes(planned(declared), seen_of(CPU))
    assert "/etc/llamaherd/keys/chat" in removal.script


def test_the_key_is_on_stdin_alone() -> None:
    carried = base64.b64encode(f"{KEY}\n".encode()).decode()
    for instance in KEYED.instances:
        (step,) = switch(instance, HostState())
        assert carried in step.script
        for spelling in (KEY, carried):
            assert spelling not in step.says
            assert spelling not in repr(step)
            assert spelling not in repr(KEYED) + KEYED.model_dump_json()
        assert KEY not in step.script.replace(carried, "")


def test_a_key_belongs_to_who_reads_it() -> None:
    (chat,), (drafter,) = (switch(instance, HostState()) for instance in KEYED.instances)
    assert "put_file /etc/llamaherd/keys/chat /etc/llamaherd/keys 0400 llama-chat <<" in chat.script
    keyed = f"put_file /etc/llamaherd/keys/drafter /etc/llamaherd/keys 0400 {container_user('drafter')} <<"
    assert keyed in drafter.script


def test_a_host_where_all_servers_were_one_user_is_changed_once() -> None:
    before = seen_of(KEYED)
    del before.users["llama-chat"]
    for name, owner in (("chat", ("995", "llama")), ("drafter", ("65532", "UNKNOWN"))):
        path = f"/etc/llamaherd/keys/{name}"
        before.files[path] = replace(before.files[path], owner=owner)
    (accounts,) = base_changes(KEYED, before)
    assert "llama-chat" in accounts.script
    for instance in KEYED.instances:
        (step,) = switch(instance, before)
        assert f"put_file {instance.key_file} /etc/llamaherd/keys 0400 {instance.server.user} <<" in step.script
        assert switch(instance, seen_of(KEYED)) == []
