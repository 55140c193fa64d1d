"""Whether there is room for a server, once others have ended: /proc and nvidia-smi are played, as on an H100."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from llamaherd.onhost.servers import NeededGpu
from llamaherd.onhost.system import Ended, Host
from roles.serve.onhost.tools import FIRST_PIDS, lacks_gpus, lacks_ram
from tests.support.proofs import Programs

MIB, GIB = 1 << 20, 1 << 30
SLICE = "/system.slice"


class Machine:
    """A host with 8 GiB available, and what runs there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemAvailable: {8 * GIB >> 10} kB\nSwapFree: 0 kB\nHugePages_Total:       0\n")
        self.write("proc/sys/kernel/osrelease", "6.12.0-amd64\n")
        self.pid_namespace(FIRST_PIDS)

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def pid_namespace(self, name: str) -> None:
        """Let the program run in this PID namespace."""
        link = self.root / "proc/self/ns/pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def runs(self, pid: int, name: str, group: str = "0::/\n", parent: int = 1, **sizes: float) -> None:
        """Run a process: its control groups, and what of it is resident by kind, in GiB."""
        lines = [f"{kind}:\t{int(size * GIB) >> 10} kB\n" for kind, size in sizes.items()]
        whole = sum(size for kind, size in sizes.items() if kind.startswith("Rss"))
        self.write(f"proc/{pid}/status", f"Name:\t{name}\nVmRSS:\t{int(whole * GIB) >> 10} kB\n{''.join(lines)}")
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) S {parent} 1 1 0\n")
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/cgroup", group)

    def ram(self, need: float, own: Sequence[str] = (), others: Sequence[str] = ()) -> str:
        """Return what lacks of RAM for a server that needs so many GiB."""
        return lacks_ram(int(need * GIB), own, others, root=self.root)

    def gpu(
        self, need: float, *pids: str, at: str = "0", free: str = "4000", apps: Sequence[str] = (), code: int = 0
    ) -> str:
        """Return what lacks of one GPU for a server that needs so many GiB."""
        system = Programs({"nvidia-smi": smi(free, apps, code)})
        return lacks_gpus([NeededGpu("big", at, int(need * GIB))], pids, system=system, root=self.root)


def smi(free: str, apps: Sequence[str], code: int) -> Callable[[Sequence[str], str], Ended]:
    """Return an nvidia-smi of two GPUs: MiB that are free of the first one, and lines of processes."""
    gpus = f"00000000:02:00.0, GPU-b, 24000\n00000000:01:00.0, GPU-a, {free}\n"

    def output(arguments: Sequence[str], text: str) -> Ended:
        assert not text
        return Ended(code, gpus if arguments[0].startswith("--query-gpu=") else "".join(f"{each}\n" for each in apps))

    return output


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_free_gpu_memory_is_enough(machine: Machine) -> None:
    assert machine.gpu(3.9) == ""
    assert machine.gpu(20, at="GPU-B") == ""
    assert machine.gpu(20, at="00000000:02:00.0") == ""


def test_gpu_memory_of_the_server_that_ends_counts(machine: Machine) -> None:
    apps = "GPU-a, 7, 6000", "GPU-b, 7, 90000"
    assert machine.gpu(9, "7", apps=apps) == ""
    assert machine.gpu(12, "7", "0", "", apps=apps) == "GPU big has 10.5 GB for it, and it takes 12.9 GB"


def test_gpu_memory_of_its_children_counts(machine: Machine) -> None:
    """As of a group, whose server holds nothing itself, or of vLLM, whose workers are children of a child."""
    machine.runs(7, "llama-server")
    machine.runs(8, "a child) of it", parent=7)
    machine.runs(9, "worker", parent=8)
    apps = ["GPU-a, 9, 6000"]
    assert machine.gpu(9, "7", apps=apps) == ""
    assert "worker (process 9) holds 6.3 GB" in machine.gpu(9, apps=apps)


def test_processes_that_hold_the_rest_are_named(machine: Machine) -> None:
    machine.runs(70, "python3")
    assert machine.gpu(9, apps=["GPU-a, 70, 8000", "GPU-a, 999999999, 300"]) == (
        "GPU big has 4.2 GB for it, and it takes 9.7 GB; python3 (process 70) holds 8.4 GB, "
        "process 999999999 holds 0.3 GB"
    )


@pytest.mark.parametrize(
    ("free", "apps", "code"),
    [
        ("[N/A]", [], 0),
        ("400", ["GPU-a, 7, [N/A]"], 0),
        ("400", [], 9),
        ("400", ["No devices were found"], 0),
    ],
)
def test_where_the_driver_does_not_report_it_nothing_lacks(
    machine: Machine, free: str, apps: list[str], code: int
) -> None:
    assert machine.gpu(9) != ""
    assert machine.gpu(9, free=free, apps=apps, code=code) == ""


