"""Receive a file from the controller. An upload resumes where the last run stopped; one run at a time sends a file."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.store import MANIFEST, is_vouched, is_writable_by_root_only
from llamaherd.onhost.system import FailedError, PartialFile, System
from llamaherd.onhost.verbs import Verb

ADMIT_SECONDS = 10
"""Seconds that the run that has sent a file has to admit it to the store, before this run sends the file again."""
REPORT_SECONDS = 10
"""Seconds between two lines of progress. The controller gives up a host that is silent for as long as a login."""
_POLL_SECONDS = 1
_MB = 1_000_000
_FIX = "end the other run, and run the command again: the upload resumes"


@dataclass(frozen=True)
class ReceiveInput:
    """A file: where it arrives, and its bytes. Its name is its sha256."""

    path: str
    size: int
    admitted: tuple[str, ...]
    """The paths in the store where another run may have admitted the file."""
    standing: int
    """Seconds that another run may send no byte."""
    total: int
    """Seconds that another run may take in all."""


def receive(given: ReceiveInput, system: System) -> None:
    """Send the number of the first missing byte, and receive the file from this byte on. Raise FailedError.

    Send no number if the host has the file.
    """
    part = f"{given.path}.part"
    until = system.now() + given.total
    try:
        while True:
            with system.partial_file(part) as file:
                if _is_taken(file, given, until, system):
                    if _is_here(given, system):
                        system.remove(part)
                    else:
                        _resume(file, given, system)
                    return
            if _is_admitted_soon(given, until, system):
                return
    except OSError as error:
        raise cannot_write(error) from error


def _is_taken(file: PartialFile, given: ReceiveInput, until: float, system: System) -> bool:
    """Hold the lock of a partial file, and wait for another run as long as the file grows. Raise FailedError.

    Return False once another run has renamed or removed the file: then it must not be written to.
    """
    had, grew = -1, system.now()
    reported = grew - REPORT_SECONDS
    while file.is_in_place():
        if file.take():
            # The other run may have renamed it just before it released the lock.
            return file.is_in_place()
        now, size = system.now(), file.size()
        if size != had:
            had, grew = size, now
        if now - grew >= given.standing:
            message = f"another run sends this file to this host, and has sent nothing for {given.standing} s"
            raise FailedError(f"{message}: {size} of {given.size} bytes have arrived", _FIX)
        if now - reported >= REPORT_SECONDS:
            reported = now
            arrived = f"{size // _MB} of {given.size // _MB} MB have arrived"
            system.report(f"waiting for another run that sends this file: {arrived}")
        _pause(given, until, system)
    return False


def _is_admitted_soon(given: ReceiveInput, until: float, system: System) -> bool:
    """Return whether the run that has sent the file admits it. Raise FailedError."""
    for _ in range(ADMIT_SECONDS):
        if _is_here(given, system):
            return True
        _pause(given, until, system)
    return _is_here(given, system)


def _pause(given: ReceiveInput, until: float, system: System) -> None:
    """Wait a second. Raise FailedError at the end of the total, and if the controller has ended."""
    if system.now() >= until:
        limit = f"{given.total // 3600} h" if given.total >= 7200 else f"{given.total} s"
        raise FailedError(f"another run has not sent this file to this host within {limit}", _FIX)
    if system.next_line(_POLL_SECONDS) == "":
        raise FailedError("the connection ended while another run sent this file", "run the command again")


def _is_here(given: ReceiveInput, system: System) -> bool:
    """Return whether the whole file has arrived, or is in the store."""
    found = system.entry(given.path)
    arrived = found is not None and found.kind == "file" and found.size == given.size
    return arrived or any(_is_admitted(path, given, system) for path in given.admitted)


def _is_admitted(path: str, given: ReceiveInput, system: System) -> bool:
    """Return whether a path is a file of the store, as an inspection judges it."""
    folder, _, name = path.rpartition("/")
    found = system.entry(path)
    if found is None or not is_writable_by_root_only(found):
        return False
    if system.entry(f"{folder}/{MANIFEST}") is None:
        # The other run writes the manifest after it has moved the file.
        return found.size == given.size
    return is_vouched(system, folder, name, given.path.rpartition("/")[2])


def _resume(file: PartialFile, given: ReceiveInput, system: System) -> None:
    """Receive what is missing of a partial file, and give the file its name. Raise FailedError and OSError."""
    if file.size() > given.size:
        file.clear()
    system.send(file.size())
    file.receive()
    size = file.size()
    if size != given.size:
        message = f"only {size} of {given.size} bytes of {given.path} arrived"
        raise FailedError(message, "run the command again: the upload resumes")
    file.rename(given.path)


VERBS = {"receive": Verb(ReceiveInput, receive)}
