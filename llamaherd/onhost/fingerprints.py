"""Fingerprints of files that are made of keys. No plan contains them: by these, a run finds out who changed a file."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from llamaherd.layout import WRITTEN
from llamaherd.onhost.system import System


def forget_fingerprints(system: System, name: str) -> None:
    """Forget the fingerprints of files that are about to be written: a run that is cut off leaves none."""
    system.remove(f"{WRITTEN}/{name}")


def record_fingerprints(system: System, name: str, paths: Iterable[str]) -> None:
    """Record fingerprints of files as they are. They depend on a secret of the host: a reader cannot try keys.

    A disk that cannot be written to costs only the record.
    """
    secret = f"{WRITTEN}/.secret"
    with suppress(OSError):
        system.folder(str(WRITTEN), mode=0o700)
        there = system.entry(secret)
        if there is None or not there.size:
            system.write(secret, system.random().hex())
        lines = [f"{system.digest([secret, path])}\t{path}\n" for path in paths]
        system.write(f"{WRITTEN}/{name}", "".join(lines))
