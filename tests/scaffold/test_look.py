"""The hardware of hosts made of files, as the program on a host inspects it, and which of it is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.remote import NoPythonError, Remote
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.onhost.hardware import FoundGpu, FoundHost, HardwareInput, inspect
from llamaherd.onhost.system import TIMED_OUT, Ended, Host
from llamaherd.scaffold import ScaffoldError, checked_hardware, inspect_hardware, refuse_unfit
from tests.support.found_hosts import found_host
from tests.support.recording import RecordingHost

pytestmark = pytest.mark.usefixtures("starts_processes")

DUO_SMI = (
    "0, GPU-1f0a7c2b-5c1d-4e7a-9b1f-4c0e9a553f10, 00000000:01:00.0, 24564, 450.00, 450.00, 480.00, 580.95.05, 8.6, "
    "NVIDIA GeForce RTX 3090 Ti\n"
    "1, GPU-7a0e4a53-0d9b-4a54-8d0a-52c1c3a1b7ee, 00000000:09:00.0, 24576, 350.00, 350.00, 366.00, 580.95.05, 8.6, "
    "NVIDIA GeForce RTX 3090\n"
)
LAPTOP_SMI = (
    "0, GPU-0d9b7a54-7a0e-4a53-8d0a-52c1c3a1b7ee, 00000000:02:00.0, 24463, [N/A], [N/A], [N/A], 580.95.05, 12.0, "
    "NVIDIA GeForce RTX 5090 Laptop GPU\n"
)
WSL_SMI = (
    "0, GPU-5c1d2e7a-0b1f-4c0e-9a55-3f1f0a7c2b10, 00000000:01:00.0, 32607, 575.00, 575.00, 600.00, 581.57, 12.0, "
    "NVIDIA GeForce RTX 5090\n"
)
MISMATCH = """\
Failed to initialize NVML: Driver/library version mismatch
NVML library version: 580.95
"""


class FakeHost:
    """A machine's files under a folder, and its programs in another."""

    def __init__(self, folder: Path, system: str, version: str) -> None:
        self.root, self.bin = folder / "root", folder / "bin"
        self.bin.mkdir(parents=True)
        self.file("etc/os-release", f'NAME="A system"\nID={system}\nVERSION_ID="{version}"\n')
        self.file("proc/sys/kernel/osrelease", "6.8.0-87-generic\n")
        (self.root / "var/lib").mkdir(parents=True)

    def file(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def processor(self, name: str, siblings: list[str], memory_kib: int) -> None:
        """Logical processors in order, each with the list of those that share its core."""
        lines = "".join(f"processor\t: {n}\nmodel name\t: {name}\n\n" for n in range(len(siblings)))
        self.file("proc/cpuinfo", lines)
        self.file("proc/meminfo", f"MemTotal:       {memory_kib} kB\nMemFree:        1024 kB\n")
        for number, shared in enumerate(siblings):
            self.file(f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", f"{shared}\n")
        for beside in ("cpufreq", "cpuidle"):
            (self.root / "sys/devices/system/cpu" / beside).mkdir()

    def program(self, name: str, prints: str, code: int = 0) -> None:
        (self.bin / f"{name}.txt").write_text(prints)
        path = self.bin / name
        path.write_text(f'#!/bin/sh\ncat "{path}.txt"\nexit {code}\n')
        path.chmod(0o755)

    def toolkit(self, version: str) -> None:
        self.file(f"usr/local/cuda-{version}/bin/nvcc", "#!/bin/sh\n")
        (self.root / f"usr/local/cuda-{version}/bin/nvcc").chmod(0o755)

    def on_the_bus(self, devices: Mapping[str, tuple[str, str]]) -> None:
        for address, (vendor, kind) in devices.items():
            self.file(f"sys/bus/pci/devices/{address}/vendor", f"{vendor}\n")
            self.file(f"sys/bus/pci/devices/{address}/class", f"{kind}\n")

    def snapshot(self) -> FoundHost:
        """Return what an inspection finds there."""
        with patch.dict(os.environ, {"PATH": f"{self.bin}:{os.environ['PATH']}"}):
            return inspect(HardwareInput(str(self.root)), Host(print, print))


def smt(cores: int) -> list[str]:
    """Two threads a core, numbered as Linux does on most machines: first all cores, then all siblings."""
    return [f"{core},{core + cores}" for core in range(cores)] * 2


def duo(folder: Path) -> FakeHost:
    host = FakeHost(folder, "ubuntu", "24.04")
    host.processor("AMD Ryzen 9 9900X 12-Core Processor", smt(12), 197_500_000)
    host.program("nvidia-smi", DUO_SMI)
    host.toolkit("12.8")
    host.toolkit("13.0")
    host.on_the_bus({"0000:01:00.0": ("0x10de", "0x030000"), "0000:01:00.1": ("0x10de", "0x040300")})
    host.on_the_bus({"0000:09:00.0": ("0x10de", "0x030000"), "0000:0b:00.0": ("0x1002", "0x030000")})
    host.program("lspci", "01:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090 Ti]\n")
    return host


def wsl(folder: Path) -> FakeHost:
    host = FakeHost(folder, "ubuntu", "24.04")
    host.processor("AMD Ryzen 9 7950X 16-Core Processor", [f"{n & ~1}-{n | 1}" for n in range(32)], 65_840_000)
    host.file("proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
    host.program("nvidia-smi", WSL_SMI)
    return host


def laptop(folder: Path) -> FakeHost:
    host = FakeHost(folder, "debian", "13")
    host.processor("Intel(R) Core(TM) Ultra 9 275HX", [str(n) for n in range(24)], 98_300_000)
    host.file("sys/devices/cpu_core/cpus", "0-1,4-9\n")
    host.file("sys/devices/cpu_atom/cpus", "2-3,10-23\n")
    host.program("nvidia-smi", LAPTOP_SMI)
    return host


def cpu_box(folder: Path) -> FakeHost:
    host = FakeHost(folder, "debian", "12")
    host.processor("Intel(R) N100", ["0", "1", "2", "3"], 16_161_000)
    return host


def no_driver(folder: Path) -> FakeHost:
    host = FakeHost(folder, "ubuntu", "22.04")
    performance = [f"{n & ~1},{n | 1}" for n in range(16)]
    host.processor("12th Gen Intel(R) Core(TM) i7-12700", [*performance, "16", "17", "18", "19"], 32_600_000)
    host.file("sys/devices/cpu_core/cpus", "0-15\n")
    host.program("nvidia-smi", MISMATCH, code=18)
    host.on_the_bus({"0000:01:00.0": ("0x10de", "0x030000")})
    host.program("lspci", "01:00.0 VGA compatible controller: NVIDIA Corporation GA104 [GeForce RTX 3070]\n")
    return host


HOSTS = {"duo": duo, "wsl": wsl, "laptop": laptop, "cpu-box": cpu_box, "no-driver": no_driver}


@pytest.mark.parametrize("name", HOSTS)
def test_the_hardware_of_a_host(name: str, tmp_path: Path) -> None:
    found = HOSTS[name](tmp_path).snapshot()
    expected = found_host(name)
    # These are of the machine that runs the test.
    assert found == replace(expected, name=found.name, arch=found.arch, free=found.free)
    assert found.name
    assert found.arch
    assert found.free


seen = found_host


def test_a_processor_with_amx(tmp_path: Path) -> None:
    host = cpu_box(tmp_path)
    assert not host.snapshot().amx
    host.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu avx512f amx_tile amx_int8\n")
    found = host.snapshot()
    assert (found.amx, found.cpu) == (True, "Xeon")


def test_two_cards() -> None:
    snapshot = seen("duo")
    assert (snapshot.os, snapshot.arch, snapshot.cores, snapshot.threads, snapshot.performance) == (
        "ubuntu-24.04",
        "x86_64",
        12,
        24,
        None,
    )
    assert (snapshot.memory, snapshot.wsl, snapshot.cuda) == (197_500_000 << 10, False, ("12.8", "13.0"))
    assert snapshot.cards[1] == FoundGpu(
        index=1,
        uuid="GPU-7a0e4a53-0d9b-4a54-8d0a-52c1c3a1b7ee",
        pci="00000000:09:00.0",
        memory_mib=24576,
        power_limit=350.0,
        default_power=350.0,
        most_power=366.0,
        driver="580.95.05",
        capability="8.6",
        name="NVIDIA GeForce RTX 3090",
    )
    assert [address for address, _ in snapshot.bus] == ["0000:01:00.0", "0000:09:00.0"]


def test_windows_around_it() -> None:
    snapshot = seen("wsl")
    assert (snapshot.wsl, snapshot.cores, snapshot.threads) == (True, 16, 32)
    assert [card.name for card in snapshot.cards] == ["NVIDIA GeForce RTX 5090"]


def test_two_kinds_of_cores() -> None:
    assert (seen("laptop").cores, seen("laptop").performance) == (24, 8)
    assert (seen("no-driver").cores, seen("no-driver").threads, seen("no-driver").performance) == (12, 20, 8)
    assert seen("laptop").cards[0].power_limit is None


def test_no_cards() -> None:
    assert (seen("cpu-box").cards, seen("cpu-box").bus, seen("cpu-box").refused) == ((), (), "")


def test_a_driver_that_does_not_answer() -> None:
    snapshot = seen("no-driver")
    assert snapshot.refused == "Failed to initialize NVML: Driver/library version mismatch"
    assert snapshot.bus == (("0000:01:00.0", "NVIDIA Corporation GA104 [GeForce RTX 3070]"),)


def test_a_real_data_centre_card() -> None:
    snapshot = seen("h100")
    (card,) = snapshot.cards
    assert (card.name, card.capability, card.memory_mib) == ("NVIDIA H100 80GB HBM3", "9.0", 81559)


def test_this_machine() -> None:
    snapshot = checked_hardware(inspect(HardwareInput(), Host(print, print)))
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert snapshot.memory == pytest.approx(total, rel=0.01)
    assert 1 <= snapshot.cores <= snapshot.threads == os.cpu_count()
    assert snapshot.name == os.uname().nodename


@pytest.mark.parametrize(
    ("release", "os_"),
    [
        ("ID=debian\n", "debian"),
        ("NAME=Arch\nID=arch\nBUILD_ID=rolling\n", "arch"),
        ("ID='ubuntu'\nVERSION_ID=\"24.04\"\n", "ubuntu-24.04"),
        ("ID=$(id)\nVERSION_ID='`id`'\n", "$(id)-`id`"),
        ("ID='broken\nVERSION_ID=1\n", ""),
        ("", ""),
    ],
)
def test_the_distribution(release: str, os_: str, tmp_path: Path) -> None:
    host = cpu_box(tmp_path)
    host.file("etc/os-release", release)
    assert host.snapshot().os == os_


@pytest.mark.parametrize(
    ("prints", "code", "refused"),
    [
        ("", 0, ""),
        ("No devices were found\n", 0, ""),
        ("0, GPU-1, 0\n", 0, ""),
        ("\n\n  it is broken\nvery\n", 9, "  it is broken"),
        ("", 9, "nvidia-smi failed"),
    ],
)
def test_a_driver_that_lists_no_gpu(prints: str, code: int, refused: str, tmp_path: Path) -> None:
    host = cpu_box(tmp_path)
    host.program("nvidia-smi", prints, code)
    assert (host.snapshot().cards, host.snapshot().refused) == ((), refused)


def test_a_driver_that_hangs() -> None:
    host = RecordingHost({}, ends={"nvidia-smi": Ended(TIMED_OUT)})
    assert inspect(HardwareInput(), host).refused == "nvidia-smi does not end within 30 s"


def test_an_empty_machine() -> None:
    assert inspect(HardwareInput(), RecordingHost({})) == FoundHost()


@pytest.mark.parametrize(
    "found",
    [
        FoundHost(cores=-1),
        FoundHost(memory=1 << 61),
        FoundHost(cpu="\x1b[31mred"),
        FoundHost(cuda=("12.8\n",)),
        FoundHost(bus=(("0000:01:00.0", "\x07"),)),
        FoundHost(bus=(("0000:01:00.0", ""),) * 65),
        FoundHost(cards=(FoundGpu(0, "GPU-1", "0", None, None, None, None, "580\t", "8.6", "NVIDIA"),)),
    ],
)
def test_hardware_that_no_host_can_have_is_refused(found: FoundHost) -> None:
    with pytest.raises(UnexpectedLineError, match="printed an unexpected line"):
        checked_hardware(found)


@pytest.mark.parametrize(
    ("connect", "command"),
    [
        ({"host": "duo.lan"}, "ssh duo.lan 'sudo apt-get update && sudo apt-get install -y python3'"),
        (
            {"host": "duo.lan", "user": "root", "port": 2222, "key": "/keys/duo"},
            "ssh -p 2222 -i /keys/duo root@duo.lan 'apt-get update && apt-get install -y python3'",
        ),
        ({"host": LOCAL}, "sudo apt-get update && sudo apt-get install -y python3"),
    ],
    ids=["user", "root", "this machine"],
)
def test_a_host_without_python(monkeypatch: pytest.MonkeyPatch, connect: dict[str, Any], command: str) -> None:
    def query(remote: Remote, *_: object) -> NoReturn:
        raise NoPythonError(remote.connect, "debian-13")

    monkeypatch.setattr("llamaherd.scaffold.query_verb", query)
    with pytest.raises(ScaffoldError, match=r"there is no python3 on .* \(debian-13\)") as raised:
        inspect_hardware(Connect.model_validate(connect))
    assert raised.value.help == f"install it: `{command}`, then run this command again"


def test_a_host_without_python_that_llamaherd_cannot_provision(monkeypatch: pytest.MonkeyPatch) -> None:
    def query(remote: Remote, *_: object) -> NoReturn:
        raise NoPythonError(remote.connect, "arch-")

    monkeypatch.setattr("llamaherd.scaffold.query_verb", query)
    with pytest.raises(ScaffoldError, match=r"there is no python3 on duo.lan \(arch\)\n") as raised:
        inspect_hardware(Connect(host="duo.lan"))
    assert raised.value.help.startswith("use a host with one of debian-12, debian-13, ubuntu-22.04,")


@pytest.mark.parametrize("host", ["duo.lan", LOCAL])
def test_a_host_is_inspected(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr("llamaherd.scaffold.query_verb", lambda *_: found_host("duo"))
    assert inspect_hardware(Connect(host=host)) == found_host("duo")


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (replace(FoundHost(), os="fedora-44"), "runs fedora-44"),
        (replace(FoundHost(), os="arch"), "runs arch, which llamaherd cannot provision"),
        (FoundHost(), "has no known system in /etc/os-release"),
        (replace(FoundHost(), os="debian-13"), "cores and memory"),
        (replace(FoundHost(), os="debian-13", cores=2), "cores and memory"),
    ],
)
def test_a_host_that_nothing_can_be_done_with(snapshot: FoundHost, words: str) -> None:
    with pytest.raises(ScaffoldError, match=words) as caught:
        refuse_unfit(snapshot, "duo.lan")
    assert caught.value.message.startswith("duo.lan ")
    assert caught.value.help


def test_a_rig_of_the_same_name_is_kept_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamaherd.scaffold.query_verb", lambda *_: found_host("cpu-box"))
    fleet = tmp_path / "fleet"

    def init(*words: str) -> Result:
        return CliRunner().invoke(main, ["init", str(fleet), "--from", *words], prog_name="herd")

    ended = init("tom@Attic.lan")
    assert ended.exit_code == 0, ended.output
    assert "connect: {host: Attic.lan, user: tom}\n" in (fleet / "attic.yaml").read_text()
    assert ended.stderr.endswith(f"next: run `cd {fleet}`, read attic.yaml, and run `herd up`\n")
    (fleet / "attic.yaml").write_text("rig: attic\n")
    ended = init("attic")
    assert ended.exit_code == 1
    assert f"there is a rig in {fleet / 'attic'}.yaml already, which was kept" in ended.stderr
    assert (fleet / "attic.yaml").read_text() == "rig: attic\n"
    assert init("attic", "--name", "other").exit_code == 0
    assert "rig: other\n" in (fleet / "other.yaml").read_text()


def test_a_second_host_with_the_same_hardware_may_extend_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamaherd.scaffold.query_verb", lambda *_: found_host("cpu-box"))

    def init(name: str) -> str:
        ended = CliRunner().invoke(main, ["init", str(tmp_path), "--from", f"{name}.lan"], prog_name="herd")
        assert ended.exit_code == 0, ended.output
        return ended.stderr

    assert "extends" not in init("one")
    assert "\none has the same hardware: with `extends: one`, two.yaml needs only what differs\n" in init("two")
    monkeypatch.setattr("llamaherd.scaffold.query_verb", lambda *_: replace(found_host("cpu-box"), os="debian-13"))
    assert "extends" not in init("three")
