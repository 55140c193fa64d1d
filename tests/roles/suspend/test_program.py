"""The program that suspends a host, with real locks, and servers on loopback.

systemctl, loginctl and docker are programs of the tests' own; so are the clock of the kernel and the network card.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roles.suspend.onhost import suspend_program as program
from tests.support.slots_server import KEY, SlotsServer

MAC = "3c:7c:3f:12:ab:cd"
SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$HOST/done"
case $1 in
show) cat "$HOST/$4" 2>/dev/null || echo inactive ;;
list-units) cat "$HOST/jobs" 2>/dev/null; true ;;
stop) [ -e "$HOST/stuck" ] || echo inactive >"$HOST/$2" ;;
--no-block) echo active >"$HOST/$3" ;;
suspend)
    [ ! -e "$HOST/inhibited" ] || { echo "inhibited by a backup" >&2; exit 1; }
    [ -e "$HOST/awake" ] || touch "$HOST/slept"
    ;;
esac
"""
LOGINCTL = """#!/bin/sh
[ ! -e "$HOST/no-logind" ] || exit 1
case $1 in
list-sessions) [ ! -e "$HOST/session" ] || echo "7 1000 tom seat0 tty2" ;;
show-session) cat "$HOST/session" ;;
esac
"""
DOCKER = """#!/bin/sh
echo "docker $*" >>"$HOST/done"
case $1 in
inspect) cat "$HOST/$6" 2>/dev/null || { echo "Error: No such container" >&2; exit 1; } ;;
stop) echo exited >"$HOST/$2" ;;
start) echo running >"$HOST/$2" ;;
esac
"""


