"""What did not respond to an inspection is not taken for what is not there."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from llamaherd.host.protocol import NotInspectedError
from llamaherd.render import render
from llamaherd.text.quoting import Written
from tests.support.ours import parse_state

REFUSED = "Failed to connect to system scope bus via local transport: Connection refused"
"""What `systemctl` prints while systemd re-executes (257); some others that it prints then."""
LOST = [
    REFUSED,
    "Failed to connect to bus: No such file or directory",
    "Failed to get properties: Connection reset by peer",
    "Failed to get properties: Transport endpoint is not connected",
    "Failed to retrieve unit state: Connection timed out",
    "Warning! D-Bus connection terminated.\nFailed to wait for response: Connection reset by peer",
]


class Programs:
    """A `systemctl` and a `docker` of the tests' own, and the functions that call them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def program(self, name: str, script: str) -> None:
        """A program whose first argument is what it is called with, and which counts its calls."""
        file = self.folder / name
        file.write_text(f'#!/bin/sh\necho "$*" >>"$0.calls"\nnth=$(grep -c . "$0.calls")\n{script}\n')
        file.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        """How it was called."""
        return (self.folder / f"{name}.calls").read_text().splitlines()

    def inspect(self, part: str) -> tuple[list[str], float]:
        """The lines of an inspection by this script of a role, and how long it took."""
        body = render("host/inspect.sh.j2", reports=True, part=Written(part))
        text = body.replace("[ ! -d /run/systemd/system ]", "false").replace("timeout 10", "timeout 4")
        script = render("host/question.sh.j2", begin=Written("@ begin"), end=Written("@ end"), body=Written(text))
        began = time.monotonic()
        ended = self.run(script)
        assert ended.stdout.endswith("@ end\n"), ended.stdout + ended.stderr
        return ended.stdout.splitlines()[2:-1], time.monotonic() - began

    def step(self, script: str) -> subprocess.CompletedProcess[str]:
        """What a step that changes a host does."""
        return self.run(f"{render('host/clients.sh.j2', reports=False)}\n{script}\n")

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run(
            ["sh", "-s"], input=script, env=environment, capture_output=True, text=True, check=False, timeout=60
        )


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def fails(times: int, complaint: str, then: str = "echo fine", arguments: str = "*") -> str:
    """A program that fails so many times with this complaint."""
    (words,) = [complaint.replace("\n", "\\n")]
    return (
        f'case $* in {arguments}) nth=$(grep -c -- "${{1}}" "$0.calls"); '
        f"[ $nth -gt {times} ] || {{ printf '{words}\\n' >&2; exit 1; }} ;; esac\n{then}"
    )


@pytest.mark.parametrize("complaint", LOST)
def test_what_fails_while_systemd_re_executes_is_tried_again(programs: Programs, complaint: str) -> None:
    programs.program("systemctl", fails(2, complaint))
    lines, _ = programs.inspect('say unit "$(systemctl show x 2>/dev/null)"')
    assert lines == ["unit\tfine"]


@pytest.mark.parametrize("complaint", LOST)
def test_where_it_fails_for_longer_systemd_is_unread(programs: Programs, complaint: str) -> None:
    programs.program("systemctl", fails(99, complaint, arguments="'show x'"))
    part = 'said=$(systemctl show x 2>/dev/null); say unit "$said"'
    lines, seconds = programs.inspect(part)
    assert sorted(lines) == ["unit\t", "unread\tsystemd"]
    assert seconds < 10


def test_a_systemd_that_hangs_is_asked_once(programs: Programs) -> None:
    programs.program("systemctl", "exec sleep 30")
    call = 'say unit "$(systemctl show x 2>/dev/null)"\n'
    lines, seconds = programs.inspect(call * 5)
    assert lines == ["unread\tsystemd"]
    assert programs.calls("systemctl") == ["show -P Version"]
    assert seconds < 10


@pytest.mark.parametrize(
    ("code", "out", "complaint"),
    [
        (3, "inactive", ""),
        (4, "inactive", ""),
        (1, "disabled", ""),
        (1, "", "Failed to get unit file state for x.service: No such file or directory"),
        (1, "", "Failed to get properties: Unit name llama-@.service is neither a valid invocation ID nor unit name."),
        (5, "", "Failed to stop x.service: Unit x.service not loaded."),
        (1, "", "Job for x.service failed because the control process exited with error code."),
    ],
)
def test_what_systemd_responds_is_a_response(programs: Programs, code: int, out: str, complaint: str) -> None:
    programs.program("systemctl", f'[ "$1" != is-active ] || {{ echo "{out}"; echo "{complaint}" >&2; exit {code}; }}')
    lines, _ = programs.inspect('said=$(systemctl is-active x 2>/dev/null); say unit "$?" "$said"')
    assert lines == [f"unit\t{code}\t{out}"]
    assert programs.calls("systemctl").count("is-active x") == 1


def test_a_step_waits_for_a_start_that_systemd_lost_the_client_of(programs: Programs) -> None:
    """What is restarted is not stopped twice."""
    programs.program(
        "systemctl", "[ $nth -gt 1 ] || { echo 'Failed to wait for response: Connection reset by peer' >&2; exit 1; }"
    )
    ended = programs.step("systemctl restart llama-chat.service && echo started")
    assert (ended.stdout, ended.stderr) == ("started\n", "")
    assert programs.calls("systemctl") == ["restart llama-chat.service", "start llama-chat.service"]


def test_a_step_sees_what_a_unit_failed_by(programs: Programs) -> None:
    programs.program("systemctl", "echo out; echo 'Job for x.service failed.' >&2; exit 1")
    ended = programs.step('said=$(systemctl start x 2>/dev/null) || echo "$? $said"; systemctl start x')
    assert (ended.stdout, ended.stderr, ended.returncode) == ("1 out\nout\n", "Job for x.service failed.\n", 1)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("stop llama-chat", 300), ("compose -f x up -d --wait", 9000), ("import - base", 9000), ("pull -q image", 43200)],
)
def test_a_step_waits_for_docker_for_so_long_at_most(programs: Programs, words: str, seconds: int) -> None:
    """`timeout` is a fake that prints what it is to run."""
    programs.program("timeout", 'echo "$@"; exit 124')
    ended = programs.step(f"docker {words}")
    assert (ended.stdout, ended.returncode) == (f"{seconds} docker {words}\n", 124)


@pytest.mark.parametrize("parts", [["systemd"], ["Docker"], ["systemd", "Docker", "systemd"]])
def test_nothing_follows_from_an_inspection_that_something_did_not_respond_to(parts: list[str]) -> None:
    with pytest.raises(NotInspectedError) as caught:
        parse_state([*(f"unread\t{part}" for part in parts), "os\tdebian-13"])
    names = " and ".join(sorted(set(parts)))
    assert caught.value.message == f"{names} did not respond to the inspection, so what runs there is left as it is"
