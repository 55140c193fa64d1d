"""Logs of servers, and servers that are stopped, started and paused: on real systemd and Docker."""

from __future__ import annotations

import re
import time

import pytest

from tests.box.bench import Bench
from tests.support.envelope import the_rig

NAMES = ("chat", "drafter")
"""A unit and a container."""


def responds(bench: Bench, name: str) -> bool:
    """Return whether a server responds to a client on its host."""
    return bench.ask(name, "/health")[0] == 200


def wait_until_it_responds(bench: Bench, name: str, seconds: float) -> None:
    """Fail if a server does not respond in time."""
    until = time.monotonic() + seconds
    while not responds(bench, name):
        assert time.monotonic() < until, bench.sh(f"journalctl -n 50 -u 'llamaherd-resume-{name}*' -u llama-{name}")
        time.sleep(1)


@pytest.mark.parametrize("name", NAMES)
def test_the_log_of_a_server_has_times_and_no_key(bench: Bench, name: str) -> None:
    bench.answers(name)
    ended = bench.herd("logs", f"box/{name}", "-n", "200")
    lines = ended.output.splitlines()
    assert ended.code == 0, ended.output
    assert 5 < len(lines) <= 200
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in lines), ended.output
    assert bench.key() not in ended.output
    assert bench.herd("logs", f"box/{name}", "--grep", "no line has this text").output.endswith("has no such line\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_server_stays_stopped_until_it_is_started(bench: Bench, name: str) -> None:
    ended = bench.herd("stop", f"box/{name}")
    assert ended.code == 0, ended.output
    assert f"box/{name}: stopped after" in ended.output
    assert not responds(bench, name)
    if name == "chat":
        assert bench.sh("systemctl is-enabled llama-chat", check=False) == "disabled"
    else:
        bench.sh("systemctl restart docker")
        assert bench.sh("docker inspect -f '{{.State.Status}}' llama-drafter") == "exited"
    assert bench.herd("status", "box").code == 1
    ended = bench.herd("start", f"box/{name}")
    assert ended.code == 0, ended.output
    assert bench.answers(name)
    assert bench.herd("plan", "box").output.endswith("box: up to date\n")


def test_a_restart_is_another_process(bench: Bench) -> None:
    before = bench.running()
    ended = bench.herd("restart", "box/chat")
    assert ended.code == 0, ended.output
    bench.unchanged(before, "chat")
    assert bench.answers("chat")


def test_a_server_that_fails_to_start_is_shown_with_the_engines_error(bench: Bench) -> None:
    assert bench.herd("stop", "box/chat").code == 0
    (model,) = [each["model_path"] for each in bench.plan()["instances"] if each["name"] == "chat"]
    bench.sh(f"mv {model} {model}.away")
    try:
        ended = bench.herd("start", "box/chat")
        assert ended.code == 1
        assert "error: box/chat: it is not healthy after" in ended.output
        assert "its last error: " in ended.output
    finally:
        bench.sh(f"mv {model}.away {model}")
        bench.herd("stop", "box/chat")


def test_paused_servers_are_no_fault_and_start_when_the_time_is_over(bench: Bench) -> None:
    began = time.monotonic()
    ended = bench.herd("pause", "box", "--for", "4m")
    assert ended.code == 0, ended.output
    for name in NAMES:
        assert f"box/{name}: paused until" in ended.output
        assert not responds(bench, name)
    up = bench.up()
    assert up.code == 0, up.output
    assert "chat stays paused for" in up.output
    assert "box: up to date, nothing to do" in up.output
    verified = bench.herd("verify", "box")
    assert verified.code == 0, verified.output
    status = bench.herd("status", "box", "--json")
    rig = the_rig(status.output)
    assert status.code == 0
    assert {each["state"] for each in rig["instances"]} == {"paused"}
    # A timer that was not active at its time, as while the host is off, ends the pause at once when it becomes active.
    bench.sh("systemctl stop llamaherd-resume-chat.timer")
    wait_until_it_responds(bench, "drafter", 360)
    assert not responds(bench, "chat")
    time.sleep(max(0.0, began + 270 - time.monotonic()))
    bench.sh("systemctl start llamaherd-resume-chat.timer")
    wait_until_it_responds(bench, "chat", 120)
    wait_until_it_responds(bench, "ik-chat", 120)
    until = time.monotonic() + 60
    while left := bench.sh("ls /var/lib/llamaherd/paused; ls /etc/systemd/system | grep resume", check=False):
        assert time.monotonic() < until, left
        time.sleep(1)
    assert bench.herd("plan", "box").output.endswith("box: up to date\n")


def test_a_pause_is_ended_early(bench: Bench) -> None:
    assert bench.herd("pause", "box/chat", "--until", "04:00").code == 0
    assert not responds(bench, "chat")
    ended = bench.herd("resume", "box/chat")
    assert ended.code == 0, ended.output
    assert bench.answers("chat")
    assert bench.sh("systemctl is-enabled llama-chat") == "enabled"
    assert bench.sh("ls /var/lib/llamaherd/paused") == ""