class PlayedMachine:
    """A host with one server, on which half an hour passes in no time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, server: SlotsServer) -> None:
        self.folder, self.server = folder, server
        self.time, self.wol = 1000.0, [0x2F, 0]
        (folder / "bin").mkdir()
        for name, text in (("systemctl", SYSTEMCTL), ("loginctl", LOGINCTL), ("docker", DOCKER)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("HOST", str(folder))
        for name in ("RUN", "STATE", "LOCKS", "NETWORK"):
            monkeypatch.setattr(program, name, folder / name.lower())
        (folder / "network" / "eth0").mkdir(parents=True)
        (folder / "network" / "eth0" / "address").write_text(f"{MAC}\n")
        (folder / "key").write_text(f"{KEY}\n")
        monkeypatch.setattr(program, "time_slept", lambda: 500.0 * (folder / "slept").exists())
        monkeypatch.setattr(program, "wake_options", self.wake_options)
        monkeypatch.setattr(program, "monotonic", lambda: self.time)
        monkeypatch.setattr(program, "sleep", self.sleep)
        self.set("llama-chat.service", "active")
        self.declare(self.declared())

    def declared(self, **keys: Any) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.server.port}"
        key = f"{self.folder}/key"
        return {"service": "llama-chat", "unit": True, "metrics": [f"{url}/metrics"], "key": key, **keys}

    def declare(self, *servers: dict[str, Any]) -> None:
        (self.folder / "table").write_text(json.dumps({"after": 1800, "mac": MAC, "servers": servers}))

    def wake_options(self, _: str, options: int | None = None) -> tuple[int, int]:
        if options is not None:
            self.wol[1] = options
        return self.wol[0], self.wol[1]

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def set(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(f"{text}\n" if text else "")

    def state(self, name: str) -> str:
        return (self.folder / name).read_text().strip()

    @property
    def slept(self) -> bool:
        return (self.folder / "slept").exists()

    @property
    def done(self) -> list[str]:
        """What was done to it, without queries."""
        file = self.folder / "done"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if not line.startswith(("show", "list-units", "docker inspect"))]

    def pass_minutes(self, count: int, each: Callable[[], object] = lambda: None) -> list[int]:
        """Run the program once a minute, and return its exit codes."""
        codes = []
        for _ in range(count):
            each()
            codes.append(program.main(str(self.folder / "table")))
            self.time += 60
        return codes


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedMachine]:
    server = SlotsServer()
    yield PlayedMachine(tmp_path, monkeypatch, server)
    server.stop()


def test_a_host_sleeps_after_half_an_hour_and_its_servers_start_again(machine: PlayedMachine) -> None:
    assert machine.pass_minutes(30) == [0] * 30
    assert not machine.slept
    assert machine.pass_minutes(1) == [0]
    assert machine.slept
    assert machine.done == [
        "stop llama-chat.service",
        "suspend --check-inhibitors=yes",
        "--no-block start llama-chat.service",
    ]
    assert machine.wol[1] & 0x20, "a packet wakes it"
    assert not (machine.folder / "state" / "stopped.json").exists()
    machine.pass_minutes(29)
    assert machine.done.count("suspend --check-inhibitors=yes") == 1, "the time begins anew"


IN_USE = {
    "a login": ("session", "Class=user\nState=active"),
    "a build": ("jobs", "llamaherd-build-1.service loaded active running a build"),
    "a host without logind": ("no-logind", ""),
    "a server that starts": ("llama-chat.service", "activating"),
}


@pytest.mark.parametrize("kind", IN_USE)
def test_a_host_that_is_in_use_stays_awake(machine: PlayedMachine, kind: str) -> None:
    machine.set(*IN_USE[kind])
    assert machine.pass_minutes(45) == [0] * 45
    assert not machine.slept
    assert machine.done == []


def test_a_host_whose_server_works_stays_awake(machine: PlayedMachine) -> None:
    machine.server.busy = 1
    machine.pass_minutes(45)
    assert machine.done == []


def test_a_request_that_ends_between_two_runs_is_noticed(machine: PlayedMachine) -> None:
    def use() -> None:
        machine.server.asked += 1
        text = f"llamacpp:tokens_predicted_total {machine.server.asked}\nllamacpp:requests_processing 0\n"
        machine.server.paths["/metrics"] = (200, text.encode())

    machine.pass_minutes(45, use)
    assert machine.done == []
    machine.pass_minutes(31)
    assert machine.slept


@pytest.mark.parametrize("status", [401, 503])
def test_a_server_whose_requests_are_unknown_keeps_its_host_awake(machine: PlayedMachine, status: int) -> None:
    machine.server.paths["/metrics"] = (status, b"")
    machine.pass_minutes(45)
    assert machine.done == []


def test_a_run_keeps_its_host_awake(machine: PlayedMachine) -> None:
    (machine.folder / "locks").mkdir()
    with (machine.folder / "locks" / "run").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine.pass_minutes(45)
        assert machine.done == []
    machine.pass_minutes(31)
    assert machine.slept


@pytest.mark.parametrize("session", ["Class=greeter\nState=active", "Class=user\nState=closing", "Class=manager"])
def test_a_session_that_is_no_login_keeps_no_host_awake(machine: PlayedMachine, session: str) -> None:
    machine.set("session", session)
    machine.pass_minutes(31)
    assert machine.slept


def test_a_server_that_does_not_run_is_not_started(machine: PlayedMachine) -> None:
    machine.set("llama-chat.service", "inactive")
    machine.pass_minutes(31)
    assert machine.done == ["suspend --check-inhibitors=yes"]


def test_a_container_is_started_again(machine: PlayedMachine) -> None:
    machine.declare(machine.declared(unit=False))
    machine.set("llama-chat", "running")
    machine.pass_minutes(31)
    stop, _, start = machine.done
    assert (stop, start) == ("docker stop llama-chat", "docker start llama-chat")
    assert machine.state("llama-chat") == "running"


def test_a_server_that_has_unloaded_its_model_is_not_loaded(machine: PlayedMachine) -> None:
    machine.declare(machine.declared(props=f"http://127.0.0.1:{machine.server.port}/props"))
    machine.server.paths["/props"] = (200, b'{"is_sleeping": true}')
    machine.pass_minutes(31)
    assert machine.slept
    assert {path for path, _ in machine.server.seen} == {"/props"}


def test_of_a_group_only_the_loaded_model_has_metrics(machine: PlayedMachine) -> None:
    url = f"http://127.0.0.1:{machine.server.port}"
    machine.declare(machine.declared(metrics=[f"{url}/metrics?model=a", f"{url}/metrics?model=b"]))
    machine.server.paths["/metrics?model=a"] = (400, b"{}")
    machine.pass_minutes(31)
    assert machine.slept


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        ("inhibited", "systemd does not suspend this host: inhibited by a backup"),
        ("awake", "the host did not fall asleep in 90 s"),
        ("stuck", "llama-chat does not stop"),
    ],
)
def test_a_host_that_does_not_fall_asleep_serves_again(
    machine: PlayedMachine, capsys: pytest.CaptureFixture[str], mark: str, why: str
) -> None:
    machine.set(mark)
    assert machine.pass_minutes(31)[-1] == 1
    assert why in capsys.readouterr().err
    assert machine.done[-1] == "--no-block start llama-chat.service"
    assert machine.pass_minutes(29) == [0] * 29, "it is tried again after half an hour"


@pytest.mark.parametrize(
    ("supported", "mac", "why"),
    [(0x0F, MAC, "eth0 cannot be woken by a packet"), (0x2F, "3c:7c:3f:12:ab:ff", "no network card has the address")],
)
def test_a_host_that_nothing_could_wake_stays_awake(
    machine: PlayedMachine, capsys: pytest.CaptureFixture[str], supported: int, mac: str, why: str
) -> None:
    machine.wol[0] = supported
    (machine.folder / "network" / "eth0" / "address").write_text(mac)
    assert machine.pass_minutes(31)[-1] == 1
    assert machine.done == []
    assert why in capsys.readouterr().err


def test_a_run_that_was_killed_is_completed_by_the_next(machine: PlayedMachine) -> None:
    machine.set("llama-chat.service", "inactive")
    (machine.folder / "state").mkdir()
    (machine.folder / "state" / "stopped.json").write_text('{"llama-chat": true}')
    machine.pass_minutes(1)
    assert machine.state("llama-chat.service") == "active"
    machine.pass_minutes(29)
    assert not machine.slept


def test_a_host_that_was_woken_does_not_sleep_at_once(machine: PlayedMachine) -> None:
    machine.pass_minutes(29)
    machine.set("slept")  # by another program than ours
    machine.pass_minutes(29)
    assert machine.done == []


def test_a_damaged_note_is_no_note(machine: PlayedMachine) -> None:
    (machine.folder / "run").mkdir()
    for text in ("", "[]", '{"since": 1}', "{" * 100):
        (machine.folder / "run" / "idle.json").write_text(text)
        assert machine.pass_minutes(1) == [0]


def test_a_real_network_card_without_wake_on_lan() -> None:
    with pytest.raises(OSError, match="not supported"):
        program.wake_options("lo")
