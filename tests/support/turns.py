"""Locks of hosts that lie in folders of a test's own, one for each rig: all of them are this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.host import program as packing
from llamaherd.host import protocol
from llamaherd.host.program import Program, packed_program

_MAIN = """\
import io, json, sys
from llamaherd.onhost import system, verbs
document = sys.stdin.buffer.readline()
system.LOCKS = {folder!r} + "/" + json.loads(document)["input"].get("rig", "duo")


class Stdin(io.BytesIO):
    def fileno(self):
        return 0

    def readline(self, most):
        return super().readline(most) or rest.readline(most)


rest, sys.stdin = sys.stdin.buffer, io.TextIOWrapper(Stdin(document))
sys.exit(verbs.main([]))
"""
"""Runs a verb with locks in the folder of the rig that its input names, or of `duo`."""


def lock_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have verbs hold locks in this folder. `herd unlock` means the rig `duo`."""
    ours = packed_program()
    sources = {**ours.sources, "__main__.py": _MAIN.format(folder=str(folder)).encode()}
    moved = Program(ours.hash, sources)
    (folder / "libexec").mkdir()
    monkeypatch.setattr(packing, "PROGRAMS", folder / "libexec" / "onhost")
    monkeypatch.setattr(protocol, "packed_program", lambda: moved)
