"""Hostile texts in the fields of a switch and of an upload: programs get them as arguments, and no shell reads one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import GPU_CHECK
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.servers import NeededGpu
from llamaherd.onhost.store import ReceiveInput, receive
from llamaherd.onhost.system import Ended, FailedError
from roles.serve.blue_green import candidate_input
from roles.serve.changes import server_changes
from roles.serve.onhost.model import SwitchInput
from roles.serve.onhost.speed import Proof, ProofInput
from roles.serve.onhost.switch import switch as run_switch
from roles.serve.transaction import UndeclaredServer
from tests.support.hostile import PLAIN
from tests.support.played_host import File, PlayedHost, Running
from tests.support.recording import RecordingHost, switch_of
from tests.support.rigs import DIGEST, KEY, cpu_rig, planned
from tests.support.switches import instance_of

GOING = (
    UndeclaredServer("old", unit=True, container=False, port=True, serves=True),
    UndeclaredServer("boxed", unit=False, container=True),
)
READY = {"kind": "llama.cpp", "image": f"ghcr.io/ggml-org/llama.cpp@sha256:{DIGEST}"}
PLAN = planned(
    cpu_rig(),
    {
        "engines/ready": READY,
        "instances/drafter/engine": "ready",
        "instances/drafter/api_key": {"env": "K"},
        "instances/drafter/environment": {"GGML_A": "b c"},
    },
)
SHELLS = {"sh", "bash", "dash", "eval", "ash", "zsh", "xargs", "ssh"}


def switch(name: str, *, moves: bool) -> SwitchInput:
    """Return a switch with all that one can have: a candidate, a key, servers that go, GPUs, and drop-ins."""
    instance = instance_of(PLAN, name)
    (change,) = server_changes(instance, HostState(), KEY, going=GOING)
    return replace(
        switch_of(change),
        moves=moves,
        candidate=candidate_input(PLAN, instance),
        foreign=("/etc/systemd/system/llama-chat.service.d/a.conf",),
        hangs="its process is stopped",
        gpus=("GPU-5090",),
        needs_gpus=(NeededGpu("new", "GPU-5090", 1),),
        unchanged={"/etc/llamaherd/same": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        leaving=("llama-old",),
    )


def texts(value: Any) -> Iterator[str]:
    """Yield each text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Secret):
        yield value.text
    elif is_dataclass(value):
        for each in fields(value):
            yield from texts(getattr(value, each.name))
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from texts(name)
            yield from texts(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from texts(each)


def with_text(value: Any, old: str, new: str) -> Any:
    """Return a value in which each text that is one is another."""
    if isinstance(value, Secret):
        return Secret(with_text(value.text, old, new))
    if isinstance(value, str):
        return new if value == old else value
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: with_text(getattr(value, each.name), old, new) for each in fields(value)})
    if isinstance(value, Mapping):
        return {with_text(name, old, new): with_text(each, old, new) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(with_text(each, old, new) for each in value)
    return value


class StrictHost(RecordingHost):
    """Asserts of each program that it is started by a list of texts, and is no shell."""

    service = ""

    def run(self, argv: Any, **how: Any) -> Ended:
        """Check a program, and play it."""
        assert isinstance(argv, list)
        assert all(isinstance(each, str) for each in argv)
        assert argv[0].rpartition("/")[2] not in SHELLS, argv
        assert not any(first in SHELLS and second == "-c" for first, second in pairwise(argv)), argv
        if argv[0] == str(GPU_CHECK):  # which prints that argument as a command
            assert shlex.split(argv[2]) == ["docker", "logs", self.service, "2>&1"]
        return super().run(argv, **how)

    def prove(self, given: ProofInput, system: object) -> Proof:
        """Prove a server, whatever its spec is called."""
        del system
        self.done.append(["prove", str(given.question.get("spec"))])
        if given.how != "back" and self.fates:
            return Proof("bad", "it does not answer a prompt")
        return Proof("good", speeds="[]")


def host(given: SwitchInput, fate: str) -> StrictHost:
    """Return a host where another version of the server, and those that it replaces, serve."""
    server = given.server
    StrictHost.service = server.service
    played = StrictHost({}, room=fate != "no room")
    if fate == "does not answer":
        played.fates[server.spec] = "does not answer"
    played.units[server.service] = Running("active", "0ld", 7)
    played.files[server.unit_file] = File("Environment=LLAMAHERD_SPEC=0ld\n")
    played.units["llama-old"] = Running("active", "older", 8)
    played.files["/etc/systemd/system/llama-old.service"] = File("Environment=LLAMAHERD_SPEC=older\n")
    played.containers["llama-boxed"] = Running("running", "boxed", 9)
    played.files["/etc/llamaherd/same"] = File("")
    for path in given.foreign:
        played.files[path] = File("[Service]\n")
    played.ends = {str(GPU_CHECK): Ended(0), "docker image inspect": Ended(1)}
    return played


CASES = [("chat", False, "serves"), ("chat", True, "does not answer"), ("drafter", True, "no room")]


@pytest.mark.parametrize(("name", "moves", "fate"), CASES)
def test_a_switch_runs_to_its_end_without_a_shell(name: str, moves: bool, fate: str) -> None:
    given = switch(name, moves=moves)
    each = host(given, fate)
    run(given, each)
    assert len(each.done) > 20


@pytest.mark.parametrize(("name", "moves", "fate"), CASES)
def test_a_hostile_text_reaches_no_shell(name: str, moves: bool, fate: str) -> None:
    given = switch(name, moves=moves)
    places = sorted(set(texts(given)) - {"unit", "container"})
    assert len(places) > 40
    for at, place in enumerate(places):
        hostile = PLAIN[at % len(PLAIN)] if place else "$(touch /tmp/PWNED)"
        changed = with_text(given, place, hostile)
        travelled = decode(SwitchInput, parse_document(dump(changed).encode()))
        assert travelled == changed
        run(travelled, host(travelled, fate))


@pytest.mark.parametrize("is_admitted", [False, True])
def test_a_hostile_path_of_an_upload_reaches_no_program(is_admitted: bool) -> None:
    for hostile in PLAIN:
        path, admitted = ("/incoming/5", hostile) if is_admitted else (hostile, "/store/a")
        given = ReceiveInput(path, 2, (admitted,), 150, 60)
        travelled = decode(ReceiveInput, parse_document(dump(given).encode()))
        assert travelled == given
        played = StrictHost({}, arriving=lambda _: "ab")
        receive(travelled, played)
        assert (played.done, {path: file.text for path, file in played.files.items()}) == ([], {given.path: "ab"})


def run(given: SwitchInput, played: PlayedHost) -> None:
    """Run a switch, which may fail: with names like these it finds nothing in its place."""
    with suppress(FailedError):
        run_switch(given, played, played)
