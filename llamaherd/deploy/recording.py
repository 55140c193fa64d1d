"""What a run does to a host, kept as it goes, and written down there at its end: a release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api import Host, StringCommand
from pyinfra.connectors.util import CommandOutput

from llamaherd.deploy.reasons import noted
from llamaherd.history.merged import RECENT, merged
from llamaherd.history.release import Origin, Past, Release, bounded, past_of, write_input
from llamaherd.host.program import Events, request
from llamaherd.host.protocol import result_of
from llamaherd.host.remote import RemoteError
from llamaherd.host.state import HostState
from llamaherd.onhost.document import DocumentError, decode
from llamaherd.onhost.releases import ReadInput, Stored
from llamaherd.plan import Plan
from llamaherd.role.changes import Change

WRITE_SECONDS = 60


@dataclass
class Done:
    """What was done to a host: whether anything was begun, and the changes that came to their end.

    `running`: specs of the servers that were seen there last, by service.
    """

    begun: bool = False
    changes: list[str] = field(default_factory=list)
    running: Mapping[str, str] = field(default_factory=dict)


_done: WeakKeyDictionary[Host, Done] = WeakKeyDictionary()


def begun(host: Host) -> None:
    """Something is done to it from here on."""
    _done.setdefault(host, Done()).begun = True


def saw(host: Host, state: HostState) -> None:
    """What runs there: a run that is for a part alone changes nothing of the rest."""
    units = {name: unit.spec for name, unit in state.units.items()}
    there = units | {name: container.spec for name, container in state.containers.items()}
    _done.setdefault(host, Done()).running = there


def did(host: Host, change: Change) -> None:
    """A change has come to its end. What was sent is part of what it was sent for."""
    if change.action != "send":
        _done.setdefault(host, Done()).changes.append(str(change))


def record(host: Host) -> None:
    """Have the host keep what was done to it in this run, if anything was: once."""
    done = _done.pop(host, Done())
    if not done.begun:
        return
    plan = Plan.model_validate(host.data.plan)
    release = Release(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        origin=Origin.model_validate(host.data.rig_origin),
        changes=bounded(done.changes),
        failed=bounded(noted(host)),
        back_to=host.data.rig_back_to,
        only=plan.only.names if plan.only else (),
    )
    given = write_input(release, merged(_past(host), plan, done.running) if plan.only else plan)
    written, said = _run(host, "llamaherd.releases.write", given, last=True)
    if not written:
        why = next((line for line in said.stderr_lines if line.strip()), "it does not say why")
        logger.warning(f"{host.print_prefix}what was done could not be written down there: {why}")


def _past(host: Host) -> Past:
    """Return what the host remembers; nothing if it does not respond: a release that holds a part alone is as true."""
    events = Events(lambda *_: None)
    _run(host, "llamaherd.releases.read", ReadInput(RECENT), _events=events)
    try:
        return past_of(decode(Stored, result_of(events, ())))
    except (RemoteError, DocumentError):
        return Past({}, {})


def _run(host: Host, verb: str, given: object, *, last: bool = False, **more: object) -> tuple[bool, CommandOutput]:
    arguments = {"_document": request(verb, given), "_sudo": True, "_timeout": WRITE_SECONDS, "_last": last, **more}
    return host.run_shell_command(StringCommand("python3", "-I", verb), **arguments)
