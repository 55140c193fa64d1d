"""A server that runs is measured, over SSH, as a user does it: with a real engine, a toy model, and a short time.

The machine that the box shares with others is never quiet: what is in the way by that alone is overruled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llamaherd.measure.results.result import Result
from llamaherd.measure.results.store import read_result, result_files, results_folder
from tests.box.bench import HERD, Bench
from tests.support.rigs import ROOT

WATCHES = "pgrep -x llamaherd-meter"
FREE = "flock -n /run/llamaherd/locks/measure true; echo $?"
MEASURE = ("bench", "box/chat", "--anyway", "--time", "40s")


@pytest.fixture
def measured(converged: Bench) -> Iterator[Bench]:
    """The rig, and nothing left on it afterwards."""
    yield converged
    assert gone(converged)


def gone(bench: Bench) -> bool:
    """Whether nothing of a measurement is left on the host, within some seconds."""
    for _ in range(100):
        if not bench.sh(WATCHES, check=False) and bench.sh(FREE) == "0":
            return True
        time.sleep(0.1)
    return False


def files(bench: Bench) -> list[Path]:
    """Results of `chat`, the newest first."""
    return result_files(results_folder(bench.inventory), "box", "chat")


def newest(bench: Bench) -> Result:
    return read_result(files(bench)[0])


def test_a_server_is_measured(measured: Bench, tmp_path: Path) -> None:
    shared = tmp_path / "shared.json"
    ended = measured.herd(*MEASURE[:-1], "100s", "--share", str(shared))
    assert ended.code in (0, 1), ended.output
    found = newest(measured)
    assert found.ended
    kinds = {cell.condition.kind for cell in found.cells}
    # All of them, where the machine that the box shares has the time.
    assert kinds <= {"code", "prose", "copy-edit", "extract", "reasoning", "long"}
    assert len(kinds) >= 2
    counted = [run for cell in found.cells for run in cell.counted if cell.condition.cache == "cold"]
    assert counted
    assert {run.cache_n for run in counted} == {0}
    assert all(run.clock == "engine" and run.predicted_ms and run.first_token_ms for run in counted)
    warm = [run for cell in found.cells for run in cell.runs if cell.condition.cache == "warm"]
    assert all((run.cache_n or 0) > 200 for run in warm)
    # By the plan, by the server, and past both.
    instance = next(each for each in measured.plan()["instances"] if each["name"] == "chat")
    assert found.provenance.server.spec == instance["spec"]
    assert found.provenance.engine.build == instance["build"]
    assert found.provenance.server.context
    pid = measured.sh("systemctl show -P MainPID llama-chat")
    assert found.starts[0].process
    assert found.starts[0].process.startswith(f"{pid}@")
    (ram,) = found.peaks
    resident = int(measured.sh(f"awk '/^VmRSS/ {{print $2}}' /proc/{pid}/status")) << 10
    assert ram.held_bytes == pytest.approx(resident, rel=0.5)
    assert any("nvidia-smi" in each for each in found.unmeasured)
    text = shared.read_text()
    assert json.loads(text)["shared"] is True
    assert measured.key() not in text + files(measured)[0].read_text() + ended.output


def test_killed_it_goes_on(measured: Bench) -> None:
    argv = [HERD, *MEASURE]
    process = subprocess.Popen(argv, cwd=ROOT, env=measured.environment({}), stderr=subprocess.DEVNULL)
    try:
        journal = waited_for_runs(measured, 2)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert gone(measured)
    before = read_result(journal)
    ended = measured.herd(*MEASURE)
    assert ended.code in (0, 1), ended.output
    assert f"resuming the measurement of {before.began}" in ended.output
    whole = newest(measured)
    assert whole.began == before.began
    assert not journal.exists()
    runs = {cell.condition: cell.runs for cell in whole.cells}
    for cell in before.cells:
        assert runs.get(cell.condition, ())[: len(cell.runs)] == cell.runs


def waited_for_runs(bench: Bench, most: int) -> Path:
    """The journal that is being written, once it has so many runs."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for path in files(bench)[:1]:
            if path.suffix == ".jsonl" and sum(len(cell.runs) for cell in read_result(path).cells) >= most:
                return path
        time.sleep(0.1)
    raise AssertionError("no journal came")


