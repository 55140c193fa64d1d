"""The program that runs on hosts, by the shell of this machine: sent once, run each time, whatever cuts it off."""

from __future__ import annotations

import io
import json
import os
import random
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import pytest

from llamaherd.host import program as packing
from llamaherd.host.program import GO, MISSING, SEND, Events, Program, bootstrap, packed_program, request
from llamaherd.host.remote import Patience, RemoteError, Shell
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.inventory.schema.rig import OperatingSystem
from llamaherd.onhost.document import VERSION, dump
from llamaherd.resources import DOCS
from roles.serve.onhost.model import KeyRemovalInput
from tests.support.stores import needs_root

pytestmark = pytest.mark.usefixtures("starts_processes")

HERE = Connect(host=LOCAL)
ECHO = """\
import sys
document = sys.stdin.buffer.read()
print('{"event":"progress","text":"it begins"}')
print('{"event":"warning","text":"it is slow"}')
print(f'{{"event":"result","value":{len(document)}}}')
print(f'{{"event":"progress","text":"{sys.argv[0]}"}}')
"""
"""What a program of these tests does in the place of ours."""


PADDING = random.Random(0).randbytes(300_000)


def program_of(hash_: str, main: str) -> Program:
    """Return a program with this main module, and enough of another file that it comes in several pieces."""
    return Program(hash_, {"__main__.py": main.encode(), "padding": PADDING})


