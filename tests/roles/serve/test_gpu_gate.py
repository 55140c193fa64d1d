"""The program that waits for GPUs before a server starts, by /bin/sh as on a host (tests/support/gpu_host.py)."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path

import pytest

from tests.support.gpu_host import NEW, OLD, GpuHost, gpu_host

WSL = "6.6.87.2-microsoft-standard-WSL2"


@pytest.fixture
def host(tmp_path: Path) -> GpuHost:
    return gpu_host(tmp_path, OLD, NEW)


@pytest.mark.parametrize(
    "cards",
    [
        ["GPU-3090"],
        ["GPU-3090", "GPU-5090"],
        ["00000000:21:00.0"],
        ["1"],
        ["1", "0"],
        ["any"],
        ["any", "any"],
    ],
    ids=" ".join,
)
def test_cards_that_are_there_let_a_server_start_at_once(host: GpuHost, cards: list[str]) -> None:
    done = host.run("gpu-gate", ["0", *cards])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        (["GPU-3090", "GPU-4090"], "there is no card GPU-4090: `nvidia-smi -L` shows those that are there"),
        (["00000000:41:00.0"], "there is no card 00000000:41:00.0: `nvidia-smi -L` shows those that are there"),
        (["2"], "there are 2 cards, and at least 3 are declared"),
        (["any", "any", "any"], "there are 2 cards, and at least 3 are declared"),
    ],
)
def test_a_card_that_is_not_there_is_named(host: GpuHost, cards: list[str], said: str) -> None:
    done = host.run("gpu-gate", ["0", *cards])
    assert (done.returncode, done.stderr) == (1, f"{said} (waited 0 s)\n")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95",
            "the driver's module that is loaded is not of the version of its libraries: reboot",
        ),
        (
            "Failed to initialize NVML: Unknown Error",
            "card GPU-3090 does not answer: Failed to initialize NVML: Unknown Error (waited 0 s)",
        ),
        (
            "Unable to determine the device handle for GPU0: 0000:01:00.0: GPU is lost.",
            "card GPU-3090 does not answer: Unable to determine the device handle for GPU0: 0000:01:00.0: GPU is lost. "
            "(waited 0 s)",
        ),
    ],
)
def test_a_driver_that_does_not_answer_is_explained(host: GpuHost, broken: str, said: str) -> None:
    host.put(OLD, broken=broken)
    done = host.run("gpu-gate", ["0", "GPU-3090"])
    assert (done.returncode, done.stderr) == (1, f"{said}\n")


def test_only_what_may_pass_is_waited_for(host: GpuHost) -> None:
    host.put(OLD, broken="Failed to initialize NVML: Driver/library version mismatch")
    assert host.run("gpu-gate", ["50", "GPU-3090"], seconds=20).returncode == 1
    (host.folder / "bin" / "nvidia-smi").unlink()
    done = host.run("gpu-gate", ["50", "GPU-3090"], seconds=20)
    assert (done.returncode, done.stderr) == (1, "there is no nvidia-smi, which NVIDIA's driver brings along\n")


@pytest.mark.parametrize(
    ("device", "modules", "said"),
    [
        ("nvidia-uvm", ["nvidia", "nvidiactl"], "the module nvidia_uvm is not loaded: `modprobe nvidia_uvm` as root"),
        ("nvidia-uvm", ["nvidia", "nvidia-uvm"], "although its module is loaded: `nvidia-modprobe"),
        ("nvidiactl", [], "the module nvidia is not loaded: `modprobe nvidia` as root says why"),
        ("nvidiactl", ["nvidia"], "nvidiactl, although its module is loaded"),
        ("nvidiactl", ["nvidia-frontend"], "nvidiactl, although its module is loaded"),
    ],
)
def test_a_device_that_is_not_there_is_explained(host: GpuHost, device: str, modules: list[str], said: str) -> None:
    (host.folder / "dev" / device).unlink()
    host.modules(*modules)
    done = host.run("gpu-gate", ["0", "GPU-3090"])
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (host.folder / "dev" / device).exists(), "it must look, and never make the file"


def test_a_device_that_cannot_be_opened_is_named(host: GpuHost) -> None:
    device = host.folder / "dev" / "nvidiactl"
    device.unlink()
    # Of all that is no device, this is what root cannot open either.
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(device))
    done = host.run("gpu-gate", ["0", "GPU-3090"])
    assert done.returncode == 1
    assert f"{device} cannot be opened by {getpass.getuser()}: No such device or address (waited 0 s)" in done.stderr


def test_a_card_that_comes_late_is_waited_for(host: GpuHost) -> None:
    host.put(OLD)
    with host.begun("gpu-gate", ["600", "GPU-5090"]) as gate:
        assert gate.stdout
        waiting = "waiting: there is no card GPU-5090: `nvidia-smi -L` shows those that are there\n"
        assert gate.stdout.readline() == waiting
        host.put(OLD, NEW)
        out, err = gate.communicate(timeout=300)
    assert (gate.returncode, out, err) == (0, "", "")


def test_under_wsl_there_is_one_device(host: GpuHost) -> None:
    host.kernel(WSL)
    done = host.run("gpu-gate", ["0", "GPU-3090"])
    assert done.returncode == 1
    assert "dxg: WSL gives this distribution no card" in done.stderr
    for name in ("nvidiactl", "nvidia-uvm"):
        (host.folder / "dev" / name).unlink()
    host.dev("dxg")
    assert host.run("gpu-gate", ["0", "GPU-3090"]).returncode == 0
