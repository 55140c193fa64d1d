"""Names and ports of hosts that tests make, and what tests that run at the same time must not do at once.

Those of another checkout's tests on this machine are others, by its slot. Of one checkout's tests, each folder here is
a lane: `scripts/test` runs all lanes at the same time. What lanes have alike, a rig and a cache of packages, is named
after them; the rest is in one lane only.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from box.alone import alone, is_held
from box.cli import BOX
from box.compiling import OPTIONS
from box.downloads import Source
from box.host import CCACHE, BoxHost

SLOT = int(os.environ.get("LLAMAHERD_SLOT", "0"))
"""Which of the checkouts on this machine tests here; the first is none."""

PORTS_OF_A_SLOT = 100
"""Between the ports of one slot and those of the next."""

LANES = sorted(folder.name for folder in Path(__file__).parent.iterdir() if any(folder.rglob("test_*.py")))
"""The folders of tests on hosts."""

LANE = os.environ.get("LLAMAHERD_LANE", "")
"""The lane that runs here; without, all that is asked for runs one after another, on one rig."""


_OTHERS = 300
"""Seconds in which another lane has made its host."""

_OPTIONS = hashlib.sha256(repr(sorted(OPTIONS.items())).encode()).hexdigest()[:8]

WITH_IK = LANE in ("", "serving")
"""Whether the rig has ik_llama.cpp. One lane does: all others need not wait until it is compiled."""


def slotted(name: str) -> str:
    """Name a host of this checkout's tests."""
    return f"{name}-{SLOT}" if SLOT else name


RIG = slotted(f"llamaherd-test-{LANE}" if LANE else "llamaherd-test")
"""The host of tests that need no other."""
RIG_PORT = 2202 + PORTS_OF_A_SLOT * SLOT + (LANES.index(LANE) + 1 if LANE else 0)

PACKAGES = slotted(f"llamaherd-{LANE}") if LANE else "llamaherd"
"""The cache of packages of hosts that are used one after another: apt locks it."""


@contextmanager
def compiling(host: BoxHost, *engines: Source) -> Iterator[None]:
    """Deploy engines to a host. What the cache of compilers does not have yet, nobody else compiles meanwhile."""
    notes = {engine: f"{CCACHE}/{engine.sha256[:16]}-{_OPTIONS}.compiled" for engine in engines}

    def known(engine: Source) -> bool:
        return host.exec("sh", "-c", f"ls {notes[engine]} 2>&1", check=False).strip() == notes[engine]

    if LANE:
        _let_others_begin(engines, known)
    with ExitStack() as held:
        for engine in engines:
            lock = ExitStack()
            lock.enter_context(alone(_lock(engine)))
            if known(engine):
                lock.close()
            else:
                held.push(lock)
        yield
    host.exec("touch", *notes.values())


def _let_others_begin(engines: Sequence[Source], known: Callable[[Source], bool]) -> None:
    """Wait until somebody else compiles what all lanes need: whoever needs more holds them up for longer."""
    until = time.monotonic() + _OTHERS
    for engine in engines[:-1]:
        while not known(engine) and not is_held(_lock(engine)) and time.monotonic() < until:
            time.sleep(1)


def _lock(engine: Source) -> Path:
    return BOX / f"compiling-{engine.sha256[:16]}.lock"