@dataclass
class Host:
    """A folder for programs on this machine, and what a run there printed."""

    folder: Path
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    def hear(self, stream: str, line: str) -> None:
        """Record a line."""
        (self.out if stream == "stdout" else self.err).append(line.rstrip("\n"))

    def run(self, program: Program, document: bytes = b"{}", *, keep: bool = True) -> int:
        """Run a program by a shell, as a run does. Return its exit code."""
        self.out.clear()
        self.err.clear()
        with Shell(HERE, root=False) as shell:
            return shell.run_program(program, document, Events(self.hear), Patience.within(60), keep=keep)

    @property
    def there(self) -> list[str]:
        """Return the names of the programs on this host."""
        return sorted(each.name for each in self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return a host without a program."""
    folder = tmp_path / "libexec" / "onhost"
    monkeypatch.setattr(packing, "PROGRAMS", folder)
    before = os.umask(0o077)
    yield Host(folder)
    os.umask(before)


ONE = program_of("0123456789abcdef", ECHO)
SIZE = b"%d\n" % len(ONE.data)


def test_the_first_run_sends_it_and_the_second_does_not(host: Host) -> None:
    path = host.folder / "0123456789abcdef.pyz"
    for _ in range(2):
        assert host.run(ONE, b"a document") == 0
        assert host.out == ["it begins", str(path)]
        assert host.err == ["it is slow"]
    assert host.there == [path.name]
    stored = zipfile.ZipFile(path)
    assert {name: stored.read(name) for name in ONE.sources} == ONE.sources
    assert {*stored.namelist()} == {*ONE.sources, "__main__.pyc"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    # A file that is there is the one that runs: nothing was sent the second time.
    path.write_bytes(program_of("4" * 16, "print('another')").data)
    assert host.run(ONE) == 0
    assert host.out == ["another"]


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_a_document_of_any_size_arrives(size: int, host: Host) -> None:
    counts = program_of("1" * 16, "import sys\nprint(len(sys.stdin.buffer.read()))")
    for _ in range(2):
        assert host.run(counts, b"a" * size) == 0
        assert host.out == [str(size)]


def test_the_newest_programs_stay(host: Host) -> None:
    for number in range(5):
        assert host.run(program_of(f"{number}" * 16, f"print({number})")) == 0
        os.utime(host.folder / f"{str(number) * 16}.pyz", (number, number))
    assert host.there == [f"{str(number) * 16}.pyz" for number in (2, 3, 4)]


def cut_off(program: Program, sent: bytes, *, keep: bool) -> subprocess.CompletedProcess[str]:
    """Run the bootstrap by a shell, and end the connection after these bytes."""
    with subprocess.Popen(
        ["sh", "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{{\n{bootstrap(program, keep=keep)}\n}}\n".encode())
        process.stdin.flush()
        first = process.stdout.readline().decode()
        out, err = process.communicate(sent, timeout=60)
    return subprocess.CompletedProcess([], process.returncode, first + out.decode(), err.decode())


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("sent", [0, 1, len(SIZE), len(SIZE) + 1, 70_000, len(SIZE + ONE.data) - 1])
def test_one_that_was_cut_off_leaves_nothing(sent: int, keep: bool, host: Host) -> None:
    ended = cut_off(ONE, (SIZE + ONE.data)[:sent], keep=keep)
    assert (ended.returncode, ended.stdout) == (1, f"{SEND}\n")
    assert ended.stderr == (
        "llamaherd: the connection ended while the program was sent\n  help: run the command again\n"
    )
    assert host.there == []
    assert host.run(ONE) == 0
    assert host.there == ["0123456789abcdef.pyz"]


def test_what_a_killed_run_has_left_is_no_obstacle(host: Host) -> None:
    host.folder.mkdir(parents=True)
    (host.folder / "0123456789abcdef.pyz.1").write_bytes(b"half of it")
    assert host.run(ONE) == 0
    assert host.out[0] == "it begins"


@needs_root
def test_a_folder_that_cannot_be_written_is_a_sentence(host: Host) -> None:
    host.folder.parent.mkdir(parents=True)
    host.folder.write_text("a file in its place")
    assert host.run(ONE) == 1
    assert host.err == [
        f"llamaherd: cannot write {host.folder}/0123456789abcdef.pyz: File exists",
        "  help: `df -h /opt` shows whether there is room",
    ]


def test_a_disk_that_takes_no_more_is_a_sentence(host: Host) -> None:
    script = f"ulimit -f 100\n{bootstrap(ONE, keep=True)}"
    ended = subprocess.run(["sh", "-c", script], input=SIZE + ONE.data, capture_output=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.decode().startswith(f"llamaherd: cannot write {host.folder}/{ONE.hash}.pyz: File too large\n")
    assert host.there == []


def test_a_command_that_changes_nothing_stores_nothing_on_a_host_that_is_not_set_up(host: Host) -> None:
    for _ in range(2):
        assert host.run(ONE, keep=False) == 0
        assert host.out[0] == "it begins"
        assert host.out[1].startswith("/proc/self/fd/")
        assert not host.folder.parent.exists()


def test_a_command_that_changes_nothing_stores_it_on_a_host_that_is_set_up(host: Host) -> None:
    host.folder.parent.mkdir()
    assert host.run(ONE, keep=False) == 0
    assert host.there == ["0123456789abcdef.pyz"]


def test_a_command_that_changes_nothing_needs_no_disk(host: Host) -> None:
    host.folder.parent.mkdir()
    host.folder.write_text("a file in its place")
    assert host.run(ONE, keep=False) == 0
    assert host.out[0] == "it begins"


def test_lines_that_are_no_events_are_shown_as_they_are(host: Host) -> None:
    odd = [
        "plain",
        "{broken",
        '{"event":"progress"}',
        '{"event":"progress","text":1}',
        '{"event":"error","message":"m","help":"h","log":1}',
        "[1]",
        "{" * 2000,
        '{"a":' * 2000 + "1" + "}" * 2000,
    ]
    prints = program_of("2" * 16, f"import sys\nsys.stdin.read()\nfor each in {odd!r}:\n    print(each)\nsys.exit(5)")
    assert host.run(prints) == 5
    assert (host.out, host.err) == (odd, [])


def test_one_that_ends_by_an_exception(host: Host) -> None:
    assert host.run(program_of("3" * 16, "raise SystemError('odd')")) == 1
    assert host.out == []
    assert host.err[-1] == "SystemError: odd"


def distribution() -> str:
    """Return the distribution of this machine, as its shell reads it."""
    script = '. /etc/os-release && echo "$ID-$VERSION_ID"'
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_a_host_without_python(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("sh", "id"):
        (tmp_path / "bin" / name).symlink_to(Path("/bin", name).resolve())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(RemoteError) as raised:
        host.run(ONE)
    assert raised.value.message == f"there is no python3 on this machine ({distribution()})"
    known = distribution() in get_args(OperatingSystem)
    assert raised.value.help.startswith("run `herd up`: it installs python3" if known else "use a host with one of")
    assert MISSING not in " ".join(host.out)


def test_a_host_with_an_old_python(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A python3 that reports another version of itself: the receiver decides before it compiles anything."""
    pretend = "import sys; sys.hexversion, sys.version = 0x030809F0, '3.8.9 (default)'; exec(sys.argv.pop(1))"
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -IS -c "{pretend}" "$3" "$4" "$5"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert host.run(ONE) == 1
    assert host.err == [
        "python3 there has version 3.8.9; llamaherd needs 3.10 or newer",
        "  help: upgrade its system: to Debian 12, Ubuntu 22.04 or newer",
    ]


def test_a_shell_that_ends_before_it(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert host.run(ONE) == 3
    assert host.there == []


def test_ours_refuses_another_version_and_an_unknown_verb(host: Host) -> None:
    program = packed_program()
    assert host.run(program, request("serve.removal.explode", KeyRemovalInput("a"))) == 2
    assert host.err == [
        "this version of the program has no verb `serve.removal.explode`",
        "  help: run `herd up` again: it sends its own version of the program",
    ]
    newer = dump({"version": VERSION + 1, "verb": "a.b", "input": {}}).encode()
    assert host.run(program, newer) == 2
    assert host.err[0] == "this program reads version 1 of documents alone"
    assert host.there == [f"{program.hash}.pyz"]


def test_it_is_packed_the_same_each_time() -> None:
    packed_program.cache_clear()
    first = packed_program()
    packed_program.cache_clear()
    assert packed_program() == first
    names = zipfile.ZipFile(io.BytesIO(first.data)).namelist()
    assert {"__main__.py", "llamaherd/onhost/verbs.py", "roles/serve/onhost/switch.py", "llamaherd/__init__.py"} <= {
        *names
    }
    assert not [name for name in names if "pyinfra" in name or name.startswith("tests")]


def test_a_role_of_a_fleet_brings_its_verbs(tmp_path: Path) -> None:
    """The example of docs/roles.md, in place of a role that is not ours; one of ours stays what it is."""
    page = (DOCS / "roles.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (code,) = (each for each in examples if "VERBS" in each)
    for name in ("motd", "base"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "onhost.py").write_text(code.replace("/etc/motd", str(tmp_path / "motd.txt")))
    program, ours = packed_program(tmp_path), packed_program()
    assert program.hash != ours.hash
    packed = tmp_path / "program.pyz"
    packed.write_bytes(program.data)
    document = json.dumps({"version": VERSION, "verb": "motd.show", "input": {"text": "welcome"}})
    ended = subprocess.run(
        [sys.executable, "-I", packed], input=document, capture_output=True, text=True, check=True, timeout=60
    )
    assert [json.loads(line)["event"] for line in ended.stdout.splitlines()] == ["progress", "result"]
    assert (tmp_path / "motd.txt").read_text() == "welcome"
    assert program.sources["roles/base/onhost.py"] == ours.sources["roles/base/onhost.py"]


def test_the_document_holds_the_secret_and_nothing_else_does() -> None:
    document = request("serve.removal.remove_key", KeyRemovalInput("a"))
    assert document == b'{"version":1,"verb":"serve.removal.remove_key","input":{"name":"a"}}'
    assert document.decode() not in bootstrap(ONE, keep=True)


def test_events() -> None:
    heard: list[tuple[str, str]] = []
    events = Events(lambda stream, line: heard.append((stream, line)))
    events.hear("stdout", '{"event":"result","value":[1]}\n')
    events.hear("stdout", '{"event":"error","message":"m","help":"","log":["l",2]}\n')
    events.hear("stderr", '{"event":"progress","text":"not an event there"}\n')
    events.hear("stdout", '{"event":"progress","text":"' + "a" * (9 << 20) + '"}\n')
    assert events.result == [1]
    assert heard[:2] == [("stderr", "l\n"), ("stderr", "2\n")]
    assert heard[2] == ("stderr", "m\n")
    assert heard[3] == ("stderr", '{"event":"progress","text":"not an event there"}\n')
    assert heard[4][1].startswith('{"event":"progress","text":"aaa')
    assert len(heard) == 5


def test_what_the_shell_prints_before_it() -> None:
    assert f"echo '{GO}'" in bootstrap(ONE, keep=True)
    assert f"echo '{SEND}'" in bootstrap(ONE, keep=True)
    assert f'echo "{MISSING}' in bootstrap(ONE, keep=True)
    assert sys.version_info >= (3, 10)
