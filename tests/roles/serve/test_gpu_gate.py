"""The program that waits for GPUs before a server starts (tests/support/gpu_host.py)."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from roles.serve.onhost import gpu_programs
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
            "nvidia-smi cannot query card GPU-3090: Failed to initialize NVML: Unknown Error (waited 0 s)",
        ),
        (
            "Unable to determine the device handle for GPU0: 0000:01:00.0: GPU is lost.",
            "nvidia-smi cannot query card GPU-3090: Unable to determine the device handle for GPU0: 0000:01:00.0: "
            "GPU is lost. (waited 0 s)",
        ),
    ],
)
def test_a_driver_that_does_not_answer_is_explained(host: GpuHost, broken: str, said: str) -> None:
    host.put(OLD, broken=broken)
    done = host.run("gpu-gate", ["0", "GPU-3090"])
    assert (done.returncode, done.stderr) == (1, f"{said}\n")


def test_only_what_may_pass_is_waited_for(host: GpuHost) -> None:
    host.put(OLD, broken="Failed to initialize NVML: Driver/library version mismatch")
    assert host.run("gpu-gate", ["50", "GPU-3090"]).returncode == 1
    (host.folder / "bin" / "nvidia-smi").unlink()
    done = host.run("gpu-gate", ["50", "GPU-3090"])
    assert (done.returncode, done.stderr) == (1, "there is no nvidia-smi, which NVIDIA's driver brings along\n")


@pytest.mark.parametrize(
    ("device", "modules", "said"),
    [
        ("nvidia-uvm", ["nvidia", "nvidiactl"], "the module nvidia_uvm is not loaded: `modprobe nvidia_uvm` as root"),
        ("nvidia-uvm", ["nvidia", "nvidia-uvm"], "although its module is loaded: `nvidia-modprobe"),
        ("nvidiactl", [], "the module nvidia is not loaded: `modprobe nvidia` as root prints the reason"),
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


def test_a_device_that_came_too_late_is_not_waited_for(host: GpuHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root is refused no file here: the kernel's refusal is played."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "open", refuse)
    done = host.run("gpu-gate", ["50", "GPU-3090"])
    assert done.returncode == 1
    assert done.stderr.endswith(
        "nvidiactl came after this start had begun, so that it may not be opened: the next start may\n"
    )


def test_a_card_that_comes_late_is_waited_for(host: GpuHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.put(OLD)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            host.put(OLD, NEW)

    monkeypatch.setattr(gpu_programs, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
    done = host.run("gpu-gate", ["600", "GPU-5090"])
    waiting = "waiting: there is no card GPU-5090: `nvidia-smi -L` shows those that are there\n"
    assert (done.returncode, done.stdout, done.stderr, waits) == (0, waiting, "", [1, 1])


def test_a_card_that_never_comes_is_waited_for_so_long(host: GpuHost, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def wait(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(gpu_programs, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=wait))
    done = host.run("gpu-gate", ["3", "2"])
    reason = "there are 2 cards, and at least 3 are declared"
    assert (done.returncode, done.stdout, done.stderr) == (1, f"waiting: {reason}\n", f"{reason} (waited 3 s)\n")


def test_the_file_itself_prints_what_it_waits_for_at_once(host: GpuHost) -> None:
    """Its output is a pipe: a line that stays in its buffer would reach the journal when it ends."""
    host.put(OLD)
    with host.start("gpu-gate", ["600", "GPU-5090"]) as gate:
        assert gate.stdout
        assert gate.stdout.readline().startswith("waiting: there is no card GPU-5090: ")
        host.put(OLD, NEW)
        out, err = gate.communicate(timeout=300)
    assert (gate.returncode, out, err) == (0, "", "")


def stand_in(host: GpuHost, script: str) -> None:
    """Put a script in the place of nvidia-smi."""
    (host.folder / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")


@pytest.mark.parametrize("cards", [["GPU-3090"], ["any"]], ids=" ".join)
def test_a_driver_that_hangs_is_not_awaited(host: GpuHost, cards: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its child holds the pipe, is in a session of its own, and outlives it."""
    stand_in(host, f"setsid sleep 30 & echo $! >>{host.folder}/pids; echo $$ >>{host.folder}/hung; wait")
    monkeypatch.setattr(gpu_programs, "SMI_SECONDS", 0.4)
    began = time.monotonic()
    done = host.run("gpu-gate", ["0", *cards])
    assert time.monotonic() - began < 20
    what = "card GPU-3090" if cards == ["GPU-3090"] else "card"
    assert (done.returncode, done.stderr) == (1, f"nvidia-smi prints nothing about {what} within 0 s (waited 0 s)\n")
    for pid in (host.folder / "pids").read_text().split():
        os.kill(int(pid), 9)
    (*hung,) = map(int, (host.folder / "hung").read_text().split())
    assert not [pid for pid in hung if running(pid)]


def running(pid: int) -> bool:
    """Return whether a process still runs two seconds after it was killed."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout
        if not state.strip() or state.startswith("Z"):
            return False
        time.sleep(0.05)
    return True


def test_output_without_end_is_cut_off(host: GpuHost) -> None:
    stand_in(host, "exec yes 'the driver'")
    done = host.run("gpu-gate", ["0", "GPU-3090"])
    assert (done.returncode, done.stderr) == (1, "nvidia-smi cannot query card GPU-3090: the driver (waited 0 s)\n")


def test_no_shell_reads_a_card(host: GpuHost) -> None:
    card = f"$(touch {host.folder}/x) '\"`touch {host.folder}/x`\nGPU-1"
    done = host.run("gpu-gate", ["0", card])
    assert (done.returncode, done.stderr.startswith(f"there is no card {card}: ")) == (1, True)
    assert not (host.folder / "x").exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("gpu-gate", []), ("gpu-gate", ["soon", "0"]), ("gpu-check", ["some", "log", "1"]), ("other", ["1", "0"])],
)
def test_anything_else_prints_the_usage(host: GpuHost, name: str, arguments: list[str]) -> None:
    done = host.run(name, arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{gpu_programs.USAGE}\n")


def test_under_wsl_there_is_one_device(host: GpuHost) -> None:
    host.kernel(WSL)
    done = host.run("gpu-gate", ["0", "GPU-3090"])
    assert done.returncode == 1
    assert "dxg: WSL gives this distribution no card" in done.stderr
    for name in ("nvidiactl", "nvidia-uvm"):
        (host.folder / "dev" / name).unlink()
    host.dev("dxg")
    assert host.run("gpu-gate", ["0", "GPU-3090"]).returncode == 0
