"""Files that are written on a host: whole or not at all, and where not, why, and what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from llamaherd.host.program import request
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import PutFilesInput, WrittenFile
from tests.support.rigs import ROOT
from tests.support.stores import needs_root

pytestmark = needs_root
TEXT = "key: Käse\n'$(id)'\n"
PROGRAM = """
import pathlib, sys
from llamaherd.onhost import system, verbs
system.LOCKS = pathlib.Path(sys.argv[1])
sys.exit(verbs.main([]))
"""


def put(path: Path, before: str = ":") -> tuple[int, str]:
    """Write a file by the program, with mounts of its own. Return its exit code, and its error with its help."""
    file = WrittenFile(str(path), Secret(TEXT), 0o640, "root")
    document = request("base.put_files", PutFilesInput("a test", (file,)))
    command = f'{before}\nexec "$0" -c "$1" "$2"'
    with TemporaryDirectory() as folder:
        argv = ["unshare", "-m", "sh", "-c", command, sys.executable, PROGRAM, f"{folder}/locks"]
        ended = subprocess.run(argv, input=document, capture_output=True, cwd=ROOT, check=False)
    last = json.loads(ended.stdout.splitlines()[-1])
    return ended.returncode, f"{last['message']}\n{last['help']}" if last["event"] == "error" else ""


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
    assert way_out.startswith("make ")
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
