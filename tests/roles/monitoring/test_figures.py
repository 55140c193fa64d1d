"""What is written for the exporter: by answers in the form of nvidia-smi 580's and the kernel's, and by the program."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.gateway import free_port, until
from tests.support.prometheus import program
from tests.support.rigs import ROOT

PROGRAM = ROOT / "templates" / "monitoring" / "figures.py"
SMI = Path(__file__).with_name("nvidia_smi.csv")
KERNEL = Path(__file__).with_name("kernel.txt")
SECOND = 'gpu="GPU-7a0e4a53-0d9b-4a54-8d0a-52c1c3a1b7ee",pci="00000000:09:00.0",index="0"'


@pytest.fixture(name="figures", scope="module")
def _figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", PROGRAM)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gpus_are_told_in_the_order_of_their_addresses(figures: ModuleType) -> None:
    told = list(figures.gpus(SMI.read_text()))
    assert told[0] == "llamaherd_gpus 3"
    assert [line for line in told if "temperature" in line] == [
        f"llamaherd_gpu_temperature_celsius{{{SECOND}}} 84",
        'llamaherd_gpu_temperature_celsius{gpu="GPU-23cf6cc4-2d07-1727-3bb3-406c591ab9e9",'
        'pci="00000000:41:00.0",index="2"} 43',
    ], "what a GPU does not tell is not told"
    assert f"llamaherd_gpu_memory_used_bytes{{{SECOND}}} {22310 << 20}" in told
    assert f"llamaherd_gpu_fan_ratio{{{SECOND}}} 0.71" in told


def test_why_a_gpu_slows_down_is_told_by_the_bits(figures: ModuleType) -> None:
    throttled = [line for line in figures.gpus(SMI.read_text()) if SECOND in line and "throttled" in line]
    assert [line.rpartition("why=")[2] for line in throttled] == [
        '"sw_thermal"} 1',
        '"hw_thermal"} 1',
        '"hw_power_brake"} 0',
    ]


@pytest.mark.parametrize("said", ["", "No devices were found", "Unable to determine the device handle", "a, b\n" * 3])
def test_no_answer_is_no_gpu(figures: ModuleType, said: str) -> None:
    assert list(figures.gpus(said)) == ["llamaherd_gpus 0"]


def test_the_kernels_errors_are_told_with_their_last_time(figures: ModuleType) -> None:
    assert list(figures.xids(KERNEL.read_text())) == [
        'llamaherd_gpu_xid_last_seconds{pci="0000:09:00",xid="13"} 1764043200',
        'llamaherd_gpu_xid_last_seconds{pci="0000:09:00",xid="79"} 1764043290',
    ]


def test_paused_servers_are_those_with_a_record(figures: ModuleType, tmp_path: Path) -> None:
    for name in ("llama-chat", "llama-drafter", 'llama-"x', "other"):
        (tmp_path / name).mkdir()
    for name in ("llama-chat", 'llama-"x', "other"):
        (tmp_path / name / "pause.json").touch()
    assert list(figures.paused(tmp_path)) == ['llamaherd_server_paused{name="llama-chat.service",server="chat"} 1']
    assert list(figures.paused(tmp_path / "absent")) == []


def test_the_program_writes_what_the_exporter_reads(tmp_path: Path) -> None:
    """With an old driver, which knows one field by another name, and a certificate of openssl's."""
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=gateway -keyout k -out c"
    subprocess.run(made.split(), cwd=tmp_path, check=True, capture_output=True)
    written, bin_ = tmp_path / "llamaherd.prom", tmp_path / "bin"
    bin_.mkdir()
    _script(
        bin_ / "nvidia-smi",
        f"case $1 in *clocks_throttle*) cat {SMI} ;; *) echo 'is not a valid field'; exit 2 ;; esac",
    )
    _script(bin_ / "journalctl", f"cat {KERNEL}")
    path = {"PATH": f"{bin_}:{os.environ['PATH']}"}
    command = [sys.executable, "-I", str(PROGRAM), str(written), "--gpus", "--certificate", str(tmp_path / "c")]
    subprocess.run(command, env=path, check=True, timeout=60)
    port = free_port()
    words = ("--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={tmp_path}")
    exporter = [*program("prometheus-node-exporter"), *words, f"--web.listen-address=127.0.0.1:{port}"]
    with subprocess.Popen(exporter, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: "llamaherd_gpus 3" in _asked(port))
            said = _asked(port)
        finally:
            process.terminate()
    assert "node_textfile_scrape_error 0" in said
    assert 'llamaherd_gpu_xid_last_seconds{pci="0000:09:00",xid="79"} 1.76404329e+09' in said
    assert "\nllamaherd_certificate_end_seconds " in said
    assert "\nllamaherd_figures_seconds " in said
    assert written.stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.glob("*.new"))


def test_without_any_of_them_the_time_alone_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-I", str(PROGRAM), str(tmp_path / "a.prom"), "--gpus", "--certificate", "/none.pem"]
    subprocess.run(command, env={"PATH": "/nonexistent"}, check=True, timeout=60)
    lines = (tmp_path / "a.prom").read_text().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["llamaherd_gpus", "llamaherd_figures_seconds"]


def _script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def _asked(port: int) -> str:
    """What the exporter says."""
    done = subprocess.run(
        ["curl", "-q", "-s", f"http://127.0.0.1:{port}/metrics"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.stdout
