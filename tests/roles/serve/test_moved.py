"""Servers that move to another backend, what is left where they were, and the keys that go with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import container_user
from llamaherd.onhost.document import Secret, dump
from llamaherd.onhost.servers import ServingState
from llamaherd.plan import InstancePlan
from roles.base import base_changes
from roles.base.onhost import AccountsInput
from roles.serve.onhost.model import RemovalInput
from roles.serve.onhost.removal import remove as run_removal
from roles.serve.onhost.switch import switch as run_switch
from roles.serve.removal import removal_changes
from roles.serve.state import ServeState
from tests.support.drifts import (
    CHAT,
    CPU,
    KEYED,
    seen_of,
    switch,
)
from tests.support.ours import refusals
from tests.support.played_host import File
from tests.support.recording import input_of, recording, switch_of
from tests.support.rigs import KEY, cpu_rig, planned
from tests.support.states import edited, updated, with_file, without
from tests.support.switches import serving_host


@pytest.mark.parametrize(
    ("name", "backend", "stops", "forgets", "reason"),
    [
        (
            "chat",
            "compose",
            ("systemctl", "stop", "llama-chat.service"),
            ("remove", "/etc/systemd/system/llama-chat.service"),
            "it runs as a unit until now",
        ),
        (
            "drafter",
            "systemd",
            ("docker", "stop", "llama-drafter"),
            ("remove", "/etc/llamaherd/compose/drafter"),
            "it runs in a container until now",
        ),
    ],
)
def test_one_that_moves_is_kept_until_it_serves_where_it_goes(
    name: str, backend: str, stops: tuple[str, ...], forgets: tuple[str, ...], reason: str
) -> None:
    moved = planned(cpu_rig(), {f"instances/{name}/backend": backend})
    seen = seen_of(CPU)
    assert removal_changes(moved, seen) == []
    instance = next(i for i in moved.instances if i.name == name)
    (step,) = switch(instance, seen)
    assert (step.action, step.reasons[0]) == ("restart", reason)
    assert switch_of(step).moves
    assert refusals(moved, seen, {}) == []
    host = recording(serving_host(CPU, name))
    run_switch(switch_of(step), host, host)
    proved = host.index("prove", instance.spec)
    assert next(at for at, each in enumerate(host.done) if set(stops) <= set(each)) < proved
    assert proved < next(at for at, each in enumerate(host.done) if set(forgets) <= set(each))
    assert host.running(instance.service) == instance.spec


def test_what_is_left_where_one_was_goes_once_it_serves_where_it_is() -> None:
    """A run that was killed may have left it."""
    seen = seen_of(CPU)
    seen = edited(seen, projects={*ServeState.of(seen).projects, "chat"})
    (removal,) = removal_changes(CPU, seen)
    given = input_of(removal, RemovalInput)
    assert (given.service, given.container, given.unit, given.key) == ("llama-chat", True, False, False)


def test_what_is_left_where_one_was_stays_until_it_has_answered_where_it_is() -> None:
    """It may be all that there is to go back to."""
    seen = seen_of(CPU)
    seen = edited(seen, projects={*ServeState.of(seen).projects, "chat"})
    seen = updated(seen, serving={"llama-chat": ServingState(untried=(CHAT.spec,))})
    assert removal_changes(CPU, seen) == []
    (step,) = switch(CHAT, seen)
    assert (step.action, step.reasons) == ("start", ("it has not responded to a prompt yet",))
    host = recording(serving_host(CPU, "chat"))
    host.files["/etc/llamaherd/compose/chat/compose.yaml"] = File("services: {}")
    run_switch(switch_of(step), host, host)
    assert host.index("prove", CHAT.spec) < host.index("remove", "/etc/llamaherd/compose/chat")
    assert host.running("llama-chat") == CHAT.spec


def test_a_key_goes_with_its_instance() -> None:
    declared = cpu_rig()
    del declared["instances"]["chat"]
    (removal,) = removal_changes(planned(declared), seen_of(CPU))
    host = recording(serving_host(CPU, "chat"))
    run_removal(input_of(removal, RemovalInput), host, host)
    assert host.index("systemctl", "disable", "llama-chat.service") < host.index("remove", "/etc/llamaherd/keys/chat")
    assert [path for path in host.files if "chat" in path] == []
    assert "llama-chat" not in host.accounts


@pytest.mark.parametrize("instance", KEYED.instances, ids=[each.name for each in KEYED.instances])
def test_the_key_travels_in_the_document_alone(instance: InstancePlan) -> None:
    (step,) = switch(instance, HostState())
    given = switch_of(step)
    (carried,) = [each for each in given.files if each.path == instance.key_file]
    assert carried.text == Secret(f"{KEY}\n")
    assert KEY in dump(given)
    for shown in (step.says, str(step), repr(step), repr(step.how), repr(given), repr(KEYED), KEYED.model_dump_json()):
        assert KEY not in shown
    without = replace(given, files=tuple(each for each in given.files if each is not carried))
    assert KEY not in dump(without)


def test_a_key_belongs_to_the_account_that_reads_it() -> None:
    (chat,), (drafter,) = (switch(instance, HostState()) for instance in KEYED.instances)
    owners = {each.path: (each.mode, each.owner) for step in (chat, drafter) for each in switch_of(step).files}
    assert owners["/etc/llamaherd/keys/chat"] == (0o400, "llama-chat")
    assert owners["/etc/llamaherd/keys/drafter"] == (0o400, container_user("drafter"))


def test_a_host_where_all_servers_were_one_user_is_changed_once() -> None:
    before = seen_of(KEYED)
    before = without(before, users="llama-chat")
    for name, owner in (("chat", ("995", "llama")), ("drafter", ("65532", "UNKNOWN"))):
        path = f"/etc/llamaherd/keys/{name}"
        before = with_file(before, path, replace(before.files[path], owner=owner))
    (accounts,) = base_changes(KEYED, before)
    assert "llama-chat" in input_of(accounts, AccountsInput).users
    for instance in KEYED.instances:
        (step,) = switch(instance, before)
        (key,) = switch_of(step).files
        assert (key.path, key.mode, key.owner) == (instance.key_file, 0o400, instance.server.user)
        assert switch(instance, seen_of(KEYED)) == []
