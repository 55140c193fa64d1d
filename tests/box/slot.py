"""Names and ports of hosts that tests make, and what tests that run at the same time must not do at once.

Those of another checkout's tests on this machine are others, by its slot. Of one checkout's tests, each folder here is
a lane: `scripts/test` runs as many lanes at the same time as there are cores. What lanes have alike, a rig and a cache
of packages, is named after them; the rest is in one lane only.
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

OVER = "the time of this run is over"
"""Why a test on a host was not started."""

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


BUILT = f"{CCACHE}/built"
"""Finished builds of engines, each in a folder named by its build id, in the volume that outlives hosts."""

MOST_BUILT = 12
"""Builds that are kept; a build of a changed recipe has another id, so old ones pile up."""

RESTORE = f"""
for out in {BUILT}/*; do
    work=/var/lib/llamaherd/work/${{out##*/}}
    if ! grep -qs "$1" "$out/manifest.json" || [ -e "/opt/llamaherd/builds/${{out##*/}}" ]; then continue; fi
    mkdir -p "$work" && cp -a "$out" "$work/out" && touch "$out" || exit 1
done
"""
"""Puts finished builds of a source where a run finds a build that has ended and takes it in."""

KEEP = f"""
rm -rf /var/lib/llamaherd/work/*/out
mkdir -p {BUILT} && cd /opt/llamaherd/builds || exit 0
for id in *; do
    [ -f "$id/manifest.json" ] && [ ! -e "{BUILT}/$id" ] || continue
    cp -a "$id" "{BUILT}/.$id.$$" && rm -f "{BUILT}/.$id.$$/.stamp" || exit 1
    mv -T "{BUILT}/.$id.$$" "{BUILT}/$id" 2>/dev/null || rm -rf "{BUILT}/.$id.$$"
done
ls -t {BUILT} | tail -n +{MOST_BUILT + 1} | sed 's|^|{BUILT}/|' | xargs -r rm -rf
"""


@contextmanager
def compiling(host: BoxHost, *engines: Source) -> Iterator[None]:
    """Restore finished builds on a host, deploy, and keep new builds. Other lanes wait while this lane compiles."""
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
            host.exec("sh", "-c", RESTORE, "sh", engine.sha256)
        yield
        host.exec("sh", "-c", KEEP)
        host.exec("touch", *notes.values())


def _let_others_begin(engines: Sequence[Source], known: Callable[[Source], bool]) -> None:
    """Wait until somebody else compiles what all lanes need: whoever needs more holds them up for longer."""
    until = time.monotonic() + _OTHERS
    for engine in engines[:-1]:
        while not known(engine) and not is_held(_lock(engine)) and time.monotonic() < until:
            time.sleep(1)


def _lock(engine: Source) -> Path:
    return BOX / f"compiling-{engine.sha256[:16]}.lock"
