"""The hardware of a host that is to become a rig, by one inspection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import UnaskedError, query_verb
from llamaherd.host.remote import NoPythonError, Remote
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.inventory.schema.machine import OperatingSystem
from llamaherd.onhost.hardware import FoundGpu, FoundHost, HardwareInput

__all__ = ["FoundGpu", "FoundHost", "LookError", "checked_hardware", "look", "refuse_unfit"]

INIT_SECONDS = 60.0
"""More than `nvidia-smi` may take on the host."""
_MOST_COUNT = 10**18
_MOST_GPUS = 64


class LookError(UserError):
    """An inspection that cannot become a rig: a sentence that says why, and a fix."""


def look(connect: Connect) -> FoundHost:
    """Inspect a host, in one connection. Raise RemoteError if it cannot be reached, LookError if it is unfit."""
    try:
        found = query_verb(Remote(connect), "llamaherd.hardware.inspect", HardwareInput(), FoundHost, INIT_SECONDS)
    except NoPythonError as error:
        raise LookError(error.message, "install python3 there (`apt-get install python3`), then run again") from None
    refuse_unfit(checked_hardware(found), "this machine" if connect.host == LOCAL else connect.host)
    return found


def refuse_unfit(seen: FoundHost, host: str) -> None:
    """Raises LookError where llamaherd could do nothing with such a host."""
    known = get_args(OperatingSystem)
    if seen.os not in known:
        what = f"runs {seen.os}" if seen.os else "does not say in /etc/os-release what it runs"
        raise LookError(f"{host} {what}, which llamaherd cannot provision", f"it knows {', '.join(known)}")
    if not seen.memory or not (seen.cores or seen.threads):
        raise LookError(f"{host} does not tell its cores and memory", "is /proc mounted there?")


def checked_hardware(found: FoundHost) -> FoundHost:
    """Return the hardware of a host. Raise UnaskedError if no host can have this hardware."""
    for text in _texts(found):
        if not text.isprintable():
            raise UnaskedError(text)
    for count in (found.cores, found.threads, found.performance or 0, found.memory, found.free):
        if not 0 <= count <= _MOST_COUNT:
            raise UnaskedError(str(count))
    if len(found.cards) > _MOST_GPUS or len(found.bus) > _MOST_GPUS:
        raise UnaskedError(f"{len(found.cards)} and {len(found.bus)} GPUs")
    return found


def _texts(found: FoundHost) -> Iterator[str]:
    yield from (found.name, found.os, found.arch, found.cpu, found.refused, *found.cuda)
    for card in found.cards:
        yield from (card.uuid, card.pci, card.driver, card.capability, card.name)
    for address, name in found.bus:
        yield from (address, name)
