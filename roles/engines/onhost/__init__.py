"""Engines' part of the program on hosts: inspect builds, start or join one, and admit what it has built."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from llamaherd.layout import BUILD_PATH, BUILD_USER, BUILDS, CACHE, INCOMING, LOCK_WAIT, SET_ASIDE, WORK
from llamaherd.onhost.clients import systemctl, unit_runs
from llamaherd.onhost.document import VERSION, dump
from llamaherd.onhost.files import as_seconds, as_text, cannot_write, is_file
from llamaherd.onhost.services import require_success, show_units
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.engines.onhost.compiling import CompileInput, sha256sum
from roles.engines.onhost.prebuilt import ReleaseInput

MOST_FLAGS = 64_000
"""Bytes that are kept of a server's list of flags."""

Stage = Literal["done", "built", "building", "intact", "damaged"]
"""`done`: finished. `built`: not admitted yet. `building`: a unit builds it. `intact`: modes, owners or times have
changed, but no content. `damaged`: the content of a program has changed."""

_REPORT_SECONDS = 10

_TAIL = "100000"
"""Bytes at the end of a log in which progress is found: a compiler may print much meanwhile."""

_REASONS = "FAILED:|error:|CMake Error"
_COPY_SECONDS = 3600


@dataclass(frozen=True)
class BuildQuery:
    """A build, and whether to read its flags."""

    id: str
    targets: tuple[str, ...]
    flags: bool


