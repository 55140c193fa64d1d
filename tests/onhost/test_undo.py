"""Undos that a host runs by itself: a timer and a login move one file, and the first decides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llamaherd.layout import UNDO_RUN
from llamaherd.onhost import undo
from llamaherd.onhost.system import Ended, FailedError, Host
from llamaherd.onhost.undo import UNDONE, DisarmInput, arm, arm_within, disarm, forget_undone, undoing
from roles.container_runtime.onhost import UndoInstallInput
from tests.support.played_host import File
from tests.support.service_host import ServiceHost, killed_everywhere

PATH = f"{UNDO_RUN}/docker"
GIVEN = UndoInstallInput(("docker0",))
LOGIN = DisarmInput("docker", 300)


def armed(**more: Any) -> ServiceHost:
    """Return a host with an armed undo."""
    host = ServiceHost({}, **more)
    arm(host, "docker", 900, "container_runtime.undo_install", GIVEN)
    return host


def timers(host: ServiceHost) -> list[str]:
    """Return after how many seconds timers were started."""
    return [word for each in host.done if each[0] == "systemd-run" for word in each if word.startswith("--on-active")]


def test_an_undo_is_a_document_and_a_timer() -> None:
    host = armed()
    assert json.loads(host.files[PATH].text) == {
        "version": 1,
        "verb": "container_runtime.undo_install",
        "input": {"bridges": ["docker0"]},
    }
    assert host.files[PATH].mode == 0o600
    assert host.done[-1] == [
        *("systemd-run", "-q", "--collect", "--unit=llamaherd-undo-docker", "--on-active=900"),
        *("--timer-property=AccuracySec=1s", "/usr/bin/python3", "-I", host.program, PATH),
    ]
    assert host.index("stop", "llamaherd-undo-docker.timer") < host.index("systemd-run")


def test_an_undo_is_armed_again_in_place_of_an_earlier_one() -> None:
    host = ServiceHost({}, files={PATH: File("#!/bin/sh"), f"{PATH}.undone": File("")})
    arm(host, "docker", 900, "a.b", GIVEN)
    arm_within(host, "docker", 120)
    assert timers(host) == ["--on-active=900", "--on-active=120"]
    assert not host.entry(f"{PATH}.undone")


def test_an_undo_that_has_begun_is_not_armed_again() -> None:
    host = ServiceHost({}, files={f"{PATH}.begun": File("")})
    arm_within(host, "docker", 120)
    assert host.done == []


@pytest.mark.parametrize("more", [{"ends": {"systemd-run": Ended(1, "", "no bus\n")}}, {"full": PATH}])
def test_what_cannot_be_armed_is_not_changed(more: dict[str, Any]) -> None:
    with pytest.raises(FailedError, match=r"the timer llamaherd-undo-docker cannot|nothing was changed"):
        armed(**more)


def test_a_login_disarms() -> None:
    host = armed()
    disarm(LOGIN, host)
    assert host.names(str(UNDO_RUN)) == []
    assert host.log == []
    with undoing(host, "docker") as is_due:
        assert not is_due
    disarm(LOGIN, host)
    assert host.log == []


def test_an_undo_is_reported_to_the_login_that_was_too_late() -> None:
    host = armed()
    with undoing(host, "docker") as is_due:
        assert is_due
        assert host.names(str(UNDO_RUN)) == ["docker.begun"]
    disarm(LOGIN, host)
    assert host.log == [UNDONE]
    assert host.names(str(UNDO_RUN)) == []


def test_a_login_waits_for_an_undo_that_has_begun() -> None:
    class Undoing(ServiceHost):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.time > 40 and self.entry(f"{PATH}.begun"):
                self.rename(f"{PATH}.begun", f"{PATH}.undone")

    host = Undoing({}, files={f"{PATH}.begun": File("")})
    disarm(LOGIN, host)
    assert host.log == [UNDONE]


def test_a_login_does_not_wait_for_ever() -> None:
    host = ServiceHost({}, files={f"{PATH}.begun": File("")})
    disarm(LOGIN, host)
    assert host.log == []
    assert 300 <= host.time < 310


def test_an_undo_that_fails_has_ended() -> None:
    host = armed()
    with pytest.raises(FailedError), undoing(host, "docker"):
        raise FailedError("no")
    assert host.names(str(UNDO_RUN)) == ["docker.undone"]
    forget_undone(host, "docker")
    assert host.names(str(UNDO_RUN)) == []


def test_a_file_that_another_program_moves_first_is_not_ours() -> None:
    @dataclass
    class Late(ServiceHost):
        def rename(self, path: str, to: str) -> None:
            del to
            raise FileNotFoundError(2, "No such file or directory", path)

    host = Late({}, files={PATH: File("")})
    with undoing(host, "docker") as is_due:
        assert not is_due


def test_a_killed_login_is_completed_by_the_next() -> None:
    for host in killed_everywhere(armed, lambda host: disarm(LOGIN, host)):
        assert not host.entry(PATH)
        assert host.log == []


def test_timer_and_login_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "UNDO_RUN", tmp_path)

    class Quiet(Host):
        def run(self, argv: Sequence[str], **more: Any) -> Ended:
            del argv, more
            return Ended(0)

    lines: list[str] = []
    host = Quiet(lines.append, lines.append)
    arm(host, "docker", 900, "a.b", GIVEN)
    with undoing(host, "docker") as first, undoing(host, "docker") as second:
        assert (first, second) == (True, False)
    disarm(LOGIN, host)
    assert lines == [UNDONE]
    assert list(tmp_path.iterdir()) == []
