"""The meter in this process: a played kernel, played sources of GPUs, and a controller at the other end of pipes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llamaherd.onhost import gauges, meter
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.gauges import Here, MeterInput, Rapl, Server, count_at_url, count_in_flight
from llamaherd.onhost.gpu_sources import GpuSources
from llamaherd.onhost.meter import Meter, find_server
from llamaherd.onhost.system import TIMED_OUT, Ended
from llamaherd.onhost.verbs import find_verb
from tests.support.played_host import File
from tests.support.recording import InspectedHost

GIVEN = MeterInput("llama-chat", "systemd", "", 0.05, 60.0, 60.0, 1 << 20, 8080, (), "")
HOSTILE = ("", "$(id)", "a; id", "'", '"', "a\nb", "-1", "٣", "9" * 30)


class Kernel:
    """Files of a kernel in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("proc/stat", "cpu 100 0 50 1000 10 1 2 0 0 0\n")
        self.write(
            "proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 60 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\nOdd: x kB\n"
        )
        self.write("proc/cpuinfo", "model name\t: A CPU\nmicrocode\t: 0x1\nflags\n")

    def write(self, path: str, text: str) -> Path:
        """Write a file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def process(self, pid: int, group: str = "0::/system.slice/a.service", computed: int = 10, **status: int) -> None:
        """Add a process that has computed so many ticks."""
        fields = ["S", "1", *["0"] * 5, "7", "0", "3", "0", str(computed), "0", *["0"] * 6, "4711"]
        self.write(f"proc/{pid}/stat", f"{pid} (a b) c) {' '.join(fields)}\n")
        self.write(f"proc/{pid}/comm", f"name{pid}\n")
        self.write(f"proc/{pid}/cgroup", f"{group}\n")
        self.write(f"proc/{pid}/status", "".join(f"{key}:\t{value} kB\n" for key, value in status.items()))
        self.write(f"proc/{pid}/io", "read_bytes: 4096\n")
        self.write(f"proc/{pid}/environ", "A=b\0LLAMAHERD_SPEC=0a1b\0")
        (self.folder / f"proc/{pid}/fd").mkdir(exist_ok=True)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Return the files that the meter reads."""
    monkeypatch.setattr(gauges, "PROC", tmp_path / "proc")
    monkeypatch.setattr(gauges, "SYS", tmp_path / "sys")
    return Kernel(tmp_path)


def test_the_energy_of_packages(kernel: Kernel) -> None:
    assert Rapl().why == "absent"
    for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:1", "psys")):
        kernel.write(f"sys/class/powercap/{zone}/name", f"{name}\n")
    assert Rapl().why == "its counter may not be read"
    kernel.write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000")
    energy = kernel.write("sys/class/powercap/intel-rapl:0/energy_uj", "7")
    found = Rapl()
    assert (found.ranges, found.energy(), found.why) == ({"intel-rapl:0": 1000}, {"intel-rapl:0": 7}, "")
    for odd in ("", "x", "--7", "٣", "²", "9" * 30):
        energy.write_text(odd)
        assert found.energy() == {}


def test_packages_alone_count(kernel: Kernel) -> None:
    kernel.write("sys/class/powercap/intel-rapl:0/name", "psys")
    assert Rapl().why == "it has no packages"


def test_a_server_is_all_in_its_group(kernel: Kernel) -> None:
    for pid in (7, 8):
        kernel.process(pid, VmRSS=10, RssAnon=4, VmHWM=12, VmSwap=1)
    kernel.write("sys/fs/cgroup/system.slice/a.service/cgroup.procs", "8\n7\n0\n")
    kernel.write("sys/fs/cgroup/system.slice/a.service/cpu.stat", "usage_usec 123\nuser_usec 1\n")
    kernel.write("sys/fs/cgroup/system.slice/a.service/memory.peak", "99\n")
    server = Server(7)
    assert server.processes() == [7, 8]
    assert server.figures() == {
        "rss": 20 << 10,
        "anon": 8 << 10,
        "most": 24 << 10,
        "swap": 2 << 10,
        "cpu": 123,
        "faults": 6,
        "read": 8192,
        "peak": 99,
    }


