"""The meter's own program on this machine: what it says, what it costs, and that nothing of it is left.

Faked are NVML (`tests/support/nvml_cards.c`) and nvidia-smi (`smi_stream.py`), which this machine lacks; all else is
this machine's own.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.host.program import packed_program, request
from llamaherd.host.ssh import RemoteError
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.meter.meter import GpuProcess, Meter, obstacles
from llamaherd.measure.meter.readings import Readings
from llamaherd.measure.meter.usage import Window, unmeasured_sentences, usage_of
from llamaherd.onhost.gauges import MeterInput
from tests.bench.meter_lines import NEW, OLD
from tests.support import smi_stream
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root
from tests.support.told_gpus import put_gpus

pytestmark = needs_root

HERE = Connect(host=LOCAL)
PLAN = planned(cpu_rig())
CHAT = next(each for each in PLAN.instances if each.backend == "systemd")
GIVEN = MeterInput("llama-none", "systemd", "", 0.2, 60.0, 60.0, 1 << 24, 1, ("http://[::1]:1",), "")
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-I", sys.argv[1]], stdin=int(sys.argv[2]))
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which this machine has two GPUs."""
    put_gpus(tmp_path, monkeypatch)
    monkeypatch.setenv("FAKE_APP", str(os.getpid()))
    return tmp_path


@pytest.fixture
def smi_alone(gpus: Path) -> Path:
    """The same, without NVIDIA's library."""
    (gpus / "libnvidia-ml.so.1").unlink()
    return gpus


