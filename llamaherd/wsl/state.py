"""What a host says of the WSL around it: see `templates/wsl/inspect.sh.j2`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.text.numbers import parse_real, parse_whole


class TextState(NamedTuple):
    """A file of the user's: when it was written (seconds since the epoch), and its bytes."""

    written: float
    content: bytes


class ScriptState(NamedTuple):
    """A script in Windows: its sha256, and that of the one which was run last."""

    sha256: str
    applied: str


class WslMachineState(NamedTuple):
    """The virtual machine: when it started (seconds since the epoch), its memory in bytes, its processors."""

    started: float
    memory: int
    processors: int


@dataclass
class WslState:
    """The WSL around a host; what was not there is not in it."""

    release: str
    """Of the kernel, which WSL 1 only plays."""
    profiles: dict[str, bool] = field(default_factory=dict)
    """The folders of Windows' users that WSL can open; of several, whether the disk of a distribution lies in each."""
    files: dict[str, TextState] = field(default_factory=dict)
    scripts: dict[str, ScriptState] = field(default_factory=dict)
    machine: WslMachineState | None = None

    def tell(self, what: str, fields: Sequence[str]) -> None:
        """Take in one line of the answer. Raises ValueError on one that cannot have been printed."""
        match what, fields:
            case "profile", [path, disk]:
                self.profiles[path] = disk == "yes"
            case "file", [path, written, content]:
                self.files[path] = TextState(parse_real(written), base64.b64decode(content, validate=True))
            case "script", [path, sha256, applied]:
                self.scripts[path] = ScriptState(sha256, applied.lower())
            case "machine", [started, memory, processors]:
                self.machine = WslMachineState(parse_real(started), parse_whole(memory) * 1024, parse_whole(processors))
            case _:
                raise ValueError(what)
