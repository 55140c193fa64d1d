"""The look at what lies under a system, run for real on made-up trees; lspci, mokutil and nvidia-smi are stand-ins."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llamaherd.onhost.hardware import PciGpu
from tests.support.machine import KERNEL, SECURE_BOOT, Machine

pytestmark = pytest.mark.usefixtures("starts_processes")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine.made(tmp_path)


def test_a_pc_with_two_generations_and_no_driver(machine: Machine) -> None:
    machine.card("0000:01:00.0", "2684", "nouveau")
    machine.card("0000:21:00.0", "1e04")
    machine.put("sys/module/nouveau/version")
    machine.put(f"lib/modules/{KERNEL}/build/Makefile")
    for version in (12, 14):
        machine.put(f"usr/bin/g++-{version}").chmod(0o755)
    seen = machine.snapshot()
    assert seen.cards == (PciGpu("0000:01:00.0", "2684", "", "nouveau"), PciGpu("0000:21:00.0", "1e04", ""))
    assert (seen.kernel, seen.next_kernel, seen.virtual, seen.laptop) == (KERNEL, KERNEL, "none", False)
    assert (seen.bus, seen.nouveau, seen.headers, seen.gcc) == (5, True, (KERNEL,), (12, 14))
    assert seen.memory == 197650532 * 1024
    assert seen.boot_free == pytest.approx(shutil.disk_usage(machine.root).free, rel=0.05)
    assert (seen.secure_boot, seen.mok, seen.package_holder, seen.held) == (None, None, "", ())


LSPCI = r"""
[ "$*" = "-D -nn -d 10de:" ] || exit 1
cat <<'END'
0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GB206 [GeForce RTX 5060 Ti] [10de:2d04] (rev a1)
0000:01:00.1 Audio device [0403]: NVIDIA Corporation GB206 High Definition Audio Controller [10de:22eb] (rev a1)
0000:41:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 40GB] [10de:20f1] (rev a1)
000f:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:2e12] (rev a1)
END
"""


def test_lspci_tells_names_where_it_is_installed(machine: Machine) -> None:
    machine.card("0000:41:00.0", "20f1", "nvidia")
    machine.program("lspci", LSPCI)
    assert [*machine.snapshot().cards] == [
        PciGpu("0000:01:00.0", "2d04", "GB206 [GeForce RTX 5060 Ti]"),
        PciGpu("0000:41:00.0", "20f1", "GA100 [A100 PCIe 40GB]", "nvidia"),
        PciGpu("000f:01:00.0", "2e12", "Device"),
    ]


def test_an_lspci_without_domains_and_ids_is_understood_too(machine: Machine) -> None:
    machine.program("lspci", "echo '01:00.0 VGA compatible controller: NVIDIA Corporation TU102 [GeForce RTX 2080 Ti]'")
    assert [*machine.snapshot().cards] == [PciGpu("0000:01:00.0", "", "TU102 [GeForce RTX 2080 Ti]")]


@pytest.mark.parametrize(
    ("smi", "card"),
    [
        (
            'case $* in *pci.bus_id,name*) echo "00000000:01:00.0, NVIDIA H200" ;; esac',
            ("00000000:01:00.0", "NVIDIA H200"),
        ),
        ('[ "$*" != -L ] || echo "GPU 0: NVIDIA GB10 (UUID: GPU-1)"', ("", "NVIDIA GB10")),
        ("echo 'NVIDIA-SMI has failed because it could not talk to the driver'; exit 9", None),
    ],
    ids=["by address", "by name", "no driver"],
)
def test_where_the_bus_is_hidden_the_driver_is_asked(machine: Machine, smi: str, card: tuple[str, str] | None) -> None:
    machine.program("nvidia-smi", smi)
    assert [*machine.snapshot().cards] == ([PciGpu(card[0], "", card[1])] if card else [])


def test_a_laptop(machine: Machine) -> None:
    machine.put("sys/class/dmi/id/chassis_type", "10\n")
    assert machine.snapshot().laptop


@pytest.mark.parametrize(
    ("byte", "said", "expected"),
    [
        (b"\x01", "is already enrolled", (True, True)),
        (b"\x01", "is not enrolled", (True, False)),
        (b"\x00", "is not enrolled", (False, False)),
    ],
)
def test_secure_boot_and_the_key_for_modules(
    machine: Machine, byte: bytes, said: str, expected: tuple[bool, bool]
) -> None:
    # As efivarfs shows it: four bytes of attributes, then the value.
    machine.put(SECURE_BOOT, b"\x06\x00\x00\x00" + byte)
    machine.put("var/lib/shim-signed/mok/MOK.der")
    machine.program("mokutil", f'[ "$1" = --test-key ] && echo "$2 {said}"')
    seen = machine.snapshot()
    assert (seen.secure_boot, seen.mok) == expected


def test_a_key_that_nobody_can_tell_of_is_not_known(machine: Machine) -> None:
    machine.put(SECURE_BOOT, b"\x06\x00\x00\x00\x01")
    assert machine.snapshot().mok is None


def test_the_kernel_of_the_next_boot(machine: Machine) -> None:
    for version in ("6.8.0-9-generic", "6.8.0-101-generic"):
        machine.put(f"boot/vmlinuz-{version}")
    assert machine.snapshot().next_kernel == "6.8.0-101-generic"
    (machine.root / "boot/vmlinuz").symlink_to("vmlinuz-6.8.0-9-generic")
    assert machine.snapshot().next_kernel == "6.8.0-9-generic"


def test_packages_on_hold(machine: Machine) -> None:
    stanzas = [
        ("nvidia-driver-cuda", "hold ok installed"),
        ("bash", "install ok installed"),
        ("cmake", "hold ok installed"),
    ]
    machine.put(
        "var/lib/dpkg/status",
        "\n".join(f"Package: {name}\nEssential: no\nStatus: {status}\nVersion: 1\n" for name, status in stanzas),
    )
    assert machine.snapshot().held == ("cmake", "nvidia-driver-cuda")


HOLDER = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_that_a_process_really_holds(machine: Machine) -> None:
    shutil.rmtree(machine.root / "proc")
    (machine.root / "proc").symlink_to("/proc")
    lock = machine.put("var/lib/dpkg/lock-frontend")
    other = machine.put("var/lib/dpkg/lock")
    assert machine.snapshot().package_holder == ""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "held\n"
        name = Path(f"/proc/{process.pid}/comm").read_text().strip()
        assert machine.snapshot().package_holder == f"{name} ({process.pid})"
        process.stdin.close()
    assert machine.snapshot().package_holder == ""
    # One of ours, to see that a file which is only open is not taken for one that is held.
    with other.open("w") as file:
        assert machine.snapshot().package_holder == ""
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert machine.snapshot().package_holder.endswith(f" ({os.getpid()})")


def test_a_file_of_the_same_number_elsewhere_is_not_the_lock(machine: Machine) -> None:
    inode = machine.put("var/lib/dpkg/lock").stat().st_ino
    machine.put(
        "proc/locks",
        f"1: POSIX  ADVISORY  WRITE 77 00:01:{inode} 0 EOF\n1: -> POSIX  ADVISORY  WRITE {inode} 00:01:9 0 EOF\n",
    )
    machine.put("proc/77/comm", "other\n")
    (machine.root / "proc/77/fd").mkdir()
    (machine.root / "proc/77/fd/3").symlink_to("/etc/os-release")
    assert machine.snapshot().package_holder == ""
    (machine.root / "proc/77/fd/4").symlink_to(machine.root / "var/lib/dpkg/lock")
    assert machine.snapshot().package_holder == "other (77)"


def test_a_bare_tree_says_what_it_can(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.put("proc/meminfo", "MemTotal: 1024 kB\n")
    for name in ("systemd-detect-virt", "lspci", "nvidia-smi"):
        machine.program(name, "exit 127")
    seen = machine.snapshot()
    assert (seen.bus, seen.cards, seen.kernel, seen.memory, seen.boot_free) == (None, (), "", 1 << 20, None)


@pytest.mark.parametrize(("flags", "amx"), [("avx512_vnni amx_tile amx_int8", True), ("avx2 amx_int8x", False)])
def test_a_processor_says_whether_it_has_amx(flags: str, amx: bool, tmp_path: Path) -> None:
    machine = Machine.made(tmp_path)
    machine.put("proc/cpuinfo", f"processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu {flags}\nbugs\t\t: none\n")
    assert machine.snapshot().amx is amx
