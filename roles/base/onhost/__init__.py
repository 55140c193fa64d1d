"""Base's part of the program on hosts: write files that several roles share."""

from __future__ import annotations

from llamaherd.layout import LOCK_WAIT
from llamaherd.onhost.disk import cannot_write
from llamaherd.onhost.files import PutFilesInput, write_files
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import Verb


def put_files(given: PutFilesInput, system: System) -> None:
    """Write files, each at once. Raise FailedError with a help where one cannot be written."""
    with system.lock("host", LOCK_WAIT, given.purpose):
        try:
            for path in given.remove:
                system.remove(path)
        except OSError as error:
            raise cannot_write(error) from error
        write_files(system, given.files)


VERBS = {"put_files": Verb(PutFilesInput, put_files)}
