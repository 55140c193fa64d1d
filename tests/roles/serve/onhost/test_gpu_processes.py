"""Which processes are on which GPU: on a played host, and by a stand-in for nvidia-smi that is run for real."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.onhost.system import Ended, Host
from roles.serve.onhost.model import GpuProcesses, GpusFound
from roles.serve.onhost.verification import find_gpu_processes, find_gpus
from roles.serve.verify.process import judge_gpus
from tests.roles.serve.test_verify_gpus import PLANNED
from tests.support.gpu_host import FIRST_NAMESPACE, NEW, OLD, gpu_host
from tests.support.played_host import File
from tests.support.verified_host import VerifiedHost

SPACE = "pid:[4026532493]"


def host() -> VerifiedHost:
    """Return a host with a server of two processes, one of them with a child."""
    each = VerifiedHost({"nvidia-smi": Ended(0, "00000000:01:00.0, GPU-1\n", "a warning\n")})
    for pid in (7, 8, 9):
        each.process(pid, "llama-server")
    each.opens(7, "/dev/null", "/dev/nvidia0", "/dev/nvidiactl")
    each.opens(8, "/dev/nvidia-uvm", "/dev/nvidia0", "/home/dev/nvidia1")
    each.opens(9, "/dev/dxg")
    each.files["/proc/7/task/7/children"] = File("8 10 ")
    each.links |= {"/proc/7/ns/pid": SPACE, "/proc/9/ns/pid": SPACE, "/proc/8/ns/pid": FIRST_NAMESPACE}
    return each


OWN = ("/dev/nvidia0", "/dev/nvidiactl")


@pytest.mark.parametrize(
    ("pid", "swaps", "container", "pids", "devices"),
    [
        ("7", False, False, ("7",), OWN),
        ("7", True, False, ("7", "8"), ("/dev/nvidia-uvm", *OWN)),
        ("7", False, True, ("7", "9"), ("/dev/dxg", *OWN)),
        ("7", True, True, ("7", "9"), ("/dev/dxg", *OWN)),
        ("", True, True, (), ()),
        ("10", False, False, (), ()),
        ("10", False, True, (), ()),
    ],
)
def test_the_processes_of_a_server(
    pid: str, swaps: bool, container: bool, pids: tuple[str, ...], devices: tuple[str, ...]
) -> None:
    assert find_gpu_processes(pid, host(), swaps=swaps, container=container) == GpuProcesses(pids, devices)


def test_a_container_whose_namespace_is_hidden_is_its_first_process() -> None:
    each = host()
    del each.links["/proc/7/ns/pid"]
    assert find_gpu_processes("7", each, swaps=False, container=True).pids == ("7",)


def test_what_the_driver_reports() -> None:
    each = host()
    each.files |= {
        "/proc/driver/nvidia/gpus/0000:0A:00.0/information": File("Model: \t x\nDevice Minor: \t 3\n"),
        "/proc/driver/nvidia/gpus/0000:0b:00.0/information": File("Device Minor: \t soon\n"),
        "/proc/sys/kernel/osrelease": File("6.8.0-88-generic\n"),
    }
    each.links["/proc/self/ns/pid"] = FIRST_NAMESPACE
    listed = "00000000:01:00.0, GPU-1\na warning"
    assert find_gpus(each) == GpusFound(listed, listed, {"0000:0a:00.0": 3}, FIRST_NAMESPACE, "6.8.0-88-generic")


def test_a_host_without_a_driver() -> None:
    assert find_gpus(VerifiedHost()) == GpusFound(
        listed=(absent := "nvidia-smi: No such file or directory"), processes=absent
    )


@pytest.mark.usefixtures("starts_processes")
def test_what_nvidia_smi_prints_is_as_the_judge_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = gpu_host(tmp_path, OLD | {"apps": [(77, 10000), (8, 1)]}, NEW | {"apps": [(77, 20000)]})
    for name, value in cards.environment.items():
        monkeypatch.setenv(name, value)
    found = find_gpus(Host(lambda _: None, lambda _: None))
    assert found.namespace == str(Path("/proc/self/ns/pid").readlink())
    driver = replace(found, namespace=FIRST_NAMESPACE, kernel="6.8")
    assert judge_gpus(PLANNED, GpuProcesses(("77",)), driver) == (
        True,
        "on new with 20,000 MiB, planned are 20,000; old with 10,000 MiB, planned are 10,000",
    )
