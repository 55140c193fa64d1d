"""A host in memory: files, systemd, Docker and servers whose fate is known by their spec. It can be killed at any step.

It plays what a switch does with a host. That real hosts behave so, tests/box proves.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from llamaherd.onhost.servers import NeededGpu
from llamaherd.onhost.system import NOT_STARTED, Ended, Entry
from roles.serve.onhost.model import CandidateInput, ProofQuestion, Room
from roles.serve.onhost.speed import Proof, ProofInput
from roles.serve.onhost.tools import Tools

Fate = Literal["serves", "does not load", "does not answer", "is too slow"]

_SPEC = re.compile(r"(?:LLAMAHERD_SPEC=|llamaherd\.spec: ?\"?)([0-9a-z]+)")
_UNITS = ("/etc/systemd/system", "/run/systemd/system")


class Killed(BaseException):
    """The program was killed, or its host."""


@dataclass
class File:
    """A file of the host."""

    text: str
    mode: int = 0o644
    owner: str = "root"


@dataclass
class Running:
    """A unit or a container that runs, or did."""

    state: str
    spec: str = ""
    run: int = 0
    text: str = ""


@dataclass
class PlayedLock:
    """A lock that is open."""

    path: str
    host: PlayedHost

    @property
    def _name(self) -> str:
        return self.path.rpartition("/")[2]

    def take(self) -> bool:
        if self._name in self.host.holders:
            return False
        self.host.held.add(self._name)
        return True

    def holder(self) -> str:
        return self.host.holders.get(self._name, "")

    def sign(self, author: str) -> None:
        assert self._name in self.host.held
        self.host.signed[self._name] = author


@dataclass
class PlayedPartialFile:
    """A file that arrives, and is open. Another run holds its lock if its path is in `holders`."""

    path: str
    file: File
    host: PlayedHost

    def take(self) -> bool:
        if self.path in self.host.holders:
            return False
        self.host.held.add(self.path)
        return True

    def is_in_place(self) -> bool:
        return self.host.files.get(self.path) is self.file

    def size(self) -> int:
        return len(self.file.text)

    def clear(self) -> None:
        self._change()
        self.file.text = ""

    def receive(self) -> None:
        for piece in self.host.arriving(self.host.values[-1]):
            self._change()
            self.file.text += piece

    def rename(self, to: str) -> None:
        self._change()
        self.host.files[to] = self.host.files.pop(self.path)

    def _change(self) -> None:
        """Count a step. The file must be in its place, and its lock be held."""
        assert self.is_in_place()
        assert self.path in self.host.held
        self.host._step()


@dataclass
class PlayedHost(Tools):
    """A System, and the tools of a switch."""

    fates: dict[str, Fate]
    """What becomes of each spec that is started; others serve."""
    files: dict[str, File] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    units: dict[str, Running] = field(default_factory=dict)
    enabled: set[str] = field(default_factory=set)
    loaded: dict[str, str] = field(default_factory=dict)
    """The text of each unit as systemd has read it."""
    containers: dict[str, Running] = field(default_factory=dict)
    accounts: set[str] = field(default_factory=set)
    room: bool = False
    """Whether there is room for two servers."""
    has_become_slow: bool = False
    """Whether a version that is restored is as slow as the new one."""
    led: bool = False
    kill_at: int = -1
    """Before which step the program is killed; never where negative."""
    steps: int = 0
    log: list[str] = field(default_factory=list)
    seen: Callable[[PlayedHost], None] | None = None
    """Is called after each step."""
    scripts: Callable[[Sequence[str]], object] | None = None
    """Runs what an earlier version left as a shell script."""
    program: str = "/opt/llamaherd/libexec/onhost/0.pyz"
    held: set[str] = field(default_factory=set)
    holders: dict[str, str] = field(default_factory=dict)
    """What other runs that hold locks have written there."""
    signed: dict[str, str] = field(default_factory=dict)
    """What this run has written into locks."""
    values: list[object] = field(default_factory=list)
    lines: Iterator[str | Callable[[], str] | None] = field(default_factory=lambda: iter(()))
    """What comes from the controller, or what waits for that; None where nothing comes for as long as the program
    waits. Then the connection ends."""
    arriving: Callable[[object], Iterable[str]] = lambda _: ()
    """Returns the pieces of a file that the controller sends, by the value that was sent to it."""
    logging: Callable[[Sequence[str]], Iterable[str]] = lambda _: ()
    """Returns what a program prints into its log, each second of its run."""
    killed: list[int] = field(default_factory=list)
    time: float = 0.0

    # Files

    def _step(self) -> None:
        if self.steps == self.kill_at:
            raise Killed
        self.steps += 1
        if self.seen:
            self.seen(self)

    def read(self, path: str, most: int = 1 << 20) -> str | None:
        if found := re.fullmatch(r"/proc/(\d+)/environ", path):
            each = self._by_pid(int(found[1]))
            return f"PATH=/bin\0LLAMAHERD_SPEC={each.spec}\0" if each else None
        if path == "/proc/net/tcp":
            row = "0: 00000000:{:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1\n"
            return "".join(map(row.format, self._candidates_ports()))
        file = self.files.get(self._resolved(path))
        return file.text[:most] if file else None

    def _candidates_ports(self) -> list[int]:
        texts = (file.text for path, file in self.files.items() if path.startswith("/run/"))
        return sorted({int(port) for text in texts for port in re.findall(r"\b6[1-4][0-9]{3}\b", text)})

    def _resolved(self, path: str) -> str:
        for link, target in self.links.items():
            if path.startswith(f"{link}/"):
                return f"{link.rpartition('/')[0]}/{target}{path.removeprefix(link)}"
        return path

    def read_bytes(self, path: str, most: int = 1 << 20) -> bytes | None:
        text = self.read(path, most)
        return None if text is None else text.encode("utf-8", "surrogateescape")

    def write(self, path: str, text: str | bytes, *, mode: int = 0o600, owner: str = "root") -> None:
        self._step()
        text = text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")
        if owner not in {"root", *self.accounts} and not owner.isdigit():
            raise OSError(2, f"there is no account {owner}")
        self.files[path] = File(text, mode, owner)

    def copy(self, source: str, target: str) -> None:
        self._step()
        found = self.files.get(self._resolved(source))
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", source)
        self.files[target] = File(found.text, found.mode, found.owner)

    def link(self, path: str, target: str) -> None:
        self._step()
        self.links[path] = target

    def target(self, path: str) -> str:
        return self.links.get(path, "")

    def rename(self, path: str, to: str) -> None:
        self._step()
        for name in [each for each in self.files if each == path or each.startswith(f"{path}/")]:
            self.files[to + name.removeprefix(path)] = self.files.pop(name)
        for name in [each for each in self.links if each == path or each.startswith(f"{path}/")]:
            self.links[to + name.removeprefix(path)] = self.links.pop(name)
        moved = {to + each.removeprefix(path) for each in self.folders if (each + "/").startswith(f"{path}/")}
        self.folders = {each for each in self.folders if not (each + "/").startswith(f"{path}/")} | moved

    def folder(self, path: str, *, mode: int = 0o755) -> None:
        del mode
        self.folders.add(path)

    def remove(self, path: str) -> None:
        there = self.entry(path)
        if there is None:
            return
        self._step()
        self.links.pop(path, None)
        for name in [each for each in self.files if each == path or each.startswith(f"{path}/")]:
            del self.files[name]
        for name in [each for each in self.links if each.startswith(f"{path}/")]:
            del self.links[name]
        self.folders = {each for each in self.folders if not (each + "/").startswith(f"{path}/")}

    def names(self, path: str) -> list[str]:
        inside = [*self.files, *self.links, *self.folders]
        return sorted({each.removeprefix(f"{path}/").split("/")[0] for each in inside if each.startswith(f"{path}/")})

    def entry(self, path: str) -> Entry | None:
        if path in self.links:
            return Entry("link")
        if file := self.files.get(self._resolved(path)):
            return Entry("file", file.mode, file.owner, len(file.text))
        return Entry("folder") if path in self.folders or self.names(path) else None

    def same_file(self, path: str, other: str) -> bool:
        return self.target(path) == other or path == other

    def tree(self, path: str, depth: int = 100) -> Iterator[tuple[str, Entry]]:
        for name in self.names(path):
            found = self.entry(f"{path}/{name}")
            assert found
            yield f"{path}/{name}", found
            if found.kind == "folder" and depth > 1:
                yield from self.tree(f"{path}/{name}", depth - 1)

    def resolved(self, path: str) -> str:
        return self._resolved(path)

    def free(self, path: str) -> int | None:
        return 1 << 40 if self.entry(path) else None

    def digest(self, paths: Sequence[str]) -> str:
        return hashlib.sha256("".join(self.read(each) or "" for each in paths).encode()).hexdigest()

    def hash(self, path: str, read: Callable[[int], None]) -> str:
        text = self.read(path)
        if text is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        read(len(text))
        return self.digest([path])

    def is_heard(self) -> bool:
        return True

    def random(self) -> bytes:
        return hashlib.sha256(str(self._next()).encode()).digest()

    # Programs

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        del seconds, text, environment
        words = [each for each in argv[1:] if not each.startswith("-")]
        match argv[0].rpartition("/")[2]:
            case "systemctl":
                return self._systemctl(words[0] if argv[1] != "show" else "show", argv)
            case "docker":
                return self._docker(list(argv[1:]))
            case "id":
                return Ended(0 if argv[-1] in self.accounts else 1)
            case "useradd":
                self._step()
                self.accounts.add(argv[-1])
                return Ended(0)
            case "userdel":
                self._step()
                self.accounts.discard(argv[-1])
                return Ended(0)
            case "setpriv":
                known = argv[2] in self.accounts or argv[2].isdigit()
                return Ended(0, "version: 11434\n") if known else Ended(1, "", "setpriv: failed to parse reuid\n")
            case "journalctl":
                return Ended(0, "the engine reports: out of memory\n")
            case "started":
                return Ended(0)
            case "sh" if self.scripts:
                self.scripts(argv)
                return Ended(0)
            case "systemd-run" | "ss":
                return Ended(0)
        return Ended(NOT_STARTED, "", f"{argv[0]}: not played")

    def stream(self, argv: Sequence[str], *, seconds: float | None = None) -> Iterator[str]:
        """Play a program whose lines are read as they come."""
        del seconds
        yield from self.run(argv).out.splitlines()

    def run_logged(
        self, argv: Sequence[str], log: str, *, seconds: float, heard: Callable[[str], None] | None = None
    ) -> Ended:
        """Play a program whose output goes to a file. `logging` prints it piece by piece, one each second."""
        ended = self.run(argv, seconds=seconds)
        text = ""
        for piece in self.logging(argv):
            text += piece
            self.time += 1
            if heard:
                heard(piece)
        text += ended.out + ended.err
        self.files[log] = File((self.read(log) or "") + text)
        return Ended(ended.code, text)

    def _systemctl(self, verb: str, argv: Sequence[str]) -> Ended:
        unit = argv[-1]
        name = unit.removesuffix(".service")
        found = self.units.get(name, Running("inactive"))
        match verb:
            case "show":
                pid = found.run if found.state in ("active", "activating") else 0
                values = {"ActiveState": found.state, "MainPID": str(pid), "InvocationID": f"{found.run}"}
                return Ended(0, "".join(f"{key}={value}\n" for key, value in values.items()))
            case "is-active":
                return Ended(0 if unit == "docker" or found.state == "active" else 3)
            case "daemon-reload":
                self._step()
                self.loaded = {
                    path.rpartition("/")[2].removesuffix(".service"): file.text
                    for path, file in self.files.items()
                    if path.rpartition("/")[0] in _UNITS
                }
                return Ended(0)
            case "enable":
                self._step()
                self.enabled.add(name)
                return Ended(0)
            case "disable":
                self._step()
                self.enabled.discard(name)
                if "--now" in argv:
                    self._end_unit(name)
                return Ended(0)
            case "stop" | "kill":
                self._step()
                self._end_unit(name)
                return Ended(0)
            case "restart":
                self._step()
                self._end_unit(name)
                return self._start_unit(name)
            case "start":
                self._step()
                return self._start_unit(name)
        return Ended(0)

    def _end_unit(self, name: str) -> None:
        if name in self.units:
            self.units[name].state = "inactive"
        if name.startswith("llamaherd-beside-"):
            self.led = False

    def _start_unit(self, name: str) -> Ended:
        if self.units.get(name, Running("inactive")).state == "active":
            return Ended(0)
        text = self.loaded.get(name)
        if text is None:
            return Ended(5, "", f"Unit {name}.service not found.")
        spec = self._spec_of(text, name)
        if self._taken(name):
            self.units[name] = Running("failed", spec, self._next())
            return Ended(1)
        dead = self.fates.get(spec) == "does not load"
        self.units[name] = Running("failed" if dead else "active", spec, self._next(), text)
        return Ended(1 if dead else 0)

    def _spec_of(self, text: str, name: str) -> str:
        found = _SPEC.search(text)
        if found:
            return found[1]
        instance = name.removeprefix("llamaherd-beside-")
        inside = _SPEC.search(self.read(f"/run/llamaherd/beside/{instance}.yaml") or "")
        return inside[1] if inside else ""

    def _taken(self, name: str) -> bool:
        """A unit and a container of one server have one port."""
        return name in self.containers and self.containers[name].state == "running"

    def _next(self) -> int:
        self.runs += 1
        return self.runs

    runs: int = 100

    def _by_pid(self, pid: int) -> Running | None:
        every = [*self.units.values(), *self.containers.values()]
        alive = ("active", "activating", "running")
        return next((each for each in every if each.run == pid and each.state in alive), None)

    def _docker(self, words: list[str]) -> Ended:
        verb, name = words[0], words[1] if words[0] == "top" else words[-1]
        found = self.containers.get(name)
        match verb:
            case "inspect":
                if found is None:
                    return Ended(1, "", "no such container")
                if "--format" in words:
                    return Ended(0, f"{found.state}\n")
                told = {
                    "Id": str(found.run),
                    "State": {
                        "Status": found.state,
                        "Pid": found.run,
                        "Health": {"Status": "healthy" if found.state == "running" else "unhealthy"},
                    },
                    "RestartCount": 0,
                    "Config": {"Labels": {"llamaherd.spec": found.spec}},
                }
                return Ended(0, json.dumps([told]))
            case "compose":
                return self._compose(words)
            case "stop" | "kill":
                self._step()
                if found:
                    found.state = "exited"
                return Ended(0 if found else 1)
            case "rm":
                self._step()
                self.containers.pop(name, None)
                return Ended(0)
            case "top":
                return Ended(0, f"PID\n{found.run}\n") if found and found.state == "running" else Ended(1)
        return Ended(0)

    def _compose(self, words: list[str]) -> Ended:
        file = words[words.index("-f") + 1]
        name = f"llama-{file.split('/')[-2]}"
        if "stop" in words:
            self._step()
            if name in self.containers:
                self.containers[name].state = "exited"
            return Ended(0)
        if "up" not in words:
            return Ended(0)
        self._step()
        spec = self._spec_of(self.read(file) or "", name)
        found = self.containers.get(name)
        if found and found.state == "running" and "--force-recreate" not in words and found.spec == spec:
            return Ended(0)
        if self.units.get(name, Running("inactive")).state == "active":
            return Ended(1, "", "port is already allocated")
        dead = self.fates.get(spec) == "does not load"
        self.containers[name] = Running("exited" if dead else "running", spec, self._next())
        return Ended(1 if dead else 0)

    # Time, locks, reports

    @contextmanager
    def lock(self, name: str, seconds: float, purpose: str) -> Iterator[bool]:
        del seconds, purpose
        assert name not in self.held, f"{name} is held already"
        self.held.add(name)
        try:
            yield False
        finally:
            self.held.discard(name)

    @contextmanager
    def lock_file(self, name: str) -> Iterator[PlayedLock]:
        try:
            yield PlayedLock(f"/run/llamaherd/locks/{name}", self)
        finally:
            self.held.discard(name)

    @contextmanager
    def partial_file(self, path: str) -> Iterator[PlayedPartialFile]:
        if path not in self.files:
            self._step()
            self.files[path] = File("", 0o600, "owner")
        try:
            yield PlayedPartialFile(path, self.files[path], self)
        finally:
            self.held.discard(path)

    def kill(self, pid: int) -> None:
        self.killed.append(pid)
        self.links = {path: to for path, to in self.links.items() if not path.startswith(f"/proc/{pid}/")}

    def send(self, value: object) -> None:
        self.values.append(value)

    def next_line(self, seconds: float) -> str | None:
        line = next(self.lines, "")
        if line is None:
            self.time += seconds
        return f"{line()}\n" if callable(line) else line

    def computed(self, pid: int) -> float:
        del pid
        return self.time

    def waited(self, pid: int) -> float:
        del pid
        return 0.0

    def now(self) -> float:
        self.time += 0.01
        return self.time

    def clock(self) -> float:
        return 1_795_249_315 + self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def report(self, line: str) -> None:
        self.log.append(line)

    def warn(self, line: str) -> None:
        self.log.append(line)

    # What becomes of it

    def running(self, service: str) -> str:
        """Return the spec that clients of a server reach and that answers them; empty where none does."""
        for each, state in ((self.units.get(service), "active"), (self.containers.get(service), "running")):
            if each and each.state == state and self.fates.get(each.spec, "serves") != "does not answer":
                return each.spec
        return ""

    def candidate(self, name: str) -> str:
        """Return the spec of a server that runs side by side with one, and has its connections."""
        each = self.units.get(f"llamaherd-beside-{name}")
        return each.spec if self.led and each and each.state == "active" else ""

    def boot(self) -> None:
        """Lose /run and all processes, and start what starts at boot."""
        self.files = {path: file for path, file in self.files.items() if not path.startswith("/run/")}
        self.links = {path: target for path, target in self.links.items() if not path.startswith("/run/")}
        self.folders = {each for each in self.folders if not each.startswith("/run/")}
        self.held.clear()
        self.led = False
        self.units.clear()
        self.kill_at = -1
        self._systemctl("daemon-reload", ["systemctl", "daemon-reload"])
        for each in self.containers.values():
            each.state = (
                "running" if each.state == "running" and self.fates.get(each.spec) != "does not load" else "exited"
            )
        for name in sorted(self.enabled):
            self._start_unit(name)

    # The tools of a switch

    def prove(self, given: ProofInput, system: object) -> Proof:
        del system
        assert given.pids, "a server is proved that has no process"
        each = self._by_pid(int(given.pids[0]))
        assert each is not None
        expected = given.question.get("spec", each.spec)
        assert each.spec == expected, f"{each.spec} runs, and another version is to be proved"
        fate = self.fates.get(each.spec, "serves")
        if fate == "does not answer":
            return Proof("bad", "it does not answer a prompt")
        if fate == "is too slow" and given.how == "judge":
            return Proof("undeclared", "it decodes 1.0 tokens/s, and the same model decoded 9.0 here before", slow=1.0)
        back = "[slow]" if self.has_become_slow else ""
        return Proof("good", speeds=back if given.how == "back" else "[]")

    def drain(self, question: ProofQuestion, *, key: str | None, seconds: int, led: bool, system: object) -> None:
        del question, key, seconds, led, system

    def let_in(self, system: object) -> None:
        del system

    def lead(self, server: str, candidate: CandidateInput, system: object) -> bool:
        del server, candidate, system
        self._step()
        self.led = True
        return True

    def lead_back(self, server: str, system: object, *, end: bool) -> None:
        del server, system, end
        self.led = False

    def lacks_gpus(self, system: object, needs: Sequence[NeededGpu], pids: Sequence[str]) -> str:
        del system, needs, pids
        return ""

    def lacks_ram(self, system: object, need: int, own: Sequence[str], others: Sequence[str]) -> str:
        del system, need, own, others
        return ""

    def lacks_room(self, system: object, room: Room, candidate: CandidateInput | None) -> str:
        del system, room, candidate
        return "" if self.room else "GPU 0 has 1.0 GB free, and it takes 9.0 GB"