def test_a_server_without_a_group_is_its_family(kernel: Kernel) -> None:
    for pid in (7, 8, 9):
        kernel.process(pid, group="0::/")
    kernel.write("proc/7/task/7/children", "8")
    kernel.write("proc/8/task/8/children", "9 8")
    server = Server(7)
    assert server.processes() == [7, 8, 9]
    assert server.figures()["cpu"] == 3 * 10 * 1_000_000 // gauges.TICKS
    (kernel.folder / "proc/7").rename(kernel.folder / "gone")
    assert (server.processes(), server.figures()) == ([], {})


def test_what_stays_as_it_is(kernel: Kernel) -> None:
    kernel.process(7)
    kernel.write("sys/devices/system/cpu/smt/active", "1")
    kernel.write("sys/class/power_supply/BAT0/type", "Battery")
    kernel.write("sys/class/power_supply/BAT0/status", "Discharging")
    kernel.write("sys/class/power_supply/mouse/type", "Battery")
    kernel.write("sys/class/power_supply/mouse/scope", "Device")
    found = Here(GIVEN, 7, "", "kvm").standing()
    assert found["server"] == {"pid": 7, "spec": "0a1b", "started": 4711}
    assert (found["virtual"], found["battery"], found["host"]["smt"]) == ("kvm", True, True)
    assert (found["host"]["cpu"], found["host"]["microcode"], found["host"]["ram_bytes"]) == ("A CPU", "0x1", 100 << 10)
    nobody = Here(GIVEN, 0, "", "").standing()
    assert nobody["server"] == {"pid": 0, "spec": "", "started": 0}