def test_a_server_that_ends_halfway(measured: Bench) -> None:
    began = len(files(measured))
    said: list[str] = []
    story = threading.Thread(target=lambda: said.append(measured.herd(*MEASURE[:-1], "10m").output))
    story.start()
    try:
        waited_for_runs(measured, 1)
        measured.sh("systemctl restart llama-chat")
    finally:
        story.join(300)
    assert "are kept in" in said[0], said[0]
    assert files(measured)[0].suffix == ".jsonl"
    assert len(files(measured)) == began + 1
    wait_until_up(measured)
    # Another start is no part of the same measurement.
    ended = measured.herd(*MEASURE)
    assert ended.code in (0, 1), ended.output
    assert "resuming" not in ended.output


def wait_until_up(bench: Bench) -> None:
    until = time.monotonic() + 300
    while bench.ask("chat", "/health")[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.2)


def test_a_wrong_key(measured: Bench) -> None:
    key = measured.key_file.read_text()
    measured.key_file.write_text("canary-of-another\n")
    try:
        ended = measured.herd(*MEASURE)
    finally:
        measured.key_file.write_text(key)
    assert ended.code == 2
    assert "help: check the key" in ended.output
    assert "canary" not in ended.output


def test_a_host_that_forwards_no_ports(measured: Bench) -> None:
    setting = "/etc/ssh/sshd_config.d/00-no-ports.conf"
    measured.sh(f"echo 'AllowTcpForwarding no' >{setting}; systemctl reload ssh")
    try:
        ended = measured.herd(*MEASURE)
    finally:
        measured.sh(f"rm {setting}; systemctl reload ssh")
    assert ended.code == 2
    assert "forwards no ports" in ended.output
    assert "help: allow it in sshd_config there" in ended.output


def test_a_server_that_is_stopped(measured: Bench) -> None:
    measured.sh("systemctl stop llama-chat")
    try:
        ended = measured.herd(*MEASURE)
    finally:
        measured.sh("systemctl start llama-chat")
        wait_until_up(measured)
    assert ended.code == 2
    assert "error: server-down: chat does not run" in ended.output


def test_a_server_that_somebody_uses(measured: Bench) -> None:
    story = '{"messages":[{"role":"user","content":"Tell a long story."}],"max_tokens":2000,"ignore_eos":true}'
    busy = threading.Thread(
        target=measured.ask, args=("chat", "/v1/chat/completions", story, measured.key()), daemon=True
    )
    busy.start()
    time.sleep(1)
    ended = measured.herd("bench", "box/chat", "--time", "40s")
    assert ended.code == 2
    assert "error: busy: chat serves 1 request of other clients" in ended.output
    busy.join(310)  # by then curl has given up, and the server with it: nobody is in the way of the next test
    assert not busy.is_alive()


def test_somebody_who_comes_meanwhile(measured: Bench) -> None:
    """Three people, so that one of them waits for an answer whenever it is looked."""
    story = '{"messages":[{"role":"user","content":"Tell a story."}],"max_tokens":200,"ignore_eos":true}'

    def ask_on() -> None:
        while not first.done():
            measured.ask("chat", "/v1/chat/completions", story, measured.key())

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(measured.herd, *MEASURE[:-1], "80s")
        waited_for_runs(measured, 1)
        for asking in [pool.submit(ask_on) for _ in range(3)]:
            asking.result()
    said = first.result().output
    assert "busy: chat serves" in said, said
    assert "of other clients" in said
    excluded = {run.excluded for cell in newest(measured).cells for run in cell.runs if run.excluded}
    assert any(each.startswith("meanwhile chat serves") for each in excluded), excluded


def test_ctrl_c_keeps_what_there_is(measured: Bench) -> None:
    argv = ["env", "--default-signal=INT", HERD, *MEASURE[:-1], "10m"]
    process = subprocess.Popen(argv, cwd=ROOT, env=measured.environment({}), stderr=subprocess.PIPE, text=True)
    try:
        journal = waited_for_runs(measured, 1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "results so far are saved" in said
    assert "Traceback" not in said
    assert sum(len(cell.runs) for cell in read_result(journal).cells) >= 1


def test_one_at_a_time(measured: Bench) -> None:
    first = threading.Thread(target=measured.herd, args=MEASURE)
    first.start()
    try:
        while first.is_alive() and measured.sh(FREE) == "0":
            time.sleep(0.1)
        ended = measured.herd(*MEASURE)
    finally:
        first.join(300)
    assert ended.code == 2
    assert "another measurement runs on this host" in ended.output
