"""What a run does to a host, kept as it goes, and written down there at its end: a release."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api import Host, StringCommand

from llamaherd.deploy.reasons import noted
from llamaherd.history.release import Origin, Release, bounded, write_script
from llamaherd.plan import Plan
from llamaherd.role.changes import Change

WRITE_SECONDS = 60


@dataclass
class Done:
    """What was done to a host: whether anything was begun, and the changes that came to their end."""

    begun: bool = False
    changes: list[str] = field(default_factory=list)


_done: WeakKeyDictionary[Host, Done] = WeakKeyDictionary()


def begun(host: Host) -> None:
    """Something is done to it from here on."""
    _done.setdefault(host, Done()).begun = True


def did(host: Host, change: Change) -> None:
    """A change has come to its end. What was sent is part of what it was sent for."""
    if change.action != "send":
        _done.setdefault(host, Done()).changes.append(str(change))


def record(host: Host) -> None:
    """Have the host keep what was done to it in this run, if anything was: once."""
    done = _done.pop(host, Done())
    if not done.begun:
        return
    release = Release(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        origin=Origin.model_validate(host.data.rig_origin),
        changes=bounded(done.changes),
        failed=bounded(noted(host)),
        back_to=host.data.rig_back_to,
    )
    script = write_script(release, Plan.model_validate(host.data.plan))
    written, said = host.run_shell_command(
        StringCommand("sh", "-s"), _stdin=f"{{\n{script}\n}} </dev/null\n", _sudo=True, _timeout=WRITE_SECONDS
    )
    if not written:
        why = next((line for line in said.stderr_lines if line.strip()), "it does not say why")
        logger.warning(f"{host.print_prefix}what was done could not be written down there: {why}")
