"""The host that the program runs on: real files, programs and locks, also where a process is killed in the middle."""

from __future__ import annotations

import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given

from llamaherd.onhost import posix, system
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.posix import MOST_OUTPUT, MOST_STREAMED
from llamaherd.onhost.reservation import receive, take_within
from llamaherd.onhost.system import MOST_LINE, NOT_STARTED, TIMED_OUT, Ended, Entry, FailedError, Host, System
from tests.support.inputs import TEXTS
from tests.support.rigs import ROOT
from tests.support.stores import needs_root

STARTS = pytest.mark.usefixtures("starts_processes")
ME = pwd.getpwuid(os.geteuid()).pw_name


@dataclass
class Lines:
    """What a host reports and warns of."""

    reported: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)


@pytest.fixture
def lines() -> Lines:
    """Return an empty record."""
    return Lines()


@pytest.fixture
def host(lines: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return a host whose locks are in a folder of the test."""
    monkeypatch.setattr(system, "LOCKS", tmp_path / "run" / "locks")
    monkeypatch.setattr(system, "POLL_SECONDS", 0.02)
    return Host(lines.reported.append, lines.warned.append)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Have the umask of the program."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    """Return the permission bits of a path."""
    return stat.S_IMODE(path.lstat().st_mode)


def test_it_is_a_system(host: Host, lines: Lines) -> None:
    each: System = host
    each.report("a")
    each.warn("b")
    assert (lines.reported, lines.warned) == (["a"], ["b"])
    began, clock = each.now(), each.clock()
    each.sleep(0.01)
    assert began + 0.01 <= each.now() < began + 60
    assert abs(clock - time.time()) < 60


# --- programs ------------------------------------------------------------------------------------------------


@STARTS
def test_a_program(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    ended = host.run(["sh", "-c", "cat; echo $LC_ALL; echo oh >&2; exit 3"], text="ä\n")
    assert ended == Ended(3, "ä\nC\n", "oh\n")
    assert not ended.ok
    assert host.run(["true"]).ok
    assert host.run(["/usr/bin/env"], environment={"A": "b c"}).out == "A=b c\n"


@STARTS
def test_no_shell_reads_an_argument(host: Host) -> None:
    hostile = "$(id) `id`; 'a' \"b\" *\n\\"
    assert host.run(["printf", "%s", hostile]).out == hostile


@STARTS
def test_a_program_that_is_missing_or_is_none(host: Host, tmp_path: Path) -> None:
    assert host.run(["/nonexistent/a"]) == Ended(NOT_STARTED, "", "/nonexistent/a: No such file or directory")
    (tmp_path / "a").write_text("")
    ended = host.run([str(tmp_path / "a")])
    assert (ended.code, ended.err) == (NOT_STARTED, f"{tmp_path}/a: Permission denied")


@STARTS
def test_a_program_that_hangs_is_ended(host: Host) -> None:
    began = time.monotonic()
    ended = host.run(["sh", "-c", "trap '' TERM INT; echo begun; sleep 20 & wait; sleep 20"], seconds=0.5)
    assert (ended.code, ended.out) == (TIMED_OUT, "begun\n")
    assert time.monotonic() - began < 10


@STARTS
def test_a_program_that_no_signal_ends_is_left_behind(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that hangs in a driver of the kernel: here it is simply not killed."""
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    monkeypatch.setattr(posix, "PIPE_SECONDS", 0.2)
    began = time.monotonic()
    ended = host.run(["sh", "-c", "echo begun; exec sleep 4"], seconds=0.3)
    assert (ended.code, ended.out) == (TIMED_OUT, "begun\n")
    assert time.monotonic() - began < 3.5


@STARTS
def test_what_a_program_prints_last_is_kept(host: Host) -> None:
    ended = host.run(["sh", "-c", f"printf first; head -c {MOST_OUTPUT} /dev/zero | tr '\\0' a; printf '\\377last'"])
    assert len(ended.out) == MOST_OUTPUT
    assert ended.out.endswith("aa\N{REPLACEMENT CHARACTER}last")
    assert "first" not in ended.out


# --- files ---------------------------------------------------------------------------------------------------


@STARTS
def test_a_program_appends_to_a_log_while_it_runs(host: Host, tmp_path: Path) -> None:
    log = tmp_path / "log" / "a log"
    assert host.run_logged(["printf", "%s\\n", "$(id)"], str(log), seconds=60) == Ended(0, "$(id)\n")
    script = f"read x; echo $LC_ALL; grep -c id '{log}'; echo oh >&2; exit 3"
    assert host.run_logged(["sh", "-c", script], str(log), seconds=60) == Ended(3, "C\n1\noh\n")
    assert log.read_text() == "$(id)\nC\n1\noh\n"
    assert (mode(log), mode(log.parent)) == (0o644, 0o755)


@STARTS
def test_a_logged_program_is_heard_while_it_runs(host: Host, tmp_path: Path) -> None:
    log, heard = tmp_path / "log", list[str]()
    log.write_text("of an earlier run\n")
    go = tmp_path / "go"

    def hear(text: str) -> None:
        heard.append(text)
        if "first" in text:
            go.touch()

    script = f"echo first; while [ ! -e '{go}' ]; do sleep 0.1; done; echo second; sleep 2; echo third"
    assert host.run_logged(["sh", "-c", script], str(log), seconds=60, heard=hear) == Ended(0, "first\nsecond\nthird\n")
    assert "".join(heard).startswith("first\nsecond\n")
    assert host.run_logged(["sleep", "60"], str(log), seconds=0.1, heard=hear).code == TIMED_OUT


@STARTS
def test_a_logged_program_that_hangs_or_is_missing(host: Host, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    began = time.monotonic()
    assert host.run_logged(["sh", "-c", "echo first; sleep 60"], log, seconds=1) == Ended(TIMED_OUT, "first\n")
    assert time.monotonic() - began < 30
    missing = host.run_logged(["/no/such/program"], log, seconds=1)
    assert (missing.code, missing.out) == (NOT_STARTED, "/no/such/program: No such file or directory")


def test_a_log_that_is_a_link_is_not_written(host: Host, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        host.run_logged(["true"], str(tmp_path / "log"), seconds=1)
    assert not (tmp_path / "elsewhere").exists()


@given(text=TEXTS)
def test_a_file_has_the_text_that_was_written(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = str(tmp_path_factory.mktemp("files") / "a")
    each = Host(print, print)
    each.write(path, text, owner=ME)
    assert each.read(path) == text


def test_a_file_has_its_mode_and_its_folders_are_open(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "one" / "two" / "file"
    host.write(str(path), "a", mode=0o644, owner=ME)
    assert (path.read_text(), mode(path)) == ("a", 0o644)
    assert [mode(each) for each in path.parents[:2]] == [0o755, 0o755]
    host.write(str(path), "b", owner=ME)
    assert (path.read_text(), mode(path)) == ("b", 0o600)
    assert host.names(str(path.parent)) == ["file"]
    assert host.entry(str(path)) == Entry("file", 0o600, ME, 1)


@needs_root
@pytest.mark.parametrize("owner", ["daemon", "2010000007"])
def test_a_file_has_its_owner_and_so_has_a_copy(owner: str, host: Host, tmp_path: Path) -> None:
    path, copy = str(tmp_path / "key"), str(tmp_path / "kept" / "key")
    host.write(path, "a key", mode=0o400, owner=owner)
    host.copy(path, copy)
    for each in (path, copy):
        assert host.entry(each) == Entry("file", 0o400, owner, 5)
    assert mode(tmp_path / "kept") == 0o755


def test_an_owner_that_is_missing_leaves_the_file(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(OSError, match="there is no account nobody-here"):
        host.write(str(tmp_path / "file"), "new", owner="nobody-here")
    assert host.names(str(tmp_path)) == ["file"]
    assert host.read(str(tmp_path / "file")) == "old"


def test_a_link_is_replaced_and_not_followed(host: Host, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("victim")
    (tmp_path / "file").symlink_to("victim")
    (tmp_path / "file.llamaherd-new").symlink_to("victim")
    host.write(str(tmp_path / "file"), "new", owner=ME)
    assert (tmp_path / "victim").read_text() == "victim"
    assert host.entry(str(tmp_path / "file")) == Entry("file", 0o600, ME, 3)


def test_what_is_missing(host: Host, tmp_path: Path) -> None:
    path = str(tmp_path / "nothing")
    assert (host.read(path), host.target(path), host.names(path), host.entry(path)) == (None, "", [], None)
    host.remove(path)
    with pytest.raises(FileNotFoundError):
        host.copy(path, str(tmp_path / "copy"))
    with pytest.raises(FileNotFoundError):
        host.rename(path, str(tmp_path / "other"))
    assert host.names(str(tmp_path)) == []


def test_so_much_of_a_file_is_read(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"ab\xffcd")
    assert host.read(str(tmp_path / "file"), 4) == "ab\N{REPLACEMENT CHARACTER}c"


def test_links(host: Host, tmp_path: Path) -> None:
    link = str(tmp_path / "last")
    (tmp_path / "last.new").symlink_to("of a run that was killed")
    for target in ("one", "two"):
        host.link(link, target)
        assert host.target(link) == target
    assert (host.entry(link) or Entry("")).kind == "link"
    assert host.names(str(tmp_path)) == ["last"]
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "file").write_text("kept")
    host.remove(link)
    assert host.names(str(tmp_path)) == ["two"]
    assert host.read(str(tmp_path / "two" / "file")) == "kept"


def test_folders(host: Host, tmp_path: Path) -> None:
    folder = str(tmp_path / "above" / "inside")
    host.folder(folder, mode=0o700)
    host.write(f"{folder}/file", "a", owner=ME)
    assert (mode(tmp_path / "above"), mode(Path(folder))) == (0o755, 0o700)
    host.folder(folder)
    assert host.entry(folder) == Entry("folder", 0o755, ME, Path(folder).stat().st_size)
    host.rename(folder, f"{folder}.old")
    assert host.names(str(tmp_path / "above")) == ["inside.old"]
    host.remove(str(tmp_path / "above"))
    assert host.names(str(tmp_path)) == []


def test_a_pipe_is_something_else(host: Host, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert host.entry(str(tmp_path / "pipe")) == Entry("other", 0o600, ME, 0)


KILLED = """
import os, signal, sys
from pathlib import Path
from llamaherd.onhost.system import Host
path, at, what = sys.argv[1:4]
def kill(*_): os.kill(os.getpid(), signal.SIGKILL)
places = {"fchown": os, "fchmod": os, "fsync": os, "replace": Path}
setattr(places[at], at, kill)
host = Host(print, print)
if what == "write":
    host.write(path, "new" * 100_000, owner=sys.argv[4])
elif what == "copy":
    host.copy(path + ".source", path)
else:
    host.link(path, "new")
"""


@pytest.mark.parametrize("what", ["write", "copy"])
@pytest.mark.parametrize("at", ["fchown", "fchmod", "fsync", "replace"])
def test_a_file_is_whole_where_the_program_is_killed(at: str, what: str, host: Host, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    (tmp_path / "file.source").write_text("new")
    assert child(KILLED, str(path), at, what, ME).returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    host.write(str(path), "newer", owner=ME)
    assert host.names(str(tmp_path)) == ["file", "file.source"]
    assert path.read_text() == "newer"


def test_a_link_points_somewhere_where_the_program_is_killed(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "last"
    path.symlink_to("old")
    assert child(KILLED, str(path), "replace", "link", ME).returncode == -signal.SIGKILL
    assert host.target(str(path)) == "old"
    host.link(str(path), "newer")
    assert host.target(str(path)) == "newer"


FULL = """
import resource, sys
from llamaherd.onhost.system import Host
path, what = sys.argv[1:3]
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
host = Host(print, print)
try:
    host.write(path, "new" * 10_000, owner=sys.argv[3]) if what == "write" else host.copy(path + ".source", path)
except OSError as error:
    sys.exit(f"{error.strerror}")
"""


@pytest.mark.parametrize("what", ["write", "copy"])
def test_a_disk_that_takes_no_more_leaves_the_file(what: str, host: Host, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    (tmp_path / "file.source").write_text("new" * 10_000)
    ended = child(FULL, str(path), what, ME)
    assert (ended.returncode, ended.stderr.strip()) == (1, "File too large")
    assert host.names(str(tmp_path)) == ["file", "file.source"]
    assert path.read_text() == "old"


def child(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


# --- locks ---------------------------------------------------------------------------------------------------


def free(path: Path) -> bool:
    """Return whether flock(1) could hold a lock."""
    return subprocess.run(["flock", "-n", str(path), "true"], check=False, timeout=60).returncode == 0


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Return the path of the lock `host`."""
    return tmp_path / "run" / "locks" / "host"


def test_a_lock_is_that_of_shell_scripts(host: Host, lock: Path) -> None:
    with host.lock("host", 1, "starting llama-chat") as waited:
        assert not waited
        assert not free(lock)
        assert lock.read_text().startswith(f"process {os.getpid()} since ")
        assert lock.read_text().endswith(": starting llama-chat\n")
    assert free(lock)
    assert (mode(lock.parent), mode(lock.parent.parent)) == (0o700, 0o755)


def test_a_lock_is_free_after_a_failure(host: Host, lock: Path) -> None:
    with pytest.raises(KeyError), host.lock("host", 1, "failing"):
        raise KeyError
    assert free(lock)


@pytest.fixture
def held_by_script(host: Host, lock: Path) -> Iterator[Callable[[], object]]:
    """Have a shell script hold the lock, and return what ends it."""
    with host.lock("host", 1, "making the folder"):
        pass
    script = 'exec 8<>"$1"; flock 8; echo "process 7 since 09:00:00: a script" >"$1"; echo held; read -r line'
    with subprocess.Popen(
        ["sh", "-c", script, "sh", str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "held\n"
        yield process.stdin.close


def test_a_lock_that_a_script_holds(host: Host, lock: Path, lines: Lines, held_by_script: Callable[[], object]) -> None:
    with pytest.raises(FailedError) as raised, host.lock("host", 0.1, "waiting in vain"):
        raise AssertionError
    assert raised.value.message == (f"after 0 s another run still holds {lock}: process 7 since 09:00:00: a script")
    assert raised.value.fix == "check with `ps` whether it works or hangs, wait or end it, and run again"
    assert lines.reported == ["waiting for another run, for up to 0 s: process 7 since 09:00:00: a script"]
    held_by_script()


def test_a_lock_that_a_script_gives_back(
    host: Host, lines: Lines, monkeypatch: pytest.MonkeyPatch, held_by_script: Callable[[], object]
) -> None:
    monkeypatch.setattr(host, "sleep", lambda _: held_by_script())
    with host.lock("host", 60, "waiting") as waited:
        assert waited
    assert len(lines.reported) == 1


HOLDS = """
import sys
from pathlib import Path
from llamaherd.onhost import system
system.LOCKS = Path(sys.argv[1])
with system.Host(print, print).lock("host", 1, "starting llama-chat"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_of_a_program_that_was_killed_is_free(host: Host, lock: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(lock.parent)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        assert not free(lock)
        process.kill()
        process.wait()
    with host.lock("host", 0, "after it") as waited:
        assert not waited


def test_what_was_started_meanwhile_holds_the_lock_until_it_ends(host: Host, lock: Path) -> None:
    """Such as Compose, where the program was killed: the next run waits for it."""
    with host.lock("host", 1, "starting a container"):
        pid = host.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]).out
    assert not free(lock)
    os.kill(int(pid), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while not free(lock):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_late_program_has_started_ends_with_it(host: Host, tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! >{tmp_path}/child; wait"
    for seconds in (0.5, 5, 50):  # a busy machine may not have started it yet
        assert host.run(["sh", "-c", script], seconds=seconds).code == TIMED_OUT
        if (tmp_path / "child").exists():
            break
    child = (tmp_path / "child").read_text().strip()
    until = time.monotonic() + 20  # a busy machine takes its time to end a killed process
    while (alive := _state(child) not in ("", "Z")) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive


def _state(pid: str) -> str:
    """Return the state of a process; empty where there is none."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.parametrize("wrong", ["mode", "link", "file"])
def test_locks_are_in_a_folder_of_root_alone(wrong: str, host: Host, lock: Path, tmp_path: Path) -> None:
    lock.parent.parent.mkdir()
    match wrong:
        case "mode":
            lock.parent.mkdir()
            lock.parent.chmod(0o755)
        case "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            lock.parent.symlink_to(tmp_path / "elsewhere")
        case "file":
            lock.parent.write_text("")
    with (
        pytest.raises(FailedError, match="must be a folder of root with mode 0700, for locks"),
        host.lock("host", 1, ""),
    ):
        raise AssertionError


# --- processes -----------------------------------------------------------------------------------------------


def test_processor_time_of_a_process_and_its_control_group(host: Host) -> None:
    """Other processes of the group come and go: this one's time is in it all the same."""
    own = time.process_time()
    assert host.computed(os.getpid()) >= own - 0.1
    assert host.computed(0) == 0.0


def test_time_that_threads_wait_for_a_processor(host: Host) -> None:
    """Three processes on one processor: each waits for two thirds of the time."""
    busy = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(3)]
    try:
        least, until = host.waited(os.getpid()), time.monotonic() + 60
        # Other processes of the group end, and take their time away.
        while (waited := host.waited(os.getpid())) - least <= 0.5:
            least = min(least, waited)
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        for each in spinning:
            each.kill()
            each.wait()
    assert host.waited(0) == 0.0


def test_where_the_program_is(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["0.pyz", "a"])
    assert host.program == f"{tmp_path}/0.pyz"


def test_an_error_that_names_no_file_is_not_reported_as_one_of_a_disk() -> None:
    failure = cannot_write(PermissionError(1, "Operation not permitted"))
    assert (failure.message, failure.fix) == ("Operation not permitted", "")


# --- a controller that is talked to --------------------------------------------------------------------------


@STARTS
def test_a_program_of_windows_driver_is_found(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "WSL_PROGRAMS", str(tmp_path / "wsl"))
    (tmp_path / "wsl").mkdir()
    program = tmp_path / "wsl" / "windows-driver"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    assert host.run(["windows-driver"]) == Ended(0, "found\n", "")


LOCKED = """
import pathlib, subprocess, sys, time
from llamaherd.onhost import system
system.LOCKS = pathlib.Path(sys.argv[1])
host = system.Host(print, print)
with host.lock_file("measure") as lock, host.lock("host", 0, "a test"):
    lock.take()
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    print(child.pid, flush=True)
    time.sleep(60)
"""


@STARTS
def test_a_killed_process_leaves_no_lock_file_to_what_it_started(host: Host, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOCKED, str(tmp_path / "run" / "locks")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as holds:
        assert holds.stdout
        child = int(holds.stdout.readline())
        try:
            with host.lock_file("measure") as lock:
                assert not lock.take()
            holds.kill()
            holds.wait()
            with host.lock_file("measure") as lock:
                # The kernel closes the child's copy a moment after the child has started.
                assert take_within(lock, 10, host)
            # A lock of the host stays with the child, which may still change the host.
            with pytest.raises(FailedError), host.lock("host", 0, "another test"):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_lines_of_the_controller(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(write, "start A\n\nä ".encode() + b"\xff\nbegun")
        assert [host.next_line(1) for _ in range(3)] == ["start A\n", "\n", "ä \ufffd\n"]
        assert host.next_line(0) is None
        os.write(write, b" and ended\n")
        assert receive(host) == "begun and ended"
        os.close(write)
        assert receive(host) is None


# --- files that arrive ---------------------------------------------------------------------------------------


def test_a_file_that_arrives_is_appended_to_and_renamed(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = tmp_path / "a file.part"
    content = os.urandom(3 * MOST_LINE)
    (tmp_path / "stdin").write_bytes(content)
    with (tmp_path / "stdin").open() as stdin, host.partial_file(str(part)) as file:
        monkeypatch.setattr(sys, "stdin", stdin)
        part.write_bytes(b"begun")
        assert (file.take(), file.is_in_place(), file.size(), mode(part)) == (True, True, 5, 0o600)
        file.receive()
        assert file.size() == 5 + len(content)
        file.rename(str(tmp_path / "a file"))
        assert not file.is_in_place()
    assert not part.exists()
    assert (tmp_path / "a file").read_bytes() == b"begun" + content


def test_a_file_that_arrives_is_locked_by_one_program(host: Host, tmp_path: Path) -> None:
    path = str(tmp_path / "part")
    with host.partial_file(path) as other:
        assert other.take()
        with host.partial_file(path) as file:
            assert not file.take()
    with host.partial_file(path) as file:
        assert file.take()
        file.clear()
        (tmp_path / "part").rename(tmp_path / "moved")
        with host.partial_file(path) as new:
            assert new.take()
        assert not file.is_in_place()


def test_a_file_that_arrives_on_a_full_disk_is_named(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "part").symlink_to("/dev/full")
    (tmp_path / "stdin").write_text("x")
    with (tmp_path / "stdin").open() as stdin, host.partial_file(str(tmp_path / "part")) as file:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(OSError, match="No space left on device") as raised:
            file.receive()
    assert raised.value.filename == str(tmp_path / "part")


def test_a_line_of_the_controller_without_end_is_cut_off(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stdin").write_text("x" * (3 * MOST_LINE))
    with (tmp_path / "stdin").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        line = host.next_line(1)
    assert line
    assert len(line) <= 2 * MOST_LINE


def test_a_program_in_memory_can_be_copied(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where the disk had no room for it."""
    memory = os.memfd_create("program", 0)
    os.write(memory, b"the program")
    monkeypatch.setattr(sys, "argv", [f"/proc/self/fd/{memory}"])
    host.copy(host.program, str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == b"the program"
    os.close(memory)


# --- lines as they come ----------------------------------------------------------------------------------------------


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Return the controller's end of the program's stdin."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield writing
        with suppress(OSError):
            os.close(writing)


@STARTS
@pytest.mark.usefixtures("controller")
def test_lines_of_a_program_are_both_of_its_outputs(host: Host) -> None:
    script = f"echo one; echo two >&2; head -c {3 * MOST_STREAMED} /dev/zero | tr '\\0' x; echo; printf 'the end'"
    found = list(host.stream(["sh", "-c", script], seconds=60))
    assert [found[0], found[1], found[3]] == ["one", "two", "the end"]
    assert found[2] == "x" * MOST_STREAMED
    assert list(host.stream(["/nonexistent/program"])) == ["/nonexistent/program: No such file or directory"]


@STARTS
@pytest.mark.usefixtures("controller")
def test_a_program_that_does_not_end_is_killed(host: Host) -> None:
    began = time.monotonic()
    (pid,) = host.stream(["sh", "-c", "echo $$; exec sleep 600"], seconds=1)
    assert time.monotonic() < began + 30
    assert not Path(f"/proc/{pid}").exists()


@STARTS
def test_a_program_is_killed_once_the_controller_has_ended(host: Host, controller: int) -> None:
    lines = host.stream(["sh", "-c", "echo $$; echo more; exec sleep 600"])
    pid = next(lines)
    os.write(controller, b"ignored\n")
    assert next(lines) == "more"
    os.close(controller)
    assert list(lines) == []
    assert not Path(f"/proc/{pid}").exists()
