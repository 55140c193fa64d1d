"""Files that are written on a host: whole or not at all, and where not, why, and what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from llamaherd.plan import TextFile
from llamaherd.role.changes import put_files
from tests.support.stores import needs_root

pytestmark = needs_root
TEXT = "key: Käse\n'$(id)'\n"


def put(path: Path, before: str = "") -> tuple[int, str]:
    """How it went, with mounts of its own, and what was said."""
    script = put_files([TextFile(path=str(path), text=TEXT, mode="0640", owner="root")])
    command = f"{before}\n{{\n{script}\n}} </dev/null\necho then"
    ended = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False)
    assert ended.stdout == ("then\n" if ended.returncode == 0 else "")
    return ended.returncode, ended.stderr


def test_a_file_is_written_in_folders_that_are_made(tmp_path: Path) -> None:
    path = tmp_path / "it's" / "a folder" / "file"
    assert put(path) == (0, "")
    assert path.read_text() == TEXT
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o640, 0o755)
    assert [each.name for each in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("options", "fill", "words", "help_"),
    [
        ("ro", "", "Read-only file system", "writable"),
        ("size=4k", "head -c 4096 /dev/zero >{}/full", "No space left on device", "make room"),
        ("nr_inodes=1", "", "No space left on device", "df -i"),
    ],
)
def test_a_disk_that_takes_nothing_is_named_with_a_way_out(
    tmp_path: Path, options: str, fill: str, words: str, help_: str
) -> None:
    mount = f"mount -t tmpfs -o {options} tmpfs {tmp_path}; {fill.format(tmp_path)}"
    code, said = put(tmp_path / "etc" / "file" if options == "ro" else tmp_path / "file", mount)
    sentence, way_out = said.splitlines()
    assert code == 1
    assert sentence.startswith(f"cannot write {tmp_path}/")
    assert sentence.endswith(f": {words}")
    assert way_out.startswith("  help: make ")
    assert help_ in way_out
    assert str(tmp_path) in way_out


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    code, said = put(tmp_path / "file" / "below")
    assert (code, said.splitlines()[0]) == (1, f"cannot write {tmp_path}/file/below: File exists")
    code, said = put(tmp_path / "folder")
    assert (code, said.startswith(f"cannot write {tmp_path}/folder: ")) == (1, True)
    assert "`ls -la`" in said
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder"]