@pytest.mark.parametrize(
    ("place", "file"), [("hwmon/hwmon0/name", "temp1_input"), ("thermal/thermal_zone0/type", "temp")]
)
def test_the_state_of_a_host(kernel: Kernel, place: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = kernel.write(f"sys/class/{place}", "k10temp" if "hwmon" in place else "x86_pkg_temp")
    (name.parent / file).write_text("51500\n")
    monkeypatch.setattr(os, "cpu_count", lambda: 40)
    for number in range(40):
        kernel.write(f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_cur_freq", f"{(number + 1) * 1000}")
    here = Here(GIVEN, 0, "", "")
    assert len(here.clocks) == 14
    found = here.figures()
    assert (found["celsius"], found["available"], found["swap"], found["server"]) == (51.5, 60 << 10, 6 << 10, {})
    assert found["mhz"] == 20
    assert found["cpu"] == 153 * 1_000_000 // gauges.TICKS


def test_other_processes_and_who_listens(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 110.0, 120.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    kernel.process(7)
    kernel.process(8, group="0::/system.slice/other.service")
    monkeypatch.setattr(gauges, "FIRST_NAMESPACE", str(Path("/proc/self/ns/pid").readlink()))
    here = Here(GIVEN, 7, "", "")
    kernel.process(8, group="0::/system.slice/other.service", computed=10 + 5 * gauges.TICKS)
    kernel.process(9, group="0::/user", computed=10 * gauges.TICKS)
    found = here.usage([1], [["GPU-1", 8, None]])
    assert found["ours"] == [7]
    assert found["others"] == [["name8", "other.service", 0.5]]
    assert found["apps"] == [["GPU-1", 8, None, "name8", "other.service"]]
    assert (found["listens"], found["in_flight"], found["battery"]) == (None, None, None)

    kernel.write("proc/net/tcp", f"head\n 0: 0100007F:{8080:04X} 00000000:0000 0A 0 0 0 0 0 4242\n")
    assert gauges.listens(8080, [7]) is False
    (kernel.folder / "proc/7/fd/3").symlink_to("socket:[4242]")
    assert gauges.listens(8080, [7]) is True
    monkeypatch.setattr(gauges, "FIRST_NAMESPACE", "pid:[1]")
    assert here.usage([], [["GPU-1", 8, None]])["apps"] is None
    assert (here.computed(9), here.computed(4242)) == (10 * 1_000_000, 0)


# --- which process ------------------------------------------------------------------------------------------


def host(**ends: str) -> InspectedHost:
    """Return a host whose programs print texts."""
    return InspectedHost({}, ends={name.replace("_", " "): Ended(0, text) for name, text in ends.items()})


def test_the_process_of_a_unit() -> None:
    assert find_server(GIVEN, host(systemctl_show="MainPID=7\n")) == (7, "")
    silent = host()
    silent.ends["systemctl show"] = Ended(TIMED_OUT)
    assert find_server(GIVEN, silent) == (0, "")
    assert systemctl(silent, "show").code == TIMED_OUT


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_process_is_none(text: str) -> None:
    assert find_server(GIVEN, host(systemctl_show=f"MainPID={text}\n")) == (0, "")
    assert find_server(replace(GIVEN, backend="docker"), host(docker_inspect=f"{text} 0a1b\n"))[0] == 0


@pytest.mark.parametrize("service", HOSTILE)
def test_the_process_of_a_container(service: str) -> None:
    there = host(docker_inspect="7 0a1b\n")
    assert find_server(replace(GIVEN, backend="docker", service=service), there) == (7, "0a1b")
    (argv,) = there.done
    assert argv[-1] == service
    assert find_server(replace(GIVEN, backend="docker"), host(docker_inspect="")) == (0, "")


def test_the_process_of_a_loaded_model() -> None:
    there = host(systemctl_show="MainPID=7\n")
    there.files["/proc/7/task/7/children"] = File("8 9 x\n")
    there.files["/proc/7/task/70/children"] = File("10\n")
    there.files["/proc/8/cmdline"] = File("llama-server\0--model\0moe\0--alias\0other\0")
    there.files["/proc/9/cmdline"] = File("llama-server\0--alias")
    there.files["/proc/10/cmdline"] = File("llama-server\0--alias\0moe\0--model\0x\0")
    assert find_server(replace(GIVEN, loaded="moe"), there) == (10, "")
    assert find_server(replace(GIVEN, loaded="x"), there) == (0, "")
    assert find_server(replace(GIVEN, loaded="moe"), host(systemctl_show="MainPID=0\n")) == (0, "")


# --- the meter ----------------------------------------------------------------------------------------------


@dataclass
class Library:
    """Plays NVIDIA's library: it reports what a test has set once it is requested."""

    lines: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def request(self, word: str) -> None:
        """Note a request."""
        self.asked.append(word)

    def wait(self, kind: str, seconds: float, lines: list[Any]) -> bool:
        """Report at once, or not at all."""
        del seconds
        if kind in self.lines:
            lines.append((kind, self.lines[kind]))
        return kind in self.lines


class Source:
    """A source of lines of GPUs, behind a pipe."""

    def __init__(self, sources: dict[int, Any], output: int, lines: list[Any]) -> None:
        self.sources, self.output, self.lines = sources, output, lines

    def heard(self) -> list[Any]:
        """Return its lines once, and then fail as a source that has ended."""
        if not self.lines:
            raise OSError
        lines, self.lines = self.lines, []
        return lines

    def end(self) -> None:
        """End it."""
        self.sources.pop(self.output, None)


@dataclass
class Watched:
    """A meter of this process, its controller, and what it has written."""

    meter: Meter
    library: Library
    controller: int
    written: int

    def run(self) -> list[dict[str, Any]]:
        """Run it to its end, and return its lines."""
        self.meter.run()
        return [json.loads(line) for line in os.read(self.written, 1 << 20).splitlines()]


Begin = Callable[..., Watched]


@pytest.fixture
def begin(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Return what makes a meter. The controller sends `sent` at once, and then hangs up unless it `stays`."""
    kernel.process(7)
    opened: list[int] = []

    def make(sent: bytes = b"", *, stays: bool = False, lines: list[Any] | None = None, **given: Any) -> Watched:
        received, controller = os.pipe()
        written, out = os.pipe()
        opened.extend((received, written, out))
        os.write(controller, sent)
        if stays:
            opened.append(controller)
        else:
            os.close(controller)
        monkeypatch.setattr(meter, "RECEIVED", received)
        monkeypatch.setattr(meter, "WRITTEN", out)
        running: dict[int, Any] = {}
        if lines is not None:
            gpus, ready = os.pipe()
            opened.extend((gpus, ready))
            os.write(ready, b"x")
            running[gpus] = Source(running, gpus, lines)
        library = Library({"apps": {"apps": None}, "now": {"t": 1.0, "mj": {}, "uj": {}}})
        sources = SimpleNamespace(
            library=library,
            standing={"fields": []},
            start=lambda _: [("gpu", {"csv": "first"})],
            running=running,
            pids=[4242],
            end=running.clear,
        )
        made = replace(GIVEN, **given)
        here = Here(made, 7, "", "")
        return Watched(Meter(made, here, cast(GpuSources, sources)), library, controller, written)

    yield make
    for each in opened:
        os.close(each)


def kinds(lines: list[dict[str, Any]]) -> list[str]:
    """Return the kinds of lines."""
    return [each["k"] for each in lines]


def test_commands_of_the_controller(begin: Begin) -> None:
    watched = begin(b"ping 7\nmark begin\nlook\nnonsense\n")
    lines = watched.run()
    assert kinds(lines) == [
        *("hello", "gpu", "host", "pong", "count", "count", "host", "look"),
        *("count", "host", "count", "bye"),
    ]
    assert (lines[3]["n"], lines[5]["mark"], lines[-1]["why"]) == ("7", "begin", "nobody")
    assert watched.library.asked == ["count", "apps", "count"]


def test_it_reads_what_is_due(begin: Begin, kernel: Kernel) -> None:
    kernel.write("sys/class/powercap/intel-rapl:0/name", "package-0")
    kernel.write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000")
    kernel.write("sys/class/powercap/intel-rapl:0/energy_uj", "7")
    lines = begin(stays=True, lasts=0.3).run()
    counts = [each for each in lines if each["k"] == "count"]
    assert len(counts) >= 3
    assert counts[0]["uj"] == {"intel-rapl:0": 7}
    assert lines[-1]["why"] == "time"


def test_a_silent_controller_ends_it(begin: Begin) -> None:
    assert begin(stays=True, silence=0.1, every=0.05).run()[-1]["why"] == "silence"


def test_too_many_bytes_end_it(begin: Begin) -> None:
    assert begin(stays=True, most=1500).run()[-1]["why"] == "full"


def test_a_line_without_end_ends_it(begin: Begin) -> None:
    assert begin(b"x" * 5000, stays=True).run()[-1]["why"] == "nonsense"


def test_lines_of_gpus_and_a_source_that_ends(begin: Begin) -> None:
    gpus = [("gpu", {"csv": "second", "t": 5.0}), ("apps", {}), ("now", {"mj": {}})]
    lines = begin(stays=True, lasts=0.3, lines=gpus).run()
    assert [each["csv"] for each in lines if each["k"] == "gpu"] == ["first", "second"]
    assert "gone" in kinds(lines)


def test_the_first_look_waits_for_a_line_of_gpus(begin: Begin) -> None:
    lines = begin(stays=True, lasts=1.3, lines=[("gpu", {"csv": "second"})]).run()
    assert kinds(lines).count("look") == 1


def test_gpus_that_do_not_respond(begin: Begin) -> None:
    watched = begin(b"mark begin\nlook\n")
    watched.library.lines.clear()
    lines = watched.run()
    (look,) = (each for each in lines if each["k"] == "look")
    assert look["apps"] is None


def test_a_connection_that_is_broken(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = begin(stays=True)

    def broken(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", broken)
    watched.meter.run()


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the handlers of signals."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    before = {each: signal.getsignal(each) for each in numbers}
    yield
    signal.alarm(0)
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("handlers")
def test_the_verb_ends_in_time_also_where_it_is_blocked(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = begin(b"look\n")
    called: list[object] = []
    monkeypatch.setattr(meter, "end_with_parent", lambda: called.append("parent"))
    monkeypatch.setattr(meter, "name_process", called.append)
    monkeypatch.setattr(meter, "GpuSources", lambda *_: watched.meter.sources)
    there = host(systemctl_show="MainPID=7\n")
    there.ends["systemd-detect-virt"] = Ended(0, "kvm\n")
    find_verb("llamaherd.meter.watch").run(GIVEN, there)
    hello, *_ = (json.loads(line) for line in os.read(watched.written, 1 << 20).splitlines())
    assert (hello["virtual"], hello["server"]["pid"], hello["server"]["spec"]) == ("kvm", 7, "0a1b")
    assert called == ["parent", "llamaherd-meter"]
    assert 0 < signal.alarm(0) <= 60 + meter.LATE
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("key", ["", "two\nlines"])
def test_a_server_that_cannot_be_queried_counts_nothing(tmp_path: Path, key: str) -> None:
    file = tmp_path / "key"
    if key:
        file.write_text(key)
    assert count_at_url("http://127.0.0.1:1/metrics", str(file)) is None
    assert count_in_flight([], "") is None