def test_where_processes_have_other_ids_nothing_lacks(machine: Machine) -> None:
    machine.pid_namespace("pid:[1]")
    assert machine.gpu(9) == ""
    machine.pid_namespace(FIRST_PIDS)
    assert machine.gpu(9) != ""
    machine.write("proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
    assert machine.gpu(9) == ""


@pytest.mark.parametrize("at", ["7", "GPU-z"])
def test_a_gpu_that_is_missing_is_another_checks_business(machine: Machine, at: str) -> None:
    assert machine.gpu(9, at=at) == ""


@pytest.mark.usefixtures("starts_processes")
def test_nvidia_smi_is_run_for_real(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ncase $* in *-gpu=*) echo '00000000:01:00.0, GPU-a, 4000' ;; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    need = NeededGpu("big", "GPU-a", 9 * GIB)
    found = lacks_gpus([need], (), system=Host(Programs({}).keep, Programs({}).keep), root=machine.root)
    assert found == "GPU big has 4.2 GB for it, and it takes 9.7 GB"


def test_available_ram_is_enough(machine: Machine) -> None:
    assert machine.ram(8) == machine.ram(0) == ""
    assert machine.ram(12) == "the host has 8.6 GB of RAM for it, and it takes 12.9 GB"


def test_ram_of_the_old_server_counts_by_either_backend(machine: Machine) -> None:
    machine.runs(7, "llama-server", "0::/a\n", RssAnon=3, RssShmem=2, RssFile=9)
    assert machine.ram(12, ["7"]) == machine.ram(12, (), ["7", "0"]) == ""
    assert machine.ram(15, ["7"]) == "the host has 14.0 GB of RAM for it, and it takes 16.1 GB"
    assert machine.ram(12, ["0"], ["999"]) != ""


def test_ram_of_its_children_counts(machine: Machine) -> None:
    """As of a group, whose server holds little itself: the one model that is loaded is a child of it."""
    machine.runs(7, "llama-server", "0::/a\n", RssAnon=0.1)
    machine.runs(8, "llama-server", "0::/a\n", RssAnon=5)
    assert "process 8) holds 5.4 GB" in machine.ram(12, ["7"])
    machine.runs(8, "llama-server", "0::/a\n", parent=7, RssAnon=5)
    assert machine.ram(12, ["7"]) == machine.ram(12, (), ["7"]) == ""


def test_pages_that_the_old_server_locks_count(machine: Machine) -> None:
    machine.runs(7, "llama-server", "0::/a\n", RssAnon=1, RssFile=5, VmLck=5)
    assert machine.ram(13, ["7"]) == ""


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/meminfo", f"MemAvailable: {8 * GIB >> 10} kB\nSwapFree: {8 * GIB >> 10} kB\n"),
        ("proc/spl/kstat/zfs/arcstats", f"13 1 0x01\nname type data\nsize 4 {9 * GIB}\nc_min 4 {GIB}\n"),
        ("proc/meminfo", "MemTotal: 1 kB\n"),
        ("proc/meminfo", "MemAvailable: many kB\n"),
    ],
    ids=["swap", "ZFS gives way", "an old kernel", "no number"],
)
def test_where_it_is_not_sure_no_ram_lacks(machine: Machine, path: str, text: str) -> None:
    assert machine.ram(15) != ""
    machine.write(path, text)
    assert machine.ram(15) == ""


def test_processes_that_hold_most_are_named(machine: Machine) -> None:
    for pid, size in ((3, 1), (4, 5), (5, 2), (6, 0.5)):
        machine.runs(pid, f"p{pid}", RssAnon=size)
    assert machine.ram(12, ["5"]).endswith(
        "takes 12.9 GB; p4 (process 4) holds 5.4 GB, p3 (process 3) holds 1.1 GB, p6 (process 6) holds 0.5 GB"
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_of_a_control_group_counts(machine: Machine, version: int) -> None:
    line, place, limit, used, total = {
        1: ("3:cpuset:/\n4:memory:{}\n0::{}\n", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        2: ("0::{}\n", "", "memory.max", "memory.current", ""),
    }[version]
    folder = f"sys/fs/cgroup/{place}/system.slice"
    machine.write(f"{folder}/{limit}", str(6 * GIB))
    machine.write(f"{folder}/{used}", str(5 * GIB))
    machine.write(f"{folder}/memory.stat", f"{total}active_file {GIB}\n{total}inactive_file {GIB}\n")
    machine.runs(7, "llama-server", line.format(*[f"{SLICE}/llama-chat.service"] * 2), RssAnon=1)
    machine.runs(8, "hog", line.format(*[f"{SLICE}/hog.service"] * 2), RssAnon=2)
    machine.runs(9, "other", line.format(*["/user.slice"] * 2), RssAnon=3)
    assert machine.ram(4, ["7"]) == ""
    assert machine.ram(5, ["7"]) == (
        f"{SLICE} is limited, and has 4.3 GB of RAM for it, and it takes 5.4 GB; hog (process 8) holds 2.1 GB"
    )
    # Where the new one will run is not known by the other backend's.
    assert machine.ram(5, (), ["7"]) == ""
    # Its own is made anew with it.
    machine.write(f"{folder}/{limit}", "max" if version == 2 else str(9223372036854771712))
    machine.write(f"{folder}/llama-chat.service/{limit}", str(GIB))
    assert machine.ram(5, ["7"]) == ""


@pytest.mark.parametrize("missing", ["memory.current", "memory.stat"])
def test_a_control_group_that_cannot_be_read_limits_nothing(machine: Machine, missing: str) -> None:
    files = {"memory.max": str(GIB), "memory.current": "0", "memory.stat": "active_file 0\ninactive_file 0\n"}
    for name, text in files.items():
        machine.write(f"sys/fs/cgroup/system.slice/{name}", text)
    machine.runs(7, "llama-server", f"0::{SLICE}/llama-chat.service\n")
    assert machine.ram(5, ["7"]) != ""
    (machine.root / "sys/fs/cgroup/system.slice" / missing).unlink()
    assert machine.ram(5, ["7"]) == ""
