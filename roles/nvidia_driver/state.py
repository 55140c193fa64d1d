"""The driver's part of a host's state. `llamaherd/host/driver.py` has the values, as GPUs are judged by them too."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.driver import GLOBS
from llamaherd.host.state import HostState
from llamaherd.layout import DRIVER_READING, REBOOT_MARK, REBOOT_NOTE
from llamaherd.plan import Plan
from llamaherd.render import render
from roles.nvidia_driver.going_back import WHERE
from roles.nvidia_driver.judging import MOST_READING


def inspect(plan: Plan) -> str:
    """Ask for its packages, its modules on disk and in the kernel, and what a reboot was for."""
    if plan.driver is None:
        return ""
    return render(
        "nvidia_driver/inspect.sh.j2",
        driver_packages=GLOBS,
        reboot_mark=REBOOT_MARK,
        reboot_note=REBOOT_NOTE,
        reading=DRIVER_READING,
        most_reading=MOST_READING,
        **WHERE,
    )


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    if kind != "nvidia" or not fields:
        return False
    state.nvidia.tell(fields[0], fields[1:])
    return True
