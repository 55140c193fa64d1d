"""What hosts run: the real program, before servers on loopback that answer, hang, lie, or say what nobody may know."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.fleet.status import CheckedStatus, check_status, status_input
from llamaherd.host.program import Events, request
from llamaherd.onhost.document import decode
from llamaherd.onhost.status import HostStatus, ServerStatus
from tests.support.rigs import ROOT, changed, cpu_rig, gpu_rig, planned
from tests.support.slots_server import KEY, PROMPT, SlotsServer

PROGRAMS = {
    "systemctl": (
        "Id=llama-chat.service\nLoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nMainPID=0"
    ),
    "docker": "/llama-drafter running 0 healthy",
}


PROGRAM = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.support.ssh_program import run_program
sys.exit(run_program(json.loads(sys.stdin.readline()), {"RELEASES": sys.argv[2]}))
"""


class Host:
    """A host: its programs are what files of a folder say, the rest is this machine's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = SlotsServer()
        (folder / "bin").mkdir()
        (folder / "releases").mkdir()
        (folder / "key").write_text(f"{KEY}\n")
        for name, said in PROGRAMS.items():
            self.says(name, said)

    def says(self, name: str, said: str, *, code: int = 0, before: str = "") -> None:
        """Have a program print this, and end so."""
        (self.folder / f"{name}.out").write_text(f"{said}\n")
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{before}\ncat {self.folder}/{name}.out\nexit {code}\n")
        file.chmod(0o755)

    def snapshot(self, declared: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Run what `herd status` runs on a rig whose servers are all this one."""
        given = status_input(planned(declared or cpu_rig()))
        key = str(self.folder / "key")
        servers = tuple(replace(each, port=self.server.port, key=each.key and key) for each in given.servers)
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, str(ROOT), str(self.folder / "releases")],
            input=request("llamaherd.status.inspect", replace(given, servers=servers)).decode(),
            env={"PATH": f"{self.folder / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def told(self, declared: dict[str, Any] | None = None) -> CheckedStatus:
        """The same, checked."""
        names = [instance.service for instance in planned(declared or cpu_rig()).instances]
        events = Events(lambda _, line: pytest.fail(line))
        for line in self.snapshot(declared).stdout.splitlines():
            events.hear("stdout", line)
        return check_status(decode(HostStatus, events.result), names)

    @property
    def chat(self) -> ServerStatus:
        """What is told of the unit's server."""
        return self.told().servers["llama-chat"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.server.stop()


def test_a_server_that_writes_is_counted_by_its_slots(host: Host) -> None:
    """Its counter of tokens stands still until the end of an answer."""
    host.server.busy, host.server.step, host.server.waiting = 2, 40, 3
    told = host.chat
    assert (told.active, told.health) == ("active", "200")
    assert (told.slots, told.busy, told.reading, told.waiting) == (2, 2, 0, 3)
    assert told.wrote
    tokens, milliseconds = told.wrote
    assert tokens == 2 * 40
    assert milliseconds >= 1000


def listed(**models: dict[str, object]) -> bytes:
    """The list of models of a group's server."""
    return json.dumps({"data": [{"id": name, "status": status} for name, status in models.items()]}).encode()


def test_a_group_is_asked_of_the_model_that_is_loaded(host: Host) -> None:
    """And no other is loaded for that: each question says so. Programs are those of `chat`, which is its unit."""
    alike = {"engine": "main", "context": 4096, "port": 8080, "group": "chat"}
    rig = changed(
        cpu_rig(),
        {"instances": {"one": alike | {"model": "gemma"}, "two": alike | {"model": "moe"}}},
    )
    ends = {name: f"?model={name}&autoload=false" for name in ("gemma", "moe")}
    slots = [{"id": 0, "is_processing": True, "next_token": [{"n_decoded": 3}]}]
    host.server.paths = {
        **{f"{path}{ends['gemma']}": (400, b"{}") for path in ("/slots", "/metrics")},
        f"/slots{ends['moe']}": (200, json.dumps(slots).encode()),
        f"/metrics{ends['moe']}": (200, b"llamacpp:requests_deferred 4\n"),
        "/v1/models": (200, listed(gemma={"value": "unloaded"}, moe={"value": "loaded"}, other={"value": "loaded"})),
    }
    told = host.told(rig).servers["llama-chat"]
    assert (told.health, told.slots, told.busy, told.waiting) == ("200", 1, 1, 4)
    assert told.models == {"gemma": "unloaded", "moe": "loaded"}
    assert "/slots" not in [path for path, _ in host.server.seen]
    host.server.paths = {f"{path}{end}": (400, b"{}") for path in ("/slots", "/metrics") for end in ends.values()}
    host.server.paths["/v1/models"] = (200, listed(gemma={"value": "unloaded", "failed": True, "exit_code": 1}))
    idle = host.told(rig).servers["llama-chat"]
    assert (idle.health, idle.slots) == ("200", None), "nothing is loaded"
    assert idle.models == {"gemma": "failed"}


@pytest.mark.parametrize(
    "said", [b"", b"[]", b'{"data": 3}', b'{"data": [3, {"id": "gemma"}, {"id": "gemma", "status": {"value": "A b"}}]}']
)
def test_nonsense_about_models_is_nothing(host: Host, said: bytes) -> None:
    alike = {"engine": "main", "context": 4096, "port": 8080, "group": "chat"}
    rig = changed(cpu_rig(), {"instances": {"one": alike | {"model": "gemma"}, "two": alike | {"model": "moe"}}})
    host.server.paths = {"/v1/models": (200, said)}
    told = host.told(rig).servers["llama-chat"]
    assert (told.health, told.models) == ("200", {})


def test_a_prompt_that_is_read_is_no_token(host: Host) -> None:
    host.server.busy, host.server.reading, host.server.step = 1, True, 40
    told = host.chat
    assert (told.busy, told.reading, told.wrote and told.wrote[0]) == (1, 1, 0)


def test_prompts_and_keys_never_leave_the_host(host: Host) -> None:
    host.server.busy = 2
    done = host.snapshot()
    assert PROMPT not in done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    assert ("/slots", f"Bearer {KEY}") in host.server.seen
    assert all(key is None for path, key in host.server.seen if path == "/health")


def test_a_key_is_in_no_argument(host: Host) -> None:
    host.says("systemctl", PROGRAMS["systemctl"], before=f"cat /proc/[0-9]*/cmdline >{host.folder}/seen 2>/dev/null")
    host.snapshot()
    seen = (host.folder / "seen").read_bytes()
    assert b"llama-chat" in seen
    assert KEY.encode() not in seen


@pytest.mark.parametrize(
    ("silent", "health", "quiet"), [({"/health"}, "silent", False), ({"/slots"}, "200", True), (set(), "200", False)]
)
def test_what_is_not_answered_in_two_seconds_is_waited_for_no_longer(
    host: Host, silent: set[str], health: str, quiet: bool
) -> None:
    host.server.silent = silent
    began = time.monotonic()
    told = host.chat
    assert time.monotonic() - began < 30
    assert (told.health, told.silent) == (health, quiet)


def test_a_server_that_does_nothing_is_told_from_one_that_computes(host: Host) -> None:
    """ik_llama.cpp answers nobody while it reads a prompt, and neither does one that hangs."""
    host.server.silent = {"/health"}
    still = subprocess.Popen(["sleep", "60"])
    works = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        found = {}
        for name, process in (("still", still), ("works", works)):
            host.says("systemctl", PROGRAMS["systemctl"].replace("MainPID=0", f"MainPID={process.pid}"))
            found[name] = host.chat.still
        assert found == {"still": "idle", "works": ""}
        works.send_signal(19)
        assert host.chat.still == "stopped"
    finally:
        for process in (still, works):
            process.kill()
            process.wait()


def test_the_shape_of_ik_llama_cpp_and_of_vllm(host: Host) -> None:
    slots = [
        {"id": 0, "state": 1, "id_task": 3, "prompt": PROMPT, "next_token": {"n_decoded": 9}},
        {"id": 1, "state": 0},
    ]
    host.server.paths["/slots"] = (200, json.dumps(slots).encode())
    told = host.chat
    assert (told.slots, told.busy, told.reading, told.wrote and told.wrote[0]) == (2, 1, 0, 0)
    metrics = (
        'vllm:num_requests_running{engine="0",model_name="gemma"} 3.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="gemma"} 1.0\n'
        'vllm:generation_tokens_total{engine="0",model_name="gemma"} 1.2e+04\n'
    )
    host.server.paths = {"/slots": (404, b"{}"), "/metrics": (200, metrics.encode())}
    told = host.chat
    assert (told.slots, told.busy, told.waiting, told.wrote and told.wrote[0]) == (None, 3, 1, 0)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[1]", b'{"a": 1}', b"[" * 100_000, b"\xff\xfe", b"a" * (5 << 20)),
        b'[{"id": 0, "is_processing": true, "next_token": [{"n_decoded": "many"}]}]',
        b'[{"id": 0, "is_processing": true, "next_token": [{"n_decoded": -5}]}]',
        b'[{"id": 0, "is_processing": true, "next_token": [[]]}]',
    ],
)
def test_slots_that_make_no_sense_are_no_slots(host: Host, body: bytes) -> None:
    host.server.paths["/slots"] = (200, body)
    told = host.chat
    assert told.health == "200"
    assert not told.wrote or told.wrote[0] == 0


def test_a_server_that_is_not_there_is_not_asked(host: Host) -> None:
    host.says("systemctl", PROGRAMS["systemctl"].replace("=active", "=failed").replace("=success", "=exit-code"))
    host.says("docker", "", code=1, before="echo 'Error: No such container: llama-drafter' >&2")
    told = host.told().servers
    assert (told["llama-chat"].active, told["llama-chat"].ended, told["llama-chat"].health) == (
        "failed",
        "exit-code",
        "",
    )
    assert told["llama-drafter"].active == "absent"
    assert host.server.seen == []


def test_programs_that_hang_or_say_what_they_like_hold_nobody(host: Host) -> None:
    host.says("systemctl", "", before="sleep 60")
    host.says("docker", "\x1b[2J a b c\nllama-drafter\x00 x y\n", code=0)
    began = time.monotonic()
    told = host.told()
    assert time.monotonic() - began < 30
    assert told.servers["llama-chat"].active == ""
    assert told.servers["llama-chat"].health == "200"


def test_gpus_come_from_one_call(host: Host) -> None:
    host.says(
        "nvidia-smi",
        "GPU-5090, 00000000:01:00.0, 20480, 32607, 310.52, 600.00, 64, 99, NVIDIA GeForce RTX 5090\n"
        "GPU-3090, 00000000:02:00.0, 12, 24576, [N/A], [N/A], 31, 0, A GPU, with a comma",
        before=f"echo asked >>{host.folder}/asked",
    )
    told = host.told(gpu_rig())
    assert [(card.uuid, card.used, card.watts, card.celsius) for card in told.cards] == [
        ("GPU-5090", 20480, 310.52, 64),
        ("GPU-3090", 12, None, 31),
    ]
    assert told.cards[1].name == "A GPU, with a comma"
    assert (host.folder / "asked").read_text() == "asked\n"


def test_a_gpu_that_is_lost_takes_no_other_with_it(host: Host) -> None:
    lost = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error"
    host.says("nvidia-smi", f"GPU-5090, 00000000:01:00.0, 1, 2, 3, 4, 5, 6, RTX 5090\n{lost}", code=15)
    told = host.told(gpu_rig())
    assert ([card.uuid for card in told.cards], told.driver) == (["GPU-5090"], "")


def test_a_driver_that_fails_says_why(host: Host) -> None:
    host.says("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate\n\twith the driver", code=9)
    assert host.told(gpu_rig()).driver == "NVIDIA-SMI has failed because it couldn't communicate"


def test_the_newest_release_is_told_and_no_other(host: Host) -> None:
    for number in (9, 10):
        text = json.dumps(
            {"at": "2026-11-24T10:00:00+00:00", "origin": {"user": f"u{number}"}, "changes": ["start it"]}
        )
        (host.folder / "releases" / f"{number}.json").write_text(text)
    (host.folder / "releases" / "11.plan").write_text("{}")
    release = host.told().release
    assert release
    assert (release[0], release[1].origin.user) == (10, "u10")
    (host.folder / "releases" / "12.json").write_text('{"of": "a later version"}')
    assert host.told().release is None
