"""A played host for services: what is installed, checked and started, and a disk that can be full."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from llamaherd.onhost.system import Ended
from tests.support.played_host import Killed, PlayedHost
from tests.support.recording import RecordingHost


@dataclass
class ServiceHost(RecordingHost):
    """A recording host whose disk can be full, and whose programs end well where nothing else is set."""

    full: str = ""
    """No path that contains this can be written."""

    def write(self, path: str, text: str | bytes, *, mode: int = 0o600, owner: str = "root") -> None:
        """Write a file, if its disk has room."""
        if self.full and self.full in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().write(path, text, mode=mode, owner=owner)

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play a program: `systemctl` once for each unit, and `install -d`."""
        units = [each for each in argv if each.endswith((".service", ".timer"))]
        if argv[0] == "systemctl" and len(units) > 1:
            words = [each for each in argv if each not in units]
            found = [self.run([*words, each], seconds=seconds) for each in units]
            return next((each for each in found if not each.ok), found[0])
        ended = super().run(argv, seconds=seconds, text=text, environment=environment)
        if argv[0] == "install" and ended.err.endswith("not played"):
            self._step()
            self.folders |= {each for each in argv if each.startswith("/")}
        return Ended(0) if ended.err.endswith("not played") else ended

    def texts(self, folder: str) -> dict[str, str]:
        """Return the texts of the files in a folder, by their paths."""
        return {path: file.text for path, file in self.files.items() if path.startswith(f"{folder}/")}


Played = TypeVar("Played", bound=PlayedHost)


def killed_everywhere(make: Callable[[], Played], run: Callable[[Played], object]) -> list[Played]:
    """Kill a run before each of its steps, and run again each time. Return the hosts afterwards."""
    hosts: list[Played] = []
    for at in itertools.count():
        host = make()
        host.steps, host.kill_at = 0, at
        killed = True
        with suppress(Killed):
            run(host)
            killed = False
        if not killed:
            return hosts
        host.kill_at = -1
        host.held.clear()
        run(host)
        hosts.append(host)
    raise AssertionError
