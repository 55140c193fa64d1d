"""Whether there is RAM for what comes: the files of /proc and of control groups are faked, as kernels write them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llamaherd.plan import Estimate
from llamaherd.resources import ROOT
from roles.serve.transaction import ram_need
from tests.support.rigs import gpu_rig, planned

GIB = 1 << 30
SLICE = "/system.slice"


class Host:
    """A host with 8 GiB available, and what runs there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("proc/meminfo", f"MemAvailable: {8 * GIB >> 10} kB\nSwapFree: 0 kB\nHugePages_Total:       0\n")

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def runs(self, pid: int, name: str, group: str, **sizes: float) -> None:
        """A process, and what of it is resident by kind, in GiB."""
        lines = [f"{kind}:\t{int(size * GIB) >> 10} kB\n" for kind, size in sizes.items()]
        whole = sum(size for kind, size in sizes.items() if kind.startswith("Rss"))
        self.write(f"proc/{pid}/status", f"Name:\t{name}\nVmRSS:\t{int(whole * GIB) >> 10} kB\n{''.join(lines)}")
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/cgroup", group)

    def said(self, need: float, own: str = "", elsewhere: str = "") -> str:
        """What the script says of a server that needs so many GiB."""
        program = (ROOT / "templates/serve/room.py").read_text()
        for root in ("/proc", "/sys/fs/cgroup"):
            assert f'"{root}' in program
            program = program.replace(f'"{root}', f'"{self.folder}{root}')
        ended = subprocess.run(
            [sys.executable, "-I", "-", "ram", str(int(need * GIB)), own, elsewhere],
            input=program,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.stderr == ""
        assert ended.returncode == bool(ended.stdout)
        return ended.stdout


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_what_is_available_is_enough(host: Host) -> None:
    assert host.said(8) == ""
    assert host.said(12) == "the host has 8.6 GB of RAM for it, and it takes 12.9 GB"


def test_what_the_old_server_holds_comes_back_by_either_backend(host: Host) -> None:
    host.runs(7, "llama-server", "0::/a\n", RssAnon=3, RssShmem=2, RssFile=9)
    assert host.said(12, "7") == host.said(12, "", "7\n0") == ""
    assert host.said(15, "7") == "the host has 14.0 GB of RAM for it, and it takes 16.1 GB"
    assert host.said(12, "0", "999") != ""


def test_what_its_children_hold_comes_back(host: Host) -> None:
    """As of a group, whose server holds little itself: the one model that is loaded is a child of it."""
    host.runs(7, "llama-server", "0::/a\n", RssAnon=0.1)
    host.runs(8, "llama-server", "0::/a\n", RssAnon=5)
    assert "process 8) holds 5.4 GB" in host.said(12, "7")
    host.write("proc/7/task/9/children", "8 ")
    assert host.said(12, "7") == host.said(12, "", "7") == ""


def test_pages_that_the_old_server_locks_come_back(host: Host) -> None:
    host.runs(7, "llama-server", "0::/a\n", RssAnon=1, RssFile=5, VmLck=5)
    assert host.said(13, "7") == ""


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
def test_where_it_is_not_sure_nothing_is_said(host: Host, path: str, text: str) -> None:
    assert host.said(15) != ""
    host.write(path, text)
    assert host.said(15) == ""


def test_who_holds_most_is_named(host: Host) -> None:
    for pid, size in ((3, 1), (4, 5), (5, 2), (6, 0.5)):
        host.runs(pid, f"p{pid}", "0::/\n", RssAnon=size)
    assert host.said(12, "5").endswith(
        "takes 12.9 GB; p4 (process 4) holds 5.4 GB, p3 (process 3) holds 1.1 GB, p6 (process 6) holds 0.5 GB"
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_of_a_control_group_counts(host: Host, version: int) -> None:
    line, root, limit, used, total = {
        1: ("3:cpuset:/\n4:memory:{}\n0::{}\n", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        2: ("0::{}\n", "", "memory.max", "memory.current", ""),
    }[version]
    folder = f"sys/fs/cgroup/{root}/system.slice"
    host.write(f"{folder}/{limit}", str(6 * GIB))
    host.write(f"{folder}/{used}", str(5 * GIB))
    host.write(f"{folder}/memory.stat", f"{total}active_file {GIB}\n{total}inactive_file {GIB}\n")
    host.runs(7, "llama-server", line.format(*[f"{SLICE}/llama-chat.service"] * 2), RssAnon=1)
    host.runs(8, "hog", line.format(*[f"{SLICE}/hog.service"] * 2), RssAnon=2)
    host.runs(9, "other", line.format(*["/user.slice"] * 2), RssAnon=3)
    assert host.said(4, "7") == ""
    assert host.said(5, "7") == (
        f"{SLICE} is limited, and has 4.3 GB of RAM for it, and it takes 5.4 GB; hog (process 8) holds 2.1 GB"
    )
    # Where the new one will run is not known by the other backend's.
    assert host.said(5, "", "7") == ""
    # Its own is made anew with it.
    host.write(f"{folder}/{limit}", "max" if version == 2 else str(9223372036854771712))
    host.write(f"{folder}/llama-chat.service/{limit}", str(GIB))
    assert host.said(5, "7") == ""


def test_what_is_not_certain_is_not_asked_about() -> None:
    instance = planned(gpu_rig()).instances[0]

    def need(**known: object) -> int:
        estimate = Estimate(source="arithmetic", holds=()).model_copy(update=known)
        return ram_need(instance.model_copy(update={"memory": estimate}))

    assert need(resident=7) == 7
    assert need(resident=7, doubts=("perhaps",)) == need(resident=None) == 0
    assert ram_need(instance.model_copy(update={"memory": None})) == 0
