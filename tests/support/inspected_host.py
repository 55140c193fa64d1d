"""Hosts to inspect: one in memory with /proc and Docker's API, and this machine with the files of a folder."""

from __future__ import annotations

import getpass
import posixpath
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from llamaherd.onhost.system import NOT_STARTED, Ended, Entry, Host
from roles.serve.onhost.containers import Probes
from tests.support.played_host import File, PlayedHost

Answers = Mapping[str, Ended | Callable[[Sequence[str]], Ended]]
"""How programs end, by the text that their command line begins with."""


def _ended(answers: Answers, argv: Sequence[str]) -> Ended | None:
    line = " ".join(argv)
    for begins, how in answers.items():
        if line.startswith(begins):
            return how(argv) if callable(how) else how
    return None


class InspectedHost(PlayedHost, Probes):
    """A host in memory, and the requests of an inspection."""

    def __init__(self, answers: Answers | None = None, texts: Mapping[str, str] | None = None) -> None:
        super().__init__({})
        self.answers = dict(answers or {})
        self.files = {path: File(text) for path, text in (texts or {}).items()}
        self.ran: list[list[str]] = []
        self.silent: set[str] = set()
        """Parts of URLs that get no response."""
        self.requested: list[str] = []
        self.docker_api: Mapping[str, object] | OSError = FileNotFoundError(2, "No such file or directory")
        """What Docker returns, by the beginnings of paths."""

    def read(self, path: str, most: int = 1 << 20) -> str | None:
        """Read a file, also of /proc."""
        file = self.files.get(path)
        return file.text[:most] if file else None

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Record a program, and end it."""
        del seconds, text, environment
        self.ran.append([*argv])
        return _ended(self.answers, argv) or Ended(NOT_STARTED, "", f"{argv[0]}: No such file or directory")

    def resolved(self, path: str) -> str:
        """Follow links."""
        for _ in range(40):
            if path not in self.links:
                return path
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), self.links[path]))
        return path

    def responds(self, url: str, seconds: float) -> bool:
        """Play a request to a server."""
        self.time += seconds
        self.requested.append(url)
        return not any(each in url for each in self.silent)

    def query_docker(self, paths: Sequence[str], seconds: float) -> list[object]:
        """Play Docker's socket."""
        del seconds
        if isinstance(self.docker_api, OSError):
            raise self.docker_api
        api = self.docker_api
        return [next((value for begins, value in api.items() if each.startswith(begins)), None) for each in paths]

    def process(self, pid: int, *argv: str, stat: str = "S 1 0 0 0 0 0 0 0 7 0 5 5", **variables: str) -> None:
        """Add a process of root's."""
        texts = {
            "cmdline": "".join(f"{word}\0" for word in argv),
            "environ": "".join(f"{name}={value}\0" for name, value in variables.items()),
            "status": "Name:\tx\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0 \n",
            "stat": f"{pid} (a (b) c) {stat}",
            "comm": "x\n",
            "cgroup": "0::/user.slice\n",
            f"task/{pid}/stat": f"{pid} (x) {stat}",
        }
        self.files |= {f"/proc/{pid}/{name}": File(text) for name, text in texts.items()}


class RootedHost(Host):
    """This machine, whose files lie in a folder, with its own /proc. Its programs end as a test says."""

    def __init__(self, root: Path, answers: Answers | None = None) -> None:
        super().__init__(lambda _: None, lambda _: None)
        self.root, self.answers = root, answers or {}
        self.ran: list[list[str]] = []

    def put(self, path: str, text: str) -> Path:
        """Write a file of the host."""
        file = Path(self._at(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def _at(self, path: str) -> str:
        return path if path.startswith(("/proc", str(self.root))) else f"{self.root}{path}"

    def read(self, path: str, most: int = 1 << 20) -> str | None:
        """Read a file."""
        return super().read(self._at(path), most)

    def read_bytes(self, path: str, most: int = 1 << 20) -> bytes | None:
        """Read a file."""
        return super().read_bytes(self._at(path), most)

    def free(self, path: str) -> int | None:
        """Return free bytes."""
        return super().free(self._at(path))

    def hash(self, path: str, read: Callable[[int], None]) -> str:
        """Hash a file."""
        return super().hash(self._at(path), read)

    def write(self, path: str, text: str | bytes, *, mode: int = 0o600, owner: str = "") -> None:
        """Write a file, of the user that runs the test."""
        super().write(self._at(path), text, mode=mode, owner=owner or getpass.getuser())

    def names(self, path: str) -> list[str]:
        """List a folder."""
        return super().names(self._at(path))

    def entry(self, path: str) -> Entry | None:
        """Inspect a path."""
        return super().entry(self._at(path))

    def target(self, path: str) -> str:
        """Read a link."""
        return super().target(self._at(path))

    def resolved(self, path: str) -> str:
        """Follow links."""
        return super().resolved(self._at(path))

    def digest(self, paths: Sequence[str]) -> str:
        """Hash files."""
        return super().digest([self._at(each) for each in paths])

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """End a program as a test says, or else run it."""
        self.ran.append([*argv])
        found = _ended(self.answers, argv)
        return found or super().run(argv, seconds=seconds, text=text, environment=environment)
