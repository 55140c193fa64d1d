"""The state of WSL on a host, and in Windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.host.state import StatePart


class TextState(NamedTuple):
    """A file of the user: the time of its last write (seconds since the epoch), and its bytes."""

    written: float
    content: bytes


class ScriptState(NamedTuple):
    """A script in Windows: its sha256, and the sha256 of the script that ran last."""

    sha256: str
    applied: str


class WslMachineState(NamedTuple):
    """The virtual machine: its start (seconds since the epoch), its memory in bytes, and its processors."""

    started: float
    memory: int
    processors: int


@dataclass(frozen=True)
class WslState(StatePart):
    """The files and the virtual machine of WSL."""

    profiles: Mapping[str, bool] = field(default_factory=dict)
    """By folder of a Windows user that WSL can open: whether it contains the disk of a distribution.

    Only read if there are several folders."""
    files: Mapping[str, TextState] = field(default_factory=dict)
    """By path: `wsl.conf`, and `.wslconfig` of the profile."""
    scripts: Mapping[str, ScriptState] = field(default_factory=dict)
    """By path."""
    machine: WslMachineState | None = None
