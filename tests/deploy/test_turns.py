"""Two runs over the same hosts: neither waits for the other for ever. Hosts of pyinfra's are stood in for."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llamaherd.deploy.turns import give_turn_back, pause_turn, take_turn
from llamaherd.host.turn import Turn
from llamaherd.inventory.schema import LOCAL, Connect
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
            rig_held=None,
        )


def host(name: str) -> Any:
    """One that stands in."""
    return cast(Any, FakeHost(name))


def never(line: str) -> None:
    raise AssertionError(line)


def test_who_waits_for_one_host_gives_back_those_where_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_in(tmp_path, monkeypatch)
    idle, busy, wanted = host("idle"), host("busy"), host("wanted")
    others = {name: Turn(name, Connect(host=LOCAL), "another") for name in ("idle", "busy", "wanted")}
    assert others["wanted"].take(never)
    assert take_turn(idle)
    pause_turn(idle)
    assert not take_turn(idle)
    pause_turn(idle)
    assert take_turn(busy)
    waiting = Thread(target=take_turn, args=(wanted,))
    waiting.start()
    assert others["idle"].take(lambda _: None, wait=30)
    with pytest.raises(Exception, match="by tom on desk since"):
        others["busy"].take(never, wait=0)
    # As soon as nothing is done there any more, it is somebody else's turn on that, too.
    while waiting.is_alive() and not (tmp_path / "wanted" / "run").exists():
        time.sleep(0.05)
    pause_turn(busy)
    assert others["busy"].take(never, wait=30)
    for each in others.values():
        each.give_back()
    waiting.join(30)
    assert not waiting.is_alive()
    # And it is told that another run may have been there meanwhile.
    assert take_turn(idle)
    for each in (idle, busy, wanted):
        give_turn_back(each)
