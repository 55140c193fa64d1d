"""Files that the program on a host writes: all of them, also after a kill, or a sentence with a help."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import FETCHER
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.files import PutFilesInput, WrittenFile, write_files
from llamaherd.onhost.system import Ended, Entry, FailedError, Host
from llamaherd.onhost.verbs import find_verb
from roles.base import base_changes
from roles.base.onhost import AccountsInput, OpenInput, ensure_accounts, open_paths, put_files
from tests.render.plans import CPU
from tests.support.played_host import File
from tests.support.recording import input_of
from tests.support.service_host import ServiceHost, killed_everywhere
from tests.support.states import host_with
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
    given = input_of([*base_changes(CPU, host_with(fetcher="another"))][-1], PutFilesInput)
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
    assert f"check {tmp_path}" in caught.value.fix
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


# --- accounts and folders -----------------------------------------------------------------------------------


@dataclass
class AccountHost(ServiceHost):
    """A host with accounts, and permissions of paths."""

    numbers: dict[str, int] = field(default_factory=dict)
    login: str = "owner"
    modes: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Mode and owner of paths."""
    denied: set[str] = field(default_factory=set)
    """Paths that an access list closes."""

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play a program."""
        words = [*argv]
        ended = super().run(words, seconds=seconds, text=text, environment=environment)
        if any(" ".join(words).startswith(begins) for begins in self.ends):
            return ended
        match words:
            case ["id", "-u", user]:
                number = self.numbers.get(user, 998 if user in self.accounts else None)
                return Ended(1) if number is None else Ended(0, f"{number}\n")
            case ["printenv", "SUDO_USER"]:
                return Ended(0, f"{self.login}\n") if self.login else Ended(1)
            case ["chmod", right, path]:
                self._step()
                mode, owner = self.modes[path]
                self.modes[path] = (mode | {"o+r": 4, "o+x": 1, "o+rx": 5}[right], owner)
            case ["setpriv", *_, path]:
                passes = all(self.modes[each][0] & 1 for each in map(str, Path(path).parents))
                return Ended(0 if passes and self.modes[path][0] & 4 and path not in self.denied else 1)
        return ended

    def entry(self, path: str) -> Entry | None:
        """Return what is at a path."""
        if path not in self.modes:
            return super().entry(path)
        mode, owner = self.modes[path]
        return Entry("file" if path.endswith("gguf") else "folder", mode, owner)


ACCOUNTS = AccountsInput(
    users=("llama", "llama-build", "tom"),
    folders=("/opt/llamaherd", "/var/lib/llamaherd/work"),
    build_user="llama-build",
    build_folders=("/var/cache/llamaherd/ccache",),
    keys="/etc/llamaherd/keys",
    incoming="/var/lib/llamaherd/incoming",
)


def test_accounts_that_own_nothing_and_folders() -> None:
    host = AccountHost({}, numbers={"tom": 1000})
    find_verb("base.accounts").run(decode(AccountsInput, parse_document(dump(ACCOUNTS).encode())), host)
    assert host.accounts == {"llama", "llama-build"}
    assert host.has_done("useradd", "--system", "--no-create-home", "/nonexistent", "/usr/sbin/nologin", "llama-build")
    assert host.has_done("usermod", "--lock", "--groups", "", "--gid", "llama")
    assert not host.has_done("usermod", "tom"), "it may be the account that logs in here"
    assert {*ACCOUNTS.folders, *ACCOUNTS.build_folders} <= host.folders
    assert host.has_done("chown", "root", *ACCOUNTS.folders)
    assert host.has_done("chown", "llama-build", *ACCOUNTS.build_folders)
    assert host.has_done("install", "0711", ACCOUNTS.keys)
    assert host.has_done("install", "0700", "owner", ACCOUNTS.incoming)


def test_accounts_that_are_there_are_locked_and_not_created() -> None:
    host = AccountHost({}, numbers={"llama": 998, "llama-build": 997, "tom": 1000}, login="")
    ensure_accounts(ACCOUNTS, host)
    assert not host.has_done("useradd")
    assert host.has_done("usermod", "llama-build")
    assert host.has_done("install", "0700", "root", ACCOUNTS.incoming)


@pytest.mark.parametrize(
    ("begins", "why"),
    [
        ("useradd", "cannot create the account llama"),
        ("usermod", "cannot lock the account llama"),
        ("chown", "cannot set the owners of folders"),
    ],
)
def test_an_account_that_cannot_be_made_is_reported(begins: str, why: str) -> None:
    host = AccountHost({}, ends={begins: Ended(1, "", "passwd is locked\n")})
    with pytest.raises(FailedError, match=why) as caught:
        ensure_accounts(ACCOUNTS, host)
    assert caught.value.log == ("passwd is locked",)


def test_killed_accounts_are_completed_by_the_next() -> None:
    hosts = killed_everywhere(
        lambda: AccountHost({}, numbers={"tom": 1000}), lambda host: ensure_accounts(ACCOUNTS, host)
    )
    assert len(hosts) > 3
    assert all(host.accounts == {"llama", "llama-build"} for host in hosts)


def test_the_accounts_of_a_plan() -> None:
    given = input_of(next(base_changes(CPU, HostState())), AccountsInput)
    assert given.users == CPU.accounts
    assert given.keys not in given.folders, "its mode is another"


MODEL = "/mnt/it's $(id)/a.gguf"


def closed(**modes: tuple[int, str]) -> AccountHost:
    """Return a host whose model nobody may read."""
    paths = {"/": (0o755, "root"), "/mnt": (0o755, "root"), "/mnt/it's $(id)": (0o700, "root"), MODEL: (0o600, "root")}
    return AccountHost({}, modes={**paths, **modes})


def test_a_model_is_opened_with_its_folders() -> None:
    host = closed()
    find_verb("base.open").run(decode(OpenInput, parse_document(dump(OpenInput((MODEL,))).encode())), host)
    assert host.modes["/mnt/it's $(id)"] == (0o701, "root")
    assert host.modes[MODEL] == (0o604, "root")
    assert host.log == ["servers may read /mnt/it's $(id) again", f"servers may read {MODEL} again"]
    host.log.clear()
    open_paths(OpenInput((MODEL, "/mnt")), host)
    assert host.log == []


def test_a_folder_is_opened_to_be_listed() -> None:
    host = closed()
    open_paths(OpenInput(("/mnt/it's $(id)",)), host)
    assert host.modes["/mnt/it's $(id)"] == (0o705, "root")


def test_what_belongs_to_a_person_is_left_alone() -> None:
    host = closed(**{MODEL: (0o600, "tom")})
    with pytest.raises(FailedError, match=r"which belongs to tom: see that everybody may \(`chmod o\+r`\)"):
        open_paths(OpenInput((MODEL,)), host)
    assert host.modes[MODEL] == (0o600, "tom")


def test_what_an_access_list_closes_is_reported() -> None:
    host = closed()
    host.denied.add(MODEL)
    with pytest.raises(FailedError, match="cannot be read by servers, whatever its permissions: see `namei -l`"):
        open_paths(OpenInput((MODEL,)), host)
    host = closed()
    host.ends["chmod"] = Ended(1, "", "read-only\n")
    with pytest.raises(FailedError, match="cannot change the permissions of /mnt"):
        open_paths(OpenInput((MODEL,)), host)


@needs_root
@pytest.mark.usefixtures("starts_processes")
def test_a_real_file_is_opened(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir(mode=0o700)
    (folder / "a.gguf").write_text("x")
    (folder / "a.gguf").chmod(0o600)
    open_paths(OpenInput((str(folder / "a.gguf"),)), real_host())
    assert [each.stat().st_mode & 0o777 for each in (folder, folder / "a.gguf")] == [0o701, 0o604]