def started(folder: Path) -> int:
    """The process that nvidia-smi's stand-in is, once it says so."""
    file, until = folder / "started", time.monotonic() + 10
    while not (file.exists() and file.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    return int(file.read_text())


def children(pid: int) -> list[int]:
    """What a process has started, and is there."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [each for each in found if not is_dead(each)]


def document(**given: Any) -> bytes:
    """The document of the meter."""
    return request("llamaherd.meter.watch", replace(GIVEN, **given)) + b"\n"


def packed(folder: Path) -> str:
    """The program as a host has it."""
    path = folder / "program.pyz"
    path.write_bytes(packed_program().data)
    return str(path)


class Running:
    """The program, and what it has started: the sources of GPUs."""

    def __init__(self, folder: Path, **given: Any) -> None:
        command = [sys.executable, "-I", packed(folder)]
        self.shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.shell.stdin
        assert self.shell.stdout
        self.told, self.heard = self.shell.stdin, self.shell.stdout
        self.told.write(document(**given))
        self.told.flush()
        self.hello = json.loads(self.heard.readline())
        if self.hello["why_smi"]:
            started(folder)
        self.pids = [self.shell.pid, *children(self.shell.pid)]
        assert len(self.pids) == 2

    def left(self) -> list[int]:
        """Which of its processes are still there; one that is dead and not yet waited for is not."""
        self.shell.poll()
        return [pid for pid in self.pids if Path(f"/proc/{pid}/stat").exists() and not is_dead(pid)]

    def gone_within(self, seconds: float) -> bool:
        """Whether all of them are gone in time."""
        until = time.monotonic() + seconds
        while self.left() and time.monotonic() < until:
            time.sleep(0.05)
        return not self.left()


def last_line(running: Running) -> Any:
    """Its last line, before the result of the verb."""
    *_, last, result = running.heard.read().splitlines()
    assert json.loads(result) == {"event": "result", "value": None}
    return json.loads(last)


def is_dead(pid: int) -> bool:
    """Whether a process has ended, and its parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


@pytest.fixture
def begin(gpus: Path) -> Iterator[Callable[..., Running]]:
    """Begin to watch this machine; at the end nothing of it is left."""
    begun: list[Running] = []

    def begin(**given: Any) -> Running:
        begun.append(Running(gpus, **given))
        assert begun[-1].left() == begun[-1].pids
        return begun[-1]

    yield begin
    for each in begun:
        for pid in each.left():
            os.kill(pid, signal.SIGKILL)
        each.told.close()
        each.heard.close()
        each.shell.wait(10)


def test_it_ends_when_its_input_does(begin: Callable[..., Running]) -> None:
    """As when the connection is gone: sshd closes it."""
    running = begin()
    running.told.close()
    assert running.gone_within(5)
    assert last_line(running)["why"] == "nobody"


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_tells_of_gpus_ends_with_it(begin: Callable[..., Running], by: signal.Signals) -> None:
    running = begin()
    assert running.hello["why_smi"] == ""
    os.kill(running.shell.pid, by)
    assert running.gone_within(5)


def test_what_asks_the_library_holds_nothing_of_the_connection(begin: Callable[..., Running]) -> None:
    """A driver may hold it fast when all else is over, and the connection must end nevertheless."""
    program, asks = begin().pids
    ours, its = ({link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()} for pid in (program, asks))
    assert {str(each).partition(":")[0] for each in its} == {"/dev/null", "pipe"}
    # Those through which they talk to each other.
    assert len({each for each in ours & its if each != Path(os.devnull)}) == 2
    assert not {Path(f"/proc/{program}/fd/{number}").readlink() for number in (0, 1)} & its


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_nvidia_smi_ends_with_it(smi_alone: Path, begin: Callable[..., Running], by: signal.Signals) -> None:
    running = begin()
    assert (running.hello["no_smi"], running.pids[1]) == ("", started(smi_alone))
    os.kill(running.shell.pid, by)
    assert running.gone_within(5)


def test_a_driver_that_hangs_holds_up_nobody_but_who_asks_it(gpus: Path, begin: Callable[..., Running]) -> None:
    running = begin()
    (gpus / "hang").touch()
    time.sleep(0.5)
    running.told.write(b"mark begin\nlook\nping 7\n")
    running.told.flush()
    lines = [json.loads(running.heard.readline())]
    while lines[-1]["k"] != "pong":
        lines.append(json.loads(running.heard.readline()))
    (mark,) = [each for each in lines if each.get("mark")]
    (snapshot,) = [each for each in lines if each["k"] == "look"]
    assert (mark["mj"], snapshot["apps"]) == ({}, None)
    running.told.close()
    assert running.gone_within(5)
    assert last_line(running)["why"] == "nobody"


def test_a_driver_that_hangs_from_the_beginning_is_told(gpus: Path) -> None:
    """Nvidia-smi asks the same driver: it is left alone then."""
    (gpus / "hang").touch()
    with Meter(HERE, CHAT, 60) as meter:
        pass
    assert "nothing of GPUs: NVIDIA's library does not respond" in unmeasured_sentences(meter.readings)
    assert not (gpus / "started").exists()


def test_a_library_that_falls_ends_nothing_else(gpus: Path) -> None:
    with Meter(HERE, CHAT, 60) as meter:
        (gpus / "fall").touch()
        time.sleep(1)
        assert meter.snapshot().gpus
    assert meter.error is None
    assert "nothing of GPUs from some moment on: the source of their readings has ended" in unmeasured_sentences(
        meter.readings
    )
    (gpus / "fall").touch()
    with Meter(HERE, CHAT, 60) as meter:
        pass
    assert meter.readings.hello
    assert meter.readings.hello.why_smi == "NVIDIA's library fails"
    assert meter.first_snapshot.gpus[OLD].watts == 250


def test_an_old_library_leaves_it_to_nvidia_smi(gpus: Path) -> None:
    """What it has is taken from it: the counter, and who is on the GPUs."""
    source = Path(smi_stream.__file__).with_name("nvml_cards.c")
    without = ["-DnvmlDeviceGetClockInfo=other", "-o", str(gpus / "libnvidia-ml.so.1"), str(source)]
    subprocess.run(["cc", "-shared", "-fPIC", *without], check=True)
    with Meter(HERE, CHAT, 60) as meter:
        meter.mark("begin")
        begin = time.monotonic()
        time.sleep(1)
        end = time.monotonic()
        meter.mark("end")
    assert meter.readings.hello
    assert meter.readings.hello.why_smi == "NVIDIA's library lacks nvmlDeviceGetClockInfo"
    old, _ = usage_of(meter.readings, Window(begin, end)).gpus
    assert old.sm_mhz == 1695
    assert old.counted == pytest.approx(250 * (end - begin), rel=0.02)
    assert meter.first_snapshot.apps


def test_the_library_says_what_nvidia_smi_says(gpus: Path) -> None:
    """Each figure, by either: nobody can tell by a result which of them it was."""

    def watched() -> Readings:
        with Meter(HERE, CHAT, 60) as meter:
            pass
        return meter.readings

    by_library = watched()
    (gpus / "libnvidia-ml.so.1").unlink()
    by_smi = watched()
    assert by_library.hello
    assert by_smi.hello
    assert (by_library.hello.why_smi, by_smi.hello.why_smi) == ("", "NVIDIA's library is not installed")
    assert by_library.facts == by_smi.facts
    for uuid in (OLD, NEW):
        one, other = by_library.gpus[uuid][-1], by_smi.gpus[uuid][-1]
        assert one._replace(at=0) == other._replace(at=0)


def test_it_ends_with_its_parent(smi_alone: Path) -> None:
    """Whoever has started it was killed, and holds its input open no more than somebody else does."""
    read, write = os.pipe()
    os.write(write, document())
    command = [sys.executable, "-c", PARENT, packed(smi_alone), str(read)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[read])
    assert parent.stdout
    pid = int(parent.stdout.readline())
    smi = started(smi_alone)
    assert not is_dead(pid)
    parent.kill()
    parent.wait()
    until = time.monotonic() + 5
    while not (is_dead(pid) and is_dead(smi)) and time.monotonic() < until:
        time.sleep(0.05)
    assert is_dead(pid)
    assert is_dead(smi)
    parent.stdout.close()
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    ("given", "why"), [({"lasts": 1.0}, "time"), ({"silence": 1.0}, "silence"), ({"most": 4000}, "full")]
)
def test_it_ends_by_itself(begin: Callable[..., Running], given: dict[str, Any], why: str) -> None:
    running = begin(**given)
    assert running.gone_within(8)
    assert last_line(running)["why"] == why


