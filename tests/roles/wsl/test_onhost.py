"""WSL's verbs: files that the user has a share of, on disks where neither owners nor modes can be set."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, Host
from llamaherd.onhost.verbs import NoInput, find_verb
from roles.wsl.onhost import BACKUP, FilesInput, WindowsFile, require_systemd, write
from tests.support.hostile import PLAIN

STARTS = pytest.mark.usefixtures("starts_processes")
MINE, OURS = "[wsl2]\r\nmemory=8GB\r\n", "[wsl2]\r\nmemory=64GB\r\n"


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Have the umask of the program."""
    before = os.umask(0o077)
    yield
    os.umask(before)


class WindowsDisk(Host):
    """A host on whose files no owner and no mode can be set, and which can be killed before each of its programs."""

    def __init__(self, ends: dict[str, Ended] | None = None) -> None:
        super().__init__(print, print)
        self.ends = ends or {}

    def run(self, argv: Any, **more: Any) -> Ended:
        """Refuse chmod and chown, and run the rest."""
        found = next((ended for begins, ended in self.ends.items() if begins in " ".join(argv)), None)
        if argv[0] in ("chmod", "chown"):
            return Ended(1, "", "Operation not permitted\n")
        return found or super().run(argv, **more)


def kept(path: Path, before: str | None = MINE) -> WindowsFile:
    """Return a file that the user has a share of."""
    digest = "" if before is None else hashlib.sha256(before.encode()).hexdigest()
    return WindowsFile(str(path), OURS, kept=True, before=digest)


@STARTS
def test_a_file_is_written_with_a_backup_where_no_mode_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / ".wslconfig"
    path.write_bytes(MINE.encode())
    document = parse_document(dump(FilesInput((kept(path),), ())).encode())
    find_verb("wsl.write").run(decode(FilesInput, document), WindowsDisk())
    assert path.read_bytes().decode() == OURS
    assert Path(f"{path}{BACKUP}").read_bytes().decode() == MINE
    assert sorted(each.name for each in tmp_path.iterdir()) == [".wslconfig", f".wslconfig{BACKUP}"]


@STARTS
def test_a_new_file_and_its_folder_are_readable(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "llamaherd" / "autostart.ps1"
    write(FilesInput((WindowsFile(str(path), "x", kept=False, before=""),), ()), Host(print, print))
    assert [each.stat().st_mode & 0o777 for each in (path, path.parent, path.parent.parent)] == [0o644, 0o755, 0o755]


@STARTS
def test_a_script_that_is_of_no_use_goes_with_its_mark(tmp_path: Path) -> None:
    for name in ("a.ps1", "a.applied", "b.ps1"):
        (tmp_path / name).write_text("x")
    write(FilesInput((), (f"{tmp_path}/a.ps1", f"{tmp_path}/c.ps1")), Host(print, print))
    assert [each.name for each in tmp_path.iterdir()] == ["b.ps1"]
    (tmp_path / "file").write_text("")
    (tmp_path / "d.ps1").mkdir()
    (tmp_path / "d.ps1" / "x").symlink_to("y")

    class Refusing(Host):
        def remove(self, path: str) -> None:
            raise OSError(13, "Permission denied", path)

    with pytest.raises(FailedError, match=r"cannot remove .*/d\.ps1: Permission denied"):
        write(FilesInput((), (f"{tmp_path}/d.ps1",)), Refusing(print, print))


@STARTS
@pytest.mark.parametrize(
    ("ends", "why"),
    [
        (
            {"mkdir -p": Ended(1, "", "mkdir: x: Read-only file system\n")},
            "Read-only file system",
        ),
        ({"cp ": Ended(1, "", "cp: No space left on device\n")}, "No space left on device"),
        ({"cat >": Ended(1, "", "sh: 1: cannot create x: Permission denied\n")}, "Permission denied"),
        ({"cat >": Ended(TIMED_OUT)}, "it takes too long"),
        ({"readlink": Ended(1)}, "its folder cannot be read"),
    ],
)
def test_why_a_file_cannot_be_written(tmp_path: Path, ends: dict[str, Ended], why: str) -> None:
    path = tmp_path / ".wslconfig"
    path.write_bytes(MINE.encode())
    with pytest.raises(FailedError) as caught:
        write(FilesInput((kept(path),), ()), WindowsDisk(ends))
    assert caught.value.message.startswith(f"cannot write {path}")
    assert caught.value.message.endswith(f": {why}")
    assert "ls -la" in caught.value.fix
    assert path.read_bytes().decode() == MINE


@STARTS
def test_a_folder_in_its_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.ps1" / "b").mkdir(parents=True)
    with pytest.raises(FailedError, match="cannot write"):
        write(FilesInput((WindowsFile(f"{tmp_path}/a.ps1", "x", kept=False, before=""),), ()), Host(print, print))
    assert (tmp_path / "a.ps1" / "b").is_dir()


@STARTS
@pytest.mark.parametrize("steps", range(7))
def test_killed_anywhere_the_next_run_writes_it(tmp_path: Path, steps: int) -> None:
    class KilledError(Exception):
        """The program was killed."""

    class Killed(Host):
        left = steps

        def _step(self) -> None:
            if not self.left:
                raise KilledError
            self.left -= 1

        def run(self, argv: Any, **more: Any) -> Ended:
            self._step()
            return super().run(argv, **more)

        def rename(self, path: str, to: str) -> None:
            self._step()
            super().rename(path, to)

    path = tmp_path / ".wslconfig"
    path.write_bytes(MINE.encode())
    given = FilesInput((kept(path),), ())
    with pytest.raises(KilledError):
        write(given, Killed(print, print))
    assert path.read_bytes().decode() in (MINE, OURS)
    write(given, Host(print, print))
    assert path.read_bytes().decode() == OURS
    assert Path(f"{path}{BACKUP}").read_bytes().decode() == MINE


@STARTS
@pytest.mark.parametrize("text", PLAIN)
def test_no_shell_reads_a_value(text: str, tmp_path: Path) -> None:
    name = text.replace("/", "_")[:60]
    path = tmp_path / f"of {name}" / f"{name}.ps1"
    write(FilesInput((WindowsFile(str(path), text, kept=True, before=""),), ()), Host(print, print))
    assert path.read_bytes().decode() == text
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name]
    before = hashlib.sha256(text.encode()).hexdigest()
    write(FilesInput((WindowsFile(str(path), "", kept=True, before=before),), (str(path),)), Host(print, print))
    assert [each.name for each in path.parent.iterdir()] == [f"{path.name}{BACKUP}"]


def test_without_systemd_a_run_ends() -> None:
    with pytest.raises(FailedError, match="systemd does not run yet") as caught:
        require_systemd(NoInput(), Host(print, print))
    assert "wsl --terminate NAME" in caught.value.fix
