"""Compile an engine as the user llama-build, in a unit of its own: a lost connection does not stop it.

A build that is finished has a manifest, which is written last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llamaherd.layout import BUILD_PATH, BUILD_USER, CACHE, WORK
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, System
from llamaherd.onhost.verbs import Verb

if TYPE_CHECKING:
    from roles.engines.onhost.prebuilt import ReleaseInput

LOGS = ("configure.log", "build.log", "version.log", "help.log", "devices.log")
_LONG_SECONDS = 43_200
"""Of a compiler: the unit ends before that."""
_START_SECONDS = 300
_FLAGS = 64_000
"""Characters of the flags that a server lists."""
_CACHE_FILE = 8 << 20
_PAGE = "tools/ui/dist"
"""Where the build of llama.cpp takes a finished page from, whatever its options are."""
_UNDECLARED = re.compile(r"(GGML_[A-Za-z0-9_]*):UNINITIALIZED=")


@dataclass(frozen=True)
class PageInput:
    """The archive of the page that llama-server contains: its URL and sha256."""

    url: str
    sha256: str


@dataclass(frozen=True)
class SourceInput:
    """Where the source is: a commit of a git repository, or an archive."""

    git: str
    commit: str
    archive: str
    """A URL, or the name of a file that the controller has sent."""
    is_sent: bool
    sha256: str
    folder: str
    """Where `CMakeLists.txt` is in it."""
    overlay: Mapping[str, str]
    """Files that are written into that folder."""
    seconds: int
    """How long it may take to arrive."""
    page: PageInput | None = None


@dataclass(frozen=True)
class CompileInput:
    """An engine to compile."""

    id: str
    kind: str
    source: SourceInput
    options: Mapping[str, str]
    targets: tuple[str, ...]
    bytes_per_job: int
    cuda: str
    """The version of CUDA; empty for a build for the CPU."""
    nvcc: str
    lists_flags: bool
    lists_devices: bool
    work: str = str(BUILD_PATH)
    cache: str = str(CACHE)
    user: str = BUILD_USER


def compile_engine(given: CompileInput, system: System) -> None:
    """Build an engine in `out`. Raise FailedError, and write the reason to `failed`."""
    with reason_kept(given.work, given.user, system):
        _compile(given, system)


@contextmanager
def reason_kept(work: str, user: str, system: System) -> Iterator[None]:
    """Write why the block fails to `failed`, with the fix in a line of its own. Raise FailedError."""
    try:
        yield
    except (FailedError, OSError) as error:
        failed = cannot_write(error) if isinstance(error, OSError) else error
        text = "".join(f"{line}\n" for line in (failed.message, failed.fix) if line)
        with suppress(OSError):  # the disk may be full: the unit's journal has the reason
            system.write(f"{work}/failed", text, mode=0o644, owner=user)
        raise failed from error


def _compile(given: CompileInput, system: System) -> None:
    began = int(system.clock())
    for name in ("source", "tree", "out", "failed", *LOGS):
        system.remove(f"{given.work}/{name}")
    for name in ("source", "tree", "out/bin"):
        system.folder(f"{given.work}/{name}")
    root = _fetch(given, system)
    jobs = _jobs(given.bytes_per_job, system)
    _configure(given, root, jobs, system)
    _build(given, jobs, system)
    message = f"the server that was built does not start; see {WORK}/{given.id}/version.log"
    version = start_server(given, lambda _: FailedError(message), system)
    source = given.source
    name = source.archive.rpartition("/")[2]
    about: dict[str, object] = {
        "id": given.id,
        "kind": given.kind,
        "source": {"git": source.git, "commit": source.commit}
        if source.git
        else {"archive": name, "sha256": source.sha256},
        "options": dict(given.options),
        "compiler": first_line(system.run(["c++", "--version"]).out),
    }
    if given.cuda:
        about["cuda"] = first_line(system.run([given.nvcc, "--version"]).out, "release")
    about |= {"version": version, "jobs": jobs, "seconds": int(system.clock()) - began}
    # Last, and all in one line: the inspection reads it so.
    about["sha256"] = {each: sha256sum(system, f"{given.work}/out/bin/{each}") for each in sorted(given.targets)}
    system.write(f"{given.work}/out/manifest.json", f"{json.dumps(about)}\n", mode=0o644, owner=given.user)


# --- the source ---------------------------------------------------------------------------------------------


def _fetch(given: CompileInput, system: System) -> str:
    """Fetch the source, write the overlay, and return the folder with `CMakeLists.txt`."""
    source = given.source
    if source.git:
        _fetch_commit(given, system)
    else:
        _fetch_archive(given, system)
    root = f"{given.work}/source/{source.folder}"
    if not _is_file(system, f"{root}/CMakeLists.txt"):
        raise FailedError(f"there is no CMakeLists.txt in folder '{source.folder}' of the source")
    for path, text in source.overlay.items():
        there = system.entry(f"{root}/{path}")
        mode = there.mode if there and there.kind == "file" else 0o644
        system.write(f"{root}/{path}", text, mode=mode, owner=given.user)
    if source.page:
        _add_page(given, source.page, f"{root}/{_PAGE}", system)
    return root


def _add_page(given: CompileInput, page: PageInput, folder: str, system: System) -> None:
    """Fetch the page to the folder that the build of llama.cpp uses first, before it runs npm or downloads a page."""
    archive = f"{given.cache}/sources/{page.sha256}"
    if not _is_file(system, archive):
        _fetch_file(given, page.url, archive, system)
    _require_hash(archive, page.url, page.sha256, "the lock has", system)
    system.folder(folder)
    _extract(archive, page.url, folder, system)
    if not _is_file(system, f"{folder}/index.html"):
        raise FailedError(f"{page.url} is no archive of a page: it has no index.html")


def _fetch_commit(given: CompileInput, system: System) -> None:
    source, folder = given.source, f"{given.work}/source"
    git = ["git", "-C", folder, "-c", "http.lowSpeedLimit=512", "-c", "http.lowSpeedTime=60"]
    what = f"cannot fetch commit {source.commit} from {source.git}"
    commands = (
        ["git", "init", "-q", folder],
        [*git, "fetch", "-q", "--depth", "1", "--", source.git, source.commit],
        [*git, "checkout", "-q", "FETCH_HEAD"],
    )
    for command in commands:
        _require_fetched(system, command, what, source.seconds)


def _fetch_archive(given: CompileInput, system: System) -> None:
    source = given.source
    archive = f"{given.cache}/sources/{source.sha256}"
    if not source.is_sent and not _is_file(system, archive):
        _fetch_file(given, source.archive, archive, system)
    _require_hash(archive, source.archive, source.sha256, "the inventory declares", system)
    _extract(archive, source.archive, f"{given.work}/source", system)


def _fetch_file(given: CompileInput, url: str, to: str, system: System) -> None:
    """Fetch an archive. Raise FailedError."""
    part, seconds = f"{to}.{given.id}", str(given.source.seconds)
    slow = ("--connect-timeout", "30", "--speed-limit", "512", "--speed-time", "60", "--max-time", seconds)
    again = ("--retry", "3", "--retry-max-time", seconds)
    curl = ["curl", "-q", "-gfsSL", *slow, *again, "-o", part, "--url", url]
    try:
        _require_fetched(system, curl, f"cannot fetch {url}", given.source.seconds)
    except FailedError:
        system.remove(part)
        raise
    system.rename(part, to)


def _require_hash(archive: str, url: str, sha256: str, expected: str, system: System) -> None:
    """Remove an archive with another hash, and raise FailedError."""
    have = sha256sum(system, archive)
    if have != sha256:
        system.remove(archive)
        raise FailedError(f"{url.rpartition('/')[2]} has sha256 {have}, but {expected} {sha256}")


def _extract(archive: str, url: str, folder: str, system: System) -> None:
    if not system.run(["tar", "-C", folder, "-xf", archive], seconds=_LONG_SECONDS).ok:
        raise FailedError(f"{url.rpartition('/')[2]} is no archive that tar can read")


def _require_fetched(system: System, command: Sequence[str], what: str, seconds: int) -> None:
    """Run a command that ends in time, also where the other end sends a byte now and then. Raise FailedError."""
    ended = system.run(command, seconds=seconds)
    if ended.code == TIMED_OUT:
        raise FailedError(f"{what}: not all of it has come within {seconds // 60} min")
    if not ended.ok:
        raise FailedError(f"{what}: {last_line(ended)}")


# --- CMake --------------------------------------------------------------------------------------------------


def _jobs(bytes_per_job: int, system: System) -> int:
    """Return as many jobs as cores, but no more than memory holds: a compiler that swaps stops the whole machine."""
    cores = int(system.run(["nproc"]).out or 1)
    found = re.search(r"^MemAvailable: *(\d+)", system.read("/proc/meminfo") or "", re.MULTILINE)
    memory = int(found[1]) * 1024 if found else 0
    return max(1, min(cores, memory // bytes_per_job))


def _environment(given: CompileInput, jobs: int) -> list[str]:
    """Return the command that sets ccache's variables.

    It compares compiles by content, not by path or time, so that a rebuild from scratch finds them. It also compares
    locales: units have none.
    """
    variables = {
        "CCACHE_DIR": f"{given.cache}/ccache",
        "CCACHE_BASEDIR": given.work,
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_COMPILERCHECK": "content",
        "CCACHE_MAXSIZE": "10G",
        "CCACHE_SLOPPINESS": "time_macros",
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
    }
    return ["env", "--unset=LC_ALL", *(f"{name}={value}" for name, value in variables.items())]


def _configure(given: CompileInput, root: str, jobs: int, system: System) -> None:
    tree, log = f"{given.work}/tree", f"{given.work}/configure.log"
    options = [f"-D{name}={value}" for name, value in given.options.items()]
    cmake = ["cmake", "-S", root, "-B", tree, "-G", "Ninja", *options]
    ended = system.run_logged([*_environment(given, jobs), *cmake], log, seconds=_LONG_SECONDS)
    if not ended.ok:
        raise FailedError(f"CMake cannot configure it; the log is {WORK}/{given.id}/configure.log")
    cached = system.read(f"{tree}/CMakeCache.txt", _CACHE_FILE) or ""
    # ggml reads every GGML_ name there is, so that CMake counts none as unused; an undeclared one has no type.
    undeclared = [found[1] for found in map(_UNDECLARED.match, cached.split("\n")) if found]
    if unused := [*_unused(ended.out), *undeclared]:
        raise FailedError(f"this engine does not have these CMake options: {' '.join(unused)}")
    if given.cuda and not given.lists_devices and "CUDA not found" in ended.out:
        # This engine only warns, and builds for the CPU.
        raise FailedError(f"CUDA {given.cuda} was not found, so that the build is for the CPU alone")


def _unused(log: str) -> Iterator[str]:
    """Return the options that CMake lists, indented, as those that the project does not use."""
    _, _, after = log.partition("variables were not used by the project:")
    for line in after.split("\n"):
        if line.startswith(" ") and line.strip():
            yield line.split()[0]
        elif line.strip():
            return


def _build(given: CompileInput, jobs: int, system: System) -> None:
    tree, log = f"{given.work}/tree", f"{given.work}/build.log"
    cmake = ["cmake", "--build", tree, "-j", str(jobs), "--target", *given.targets]
    if not system.run_logged([*_environment(given, jobs), *cmake], log, seconds=_LONG_SECONDS).ok:
        raise FailedError(f"it does not compile; the log is {WORK}/{given.id}/build.log")
    for target in given.targets:
        system.copy(f"{tree}/bin/{target}", f"{given.work}/out/bin/{target}")


# --- the server that was built ------------------------------------------------------------------------------


def start_server(given: CompileInput | ReleaseInput, refused: Callable[[Ended], FailedError], system: System) -> str:
    """Return the version that the server in `out/bin` prints.

    Raise FailedError if it does not start (`refused`) or lacks CUDA.
    """

    def run(option: str, log: str) -> Ended:
        server = f"{given.work}/out/bin/llama-server"
        return system.run_logged([server, option], f"{given.work}/{log}", seconds=_START_SECONDS)

    started = run("--version", "version.log")
    if not started.ok:
        raise refused(started)
    if given.lists_flags:
        flags = listed_flags(run("--help", "help.log").out)
        system.write(f"{given.work}/out/flags", flags, mode=0o644, owner=given.user)
    if given.cuda and given.lists_devices and "CUDA" not in run("--list-devices", "devices.log").out:
        raise FailedError("this is a CUDA build, but its server finds no CUDA device: is the driver loaded?")
    devices = ("/dev/nvidiactl", "/dev/dxg")
    if given.cuda and not given.lists_devices and not any(system.entry(each) for each in devices):
        raise FailedError("this is a CUDA build, but there is no CUDA device on this host")
    return first_line(started.out, "version")


def listed_flags(help_: str) -> str:
    """Return the flags of a server's help without their descriptions. Checks compare `extra_args` with them."""
    flags = [
        re.sub(r", +", ",", re.sub(r"  +[^- ].*$", "", line)).rstrip(" ")
        for line in help_.split("\n")
        if re.match(r"--?[A-Za-z]", line) and "argument has been removed" not in line
    ]
    return "".join(f"{flag}\n" for flag in flags)[:_FLAGS]


# --- small things -------------------------------------------------------------------------------------------


def sha256sum(system: System, path: str) -> str:
    """Return the hash of a file of any size; empty where it cannot be read."""
    return system.run(["sha256sum", path], seconds=_LONG_SECONDS).out[:64]


def _is_file(system: System, path: str) -> bool:
    there = system.entry(path)
    return there is not None and there.kind in ("file", "link")


def last_line(ended: Ended) -> str:
    """Return the last line of a program's output."""
    return next(iter((ended.out + ended.err).strip().split("\n")[-1:]), "")


def first_line(text: str, word: str = "") -> str:
    """Return the first line with a word, without what JSON escapes: a shell reads manifests, too."""
    found = next((line for line in text.split("\n") if word in line), "")
    return re.sub(r'["\\]', "", found)


VERBS = {"compile": Verb(CompileInput, compile_engine)}
