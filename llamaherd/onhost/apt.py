"""apt on hosts: packages for which nothing is removed, and repositories with the keys that sign them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llamaherd.layout import APT_LOG
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import WrittenFile, cannot_write, write_files
from llamaherd.onhost.reporting import Pace
from llamaherd.onhost.system import Ended, FailedError, System

LOCK_SECONDS = 600
"""Seconds to wait for another process that installs: an unattended upgrade takes minutes."""
LOG = str(APT_LOG)
"""The output of apt and dpkg, of all runs."""
_INSTALL_SECONDS = 43_200
"""A package manager that is killed leaves packages half-way: this ends only one that hangs."""
_POLL_SECONDS = 5
_LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
_UNATTENDED = ("env", "DEBIAN_FRONTEND=noninteractive")
_LINES, _REASONS = 12, 5
_KEY_SECONDS = 300
_ARCHIVES = "/var/cache/apt/archives"
_MOST_LINE = 1 << 12
_FETCHING = "fetching packages"
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_SIZE = r"([0-9][0-9,]{0,15}(?:[.][0-9]{1,6})?) ([kMGT]?B)"
_PLANNED = re.compile(r"([0-9]{1,6}) (?:upgraded|newly installed|reinstalled|downgraded)\b")
_NEEDED = re.compile(f"Need to get {_SIZE}")
_GOT = re.compile(rf"Get:[0-9]+ .*\[{_SIZE}\]")
_NO_LOCK = re.compile(
    r"Could not get lock \S{1,200}(?: It is held by process (?P<pid>[0-9]{1,10})(?: \((?P<name>[\w.+-]{1,64})\))?)?"
)
"""What apt prints of a lock that it did not get."""
_STEP = re.compile(r"(Unpacking|Setting up) ([^ ]+)")


@dataclass(frozen=True)
class InstallInput:
    """Packages of the distribution that are missing."""

    packages: tuple[str, ...]


@dataclass(frozen=True)
class Repository:
    """A repository of apt, and the key that signs it."""

    url: str
    key: str
    """The URL of the key."""
    fingerprint: str
    keyring: str
    """The file that the key is written to."""
    sources: WrittenFile


class AptProgress:
    """Reports what apt does by what it prints: the bytes that it fetches, and the packages that it installs."""

    def __init__(self, system: System) -> None:
        self._system, self._pace = system, Pace(system.now())
        self._archived = self._archive_bytes()
        self._rest = ""
        self._listed = self._needed = 0.0
        self._planned = 0
        self._step = "running apt-get"
        self._packages: dict[str, int] = {}
        """By step: the packages so far."""

    def hear(self, text: str) -> None:
        """Read what apt has printed since the last call, and report its progress if that is due."""
        *lines, self._rest = (self._rest + text).split("\n")
        self._rest = self._rest[-_MOST_LINE:]
        for line in lines:
            self._read(line[:_MOST_LINE])
        if self._pace.is_due(self._system.now()):
            self._system.report(self._fetched() if self._step == _FETCHING else self._step)

    def _read(self, line: str) -> None:
        if counts := _PLANNED.findall(line):
            self._planned = sum(map(int, counts))
        elif (needed := _NEEDED.match(line)) and (size := _bytes(needed)):
            self._needed, self._step = size, _FETCHING
        elif (got := _GOT.match(line)) and not self._needed:
            self._listed += _bytes(got)
            self._step = f"fetching lists of packages: {_megabytes(self._listed)} MB"
        elif step := _STEP.match(line):
            verb, package = step[1].lower(), step[2]
            number = self._packages[verb] = self._packages.get(verb, 0) + 1
            of = f" ({number} of {self._planned})" if number <= self._planned else ""
            self._step = f"{verb} {package}{of}"

    def _fetched(self) -> str:
        done = min(self._needed, max(0, self._archive_bytes() - self._archived))
        return f"fetching packages: {_megabytes(done)} of {_megabytes(self._needed)} MB"

    def _archive_bytes(self) -> int:
        """Return the bytes of all archives of packages, and of those that are being fetched."""
        return sum(found.size for _, found in self._system.tree(_ARCHIVES, 2) if found.kind == "file")


def _bytes(found: re.Match[str]) -> float:
    """Return a size that apt prints, as `1,234 kB`, in bytes."""
    return float(found[1].replace(",", "")) * _UNITS[found[2]]


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.1f}" if size < 100e6 else f"{size / 1e6:.0f}"


def start_log(system: System, about: str = "") -> None:
    """Begin an entry of the log."""
    _logged(system, ["date", "-u", f"+== %F %T {about}".rstrip()])


def apt_get(system: System, *words: str) -> Ended:
    """Run apt-get, which waits for apt's locks. Its output goes to the log, and is returned."""
    command = [*_UNATTENDED, "apt-get", "-q", "-y", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", *words]
    return _logged(system, command, AptProgress(system).hear)


def complete_dpkg(system: System) -> None:
    """Complete the work of a killed dpkg. Wait for a dpkg that runs."""
    until = system.now() + LOCK_SECONDS
    waited = False
    while True:
        ended = _logged(system, [*_UNATTENDED, "dpkg", "--configure", "-a"])
        if ended.ok or "lock" not in ended.out or system.now() >= until:
            return
        if not waited and (held := lock_holder(system)):
            system.report(f"waiting for {held}, which holds apt's locks, for up to {LOCK_SECONDS} s")
        waited = True
        system.sleep(_POLL_SECONDS)


def refresh(system: System, what: str = "apt could not read its lists anew") -> None:
    """Repair interrupted installations, and let apt read its lists. Raise FailedError, which begins with `what`."""
    start_log(system)
    complete_dpkg(system)
    ended = apt_get(system, "update")
    if not ended.ok:
        raise apt_failed(system, what, ended)


def install(system: System, packages: Sequence[str], what: str, *options: str) -> None:
    """Install packages without those that they recommend. Nothing is removed. Raise FailedError with `what`."""
    ended = apt_get(system, "install", "--no-install-recommends", "--no-remove", *options, *packages)
    if not ended.ok:
        raise apt_failed(system, what, ended)


def install_missing(system: System, packages: Sequence[str]) -> None:
    """Read apt's lists, then install packages. Raise FailedError."""
    what = f"apt could not install: {' '.join(packages)}"
    refresh(system, what)
    install(system, packages, what)


def installed_versions(system: System, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed; names may be patterns of dpkg."""
    listed = system.run(["dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${db:Status-Status}\\n", *names]).out
    rows = (line.split("\t") for line in listed.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "installed"}


def apt_failed(system: System, what: str, ended: Ended) -> FailedError:
    """Return the failure of a package manager, with its last lines, and with the process that holds apt's locks."""
    message = f"{what}. The whole log is {LOG} on the host."
    return FailedError(message, lock_help(system, ended), ended.out.splitlines()[-_LINES:])


def lock_help(system: System, ended: Ended) -> str:
    """Return what to do if another process held apt's locks; empty if none did.

    The process may have ended since then: apt's own output names it, except a process outside of a container.
    """
    held = lock_holder(system)
    if not held and (printed := _NO_LOCK.search(ended.out + ended.err)):
        number, name = printed["pid"], printed["name"] or "another process"
        held = f"{name} (process {number})" if number and number != "0" else name
    return f"{held} holds apt's locks: when it has ended, run `herd up` again" if held else ""


def lock_holder(system: System) -> str:
    """Return name and id of the process that holds a lock of apt or dpkg; empty where none does.

    The kernel's list of locks is read, because fuser may not be installed.
    """
    inodes = system.run(["stat", "-c", "%i", *_LOCKS]).out.split()
    locks = [line.split() for line in (system.read("/proc/locks") or "").splitlines()]
    for inode in inodes:
        for words in locks:
            # 1: POSIX  ADVISORY  WRITE 4711 fd:01:1234 0 EOF
            if len(words) > 5 and words[5].rpartition(":")[2] == inode and words[4].isdigit():
                name = system.read(f"/proc/{words[4]}/comm")
                if name is not None:
                    return f"{name.strip()} (process {words[4]})"
    return ""


def add_repository(system: System, repository: Repository) -> None:
    """Add a repository to apt, once its key has the declared fingerprint. Raise FailedError.

    One that does not respond is removed again: apt then works as before.
    """
    made = system.run(["mktemp", "-d"])
    if not made.ok:
        raise FailedError("cannot create a temporary folder", "see `df -h /tmp`", made.err.splitlines())
    work = made.out.strip()
    try:
        key = _fetch_key(system, repository, work)
        write_files(system, [WrittenFile(repository.keyring, Secret(key), 0o644, "root"), repository.sources])
        ended = _update_alone(system, repository.sources.path)
        if not ended.ok:
            system.remove(repository.sources.path)
            errors = [line for line in (ended.out + ended.err).splitlines() if line.startswith(("E", "W"))]
            message = f"{repository.url} does not respond as a repository of apt; it was not added"
            raise FailedError(message, log=errors[:_REASONS])
    except OSError as error:
        raise cannot_write(error) from error
    finally:
        system.remove(work)


def _fetch_key(system: System, repository: Repository, work: str) -> str:
    """Return a repository's key, armoured: the ending of its file's name promises that to apt. Raise FailedError."""
    file = f"{work}/key"
    limits = ("--retry", "3", "--max-time", "60", "--retry-max-time", "180")
    command = ["curl", "-q", "-fsSL", *limits, "-o", file, "--url", repository.key]
    fetched = system.run(command, seconds=_KEY_SECONDS)
    if not fetched.ok:
        message = f"the key of {repository.url} could not be fetched from {repository.key}"
        raise FailedError(message, log=[f"  {line}" for line in fetched.err.splitlines()])
    if not system.run(["gpg", "--version"]).ok:
        what = "gpg, which reads the fingerprints of keys, could not be installed"
        refresh(system, what)
        install(system, ["gpg"], what)
    gpg = ["gpg", "--homedir", work, "--batch"]
    found = _fingerprints(system.run([*gpg, "--with-colons", "--show-keys", file]).out)
    if found != [repository.fingerprint]:
        has = " ".join(found) or "no key that gpg can read"
        message = f"the key at {repository.key} is not the one that is declared, {repository.fingerprint}"
        raise FailedError(f"{message}; it has {has}")
    if system.read(file, 5) == "-----":
        return system.read(file) or ""
    system.run([*gpg, "--output", f"{work}/armoured", "--enarmor", file])
    lines = (system.read(f"{work}/armoured") or "").splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("Comment:"))
    return text.replace("ARMORED FILE", "PUBLIC KEY BLOCK")


def _fingerprints(listed: str) -> list[str]:
    """Return the fingerprints of primary keys that `gpg --with-colons` lists."""
    found = []
    is_primary = False
    for fields in (line.split(":") for line in listed.splitlines()):
        if fields[0] == "pub":
            is_primary = True
        elif fields[0] == "fpr" and is_primary:
            found += fields[9:10]
            is_primary = False
    return found


def _update_alone(system: System, sources: str) -> Ended:
    """Let apt read the lists of one file of sources. A warning is an error."""
    options = ("sourcelist=" + sources, "sourceparts=-")
    words = [word for each in options for word in ("-o", f"Dir::Etc::{each}")]
    strict = ("-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any")
    wait = ("-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}")
    command = [*_UNATTENDED, "apt-get", "-q", *wait, *words, *strict, "update"]
    return _logged(system, command, AptProgress(system).hear)


def _logged(system: System, argv: Sequence[str], heard: Callable[[str], None] | None = None) -> Ended:
    try:
        return system.run_logged(argv, LOG, seconds=_INSTALL_SECONDS, heard=heard)
    except OSError as error:
        raise cannot_write(error) from error