def test_it_ends_where_nobody_reads(begin: Callable[..., Running]) -> None:
    """A pipe that nobody empties holds it up: an alarm of the kernel's ends it all the same."""
    running = begin(lasts=1.0, every=0.005)
    fcntl.fcntl(running.heard, fcntl.F_SETPIPE_SZ, 4096)
    assert not running.gone_within(4)
    assert running.gone_within(12)


def test_nonsense_is_not_taken_for_a_word(begin: Callable[..., Running]) -> None:
    running = begin()
    running.told.write(b"\xff\xfe nonsense\nping\n" + b"x" * 9000)
    running.told.flush()
    assert running.gone_within(5)
    assert last_line(running)["why"] == "nonsense"


def test_a_window_of_this_machine(gpus: Path) -> None:
    with Meter(HERE, CHAT, 60) as meter:
        snapshot = meter.first_snapshot
        meter.mark("begin")
        begin = time.monotonic()
        time.sleep(2)
        end = time.monotonic()
        meter.mark("end")
        meter.snapshot()
        clocks = meter.clocks
    used = usage_of(meter.readings, Window(begin, end))
    old, new = used.gpus
    assert meter.error is None
    assert (old.uuid, new.uuid, new.counted) == (OLD, NEW, None)
    assert old.counted == pytest.approx(250 * (end - begin), rel=0.01)
    assert old.integrated == pytest.approx(250 * (end - begin), rel=0.001)
    assert new.integrated == pytest.approx(21.33 * (end - begin), rel=0.001)
    assert clocks is not None
    assert abs(clocks.ahead) <= clocks.error < 1  # one machine, one clock
    assert [each.mark for each in meter.readings.counters if each.mark] == ["begin", "end"]
    # First, at both marks and, where there is time, last: it is what costs a driver most.
    assert len([each for each in meter.readings.counters if each.mj]) in (3, 4)
    assert len(meter.readings.gpus[OLD]) > 10
    assert GpuProcess(OLD, os.getpid(), 3 << 30, *(snapshot.apps or ())[0][3:]) in (snapshot.apps or ())
    assert [each.code for each in obstacles(snapshot, PLAN, CHAT)] == ["server-down"]
    assert f"no energy counter on GPU {NEW}: Not Supported" in unmeasured_sentences(meter.readings)
    assert not (gpus / "started").exists()


def test_power_that_changes_is_seen(gpus: Path) -> None:
    with Meter(HERE, CHAT, 60) as meter:
        (gpus / "watts").write_text("100.00")
        deadline = time.monotonic() + 60
        while meter.snapshot().gpus[OLD].watts != 100:
            assert time.monotonic() < deadline
        meter.mark("begin")
        begin = time.monotonic()
        time.sleep(1)
        end = time.monotonic()
        meter.mark("end")
        meter.snapshot()
    used = usage_of(meter.readings, Window(begin, end), [OLD])
    assert used.gpus[0].integrated == pytest.approx(100, rel=0.05)
    # Its counter says otherwise: 250 W by nvml_cards.c.
    assert used.gpus[0].counted == pytest.approx(250, rel=0.02)
    assert any(each.startswith(f"GPU {OLD} counted") for each in used.doubts)


@pytest.mark.usefixtures("starts_processes")
def test_a_host_that_lacks_everything() -> None:
    """No GPU, no NVML: the rest is measured."""
    if shutil.which("nvidia-smi"):
        pytest.skip("there is a real nvidia-smi")
    with Meter(HERE, CHAT, 60) as meter:
        pass
    assert "nothing of GPUs: there is no nvidia-smi" in unmeasured_sentences(meter.readings)
    assert meter.readings.figures


@pytest.mark.usefixtures("starts_processes")
def test_a_host_without_python_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sh", "id"):
        if found := shutil.which(name):
            (tmp_path / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RemoteError, match=r"there is no python3 on this machine"), Meter(HERE, CHAT, 60):
        pass


def test_a_driver_that_says_nothing_useful(smi_alone: Path) -> None:
    """As without its module: the sentence of nvidia-smi is handed on."""
    says = "NVIDIA-SMI has failed because it could not communicate"
    (smi_alone / "nvidia-smi").write_text(f"#!/bin/sh\necho '{says}'\nexit 9\n")
    with Meter(HERE, CHAT, 60) as meter:
        pass
    assert f"nothing of GPUs: {says}" in unmeasured_sentences(meter.readings)


def test_nvidia_smi_that_ends_is_told(smi_alone: Path) -> None:
    with Meter(HERE, CHAT, 60) as meter:
        os.kill(started(smi_alone), signal.SIGKILL)
        time.sleep(0.5)
        meter.snapshot()
    assert meter.error is None
    assert "nothing of GPUs from some moment on: the source of their readings has ended" in unmeasured_sentences(
        meter.readings
    )
