"""The lock of the host as verbs hold and break it, on a played host and with real files and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.onhost import system
from llamaherd.onhost.posix import SHELLS_DESCRIPTOR
from llamaherd.onhost.releases import WriteInput, find_unsettled, write
from llamaherd.onhost.reservation import RUN_HELD, RunLockInput, Unlocked, hold_run, unlock
from llamaherd.onhost.system import FailedError, Host
from llamaherd.onhost.verbs import NoInput
from tests.support.played_host import PlayedHost
from tests.support.rigs import ROOT
from tests.support.stores import needs_root

GIVEN = RunLockInput("duo", "it's $(me) on `desk`", 60)
OTHER = "ann on laptop since 2026-11-28 09:00:00, process 77"


def test_the_lock_is_held_until_the_controller_ends() -> None:
    host = PlayedHost({}, lines=iter([None, "a line\n", None]))
    hold_run(GIVEN, host)
    assert host.values == [RUN_HELD]
    assert host.signed == {"run": "it's $(me) on `desk`"}
    assert host.log == ["", ""]
    assert not host.held


def test_a_run_that_changes_the_host_is_noted_until_it_stores_its_release() -> None:
    host = PlayedHost({}, lines=iter(["changing\n", None]))
    hold_run(GIVEN, host)
    assert find_unsettled(host) == "a run was interrupted"
    write(WriteInput('{"failed":[]}', "{}"), host)
    assert find_unsettled(host) == ""
    hold_run(GIVEN, PlayedHost({}, files=host.files, lines=iter([None])))
    assert find_unsettled(host) == "", "a run that changes nothing leaves nothing"


def test_a_failed_release_is_not_the_state_of_the_host_until_a_later_one_is_good() -> None:
    host = PlayedHost({})
    assert find_unsettled(host) == ""
    for failed, why in (([], ""), (["chat: no"], "release 2 failed"), ([], "")):
        write(WriteInput(json.dumps({"failed": failed}, separators=(",", ":")), "{}"), host)
        assert find_unsettled(host) == why
    assert host.names("/var/lib/llamaherd/releases") == [f"{n}.{end}" for n in (1, 2, 3) for end in ("json", "plan")]


def test_a_run_that_another_one_keeps_out_names_it() -> None:
    host = PlayedHost({}, holders={"run": OTHER}, lines=iter([None] * 1000))
    with pytest.raises(FailedError) as raised:
        hold_run(GIVEN, host)
    assert host.log == [f"waiting up to 60 s for another run, by {OTHER}"]
    assert raised.value.message == f"another run changes this host, by {OTHER}"
    assert raised.value.fix.endswith("if it is gone for good, `herd unlock duo` breaks its lock")
    assert 60 <= host.time < 65
    assert not host.values


def test_a_run_that_does_not_wait_reports_nothing_but_the_failure() -> None:
    host = PlayedHost({}, holders={"run": ""})
    with pytest.raises(FailedError, match="another run changes this host, by a run that has just begun"):
        hold_run(RunLockInput("duo", "tom", 0), host)
    assert not host.log


def test_a_controller_that_ends_while_it_waits_gets_no_lock() -> None:
    host = PlayedHost({}, holders={"run": OTHER}, lines=iter([None]))
    hold_run(GIVEN, host)
    assert not host.values
    assert not host.held


def test_a_lock_that_becomes_free_is_taken() -> None:
    class Host(PlayedHost):
        def next_line(self, seconds: float) -> str | None:
            self.holders.clear()
            return super().next_line(seconds)

    host = Host({}, holders={"run": OTHER}, lines=iter([None]))
    hold_run(GIVEN, host)
    assert host.values == [RUN_HELD]


def played(*, holder: str, path: str = "/run/llamaherd/locks/run") -> PlayedHost:
    """Return a host on which process 77 has a file open."""
    return PlayedHost({}, holders={"run": holder}, links={"/proc/77/fd/9": path, "/proc/77/fd/1": "pipe:[3]"})


def test_a_free_lock_is_not_broken() -> None:
    host = PlayedHost({})
    assert unlock(NoInput(), host) == Unlocked("free")
    assert not host.killed


def test_the_holder_is_killed() -> None:
    host = played(holder=OTHER)
    assert unlock(NoInput(), host) == Unlocked("broken", OTHER)
    assert host.killed == [77]


@pytest.mark.parametrize("holder", ["", "tom", f"{OTHER}; reboot", "process 77 since 09:00:00: a change", "process -1"])
def test_a_holder_that_names_no_process_is_not_killed(holder: str) -> None:
    host = played(holder=holder)
    assert unlock(NoInput(), host) == Unlocked("held", holder)
    assert not host.killed


def test_a_process_that_does_not_hold_the_lock_is_not_killed() -> None:
    host = played(holder=OTHER, path="/run/llamaherd/locks/host")
    assert unlock(NoInput(), host) == Unlocked("broken", OTHER)
    assert not host.killed


def test_a_holder_that_no_signal_ends_keeps_the_lock() -> None:
    class Host(PlayedHost):
        def kill(self, pid: int) -> None:
            self.killed.append(pid)

    host = Host({}, holders={"run": OTHER}, links=played(holder=OTHER).links)
    assert unlock(NoInput(), host) == Unlocked("held", OTHER)
    assert host.killed == [77]
    assert 5 <= host.time < 6


# --- with real files and processes


SHELL = """\
locks=$1
mkdir -p "$locks" && chmod 700 "$locks" && : >>"$locks/run" && exec 9<>"$locks/run"
flock -n 9 || { echo "busy: $(cat "$locks/run")"; exit 1; }
printf '%s since %s, process %s\\n' 'tom on desk' "$(date +'%F %T')" $$ >"$locks/run"
echo held
while read -r _; do :; done
: >"$locks/run"
"""
"""As the last version holds the lock."""
UNLOCK = """\
locks=$1
exec 9<>"$locks/run"
flock -n 9 && { echo free; exit; }
by=$(cat "$locks/run")
pid=${by##* process }
readlink "/proc/$pid/fd/9" | grep -Fqx "$locks/run" || { echo "not held by $pid"; exit 1; }
echo "held by $pid"
"""
"""As the last version finds the holder of a lock."""


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have locks in a folder of the test."""
    monkeypatch.setattr(system, "LOCKS", str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def run_of_the_last_version(locks: Path) -> Iterator[subprocess.Popen[str]]:
    """Have a shell script hold the lock."""
    command = ["sh", "-c", SHELL, "sh", str(locks)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    yield process
    process.communicate()


RUN = """\
import sys
from llamaherd.onhost import system
from llamaherd.onhost.reservation import RunLockInput, hold_run
system.LOCKS = sys.argv[1]
write = lambda value: print(value, flush=True)
hold_run(RunLockInput("duo", "ann's $(desk)", 60), system.Host(write, write, write))
"""


@pytest.mark.usefixtures("starts_processes")
def test_runs_of_both_versions_exclude_each_other(locks: Path, run_of_the_last_version: subprocess.Popen[str]) -> None:
    last = run_of_the_last_version
    with pytest.raises(FailedError, match=rf"by tom on desk since .*, process {last.pid}$"):
        hold_run(RunLockInput("duo", "ann", 0), Host(print, print))
    command = [sys.executable, "-c", RUN, str(locks)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as waiting:
        assert waiting.stdout
        assert waiting.stdout.readline().startswith("waiting up to 60 s for another run, by tom on desk since ")
        last.communicate()
        assert waiting.stdout.readline() == f"{RUN_HELD}\n"
        assert output(SHELL, locks).startswith("busy: ann's $(desk) since ")
        assert output(UNLOCK, locks) == f"held by {waiting.pid}\n"
        waiting.communicate()
    assert (locks / "run").read_text() == ""
    assert output(UNLOCK, locks) == "free\n"


def output(script: str, locks: Path) -> str:
    """Return what a shell script of the last version prints."""
    return subprocess.run(["sh", "-c", script, "sh", str(locks)], stdout=subprocess.PIPE, text=True, check=False).stdout


@pytest.mark.usefixtures("starts_processes")
def test_the_lock_of_a_run_of_the_last_version_is_broken(run_of_the_last_version: subprocess.Popen[str]) -> None:
    host = Host(print, print)
    # A killed process of this test is a process until the test has waited for it, but has no file open.
    broken = unlock(NoInput(), host)
    assert (broken.state, broken.holder.split()[-1]) == ("broken", str(run_of_the_last_version.pid))
    assert run_of_the_last_version.wait(30) == -9
    assert unlock(NoInput(), host) == Unlocked("free")
    host.kill(run_of_the_last_version.pid)


def test_a_lock_has_the_descriptor_that_the_last_version_looks_at(locks: Path) -> None:
    """If it is free."""
    with Host(print, print).lock_file("run") as lock:
        mine = [each.name for each in Path("/proc/self/fd").iterdir() if os.path.realpath(each) == lock.path]
        assert len(mine) == 1
        assert int(mine[0]) >= SHELLS_DESCRIPTOR
        assert not os.get_inheritable(int(mine[0]))
    assert oct((locks / "run").stat().st_mode & 0o777) == "0o600"


@needs_root
@pytest.mark.parametrize("made", ["of others", "a link", "a file", "of another user"])
def test_a_folder_that_others_can_write_to_is_refused(made: str, locks: Path) -> None:
    if made == "of others":
        locks.mkdir()
        locks.chmod(0o777)
    elif made == "a link":
        (locks.parent / "elsewhere").mkdir(mode=0o700)
        locks.symlink_to(locks.parent / "elsewhere")
    elif made == "a file":
        locks.write_text("")
    else:
        locks.mkdir(mode=0o700)
        os.chown(locks, 65534, 65534)
    with pytest.raises(FailedError, match="must be a folder of root"), Host(print, print).lock_file("run"):
        pass
    assert not (locks / "run").exists()
