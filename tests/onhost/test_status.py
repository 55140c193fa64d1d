"""The state of a host, on a played host, and with servers on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from llamaherd.onhost import status
from llamaherd.onhost.gateway import NO_GATEWAY
from llamaherd.onhost.status import (
    MOST_BYTES,
    CardStatus,
    GatewayError,
    HostStatus,
    Probe,
    ReleaseStatus,
    ServerInput,
    ServerStatus,
    StatusInput,
    inspect,
    run_together,
)
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, Ended, Host
from tests.support.played_host import File
from tests.support.recording import RecordingHost
from tests.support.slots_server import KEY, SlotsServer

pytestmark = pytest.mark.usefixtures("starts_processes")

CHAT = ServerInput(
    name="llama-chat",
    backend="systemd",
    host="127.0.0.1",
    port=1,
    health="/health",
    figures=(("/slots", "/metrics"),),
    in_turn=(),
    models="/v1/models",
    key="/etc/llamaherd/keys/chat",
    one_process=True,
)
DRAFTER = replace(CHAT, name="llama-drafter", backend="compose")
NOTHING = StatusInput((), gpus=False, gateway=False)
CARD = "GPU-1, 00000000:01:00.0, 20480, 32607, 310.5, [N/A], 64, 99, A GPU, with a comma\n"


def unit(**values: str) -> Ended:
    """Return what systemctl prints of a unit."""
    found = {
        "Id": "llama-chat.service",
        "LoadState": "loaded",
        "ActiveState": "failed",
        "SubState": "failed",
        "Result": "exit-code",
        "MainPID": "0",
        **values,
    }
    return Ended(0, "".join(f"{name}={value}\n" for name, value in found.items()))


def host_with(ends: dict[str, Ended]) -> RecordingHost:
    return RecordingHost({}, ends=ends)


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        (unit(), ServerStatus("failed", "failed", "exit-code")),
        (
            unit(LoadState="not-found", ActiveState="inactive", SubState="dead"),
            ServerStatus("absent", "dead", "exit-code"),
        ),
    ],
)
def test_a_unit_that_is_down_is_not_queried(ended: Ended, found: ServerStatus) -> None:
    host = host_with({"systemctl show": ended})
    assert inspect(replace(NOTHING, servers=(CHAT,)), host) == HostStatus({"llama-chat": found})


def test_the_run_that_holds_the_lock_is_named_while_it_runs() -> None:
    host = host_with({})
    host.files["/run/llamaherd/locks/run"] = File("ann on desk, process 77\n")
    assert inspect(NOTHING, host).holder == ""
    host.links["/proc/77/fd/9"] = "/run/llamaherd/locks/run"
    assert inspect(NOTHING, host).holder == "ann on desk, process 77"


@pytest.mark.parametrize(("active", "paused"), [("inactive", True), ("failed", True), ("activating", False)])
def test_a_server_with_a_record_of_a_pause_is_paused_unless_it_runs(active: str, paused: bool) -> None:
    host = host_with({"systemctl show": unit(ActiveState=active)})
    until = host.clock() + 60
    record = json.dumps({"server": "chat", "since": 0, "until": until})
    host.files["/var/lib/llamaherd/paused/llama-chat/pause.json"] = File(record)
    left = inspect(replace(NOTHING, servers=(CHAT,)), host).servers["llama-chat"].pause_left
    assert (left is not None) == paused
    assert left is None or 50 < left <= 60


@pytest.mark.parametrize("ended", [Ended(TIMED_OUT), Ended(1), unit(Id="other.service"), unit(MainPID="many")])
def test_a_unit_that_systemd_does_not_report_is_unknown_and_queried(ended: Ended) -> None:
    found = inspect(replace(NOTHING, servers=(CHAT,)), host_with({"systemctl show": ended}))
    assert found.servers == {"llama-chat": ServerStatus(health="refused")}


@pytest.mark.parametrize(
    ("ended", "active"),
    [
        (Ended(0, "/llama-drafter exited 0 unhealthy\n"), "exited"),
        (Ended(0, "/llama-drafter exited 0 \n"), "exited"),
        (Ended(1, "", "Error: No such container: llama-drafter\n"), "absent"),
        (Ended(NOT_STARTED), "absent"),
        (Ended(TIMED_OUT), ""),
        (Ended(1, "", "Cannot connect to the Docker daemon"), ""),
        (Ended(1, "llama-drafter running many\na b\n\n"), ""),
    ],
)
def test_the_state_of_a_container(ended: Ended, active: str) -> None:
    found = inspect(replace(NOTHING, servers=(DRAFTER,)), host_with({"docker inspect": ended}))
    assert found.servers["llama-drafter"].active == active
    assert (found.servers["llama-drafter"].health == "") is bool(active)


@pytest.mark.parametrize(
    ("ends", "cards", "driver"),
    [
        ({"nvidia-smi": Ended(0, CARD)}, 1, ""),
        ({"nvidia-smi": Ended(15, f"{CARD}Unable to determine the device handle\n")}, 1, ""),
        ({"nvidia-smi": Ended(9, "it\x1b[2J failed\nbadly\n")}, 0, "it [2J failed"),
        ({"nvidia-smi": Ended(9)}, 0, "nvidia-smi failed with exit code 9"),
        ({"nvidia-smi": Ended(0, "GPU-1, 2\n")}, 0, "nvidia-smi lists no GPU"),
        ({"nvidia-smi": Ended(TIMED_OUT)}, 0, "nvidia-smi does not end within 5 s"),
        ({}, 0, "there is no nvidia-smi"),
        ({"nvidia-smi": Ended(0, CARD * 100)}, 64, ""),
    ],
)
def test_the_gpus_of_a_host(ends: dict[str, Ended], cards: int, driver: str) -> None:
    found = inspect(replace(NOTHING, gpus=True), host_with(ends))
    assert (len(found.cards), found.driver) == (cards, driver)
    if cards:
        name = "A GPU, with a comma"
        assert found.cards[0] == CardStatus("GPU-1", "00000000:01:00.0", 20480, 32607, 310.5, None, 64, 99, name)


def test_the_newest_release() -> None:
    host = host_with({})
    folder = "/var/lib/llamaherd/releases"
    assert inspect(NOTHING, host).release is None
    host.files |= {f"{folder}/{name}": File(name) for name in ("9.json", "10.json", "11.plan", "x.json")}
    assert inspect(NOTHING, host).release == ReleaseStatus(10, "10.json")


def test_a_host_without_its_gateway() -> None:
    found = inspect(replace(NOTHING, gateway=True), host_with({}))
    assert (found.gateway, found.gateway_error) == (None, GatewayError(*NO_GATEWAY))


def test_a_host_with_its_gateway() -> None:
    host = host_with({"/opt/llamaherd/libexec/gateway-talk status": Ended(0, "ending\t0\n")})
    host.files["/opt/llamaherd/libexec/gateway-talk"] = File("")
    found = inspect(replace(NOTHING, gateway=True), host)
    assert found.gateway
    assert found.gateway_error is None


def test_what_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "ALL_SECONDS", 0.2)
    done: list[str] = []
    system = Host(print, print)
    run_together([lambda: system.sleep(3), lambda: done.append("done")], system)
    assert done == ["done"]


def test_a_fault_is_not_lost() -> None:
    def fails() -> None:
        raise KeyError("a fault")

    with pytest.raises(KeyError, match="a fault"):
        run_together([fails], Host(print, print))


@dataclass
class Served:
    """A server on loopback, and the host that it is on."""

    server: SlotsServer

    def status(
        self, given: ServerInput = CHAT, pid: int = 0, files: dict[str, File] | None = None, key: str = KEY
    ) -> ServerStatus:
        """Return what a probe finds on a host with this key, if there is one."""
        keys = {"/etc/llamaherd/keys/chat": File(f"{key}\nmore\n")} if key else {}
        system = RecordingHost({}, files={**keys, **(files or {})})
        probe = Probe(replace(given, port=self.server.port), pid, ServerStatus("active"), system)
        probe.run()
        return probe.status


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(SlotsServer())
    yield made
    made.server.stop()


def test_requests_and_speed_of_a_server(served: Served) -> None:
    served.server.busy, served.server.step, served.server.waiting = 2, 40, 3
    found = served.status()
    assert (found.active, found.health, found.slots, found.busy) == ("active", "200", 2, 2)
    assert (found.reading, found.waiting) == (0, 3)
    assert found.wrote
    assert found.wrote[0] == 80


def test_a_server_without_slots_and_metrics(served: Served) -> None:
    served.server.paths = dict.fromkeys(("/slots", "/metrics"), (404, b"{}"))
    assert served.status() == ServerStatus("active", health="200")


def test_metrics_of_vllm(served: Served) -> None:
    metrics = b'vllm:num_requests_running{a="b"} 3.0\nvllm:num_requests_waiting 1\nvllm:generation_tokens_total 1e4\n'
    served.server.paths = {"/slots": (404, b"{}"), "/metrics": (200, metrics)}
    found = served.status()
    assert (found.slots, found.busy, found.waiting, found.wrote and found.wrote[0]) == (None, 3, 1, 0)


@pytest.mark.parametrize("metrics", [b"vllm:num_requests_running 1e300\n", b"vllm:num_requests_running 1e1e1\n", b"a"])
def test_metrics_that_cannot_be(served: Served, metrics: bytes) -> None:
    served.server.paths = {"/slots": (404, b"{}"), "/metrics": (200, metrics)}
    assert served.status() == ServerStatus("active", health="200")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[1]",
        b"[" * 100_000,
        b"\xff\xfe",
        b"a" * (MOST_BYTES + 1),
        b'[{"id": [1], "is_processing": true}]',
    ],
)
def test_slots_that_cannot_be(served: Served, body: bytes) -> None:
    served.server.paths["/slots"] = (200, body)
    found = served.status()
    assert found.health == "200"
    assert not found.wrote or found.wrote[0] == 0


IDLE = replace(CHAT, props="/props")


def requested(served: Served) -> list[str]:
    return [path for path, _ in served.server.seen]


def test_a_server_that_has_unloaded_its_model_stays_asleep(served: Served) -> None:
    served.server.paths["/props"] = (200, b'{"is_sleeping":true}')
    assert served.status(IDLE) == ServerStatus("active", health="200", asleep=True)
    assert requested(served) == ["/health", "/props"]


def test_the_idle_time_of_a_server_without_requests_goes_on(served: Served) -> None:
    served.server.paths["/props"] = (200, b'{"is_sleeping":false}')
    assert served.status(IDLE) == ServerStatus("active", health="200", busy=0, waiting=0)
    assert requested(served) == ["/health", "/props", "/metrics"]


@pytest.mark.parametrize("props", [b"", b"[]", b"null", b"[" * 100_000, b'{"is_sleeping":"true"}'])
def test_a_server_with_requests_is_not_asleep_and_reports_its_slots(served: Served, props: bytes) -> None:
    served.server.paths["/props"] = (200, props)
    served.server.busy, served.server.step = 1, 40
    found = served.status(IDLE)
    assert (found.asleep, found.busy, found.slots, found.wrote and found.wrote[0]) == (False, 1, 2, 40)


@pytest.mark.parametrize("word", ["sleeping", "loaded"])
def test_a_model_of_a_group_that_is_unloaded_stays_so(served: Served, word: str) -> None:
    listed = {"data": [{"id": "gemma", "status": {"value": "unloaded"}}, {"id": "moe", "status": {"value": word}}]}
    served.server.paths["/v1/models"] = (200, json.dumps(listed).encode())
    figures = (("/slots?a", "/metrics?a"), ("/slots?b", "/metrics?b"))
    found = served.status(replace(IDLE, in_turn=("gemma", "moe"), figures=figures))
    assert found.models == {"gemma": "unloaded", "moe": word}
    assert requested(served) == ["/health", "/v1/models", *(["/metrics?b"] if word == "loaded" else [])]


def test_models_of_a_group(served: Served) -> None:
    listed = {
        "data": [
            {"id": "gemma", "status": {"value": "unloaded", "failed": True}},
            {"id": "moe", "status": {"value": "loaded"}},
            {"id": "other", "status": {"value": "loaded"}},
            {"id": "odd", "status": {"value": "A b"}},
            3,
        ]
    }
    group = replace(CHAT, in_turn=("gemma", "moe"), figures=(("/slots?a", "/metrics?a"), ("/slots", "/metrics")))
    served.server.paths = {"/v1/models": (200, json.dumps(listed).encode()), "/slots?a": (400, b"{}")}
    found = served.status(group)
    assert found.models == {"gemma": "failed", "moe": "loaded"}
    assert found.slots == 2
    served.server.paths["/v1/models"] = (500, b"")
    assert served.status(group).models == {}


def test_a_key_is_sent_but_not_to_the_health_check(served: Served) -> None:
    served.status()
    assert ("/slots", f"Bearer {KEY}") in served.server.seen
    assert all(key is None for path, key in served.server.seen if path == "/health")
    served.server.seen.clear()
    assert served.status(key="") == ServerStatus("active", health="200"), "the key cannot be read"
    assert {path for path, _ in served.server.seen} == {"/health"}


def stat(state: str, ticks: int, faults: int = 0) -> File:
    """Return the file of a process or a thread."""
    return File(f"7 (a b) c) {state} 1 1 1 0 -1 0 0 0 {faults} 0 {ticks} 0 0 0 20 0\n")


@pytest.mark.parametrize(
    ("process", "thread", "still"), [("S", "S", "idle"), ("T", "T", "stopped"), ("S", "D", ""), ("S", "R", "")]
)
def test_a_silent_server_that_does_nothing(served: Served, process: str, thread: str, still: str) -> None:
    served.server.silent = {"/health"}
    files = {"/proc/7/stat": stat(process, 5), "/proc/7/task/7/stat": stat(thread, 5)}
    assert served.status(pid=7, files=files) == ServerStatus("active", health="silent", still=still)
    assert served.status(pid=7).still == "", "its process is unknown"
    assert served.status(replace(CHAT, one_process=False), 7, files).still == ""


def test_a_server_whose_slots_are_silent(served: Served) -> None:
    served.server.silent = {"/slots"}
    assert served.status() == ServerStatus("active", health="200", silent=True)
