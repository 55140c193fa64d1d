"""Two runs over the same hosts: neither waits for the other for ever. Hosts of pyinfra's are stood in for."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llamaherd.deploy.run_state import LockedHost, holds_host_lock, pause_host_lock, release_host_lock, take_host_lock
from llamaherd.host import protocol
from llamaherd.host.protocol import HostLock
from llamaherd.host.remote import Patience, Shell
from llamaherd.inventory.schema import LOCAL, Connect
from roles import ROLES
from tests.support.ours import parse_state
from tests.support.rigs import KEY, converged, cpu_rig, planned
from tests.support.stores import needs_root
from tests.support.turns import lock_in

pytestmark = needs_root


class FakeHost:
    """As much of a host of pyinfra's as a turn asks for."""

    def __init__(self, name: str) -> None:
        self.name, self.print_prefix = name, f"[{name}] "
        self.data = SimpleNamespace(
            rig_origin={"user": "tom", "machine": "desk"},
            rig_connect=Connect(host=LOCAL).model_dump(mode="json"),
            rig_lock_wait=60,
            rig_locked=None,
        )


def host(name: str) -> Any:
    """One that stands in."""
    return cast(Any, FakeHost(name))


@pytest.mark.usefixtures("starts_processes")
def test_who_logs_in_before_waits_for_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell that is ready takes the turn; one that is made ready then runs what comes first, by whoever has it."""
    lock_in(tmp_path, monkeypatch)
    logins: list[Connect] = []

    def login(connect: Connect, *, fresh: bool) -> Shell:
        logins.append(connect)
        return Shell(connect, fresh=fresh)

    monkeypatch.setattr(protocol, "Shell", login)
    mine = HostLock("idle", Connect(host=LOCAL), "tom")
    mine.log_in()
    assert mine.take(never)
    assert len(logins) == 1
    assert mine.ready() is None
    mine.log_in()
    shell = mine.ready()
    assert shell
    with shell:
        said: list[str] = []
        assert shell.run("echo there; exit 3", lambda _, line: said.append(line), Patience.within(30)) == 3
    assert said == ["there\n"]
    assert not mine.take(never)
    mine.log_in()
    mine.give_back()
    assert mine.ready() is None
    assert len(logins) == 3


@pytest.mark.usefixtures("starts_processes")
def test_a_turn_that_was_taken_before_is_the_runs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_in(tmp_path, monkeypatch)
    mine = HostLock("idle", Connect(host=LOCAL), "tom")
    assert mine.take(never, wait=0)
    idle = host("idle")
    idle.data.rig_locked = LockedHost(mine, parse_state(converged(planned(cpu_rig()), {"chat": KEY}), ROLES), 0.0)
    assert not take_host_lock(idle)
    assert holds_host_lock(idle)
    # Once it was given back, another may have had it.
    release_host_lock(idle)
    assert take_host_lock(idle)
    release_host_lock(idle)


def never(line: str) -> None:
    raise AssertionError(line)


def test_who_waits_for_one_host_gives_back_those_where_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_in(tmp_path, monkeypatch)
    idle, busy, wanted = host("idle"), host("busy"), host("wanted")
    others = {name: HostLock(name, Connect(host=LOCAL), "another") for name in ("idle", "busy", "wanted")}
    assert others["wanted"].take(never)
    assert take_host_lock(idle)
    pause_host_lock(idle)
    assert not take_host_lock(idle)
    pause_host_lock(idle)
    assert take_host_lock(busy)
    waiting = Thread(target=take_host_lock, args=(wanted,))
    waiting.start()
    assert others["idle"].take(lambda _: None, wait=30)
    with pytest.raises(Exception, match="by tom on desk since"):
        others["busy"].take(never, wait=0)
    # As soon as nothing is done there any more, it is somebody else's turn on that, too.
    while waiting.is_alive() and not (tmp_path / "wanted" / "run").exists():
        time.sleep(0.05)
    pause_host_lock(busy)
    assert others["busy"].take(never, wait=30)
    for each in others.values():
        each.give_back()
    waiting.join(30)
    assert not waiting.is_alive()
    # And it is told that another run may have been there meanwhile.
    assert take_host_lock(idle)
    for each in (idle, busy, wanted):
        release_host_lock(each)
