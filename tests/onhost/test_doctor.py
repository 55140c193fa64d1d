"""What a diagnosis reads of a host besides the parts of roles."""

from __future__ import annotations

import pytest

from llamaherd.layout import EXCHANGE, LOCKS, RELEASES
from llamaherd.onhost.doctor import DiskSpace, DoctorInput, inspect
from llamaherd.onhost.status import ReleaseStatus
from llamaherd.onhost.system import TIMED_OUT, Ended
from tests.support.played_host import File
from tests.support.recording import RecordingHost

FAILED = "llama-chat.service loaded failed failed A model\nsmartd.service loaded failed failed Disks\n"
LOCK = str(LOCKS / "run")


def host_with(failed: Ended | None = None) -> RecordingHost:
    return RecordingHost({}, ends={"systemctl list-units": failed or Ended(0)})


def test_a_sound_host() -> None:
    host = host_with()
    host.folder("/")
    found = inspect(DoctorInput(("/", "/var/lib/docker")), host)
    assert found.disks == (DiskSpace("/", 1 << 40),)
    assert (found.failed, found.holder, found.interrupted, found.release) == ((), "", False, None)
    assert found.python.startswith("3.")


@pytest.mark.parametrize(
    ("ended", "failed"),
    [(Ended(0, FAILED), ("llama-chat.service", "smartd.service")), (Ended(TIMED_OUT), None), (Ended(1), None)],
)
def test_failed_units_and_a_systemd_that_does_not_respond(ended: Ended, failed: tuple[str, ...] | None) -> None:
    assert inspect(DoctorInput(), host_with(ended)).failed == failed


def test_the_newest_release_and_an_interrupted_run() -> None:
    host = host_with()
    host.files[f"{RELEASES}/2.json"] = File('{"at": "x"}')
    host.files[str(EXCHANGE / "journal")] = File("{}")
    found = inspect(DoctorInput(), host)
    assert found.release == ReleaseStatus(2, '{"at": "x"}')
    assert found.interrupted


def test_a_lock_is_held_by_a_process_that_has_it_open() -> None:
    """A run that was killed leaves its name in the file, and the lock is free."""
    host = host_with()
    host.files[LOCK] = File("tom on laptop, process 4711\n")
    assert inspect(DoctorInput(), host).holder == ""
    host.links["/proc/4711/fd/9"] = LOCK
    assert inspect(DoctorInput(), host).holder == "tom on laptop, process 4711"


def test_the_clock_is_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_with()
    monkeypatch.setattr(host, "clock", lambda: 12.5, raising=False)
    assert inspect(DoctorInput(), host).clock == 12.5