@dataclass(frozen=True)
class InspectInput:
    """Builds, and the sha256s of sources that the controller sends."""

    builds: tuple[BuildQuery, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """The state of builds and sources. Absent ones have no entry."""

    builds: Mapping[str, Stage] = field(default_factory=dict)
    """By the id of the build."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """The lists of flags that servers print, by the id of the build."""
    sources: tuple[str, ...] = ()


def inspect(given: InspectInput, system: System) -> Found:
    """Inspect builds. Raise UnknownStateError where systemd does not respond."""
    stages = {each.id: _stage(each, system) for each in given.builds}
    units = {f"llamaherd-build-{id_}.service": id_ for id_, stage in stages.items() if stage is None}
    for unit, shown in show_units(units, ("ActiveState",), system).items():
        if unit in units and shown.get("ActiveState") in ("active", "reloading"):
            stages[units[unit]] = "building"
    flags = {each.id: _flags(each.id, system) for each in given.builds if each.flags}
    return Found(
        builds={id_: stage for id_, stage in stages.items() if stage},
        flags={id_: text for id_, text in flags.items() if text is not None},
        sources=tuple(each for each in given.sources if is_file(f"{CACHE}/sources/{each}", system)),
    )


def _stage(build: BuildQuery, system: System) -> Stage | None:
    """Return the stage of a build; None if it is unfinished, so that a unit may be building it."""
    home = f"{BUILDS}/{build.id}"
    if is_whole(home, build.targets, system):
        if system.read(f"{home}/.stamp") == stamp_of(home, system):
            return "done"
        return "intact" if is_intact(home, system) else "damaged"
    return "built" if is_file(f"{WORK}/{build.id}/out/manifest.json", system) else None


def _flags(build: str, system: System) -> str | None:
    path = f"{BUILDS}/{build}/flags"
    text = system.read_bytes(path, MOST_FLAGS) if is_file(path, system) else None
    return None if text is None else text.decode("ascii", errors="replace")


@dataclass(frozen=True)
class BuildInput:
    """An engine to build, within so many seconds."""

    engine: CompileInput
    seconds: int


@dataclass(frozen=True)
class SourceFileInput:
    """An archive that the controller has sent."""

    sha256: str


@dataclass(frozen=True)
class VouchInput:
    """A finished build, by its id."""

    id: str


@dataclass(frozen=True)
class InstallInput:
    """A release to install, within so many seconds."""

    release: ReleaseInput
    seconds: int


@dataclass(frozen=True)
class _Job:
    """What a unit makes: a build or an installed release, and the verb that makes it, in words, too."""

    input: CompileInput | ReleaseInput
    seconds: int
    verb: str
    doing: str
    done: str
    what: str


def build(given: BuildInput, system: System) -> None:
    """Build an engine, or join the run that builds it. Raise FailedError with the compiler's own words."""
    words = ("building", "built", "the build")
    _make(_Job(given.engine, given.seconds, "engines.compiling.compile", *words), system)


def install(given: InstallInput, system: System) -> None:
    """Install a release, or join the run that installs it. Raise FailedError."""
    words = ("installing", "installed", "the installation")
    _make(_Job(given.release, given.seconds, "engines.prebuilt.install", *words), system)


def _make(job: _Job, system: System) -> None:
    home, work, unit = f"{BUILDS}/{job.input.id}", f"{WORK}/{job.input.id}", f"llamaherd-build-{job.input.id}.service"
    try:
        if is_whole(home, job.input.targets, system) and not is_intact(home, system):
            system.remove(f"{home}/manifest.json")  # without it, a build is unfinished
        is_done = is_whole(home, job.input.targets, system) or system.entry(f"{work}/out/manifest.json")
        if not is_done and not unit_runs(system, unit):
            _begin(job, work, unit, system)
        _wait(job, work, unit, system)
        # A run whose connection was lost waits here as well: one of them admits the build.
        with system.lock("build", LOCK_WAIT, f"letting {job.input.id} in"):
            _admit(job, home, work, system)
    except OSError as error:
        raise cannot_write(error) from error


def _begin(job: _Job, work: str, unit: str, system: System) -> None:
    """Start the unit that compiles. It outlives this program and the connection."""
    systemctl(system, "reset-failed", unit)
    require_success(system.run(["install", "-d", "-o", job.input.user, work]), f"cannot create {work}")
    for name in ("failed", "build.log", "build.sh"):
        system.remove(f"{work}/{name}")  # links that an earlier build may have left
    document = {"version": VERSION, "verb": job.verb, "input": job.input}
    system.write(f"{work}/build.json", dump(document), mode=0o600, owner=job.input.user)
    properties = (
        f"User={job.input.user}",
        "Nice=10",
        "OOMScoreAdjust=800",
        f"RuntimeMaxSec={job.seconds}",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        f"ReadWritePaths={work} {CACHE}",
        f"BindPaths={work}:{BUILD_PATH}",
        "ProtectHome=yes",
        "PrivateTmp=yes",
    )
    words = [word for each in properties for word in ("-p", each)]
    command = ["systemd-run", "-q", f"--unit={unit}", "--collect", *words]
    program = ["/usr/bin/python3", "-I", system.program, f"{BUILD_PATH}/build.json"]
    started = system.run([*command, "-E", f"HOME={BUILD_PATH}", *program], seconds=90)
    require_success(started, f"{unit} cannot be started")


def _wait(job: _Job, work: str, unit: str, system: System) -> None:
    """Report progress until the unit has ended. Raise FailedError where it does not end in time."""
    began = system.now()
    reported = 0
    while unit_runs(system, unit):
        system.sleep(1)
        elapsed = int(system.now() - began)
        if elapsed > job.seconds:
            raise FailedError(
                f"{job.what} of {job.input.id} has not ended within {_limit(job.seconds)}; its logs are in {work}",
                f"see with `ps -ef --forest` what hangs, end it with `systemctl stop {unit}`, and run again",
            )
        if elapsed // _REPORT_SECONDS > reported:
            reported = elapsed // _REPORT_SECONDS
            system.report(f"{job.doing} {job.input.id}: {_step(job, work, elapsed, system)}")


def _step(job: _Job, work: str, elapsed: int, system: System) -> str:
    """Return what a unit does after so many seconds."""
    if isinstance(job.input, CompileInput):
        return f"{_progress(f'{work}/build.log', system) or 'configuring'} after {elapsed} s"
    folder, file = system.entry(f"{work}/fetch"), system.entry(f"{work}/fetch/progress")
    # Both are the build user's: no link is followed.
    is_fetching = folder and file and (folder.kind, file.kind) == ("folder", "file")
    if is_fetching and not system.names(f"{work}/out/bin"):
        return (system.read(f"{work}/fetch/progress") or "").strip()
    return f"unpacking after {elapsed} s"


def _progress(log: str, system: System) -> str:
    """Return how many steps of how many are done."""
    lines = system.run(["tail", "-c", _TAIL, log]).out.replace("\r", "\n").split("\n")
    steps = [found[1] for found in (re.match(r"\[(\d+/\d+)\]", line) for line in lines) if found]
    return steps[-1] if steps else ""


def _admit(job: _Job, home: str, work: str, system: System) -> None:
    """Make a finished build root's, and move it to its place."""
    if is_whole(home, job.input.targets, system):
        system.report(f"{job.done} {job.input.id}")
        return
    if not system.entry(f"{work}/out/manifest.json"):
        raise _failure(job, work, system)
    _own(system, f"{work}/out", ["chmod", "-R", "u=rwX,go=rX", f"{work}/out"])
    system.remove(home)
    moved = system.run(["mv", "-T", f"{work}/out", home], seconds=_COPY_SECONDS)
    require_success(moved, f"cannot move the build to {home}", "see `df -h /opt`")
    write_stamp(home, system)
    system.remove(work)
    system.report(f"{job.done} {job.input.id} in {_manifest(home, system).get('seconds', '?')} s")


def _failure(job: _Job, work: str, system: System) -> FailedError:
    """Return why a build has failed, with the errors of the compiler. Its logs stay."""
    for name in ("source", "tree"):
        system.remove(f"{work}/{name}")  # gigabytes that the next try makes again
    log: list[str] = []
    for name in ("build.log", "configure.log"):
        found = system.run(["grep", "-aE", "-A", "3", "-m", "20", _REASONS, f"{work}/{name}"])
        if found.ok:
            log = [line[:300] for line in found.out.split("\n")[:20]]
            break
    stopped = (
        f"{job.what} was stopped before it ended (killed, out of memory, or after {_limit(job.seconds)}); run again"
    )
    message, _, fix = (system.read(f"{work}/failed") or "").strip().partition("\n")
    return FailedError(message or stopped, fix, log)


def _limit(seconds: int) -> str:
    return f"{seconds // 3600} h" if seconds >= 7200 else f"{seconds} s"


# --- finished builds ----------------------------------------------------------------------------------------


def is_whole(home: str, targets: Iterable[str], system: System) -> bool:
    """Return whether a build is finished and has all of its programs."""
    paths = (f"{home}/manifest.json", *(f"{home}/bin/{each}" for each in targets))
    return all(is_file(path, system) for path in paths)


def stamp_of(home: str, system: System) -> str:
    """Return the stamp of a finished build, without a read of its programs: modes, owners, sizes and times.

    Each line has the format of `stat`: earlier versions wrote stamps by that program.
    """
    folders = ((".", system.entry(home)), ("bin", system.entry(f"{home}/bin")))
    lines = [f"{name} {found.mode:o} {found.number}" for name, found in folders if found]
    programs = [f"bin/{name}" for name in system.names(f"{home}/bin") if not name.startswith(".")]
    for name in ("manifest.json", *programs):
        if found := system.entry(f"{home}/{name}"):
            times = f"{as_seconds(found.modified)} {as_seconds(found.changed)}"
            lines.append(f"{name} {found.mode:o} {found.number} {found.size} {times} {found.inode}")
    return as_text("".join(f"{line}\n" for line in lines))


def write_stamp(home: str, system: System) -> None:
    """Write the stamp of a finished build, with which inspections compare it."""
    system.write(f"{home}/.stamp", stamp_of(home, system), mode=0o644)


def is_intact(home: str, system: System) -> bool:
    """Return whether the programs of a build are those whose hashes are in its manifest."""
    sums = _sums(home, system)
    return bool(sums) and all(_has_hash(f"{home}/bin/{name}", sha256, system) for name, sha256 in sums.items())


def _has_hash(path: str, sha256: object, system: System) -> bool:
    try:
        # A compile writes the manifest: it may name a pipe, which cannot be read to its end.
        return is_file(path, system) and system.hash(path, lambda _: None) == sha256
    except (OSError, ValueError):  # no file can have a name with a NUL
        return False


def _sums(home: str, system: System) -> dict[str, object]:
    found = _manifest(home, system).get("sha256")
    return found if isinstance(found, dict) else {}


def _manifest(home: str, system: System) -> dict[str, object]:
    try:
        found = json.loads(system.read(f"{home}/manifest.json") or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _own(system: System, path: str, *commands: list[str]) -> None:
    """Make files root's, and set permissions. Raise FailedError."""
    for command in (["chown", "-R", "root:root", path], *commands):
        ended = system.run(command, seconds=_COPY_SECONDS)
        require_success(ended, f"cannot set owner and permissions of {path}")


def vouch(given: VouchInput, system: System) -> None:
    """Accept a build that is what was built, though times, owners or permissions of its files have changed.

    Raise FailedError where it is not. Other files are moved aside: a program may load a library from its own folder.
    """
    home = f"{BUILDS}/{given.id}"
    try:
        with system.lock("build", LOCK_WAIT, f"looking at {given.id}"):
            if not is_intact(home, system):
                raise FailedError(f"{home} is not what was built; run again, and it is built anew")
            sums = _sums(home, system)
            for name in system.names(f"{home}/bin"):
                if name not in sums:
                    _set_aside(f"{home}/bin/{name}", system)
            programs = [f"{home}/bin/{name}" for name in sums]
            open_ = ["chmod", "0755", home, f"{home}/bin", *programs]
            _own(system, home, open_, ["chmod", "0644", f"{home}/manifest.json"])
            write_stamp(home, system)
    except OSError as error:
        raise cannot_write(error) from error


def _set_aside(file: str, system: System) -> None:
    system.folder(str(SET_ASIDE), mode=0o700)
    when = time.strftime("%Y%m%dT%H%M%S", time.localtime(system.clock()))
    to = f"{SET_ASIDE}/{file.lstrip('/').replace('/', '_')}.{when}"
    require_success(system.run(["mv", "-T", file, to], seconds=_COPY_SECONDS), f"cannot move {file} to {to}")
    system.report(f"{file} is no part of what was built; it lies in {to} now")


def admit_source(given: SourceFileInput, system: System) -> None:
    """Accept an archive from the controller if it has the hash that the inventory declares."""
    sent, source = f"{INCOMING}/{given.sha256}", f"{CACHE}/sources/{given.sha256}"
    with system.lock("host", LOCK_WAIT, "letting an archive in"):
        if not system.entry(sent) and system.entry(source):
            return  # another run has sent and admitted it
        have = sha256sum(system, sent)
        if have != given.sha256:
            system.remove(sent)
            raise FailedError(f"the archive arrived with sha256 {have}, but the inventory declares {given.sha256}")
        for command in (["chown", BUILD_USER, sent], ["chmod", "0644", sent], ["mv", "-f", sent, source]):
            require_success(system.run(command, seconds=_COPY_SECONDS), f"cannot move the archive to {source}")


VERBS = {
    "inspect": Verb(InspectInput, inspect),
    "build": Verb(BuildInput, build),
    "install": Verb(InstallInput, install),
    "vouch": Verb(VouchInput, vouch),
    "admit_source": Verb(SourceFileInput, admit_source),
}
