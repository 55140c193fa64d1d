"""Wake rigs that sleep, before a run that changes them: by their gateways, and within a limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from llamaherd.fleet.gateway import wake_rig
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import AT_ONCE, Remote, RemoteError
from llamaherd.host.ssh import UnreachableError
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.gateway import Woken
from llamaherd.onhost.pauses import Pauses
from llamaherd.onhost.verbs import NoInput

WAKE_SECONDS = 180
"""The longest wait for a rig: one that was off boots, and checks its memory before."""
_PAUSE_SECONDS = 3.0
_PROBE_SECONDS = 30

Say = Callable[[str], None]


def wake_rigs(
    gateways: Mapping[str, Rig], rigs: Mapping[str, Rig], say: Say, seconds: float = WAKE_SECONDS
) -> set[str]:
    """Let gateways wake rigs, and wait until the hosts respond. Print what happens, and return those that respond."""
    for name in rigs:
        say(f"{name}: it does not respond; waking it, for up to {seconds:.0f} s")
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(rigs)))) as pool:
        results = pool.map(partial(_wake, gateways, say=say, seconds=seconds), rigs.values())
        return {name for name, woken in zip(rigs, results, strict=True) if woken}


def _wake(gateways: Mapping[str, Rig], rig: Rig, *, say: Say, seconds: float) -> bool:
    """Return whether a host responds within the limit, while gateways send it packets."""
    began = time.monotonic()
    while True:
        sent = wake_rig(gateways, rig.rig)
        if not any(isinstance(each, Woken) for each in sent.values()):
            for name, each in sent.items():
                say(f"{rig.rig}: {name} did not wake it: {each}")
            return False
        if _responds(rig):
            say(f"{rig.rig}: awake after {time.monotonic() - began:.0f} s")
            return True
        if time.monotonic() - began > seconds:
            say(f"{rig.rig}: it does not respond {seconds:.0f} s after the first packet")
            return False
        time.sleep(_PAUSE_SECONDS)


def _responds(rig: Rig) -> bool:
    """Return whether a host responds, if only with an error. sshd may not run yet while it boots."""
    try:
        query_verb(Remote(rig.connect), "llamaherd.pauses.read", NoInput(), Pauses, _PROBE_SECONDS)
    except UnreachableError:
        return False
    except RemoteError as error:
        return "refused" not in error.message
    return True
