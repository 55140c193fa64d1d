"""Base's part of the program on hosts: packages, repositories, and files that several roles share."""

from __future__ import annotations

from llamaherd.layout import LOCK_WAIT
from llamaherd.onhost.apt import InstallInput, Repository, add_repository, install_missing
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


def install(given: InstallInput, system: System) -> None:
    """Install what is missing. Raise FailedError where apt cannot."""
    install_missing(system, given.packages)


def add(given: Repository, system: System) -> None:
    """Add a repository to apt. Raise FailedError where its key is another, or it does not respond."""
    with system.lock("host", LOCK_WAIT, "a repository of apt"):
        add_repository(system, given)


VERBS = {
    "put_files": Verb(PutFilesInput, put_files),
    "install": Verb(InstallInput, install),
    "add_repository": Verb(Repository, add),
}
