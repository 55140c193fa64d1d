"""Files that the program on a host writes: all of them, also after a kill, or a sentence with a help."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import FETCHER
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.files import PutFilesInput, WrittenFile, write_files
from llamaherd.onhost.system import FailedError, Host
from llamaherd.onhost.verbs import find_verb
from roles.base.changes import base_changes
from roles.base.onhost import put_files
from tests.render.plans import CPU
from tests.support.played_host import File
from tests.support.recording import input_of
from tests.support.service_host import ServiceHost, killed_everywhere
from tests.support.stores import needs_root

KEY = "sk-a-canary"
GIVEN = PutFilesInput(
    "writing shared files",
    (
        WrittenFile("/opt/llamaherd/a folder/run", Secret("#!/bin/sh\n"), 0o755, "root"),
        WrittenFile("/etc/llamaherd/keys/a", Secret(KEY), 0o400, "root"),
    ),
    remove=("/opt/llamaherd/a folder",),
)


def old_host() -> ServiceHost:
    return ServiceHost({}, files={"/opt/llamaherd/a folder/old": File("old")})


def real_host() -> Host:
    """Return this machine."""
    lines: list[str] = []
    return Host(lambda line: lines.append(line), lambda line: lines.append(line))


def as_given(host: ServiceHost) -> bool:
    """Return whether the files are as given, and the removed folder has no other ones."""
    wanted = {each.path: File(each.text.text, each.mode, each.owner) for each in GIVEN.files}
    return host.files == wanted


def test_files_are_written_and_others_are_removed_first() -> None:
    host = old_host()
    find_verb("base.put_files").run(decode(PutFilesInput, parse_document(dump(GIVEN).encode())), host)
    assert as_given(host)
    assert KEY not in f"{GIVEN!r}{host.done}{host.log}"


def test_a_run_that_was_killed_is_completed_by_the_next() -> None:
    hosts = killed_everywhere(old_host, lambda host: put_files(GIVEN, host))
    assert len(hosts) == 3
    assert all(map(as_given, hosts))


def test_a_full_disk_is_reported_with_a_help() -> None:
    host = ServiceHost({}, full="/keys/")
    with pytest.raises(FailedError, match="cannot write /etc/llamaherd/keys/a: No space left on device") as caught:
        put_files(GIVEN, host)
    assert "make room on /" in caught.value.fix
    assert "/opt/llamaherd/a folder/run" in host.files
    assert KEY not in f"{caught.value}{caught.value.fix}{caught.value.log}"


def test_a_folder_that_cannot_be_removed_is_reported() -> None:
    class Immutable(ServiceHost):
        def remove(self, path: str) -> None:
            raise PermissionError(1, "Operation not permitted", path)

    with pytest.raises(FailedError, match="cannot write /opt/llamaherd/a folder: Operation not permitted") as caught:
        put_files(GIVEN, Immutable({}))
    assert "`chattr -i`" in caught.value.fix


def test_programs_of_another_version_are_removed() -> None:
    """A module that is left over could be imported."""
    given = input_of(base_changes(CPU, HostState(fetcher="another"))[-1], PutFilesInput)
    assert given.remove == (str(FETCHER),)
    assert {each.path.startswith(f"{FETCHER}/") for each in given.files} == {True}


@pytest.fixture
def umask() -> Iterator[None]:
    """Set the mask that the program on a host has."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@needs_root
@pytest.mark.usefixtures("umask")
def test_every_account_can_read_folders_that_are_made(tmp_path: Path) -> None:
    path = tmp_path / "it's" / "a folder" / "file"
    write_files(real_host(), [WrittenFile(str(path), Secret("Käse\n'$(id)'\n"), 0o640, "root")])
    assert path.read_text() == "Käse\n'$(id)'\n"
    modes = [each.stat().st_mode & 0o777 for each in (path, path.parent, path.parent.parent)]
    assert modes == [0o640, 0o755, 0o755]
    assert [each.name for each in path.parent.iterdir()] == ["file"]


@needs_root
@pytest.mark.parametrize(
    ("name", "owner", "why"),
    [
        ("file/below", "root", "File exists"),
        ("folder", "root", "Is a directory"),
        ("new", "nobody-has-this-name", "there is no account nobody-has-this-name"),
    ],
)
def test_why_a_file_is_not_written_is_reported(tmp_path: Path, name: str, owner: str, why: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(FailedError) as caught:
        write_files(real_host(), [WrittenFile(f"{tmp_path}/{name}", Secret(KEY), 0o600, owner)])
    assert caught.value.message == f"cannot write {tmp_path}/{name}: {why}"
    assert f"see what is at {tmp_path}" in caught.value.fix
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["file", "folder"]


@needs_root
@pytest.mark.parametrize("action", ["write", "copy"])
def test_the_host_names_the_file_that_it_cannot_write(tmp_path: Path, action: str) -> None:
    host, place = real_host(), str(tmp_path / "folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "from").touch()
    with pytest.raises(OSError, match="folder") as caught:
        host.write(place, "") if action == "write" else host.copy(str(tmp_path / "from"), place)
    assert caught.value.filename == place
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "from"]
