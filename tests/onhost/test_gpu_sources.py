"""Sources of GPUs in this process: NVIDIA's library in a forked one, and nvidia-smi. Both are stand-ins."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from llamaherd.onhost import gpu_sources
from llamaherd.onhost.gpu_sources import (
    NOT_REPORTED,
    STANDING,
    GpuSources,
    Library,
    Line,
    Lines,
    Nvml,
    Smi,
    write_lines,
)
from tests.bench.meter_lines import NEW, OLD
from tests.support.told_gpus import put_gpus

pytestmark = pytest.mark.usefixtures("starts_processes")


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder from which this process has two GPUs."""
    put_gpus(tmp_path, monkeypatch)
    monkeypatch.setattr(gpu_sources, "PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(gpu_sources, "NVML", ("/nonexistent/libnvidia-ml.so.1", str(tmp_path / "libnvidia-ml.so.1")))
    monkeypatch.setenv("FAKE_APP", str(os.getpid()))
    return tmp_path


def until(source: Library | Smi, kind: str) -> list[Line]:
    """Return the lines of a source up to one of a kind."""
    found: list[Line] = []
    deadline = time.monotonic() + 30
    while not any(each == kind for each, _ in found):
        assert time.monotonic() < deadline, found
        if select.select([source.output], [], [], 1)[0]:
            found += source.heard()
    return found


# --- the library --------------------------------------------------------------------------------------------


def test_what_the_library_reports(gpus: Path) -> None:
    found = Nvml()
    assert (found.why, found.why_smi, found.lacks) == ("", "", {NEW: "Not Supported"})
    old, new = found.rows(time.monotonic())
    assert old.split(", ")[:2] == [OLD, "250.00"]
    assert new.split(", ")[:3] == [NEW, NOT_REPORTED, "21.33"]
    assert [line.split(", ")[0] for line in found.standing()] == [OLD, NEW]
    assert found.standing()[0].endswith("NVIDIA GeForce RTX 3090")
    assert list(found.energy()) == [OLD]
    assert found.apps() == [[OLD, os.getpid(), 3 << 30]]
    (gpus / "watts").write_text("100")
    assert found.rows(time.monotonic())[0].split(", ")[1] == "100.00"
    assert found.call("nvmlMissing") == gpu_sources.LACKED


def test_what_changes_seldom_is_read_seldom(gpus: Path) -> None:
    assert gpus
    found = Nvml()
    now = time.monotonic()
    before = found.due["limit"]
    found.rows(now)
    assert found.due["limit"] == before
    found.rows(now + 100)
    assert found.due["limit"] == now + 105


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sources, "NVML", ("/nonexistent/libnvidia-ml.so.1",))
    found = Nvml()
    assert (found.why, found.why_smi) == ("NVIDIA's library is not installed",) * 2
    assert found.apps() is None


@pytest.mark.parametrize(
    ("function", "code", "why", "why_smi"),
    [
        ("nvmlInit_v2", 3, "Not Supported", "Not Supported"),
        ("nvmlDeviceGetCount_v2", 3, "Not Supported", "Not Supported"),
        ("nvmlDeviceGetHandleByIndex_v2", 3, "", "NVIDIA's library finds no card"),
    ],
)
def test_a_library_that_fails(
    gpus: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int, why: str, why_smi: str
) -> None:
    assert gpus
    call = Nvml.call
    monkeypatch.setattr(Nvml, "call", lambda self, name, *words: code if name == function else call(self, name, *words))
    found = Nvml()
    assert (found.why, found.why_smi) == (why, why_smi)


@pytest.mark.parametrize("lacks", ["Memory", "Processes", "all"])
def test_functions_that_an_old_library_lacks(gpus: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    assert gpus
    call = Nvml.call
    found = Nvml()
    monkeypatch.setattr(
        Nvml,
        "call",
        lambda self, name, *words: (
            gpu_sources.LACKED if lacks in (*[lacks] * (lacks in name), "all") else call(self, name, *words)
        ),
    )
    card = found.cards[OLD]
    assert (found.memory(card) is None) == (lacks != "Processes")
    assert (found.apps() is None) == (lacks != "Memory")
    if lacks == "all":
        assert found.facts(card) == [NOT_REPORTED] * 9
        assert found.energy() == {}
        found.due.clear()
        assert found.rows(time.monotonic())[0] == ", ".join([OLD, *[NOT_REPORTED] * len(found.fields)])


def test_the_library_is_served_over_pipes(gpus: Path) -> None:
    assert gpus
    requests, ask = os.pipe()
    heard, out = os.pipe()
    os.write(ask, b"count\napps\n")
    os.close(ask)
    gpu_sources.serve_library(5.0, requests, out)
    os.close(out)
    lines = Lines(heard)
    kinds = [line[2:].partition('"')[0] for line in lines.read()]
    assert kinds == ["hello", "apps", "now", "gpu", "gpu", "count"]
    with pytest.raises(OSError, match="it has ended"):
        lines.read()
    os.close(requests)
    os.close(heard)


def test_a_library_that_reports_nothing_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sources, "NVML", ())
    heard, out = os.pipe()
    gpu_sources.serve_library(5.0, -1, out)
    (line,) = Lines(heard).read()
    assert '"serves":false' in line
    os.close(heard)
    os.close(out)


# --- its process --------------------------------------------------------------------------------------------


def hello(serves: bool) -> Line:
    """Return the first line of a library."""
    return "hello", {"why": "", "why_smi": "", "lacks": {}, "fields": ["watts"], "cards": ["a"], "serves": serves}


