"""Estimate the memory of servers by the engine's own tool, which runs on this host without weights."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from llamaherd.layout import STATE
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.store import is_vouched
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WORK = "asked."
"""The prefix of temporary folders of runs."""
_STALE_SECONDS = 3600
"""The age at which a temporary folder belongs to a run that was killed."""
_MOST_OUTPUT = 1 << 18
_OUT_OF_MEMORY_FIRST = "1000"
"""The tool allocates recurrent state for a moment. If memory runs short, the kernel kills the tool, not a server."""


@dataclass(frozen=True)
class FileInput:
    """A file of a model."""

    name: str
    sha256: str


@dataclass(frozen=True)
class HeaderInput:
    """The header of a file, gzip in base64, and the size in bytes that the whole file has."""

    name: str
    size: int
    packed: str


@dataclass(frozen=True)
class ModelInput:
    """A model in the store, and the headers that stand for its files where it is not stored."""

    name: str
    folder: str
    path: str
    files: tuple[FileInput, ...]
    headers: tuple[HeaderInput, ...] = ()


@dataclass(frozen=True)
class InstanceInput:
    """An instance: its model, the folder of its build, and the tool's arguments, in which `path` is the model."""

    name: str
    model: str
    build: str
    path: str
    environment: tuple[str, ...]
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class EstimateInput:
    """The tool, the seconds that it has for one instance, and the account that it runs as."""

    models: tuple[ModelInput, ...]
    instances: tuple[InstanceInput, ...]
    tool: str
    seconds: int
    user: str


@dataclass(frozen=True)
class ToolRun:
    """How the tool ended for one instance; `unbuilt`: there is no build, `absent`: the model is not stored."""

    state: Literal["unbuilt", "absent", "ran"]
    code: int = 0
    figures: str = ""
    log: str = ""


@dataclass(frozen=True)
class ToolRuns:
    """The runs, by the names of instances."""

    runs: Mapping[str, ToolRun]


def estimate(given: EstimateInput, system: System) -> ToolRuns:
    """Run the tool for each instance. Nothing stays on the host. Raise FailedError where a header cannot be written."""
    with _work_folder(system) as work:
        paths = {model.name: _path(model, f"{work}/{number}", system) for number, model in enumerate(given.models)}
        user, group = _account(given.user, system)
        run_as = ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", "--no-new-privs"]
        limits = ["prlimit", "--core=0", "choom", "-n", _OUT_OF_MEMORY_FIRST, "--"]
        found = {
            each.name: _run([*limits, *run_as], each, paths.get(each.model, ""), given, system)
            for each in given.instances
        }
    return ToolRuns(found)


@contextmanager
def _work_folder(system: System) -> Iterator[str]:
    """Yield a new folder, which is removed at the end; on a host that is not set up, only its path."""
    work = f"{STATE}/{_WORK}{system.random().hex()[:12]}"
    for name in system.names(str(STATE)):
        found = system.entry(f"{STATE}/{name}")
        if name.startswith(_WORK) and found and system.clock() - found.written > _STALE_SECONDS:
            system.remove(f"{STATE}/{name}")
    try:
        yield work
    finally:
        system.remove(work)


def _path(model: ModelInput, folder: str, system: System) -> str:
    """Return the model's file: as it is stored, or a header followed by a hole; empty if there is neither."""
    if all(is_vouched(system, model.folder, file.name, file.sha256) for file in model.files):
        return model.path
    if not model.headers or system.entry(str(STATE)) is None:
        return ""
    for header in model.headers:
        path = f"{folder}/{header.name}"
        try:
            system.write(path, gzip.decompress(base64.b64decode(header.packed)), mode=0o644)
        except OSError as error:
            raise cannot_write(error) from error
        grown = system.run(["truncate", "-s", str(header.size), path])
        if not grown.ok:
            raise FailedError(f"a file of {header.size} bytes cannot be made: {grown.err.strip()}")
    return f"{folder}/{model.files[0].name}"


def _account(user: str, system: System) -> tuple[str, str]:
    """Return the numbers of an account and of its group, or those of `nobody`."""
    for name in (user, "nobody"):
        ids = [system.run(["id", option, name]) for option in ("-u", "-g")]
        if all(each.ok for each in ids):
            return ids[0].out.strip(), ids[1].out.strip()
    raise FailedError(f"there is no account {user} and no account `nobody`", f"run `herd up`, which creates {user}")


def _run(run_as: list[str], each: InstanceInput, model: str, given: EstimateInput, system: System) -> ToolRun:
    tool = f"{each.build}/bin/{given.tool}"
    program = system.entry(tool)
    if system.entry(f"{each.build}/manifest.json") is None or program is None or not program.mode & 0o111:
        return ToolRun("unbuilt")
    if not model:
        return ToolRun("absent")
    arguments = [model if word == each.path else word for word in each.arguments]
    declared = dict(assignment.split("=", 1) for assignment in each.environment)
    ended = system.run(
        [*run_as, tool, *arguments],
        seconds=given.seconds,
        environment={"PATH": PATH, "XDG_CONFIG_HOME": "/nonexistent", **declared},
    )
    # A signal is a negative code, and 128 and more for a shell.
    code = ended.code if ended.code >= 0 else 128 - ended.code
    return ToolRun("ran", code, ended.out[-_MOST_OUTPUT:], ended.err[-_MOST_OUTPUT:])


VERBS = {"estimate": Verb(EstimateInput, estimate)}
