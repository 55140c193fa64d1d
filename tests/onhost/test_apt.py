"""apt on a played host: what is installed, who is waited for, and which keys and repositories are let in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from llamaherd.onhost import apt
from llamaherd.onhost.apt import LOG, InstallInput, Repository, lock_holder
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.system import Ended, FailedError, Host
from roles.base.onhost import add, install
from tests.support.played_host import File
from tests.support.service_host import ServiceHost, killed_everywhere

FINGERPRINT = "C" * 40
ARMOURED = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n"
SOURCES = "/etc/apt/sources.list.d/llamaherd-nvidia.sources"
KEYRING = "/etc/apt/keyrings/llamaherd-nvidia.asc"
URL = "https://mirror.lan/$(id)/it's"
BUSY = "E: Could not get lock /var/lib/dpkg/lock-frontend\n"


@dataclass
class AptHost(ServiceHost):
    """A host with apt, dpkg, curl and gpg."""

    key: str = ARMOURED
    """What curl gets."""
    listed: str = f"pub:-:4096:\nfpr:::::::::{FINGERPRINT}:\nsub:-:\nfpr:::::::::{'D' * 40}:\n"
    busy: int = 0
    """How often another process holds the lock."""
    installed: set[str] = field(default_factory=lambda: {"gpg"})
    environments: list[str] = field(default_factory=list)

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
        if words[0] == "env":
            words = words[2:]
        match words[0], words[-1]:
            case "dpkg", _ if self.busy > 0:
                self.busy -= 1
                return Ended(2, "", "dpkg: error: dpkg frontend lock was locked by another process\n")
            case "stat", _:
                return Ended(1, "77\n78\n", "stat: cannot statx\n")
            case "mktemp", _:
                self.folders.add("/tmp/tmp.x")
                return self.ends.get("mktemp", Ended(0, "/tmp/tmp.x\n"))
            case "curl", _ if "curl" not in self.ends:
                self.files["/tmp/tmp.x/key"] = File(self.key)
            case "gpg", "--version":
                return Ended(0 if "gpg" in self.installed else 127)
            case "gpg", _ if "--show-keys" in words:
                return Ended(0, self.listed)
            case "gpg", _:
                text = '-----BEGIN PGP ARMORED FILE-----\nComment: Use "gpg --dearmor"\n\nmQ==\n'
                self.files[words[words.index("--output") + 1]] = File(text)
        ended = super().run(words, seconds=seconds, text=text, environment=environment)
        if words[0] == "apt-get" and "install" in words and ended.ok:
            self._step()
            self.installed.add(words[-1])
        return ended


def repository(url: str = URL) -> Repository:
    """Return a repository."""
    sources = WrittenFile(SOURCES, Secret(f"URIs: {url}\n"), 0o644, "root")
    return Repository(url, f"{url}/key", FINGERPRINT, KEYRING, sources)


def apt_words(host: ServiceHost) -> list[str]:
    """Return what apt-get was called with, without its first options."""
    return [" ".join(each[5:]) for each in host.done if each[0] == "apt-get"]


def test_packages_are_installed_and_nothing_else() -> None:
    host = AptHost({})
    install(InstallInput(("curl", "it's $(id)")), host)
    assert apt_words(host) == ["update", "install --no-install-recommends --no-remove curl it's $(id)"]
    assert ["dpkg", "--configure", "-a"] in host.done
    waits = {each[4] for each in host.done if each[0] == "apt-get"}
    assert waits == {"DPkg::Lock::Timeout=600"}


PLANNED = """\
Reading package lists...
The following NEW packages will be installed:
  cmake git