def responds(every: float, requests: int, out: int) -> None:
    """Play a library that responds to each request."""
    write_lines(out, hello(serves=True), ("gpu", {"csv": f"{every}"}))
    while words := os.read(requests, 100):
        write_lines(out, (words.decode().strip(), {"apps": 1}))


def falls(every: float, requests: int, out: int) -> None:
    """Play a library that crashes."""
    del every, requests, out
    raise MemoryError


def hangs(every: float, requests: int, out: int) -> None:
    """Play a library that hangs in the driver."""
    del every, requests, out
    time.sleep(60)


def test_a_library_in_its_own_process() -> None:
    sources = GpuSources(responds, 0.5)
    assert (sources.why_smi, sources.standing["cards"], sources.standing["fields"]) == ("", ["a"], ["uuid", "watts"])
    assert sources.standing["card_fields"] == list(STANDING)
    lines = sources.start(0.5) or until(sources.library, "gpu")
    assert lines == [("gpu", {"csv": "0.5"})]
    assert (list(sources.running), sources.pids) == ([sources.library.output], [sources.library.pid])
    sources.library.request("apps")
    lines = []
    assert sources.library.wait("apps", 20, lines)
    assert lines == [("apps", {"apps": 1})]
    assert not sources.library.wait("now", 0.05, lines)
    pid = sources.library.pid
    sources.end()
    assert (sources.running, sources.pids) == ({}, [])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    sources.library.request("apps")
    sources.library.end()
    assert not sources.library.wait("apps", 5, lines)


def test_a_library_that_crashes_or_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_sources, "PATH", str(tmp_path))
    sources = GpuSources(falls, 0.5)
    assert (sources.why_smi, sources.running) == ("NVIDIA's library fails", {})
    assert sources.standing["no_smi"] == "there is no nvidia-smi"
    assert sources.start(0.5) == []
    monkeypatch.setattr(gpu_sources, "SLOW", 0.2)
    sources = GpuSources(hangs, 0.5)
    assert (sources.why_smi, sources.running) == ("", {})
    assert sources.standing["no_nvml"] == "NVIDIA's library does not respond"


def test_a_process_ends_with_its_parent_and_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    ends: list[int] = []
    monkeypatch.setattr(gpu_sources, "LIBC", SimpleNamespace(prctl=lambda *words: calls.append(words)))
    monkeypatch.setattr(os, "_exit", ends.append)
    gpu_sources.end_with(os.getppid())
    assert (calls, ends) == ([(1, signal.SIGKILL, 0, 0, 0)], [])
    gpu_sources.end_with(-1)
    gpu_sources.name_process("llamaherd-meter")
    assert (calls[-1], ends) == ((15, b"llamaherd-meter", 0, 0, 0), [1])


def test_a_line_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sources, "LONGEST_LINE", 10)
    read, write = os.pipe()
    os.write(write, b"a\nb" + b"x" * 20)
    with pytest.raises(OSError, match="a line without end"):
        Lines(read).read()
    os.close(read)
    os.close(write)


# --- nvidia-smi ---------------------------------------------------------------------------------------------


@pytest.fixture
def smi(gpus: Path) -> Iterator[Smi]:
    """Return nvidia-smi's stand-in while it runs."""
    assert gpus
    found = Smi()
    found.start(0.05)
    yield found
    found.end()


def test_what_nvidia_smi_reports(smi: Smi) -> None:
    assert smi.why == ""
    assert [line.split(", ")[0] for line in smi.cards] == [OLD, NEW]
    (_, values), *_ = until(smi, "gpu")
    assert values["csv"].startswith(f"{OLD}, 250.00, ")
    pid = smi.process.pid
    smi.end()
    assert (smi.output, smi.process.poll() is None) == (-1, False)
    assert pid == smi.process.pid
    smi.end()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("echo NVIDIA-SMI has failed; exit 9", "NVIDIA-SMI has failed"),
        ("exit 9", "nvidia-smi ended with 9"),
        ("case $1 in --help*) echo '\"uuid\"' ;; *) exit 3 ;; esac", "nvidia-smi ended with 3"),
        ("case $1 in --help*) echo '\"uuid\"' ;; *) echo no device; exit 3 ;; esac", "no device"),
    ],
)
def test_an_nvidia_smi_that_fails(gpus: Path, program: str, why: str) -> None:
    (gpus / "nvidia-smi").write_text(f"#!/bin/sh\n{program}\n")
    found = Smi()
    assert found.why == why
    found.start(0.05)
    assert found.process is None
    found.end()


def test_an_nvidia_smi_that_cannot_be_run(gpus: Path) -> None:
    (gpus / "nvidia-smi").write_text("")
    assert Smi().why == "nvidia-smi does not respond"


def test_other_lines_of_nvidia_smi_are_few(gpus: Path) -> None:
    script = """case $1 in
--help*) printf '"uuid"\\n"power.limit"\\n' ;;
*-lms*|*--query-gpu=uuid,power.limit*) n=0; while [ $n -lt 9 ]; do n=$((n + 1)); echo oh; done; echo 'a, b'; sleep 60 ;;
*) echo GPU-1 ;;
esac"""
    (gpus / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    found = Smi()
    assert found.fields == ["uuid", "limit"]
    found.start(0.05)
    lines = until(found, "gpu")
    assert [kind for kind, _ in lines] == ["said"] * 5 + ["gpu"]
    found.end()
