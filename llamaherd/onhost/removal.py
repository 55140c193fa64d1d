"""Find the users of files on a host, and remove unused builds, images, preset files and caches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from llamaherd.layout import APT_ARCHIVES, BUILDS, CACHE, PRESETS, PROJECTS, UNITS, WORK
from llamaherd.onhost.clients import docker, systemctl
from llamaherd.onhost.releases import needed
from llamaherd.onhost.system import TIMED_OUT, Entry, FailedError, HeldError, System
from llamaherd.onhost.verbs import Verb

_MOST_STARTER = 1023 << 10
"""Bytes of a file by which users start something."""
_MOST_MAPS = 64 << 20
_MOST_PATH = 4096
_UNIT = re.compile(r"llama[A-Za-z0-9@._-]*\.service")
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_PATH = re.compile(r"""/[^\s"'=:,;\[\]]+""")
_HOSTNAME = re.compile(r'"hostname": *"([^"]*)"')
_MORE_OF_A_NAME = re.compile(r"[A-Za-z0-9._-]")
_TOPS = (
    *("/etc", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd"),
    *("/run/systemd", "/var/spool/cron"),
)
_STARTERS = ("*.service", "*.container", "*compose*.y*ml", "*.sh", "*.env", ".env")
_AT_ONCE = 20
"""Containers that Docker is queried for at once: its response is read up to a limit."""


UseKind = Literal["unit", "container", "file", "process", "release", "kept"]
"""The kind of a user; `release` and `kept` need a file for a rollback."""


@dataclass(frozen=True, order=True)
class Use:
    """A user of a path of the folder, which names it, has it open or mapped. The path may have a suffix."""

    kind: UseKind
    name: str
    path: str


Text = tuple[UseKind, str, str]
"""A kind, a name, and a text that may contain paths."""


def is_within(text: str, path: str) -> bool:
    """Return whether a text begins with a path, or one in it: not with more of the path's last name."""
    return text.startswith(path) and not _MORE_OF_A_NAME.match(text, len(path))


def real_path(system: System, path: str) -> str:
    """Return the path of a folder without links; empty where there is no such folder."""
    real = system.resolved(path)
    found = system.entry(real)
    return real if found and found.kind == "folder" else ""


def find_uses(system: System, folder: str, keep: int) -> list[Use]:
    """Return the users of a folder's files, including so many good releases. Raise FailedError."""
    real = real_path(system, folder)
    roots = (folder, real) if real else (folder,)
    found: set[Use] = set()
    for kind, name, text in (*_declared(system), *_commands(system, roots), *_links(system, real)):
        found |= {*_paths(roots, kind, name, text)}
    for kind, name, text in needed(system, keep):
        found |= {*_paths(roots, kind, name, text)}
    found |= {*_written(system, roots)}
    if real:
        found |= {*_held(system, folder, real)}
    return sorted(found)


def _paths(roots: Iterable[str], kind: UseKind, name: str, text: str, *, whole: bool = False) -> Iterator[Use]:
    """Yield a use for each path of the folder in a text. The text after the path stays: it may have blanks.

    With `whole`, a program that may use all of the folder may use anything in it.
    """
    folder = next(iter(roots))
    for line in text.split("\n"):
        for root in roots:
            at = line.find(f"{root}/")
            while at >= 0:
                yield Use(kind, name, folder + line[at + len(root) : at + _MOST_PATH])
                at = line.find(f"{root}/", at + len(root))
            if whole and re.search(rf"(?:^|[^A-Za-z0-9._/-]){re.escape(root)}/?[^A-Za-z0-9._/-]", f"{line} "):
                yield Use(kind, name, folder)


def _declared(system: System) -> Iterator[Text]:
    """Yield units and Compose files of servers, and the settings of containers."""
    for unit in system.names(str(UNITS)):
        if fnmatchcase(unit, "llama-*.service"):
            yield "unit", unit, system.read(f"{UNITS}/{unit}") or ""
    for project in system.names(str(PROJECTS)):
        yield "container", f"llama-{project}", system.read(f"{PROJECTS}/{project}/compose.yaml") or ""
    ids = _docker(system, "ps", "-aq", "--no-trunc").split()
    for at in range(0, len(ids), _AT_ONCE):
        yield from _mounts(_docker(system, "inspect", "--type", "container", *ids[at : at + _AT_ONCE]))


def _docker(system: System, *words: str) -> str:
    """Return the output of Docker; an empty text if it does not run. Raise FailedError if it hangs."""
    ended = docker(system, *words)
    if ended.code == TIMED_OUT:
        raise FailedError("Docker does not respond, so it is unknown what its containers use", "see `docker ps`")
    return ended.out


def _mounts(inspected: str) -> Iterator[Text]:
    """Yield the sources of a container's mounts, and its arguments and variables with the host's paths."""
    try:
        containers: list[dict[str, Any]] = json.loads(inspected or "[]")
    except ValueError:
        raise FailedError("Docker's description of its containers is not JSON", "see `docker inspect`") from None
    for each in containers:
        name = str(each.get("Name", "")).removeprefix("/")
        texts = [*(each.get("Args") or ()), *((each.get("Config") or {}).get("Env") or ())]
        for mount in each.get("Mounts") or ():
            source, target = str(mount.get("Source", "")), str(mount.get("Destination", ""))
            yield "container", name, source
            for text in texts if target else ():
                yield "container", name, str(text).replace(target, source)


def _commands(system: System, roots: Iterable[str]) -> Iterator[Text]:
    """Yield the arguments of processes that name a path of the folder."""
    for pid in _pids(system):
        words = system.read(f"/proc/{pid}/cmdline") or ""
        if any(f"{root}/" in words for root in roots):
            yield (*_owner(system, pid), words.replace("\0", "\n"))


def _pids(system: System) -> list[str]:
    return [each for each in system.names("/proc") if each.isdecimal()]


def _owner(system: System, pid: str) -> tuple[UseKind, str]:
    """Return the owner of a process: a server's unit, a container, or itself."""
    group = system.read(f"/proc/{pid}/cgroup") or ""
    if units := _UNIT.findall(group):
        return "unit", units[-1]
    if ids := _CONTAINER.findall(group):
        name = _docker(system, "inspect", "--type", "container", "--format", "{{.Name}}", ids[-1]).strip()
        if name:
            return "container", name.removeprefix("/")
    command = re.sub(r"[\n\t]", "", system.read(f"/proc/{pid}/comm") or "")
    return "process", f"{pid} {command}"


def _links(system: System, real: str) -> Iterator[Text]:
    """Yield the targets of links that units name, if they are in the folder."""
    users = [f"/home/{each}/.config/systemd/user" for each in system.names("/home")]
    for folder in (str(UNITS), *users):
        for unit in system.names(folder):
            if not unit.endswith(".service"):
                continue
            named = {*_PATH.findall(system.read(f"{folder}/{unit}") or "")}
            for path in map(system.resolved, sorted(named)):
                if real and f"{real}/" in path:
                    yield "unit", unit, path


def _homes(system: System) -> list[str]:
    """Return the home folders of users."""
    found = {f"/home/{each}" for each in system.names("/home")} | {"/root"}
    for line in system.run(["getent", "passwd"]).out.splitlines():
        fields = line.split(":")
        if len(fields) > 5 and fields[2].isdecimal() and 1000 <= int(fields[2]) < 65_000:
            found.add(fields[5])
    return sorted(found)


def _starters(system: System, homes: Iterable[str]) -> Iterator[str]:
    """Yield files by which users start things: units of the system and of users, Quadlets, scripts, Compose files."""
    for top in _TOPS:
        for path, found in system.tree(top):
            ours = path.startswith("/etc/llamaherd/") or "/llamaherd-" in path
            if _is_small(found) and not ours:
                yield path
    for home in homes:
        for folder in (".config/systemd", ".config/containers", ".local/share/systemd"):
            yield from (path for path, found in system.tree(f"{home}/{folder}") if found.kind == "file")
        yield from _named_so(system, home, 4)
        yield from _podmans(system, f"{home}/.local/share/containers")
    yield from _podmans(system, "/var/lib/containers")
    yield from _named_so(system, "/opt", 5)
    yield from _named_so(system, "/srv", 5)


def _is_small(found: Entry) -> bool:
    return found.kind == "file" and found.size <= _MOST_STARTER


def _named_so(system: System, folder: str, depth: int) -> Iterator[str]:
    for path, found in system.tree(folder, depth):
        name = path.rpartition("/")[2]
        if _is_small(found) and any(fnmatchcase(name, each) for each in _STARTERS):
            yield path


def _podmans(system: System, folder: str) -> Iterator[str]:
    """Yield the settings of the containers that Podman keeps in a folder: of root's, and of each user's."""
    for path, found in system.tree(folder, 5):
        if _is_small(found) and fnmatchcase(path, "*-containers/*/userdata/config.json"):
            yield path


def _written(system: System, roots: tuple[str, ...]) -> Iterator[Use]:
    """Yield the programs that users have set up, also if they do not run now."""
    homes = _homes(system)
    folder = roots[0]
    names = (*roots, *(folder.removeprefix(f"{home}/") for home in homes if folder.startswith(f"{home}/")))
    for path in {*_starters(system, homes)}:
        text = system.read(path) or ""
        if "\0" in text or not any(name in text for name in names):
            continue
        home = next((each for each in homes if path.startswith(f"{each}/")), "")
        for spelled in ("%h/", "${HOME}/", "$HOME/", "~/"):
            text = text.replace(spelled, f"{home}/")
        kind, name, whole = _starter(path, text)
        yield from _paths(roots, kind, name, text, whole=whole)


def _starter(path: str, text: str) -> tuple[UseKind, str, bool]:
    """Return the kind and name of a file by which users start something, and whether it may use a whole folder."""
    if fnmatchcase(path, "*.service.d/*.conf"):
        return "unit", path.rpartition(".d/")[0].rpartition("/")[2], True
    if path.endswith("/userdata/config.json"):
        named = _HOSTNAME.search(text)
        return "container", named[1] if named and named[1] else path, True
    if path.endswith((".service", ".container")):
        return "unit", path.rpartition("/")[2], True
    return "file", path, fnmatchcase(path, "*compose*.y*ml") or path.endswith(".sh")


def _held(system: System, folder: str, real: str) -> Iterator[Use]:
    """Yield the processes with open or mapped files: by number and name, as a container may have another path for a
    file.
    """
    files = {
        (str(found.inode), path.rpartition("/")[2]): path.removeprefix(real)
        for path, found in system.tree(real)
        if found.kind == "file"
    }
    names = {name for _, name in files}
    for pid in _pids(system):
        opened = {system.target(f"/proc/{pid}/fd/{each}") for each in system.names(f"/proc/{pid}/fd")}
        held = {path.removeprefix(real) for path in opened if path.startswith(f"{real}/")}
        for line in (system.read(f"/proc/{pid}/maps", _MOST_MAPS) or "").split("\n") if names else ():
            before, slash, rest = line.partition(" /")
            name = rest.removesuffix(" (deleted)").rpartition("/")[2]
            if slash and name in names and (path := files.get((before.split()[-1], name))):
                held.add(path)
        if held:
            kind, name = _owner(system, pid)
            for path in held:
                yield Use(kind, name, folder + path)


LEFT = ".trash-"
"""The prefix of folders that an interrupted removal has left."""


@dataclass(frozen=True)
class Outcome:
    """The removed and the kept items, with reasons.

    `busy`: the progress of another run, if it reports any, because of which nothing was done.
    """

    removed: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    busy: str | None = None

    @property
    def ok(self) -> bool:
        """Return whether everything was removed as requested."""
        return not self.kept and self.busy is None


class Removals:
    """Collects the removed and the kept items."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._removed: list[str] = []
        self._kept: dict[str, str] = {}

    def record(self, what: str, why: str = "") -> None:
        """Record that an item was removed, or why it was not."""
        if why:
            self._kept[what] = why
        else:
            self._removed.append(what)

    def discard(self, path: str, trash: str) -> bool:
        """Remove a file or folder: out of the way by one rename, so that it never lies half in its place.

        Return False where it cannot be removed. `trash` is a folder on the same disk.
        """
        bin_ = f"{trash}/{LEFT}{self._system.random().hex()[:12]}"
        try:
            self._system.folder(bin_, mode=0o700)
            self._system.rename(path, f"{bin_}/it")
            # The rest of an interrupted removal has neither its name nor a manifest.
            if self._system.entry(f"{bin_}/it/.manifest"):
                self._system.remove(f"{bin_}/it/.manifest")
            self._system.remove(bin_)
        except OSError:
            if not self._system.names(bin_):
                with suppress(OSError):
                    self._system.remove(bin_)
            return False
        return True

    @property
    def outcome(self) -> Outcome:
        """Return the result."""
        return Outcome(tuple(self._removed), self._kept)


def empty_trash(system: System, folder: str) -> None:
    """Remove the rests of interrupted removals in a folder."""
    for name in system.names(folder):
        if name.startswith(LEFT):
            with suppress(OSError):
                system.remove(f"{folder}/{name}")


Kind = Literal["build", "image", "preset", "source", "work", "packages"]
"""Finished builds, images of them, preset files of groups, sources as they were sent, rests of builds, and downloaded
packages.
"""
SOURCES = CACHE / "sources"
_PRESET = re.compile(r"[a-z0-9-]+-[0-9a-f]{12}\.ini")
"""Named by their content: files that users have put there have other names."""
_BLOCK = 512
_SIZE_SECONDS, _LOCK_SECONDS, _APT_SECONDS = 60, 10, 120


@dataclass(frozen=True)
class UnusedInput:
    """The number of good releases that count as users."""

    keep: int


@dataclass(frozen=True)
class FoundThing:
    """A removable item, and its size in bytes. Bytes that images share are counted in each."""

    kind: Kind
    name: str
    size: int


@dataclass(frozen=True)
class Things:
    """All items, and their users: the path of a use begins with a name, or is the folder of all.

    `building`: a build runs.
    """

    things: tuple[FoundThing, ...] = ()
    needs: tuple[Use, ...] = ()
    building: bool = False


@dataclass(frozen=True)
class RemoveInput:
    """The items to remove if they are still unused, by name."""

    builds: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    packages: bool = False
    keep: int = 0


def inspect(given: UnusedInput, system: System) -> Things:
    """Return the removable items, and their users. Raise FailedError if these are unknown."""
    things = tuple(_things(system))
    return Things(things, tuple(sorted(_needs(system, given.keep))), _is_building(system))


def _things(system: System) -> Iterator[FoundThing]:
    for build in _builds(system):
        yield FoundThing("build", build, size_on_disk(system, f"{real_path(system, str(BUILDS))}/{build}"))
    for image in _images(system):
        size = docker(system, "image", "inspect", "--format", "{{.Size}}", image).out.strip()
        yield FoundThing("image", image, int(size) if size.isdecimal() else 0)
    for preset in _presets(system):
        yield FoundThing("preset", preset, size_on_disk(system, f"{PRESETS}/{preset}"))
    places: tuple[tuple[Kind, str], ...] = (("source", str(SOURCES)), ("work", str(WORK)))
    for kind, folder in places:
        for name in system.names(folder):
            found = system.entry(f"{folder}/{name}")
            if found and found.kind != "link" and not name.startswith("."):
                yield FoundThing(kind, name, size_on_disk(system, f"{folder}/{name}"))
    packages = (found for path, found in system.tree(str(APT_ARCHIVES)) if path.endswith(".deb"))
    yield FoundThing("packages", "apt", sum(each.blocks for each in packages if each.kind == "file") * _BLOCK)


def size_on_disk(system: System, path: str) -> int:
    """Return the bytes that an item takes of its disk."""
    size = system.run(["du", "-sx", "-B1", "--", path], seconds=_SIZE_SECONDS).out.split("\t")[0]
    return int(size) if size.isdecimal() else 0


def _builds(system: System) -> list[str]:
    real = real_path(system, str(BUILDS))
    entries = [(name, system.entry(f"{real}/{name}")) for name in (system.names(real) if real else ())]
    return [name for name, found in entries if found and found.kind == "folder" and not name.startswith(".")]


def _images(system: System) -> list[str]:
    form = "{{.Repository}}:{{.Tag}}"
    listed = docker(system, "image", "ls", "--filter", "reference=llamaherd/*", "--format", form).out.split()
    return [each for each in listed if not each.endswith(":<none>")]


def _presets(system: System) -> list[str]:
    entries = [(name, system.entry(f"{PRESETS}/{name}")) for name in system.names(str(PRESETS))]
    return [name for name, found in entries if _PRESET.fullmatch(name) and found and found.kind == "file"]


def _is_building(system: System) -> bool:
    """Return whether a build runs: files in caches and work folders may be part of it."""
    units = ("list-units", "-q", "--no-legend", "--plain", "--state=active,activating", "llamaherd-build-*")
    return bool(systemctl(system, *units).out.strip())


def _needs(system: System, keep: int) -> set[Use]:
    """Return the users of each build, image or preset file. A program that may use all of a folder needs the folder."""
    images, presets, builds = _images(system), _presets(system), _builds(system)
    folders = [str(BUILDS)] if real_path(system, str(BUILDS)) else []
    folders += [str(PRESETS)] if presets else []
    found = {
        Use(use.kind, use.name, use.path.removeprefix(f"{folder}/"))
        for folder in folders
        for use in find_uses(system, folder, keep)
    }
    for kind, name, text in needed(system, keep):
        found |= {Use(kind, name, thing) for thing in (*builds, *images, *presets) if thing in text}
    # Of an image that another was made from, too.
    for image in images:
        names = docker(system, "ps", "-a", "--filter", f"ancestor={image}", "--format", "{{.Names}}").out.split()
        found |= {Use("container", name, image) for name in names}
    return found


def remove(given: RemoveInput, system: System) -> Outcome:
    """Remove unused items. Nothing is removed while a server is started or a build runs."""
    with ExitStack() as locks:
        try:
            # While the first is held no server is started, while the second is no build is finished.
            locks.enter_context(system.lock("host", _LOCK_SECONDS, "removing unused items"))
            locks.enter_context(system.lock("build", _LOCK_SECONDS, "removing unused items"))
        except HeldError:
            return Outcome(busy="")
        return _Removal(system, given.keep).remove(given)


class _Removal(Removals):
    """Removes items, and collects the results."""

    def __init__(self, system: System, keep: int) -> None:
        super().__init__(system)
        self._builds = real_path(system, str(BUILDS))
        for folder in (self._builds, str(SOURCES), str(WORK), str(PRESETS)):
            if folder:
                empty_trash(system, folder)
        self._needs = sorted(_needs(system, keep))

    def remove(self, given: RemoveInput) -> Outcome:
        """Remove all of it."""
        for name in given.builds if self._builds else ():
            if self._is_free(name, f"build {name}", str(BUILDS)):
                self._discard(f"{self._builds}/{name}", f"build {name}")
        for tag in given.images:
            if self._is_free(tag, f"image {tag}", str(BUILDS)):
                done = docker(self._system, "image", "rm", tag).ok
                self.record(f"image {tag}", "" if done else "Docker does not remove it")
        for name in given.presets:
            if self._is_free(name, f"preset {name}", str(PRESETS)):
                self._discard(f"{PRESETS}/{name}", f"preset {name}")
        for kind, folder, names in (("source", SOURCES, given.sources), ("work", WORK, given.work)):
            for name in names:
                if _is_building(self._system):
                    self.record(f"{kind} {name}", "a build is running now")
                else:
                    self._discard(f"{folder}/{name}", f"{kind} {name}")
        if given.packages:
            clean = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=30", "clean"]
            done = self._system.run(clean, seconds=_APT_SECONDS).ok
            self.record("packages apt", "" if done else "apt does not remove them")
        return self.outcome

    def _is_free(self, thing: str, what: str, folder: str) -> bool:
        """Return whether the item is unused; record its user."""
        for need in self._needs:
            if need.path.startswith(thing) or need.path == folder:
                self.record(what, f"{need.kind} {need.name} needs it")
                return False
        return True

    def _discard(self, path: str, what: str) -> None:
        done = self.discard(path, path.rpartition("/")[0])
        self.record(what, "" if done else "it cannot be removed")


VERBS = {"inspect": Verb(UnusedInput, inspect), "remove": Verb(RemoveInput, remove)}