1 upgraded, 2 newly installed, 0 to remove and 9 not upgraded.
Need to get 12.5 MB/14.0 MB of archives.
After this operation, 1,234 kB of additional disk space will be used.
"""


def test_the_bytes_and_packages_of_an_installation_are_reported() -> None:
    """apt prints no bytes while it fetches an archive: they are the growth of its folder."""
    host = AptHost({})
    host.files["/var/cache/apt/archives/old.deb"] = File("x" * 1_000_000)

    def arrive(size: int) -> str:
        host.files["/var/cache/apt/archives/partial/cmake.deb"] = File("x" * size)
        return ""

    def logging(words: Sequence[str]) -> Iterator[str]:
        if "install" in words:
            yield ""
            yield ""
            yield PLANNED[:200]
            yield PLANNED[200:] + "Get:1 http://deb.debian.org/debian trixie/main amd64 cmake amd64 3.31 [11.1 MB]\n"
            yield ""
            yield arrive(4_200_000)
            yield ""
            yield arrive(99_000_000)
            yield "Fetched 12.5 MB in 5s (2,500 kB/s)\nUnpacking cmake (3.31) ...\nUnpacking git (1:2.47) ...\n"
            yield "Unpacking curl (8.1) over (8.0) ...\n"
            yield "Setting up cmake (3.31) ...\n"
            yield ""
            yield "Setting up git (1:2.47) ...\nProcessing triggers for man-db (2.13) ...\n"

    host.logging = logging
    install(InstallInput(("cmake", "git")), host)
    assert host.log == [
        "running apt-get",
        "fetching packages: 0.0 of 12.5 MB",
        "fetching packages: 4.2 of 12.5 MB",
        "fetching packages: 12.5 of 12.5 MB",
        "unpacking curl (3 of 3)",
        "setting up cmake (1 of 3)",
    ]


def test_the_bytes_of_package_lists_are_reported() -> None:
    host = AptHost({})
    lines = (
        "Hit:1 http://deb.debian.org/debian trixie InRelease\n",
        "Get:2 http://deb.debian.org/debian trixie/main amd64 Packages [9,670 kB]\n",
        "Get:3 http://deb.debian.org/debian trixie/main Translation-en [6,484 kB]\nGet:4 x [1.2.3 MB]\n",
        "Get:5 http://deb.debian.org/debian trixie/contrib Contents [117 B]\n",
    )
    host.logging = lambda words: lines if "update" in words else ()
    install(InstallInput(("cmake",)), host)
    assert host.log == ["fetching lists of packages: 9.7 MB", "fetching lists of packages: 16.2 MB"]


def test_a_quick_installation_reports_nothing() -> None:
    host = AptHost({})
    host.logging = lambda words: [PLANNED] if "install" in words else ()
    install(InstallInput(("cmake",)), host)
    assert host.log == []


def test_a_long_installation_is_reported_less_and_less_often() -> None:
    host, times = AptHost({}), list[float]()

    def logging(words: Sequence[str]) -> Iterator[str]:
        for second in range(400 if "install" in words else 0):
            before = len(host.log)
            yield f"Setting up package{second} (1.0) ...\n"
            times.extend([host.time] * (len(host.log) - before))

    host.logging = logging
    install(InstallInput(("cmake",)), host)
    gaps = [round(after - before) for before, after in pairwise(times)]
    assert (gaps[0], gaps[15], gaps[-1]) == (2, 10, 30)
    assert gaps == sorted(gaps)


def test_a_dpkg_that_runs_is_waited_for_and_named() -> None:
    host = AptHost({}, busy=3)
    host.files |= {
        "/proc/locks": File("1: FLOCK ADVISORY WRITE 12 fd:01:99 0 EOF\n2: POSIX ADVISORY WRITE 4711 fd:01:78 0 EOF\n"),
        "/proc/4711/comm": File("unattended-upgr\n"),
    }
    install(InstallInput(("curl",)), host)
    assert host.log == ["waiting for unattended-upgr (process 4711), which holds apt's locks, for up to 600 s"]
    assert 15 <= host.time < 20


def test_one_that_never_ends_is_not_waited_for_for_ever() -> None:
    host = AptHost({}, busy=10**6)
    install(InstallInput(("curl",)), host)
    assert 600 <= host.time < 610, "apt itself waits next"


def test_a_dpkg_that_fails_for_another_reason_is_left_to_apt() -> None:
    host = AptHost({}, ends={"dpkg": Ended(1, "", "dpkg: error: disk is full\n")})
    install(InstallInput(("curl",)), host)
    assert host.time < 1


@pytest.mark.parametrize("fails", ["update", "install"])
def test_a_failure_has_its_last_lines_and_the_process_that_holds_the_locks(fails: str) -> None:
    said = "".join(f"line {number}\n" for number in range(20))
    command = "apt-get -q -y -o DPkg::Lock::Timeout=600"
    host = AptHost({}, ends={f"{command} {fails}": Ended(100, said, BUSY)})
    with pytest.raises(FailedError, match=r"apt could not install: curl wget\. The whole log is /var/") as caught:
        install(InstallInput(("curl", "wget")), host)
    assert caught.value.log == (*(f"line {number}" for number in range(9, 20)), BUSY.strip())
    assert caught.value.fix == "another process holds apt's locks: when it has ended, run `herd up` again"
    assert (host.read(LOG) or "").endswith(f"{said}{BUSY}")
    host.files |= {"/proc/locks": File("1: POSIX ADVISORY WRITE 9 fd:01:77 0 EOF\n"), "/proc/9/comm": File("apt\n")}
    with pytest.raises(FailedError) as caught:
        install(InstallInput(("curl",)), host)
    assert caught.value.fix == "apt (process 9) holds apt's locks: when it has ended, run `herd up` again"


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)", "apt-get (process 812)"),
        ("E: Could not get lock /var/cache/apt/archives/lock. It is held by process 0", "another process"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend - open (11: Temporarily unavailable)", "another process"),
    ],
    ids=["named", "outside of a container", "an earlier apt"],
)
def test_a_lock_whose_holder_has_ended_is_in_the_help(line: str, held: str) -> None:
    host = AptHost({}, ends={"apt-get -q -y -o DPkg::Lock::Timeout=600 install": Ended(100, "", f"{line}\n")})
    with pytest.raises(FailedError) as caught:
        install(InstallInput(("curl",)), host)
    assert caught.value.fix == f"{held} holds apt's locks: when it has ended, run `herd up` again"


def test_a_lock_of_a_process_that_has_ended_is_nobodys() -> None:
    host = AptHost({}, files={"/proc/locks": File("1: POSIX ADVISORY WRITE 9 fd:01:77 0 EOF\nshort\n")})
    assert lock_holder(host) == ""


def test_a_log_that_cannot_be_written_has_a_help() -> None:
    class Full(AptHost):
        def run_logged(
            self, argv: Sequence[str], log: str, *, seconds: float, heard: Callable[[str], None] | None = None
        ) -> Ended:
            del argv, seconds, heard
            raise OSError(28, "No space left on device", log)

    with pytest.raises(FailedError, match=r"cannot write /var/log/llamaherd/apt\.log: No space") as caught:
        install(InstallInput(("curl",)), Full({}))
    assert "make room" in caught.value.fix


# --- repositories -------------------------------------------------------------------------------------------


def test_a_repository_is_added_with_its_key() -> None:
    host = AptHost({})
    add(repository(), host)
    assert host.files[KEYRING] == File(ARMOURED, 0o644)
    assert host.files[SOURCES] == File(f"URIs: {URL}\n", 0o644)
    assert host.index("write", KEYRING) < host.index("write", SOURCES) < host.index("update")
    assert host.has_done("curl", "--url", f"{URL}/key")
    assert host.has_done("update", f"Dir::Etc::sourcelist={SOURCES}", "APT::Update::Error-Mode=any")
    assert not host.entry("/tmp/tmp.x")
    assert not host.has_done("install")


def test_a_key_that_is_not_armoured_is_armoured() -> None:
    host = AptHost({}, key="\x99\x02\x0d")
    add(repository(), host)
    assert host.read(KEYRING) == "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n"


@pytest.mark.parametrize(
    ("listed", "has"),
    [
        ("", "no key that gpg can read"),
        (f"pub:-:\nfpr:::::::::{'E' * 40}:\n", "E" * 40),
        (f"pub:\nfpr:::::::::{FINGERPRINT}:\npub:\nfpr:::::::::{'E' * 40}:\n", f"{FINGERPRINT} {'E' * 40}"),
        (f"pub:\nfpr:::::::::{'E' * 40}:\nsub:\nfpr:::::::::{FINGERPRINT}:\n", "E" * 40),
        ("pub:\nfpr:\n", "no key that gpg can read"),
    ],
)
def test_another_key_changes_nothing(listed: str, has: str) -> None:
    host = AptHost({}, listed=listed)
    with pytest.raises(FailedError) as caught:
        add(repository("https://mirror.lan"), host)
    assert caught.value.message == (
        f"the key at https://mirror.lan/key is not the one that is declared, {FINGERPRINT}; it has {has}"
    )
    assert not host.files


def test_a_key_that_cannot_be_fetched_changes_nothing() -> None:
    host = AptHost({}, ends={"curl": Ended(22, "", "curl: (22) 503\n")})
    with pytest.raises(FailedError, match=r"the key of .* could not be fetched from ") as caught:
        add(repository(), host)
    assert caught.value.log == ("  curl: (22) 503",)
    assert not host.files


def test_gpg_is_installed_where_it_is_missing() -> None:
    host = AptHost({}, installed=set())
    add(repository(), host)
    assert apt_words(host)[:2] == ["update", "install --no-install-recommends --no-remove gpg"]
    host = AptHost({}, installed=set(), ends={"apt-get": Ended(100, "", "E: no\n")})
    with pytest.raises(FailedError, match="gpg, which reads the fingerprints of keys, could not be installed"):
        add(repository(), host)


def test_a_repository_that_does_not_respond_is_removed_again() -> None:
    said = "Get:1 x\nErr:2 x\nE: a\nW: b\nE: c\nE: d\nE: e\n"
    host = AptHost({}, ends={"apt-get": Ended(100, said)})
    with pytest.raises(FailedError, match="does not respond as a repository of apt; it was not added") as caught:
        add(repository(), host)
    assert caught.value.log == ("Err:2 x", "E: a", "W: b", "E: c", "E: d")
    assert not host.entry(SOURCES)


def test_a_disk_that_is_full_has_a_help() -> None:
    host = AptHost({}, full="keyrings")
    with pytest.raises(FailedError, match=f"cannot write {KEYRING}"):
        add(repository(), host)
    host = AptHost({}, ends={"mktemp": Ended(1, "", "no space\n")})
    with pytest.raises(FailedError, match="cannot create a temporary folder"):
        add(repository(), host)


def test_a_killed_addition_is_completed_by_the_next() -> None:
    for host in killed_everywhere(lambda: AptHost({}, installed=set()), lambda host: add(repository(), host)):
        assert host.files[KEYRING].text == ARMOURED
        assert host.entry(SOURCES)


# --- the real tools -----------------------------------------------------------------------------------------


def real_host() -> Host:
    """Return this machine."""
    return Host(print, print)


def test_a_process_that_holds_a_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setattr(apt, "_LOCKS", ("none", str(lock)))
    assert lock_holder(real_host()) == ""
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, 2); print(flush=True); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", hold, lock], stdin=pipe, stdout=pipe) as process:
        assert process.stdout
        process.stdout.readline()
        found = lock_holder(real_host())
        process.communicate()
    assert found.endswith(f" (process {process.pid})")


def made_key(folder: Path) -> str:
    """Make a key of gpg's, and return its fingerprint."""
    gpg = ["gpg", "--homedir", str(folder), "--batch", "--quiet"]
    subprocess.run([*gpg, "--passphrase", "", "--quick-generate-key", "A", "ed25519"], check=True, timeout=120)
    listed = subprocess.run([*gpg, "--with-colons", "--list-keys"], check=True, capture_output=True, text=True).stdout
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))


@pytest.mark.parametrize("armoured", [True, False])
def test_real_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, armoured: bool) -> None:
    home = tmp_path / "gpg"
    home.mkdir(mode=0o700)
    fingerprint = made_key(home)
    gpg = ["gpg", "--homedir", str(home), "--batch", *(["--armor"] if armoured else [])]
    key = tmp_path / "key"
    key.write_bytes(subprocess.run([*gpg, "--export"], check=True, capture_output=True).stdout)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)
    monkeypatch.setattr(apt, "_update_alone", lambda _system, _sources: Ended(0))
    sources = WrittenFile(str(tmp_path / "a.sources"), Secret("URIs: x\n"), 0o644, "root")
    given = Repository("x", f"file://{key}", fingerprint, str(tmp_path / "a.asc"), sources)
    apt.add_repository(real_host(), given)
    text = (tmp_path / "a.asc").read_text()
    assert text.startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    shown = subprocess.run(
        ["gpg", "--homedir", str(home), "--with-colons", "--show-keys", str(tmp_path / "a.asc")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert fingerprint in shown.stdout
