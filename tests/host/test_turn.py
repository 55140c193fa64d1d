"""The lock of a host: one run at a time, by a shell on this machine."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import HostLock, unlock_host
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.onhost.reservation import Unlocked
from tests.support.stores import needs_root
from tests.support.turns import lock_in

pytestmark = needs_root

HERE = Connect(host=LOCAL)


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HostLock, HostLock]]:
    """Two runs on one host."""
    lock_in(tmp_path, monkeypatch)
    both = HostLock("duo", HERE, "tom on desk"), HostLock("duo", HERE, "it's me\ton\n$(laptop)")
    yield both
    for each in both:
        each.give_back()


def never(line: str) -> None:
    raise AssertionError(line)


@pytest.mark.usefixtures("starts_processes")
def test_it_is_taken_once_and_kept(turns: tuple[HostLock, HostLock]) -> None:
    first, _ = turns
    assert first.take(never)
    assert not first.take(never)
    first.give_back()
    assert first.take(never)


@pytest.mark.usefixtures("starts_processes")
def test_another_run_ends_with_who_holds_it(turns: tuple[HostLock, HostLock]) -> None:
    first, second = turns
    second.take(never)
    with pytest.raises(UserError) as refused:
        first.take(never, wait=0)
    assert re.fullmatch(
        r"another run changes this host, by it's me on \$\(laptop\) since [\d-]+ [\d:]+, process \d+",
        refused.value.message,
    )
    assert refused.value.help.endswith("if it is gone for good, `herd unlock duo` breaks its lock")
    second.give_back()
    assert first.take(never, wait=5)


def test_another_run_waits_and_is_told_for_whom(turns: tuple[HostLock, HostLock]) -> None:
    first, second = turns
    first.take(never)
    said: list[str] = []
    taken: list[bool] = []
    waiting = threading.Thread(target=lambda: taken.append(second.take(said.append, wait=60)))
    waiting.start()
    while not said:
        time.sleep(0.05)
    assert said[0].startswith("waiting up to 60 s for another run, by tom on desk since ")
    assert not taken
    first.give_back()
    waiting.join(10)
    assert taken == [True]


@pytest.mark.usefixtures("starts_processes")
def test_a_lock_that_is_broken_is_taken_anew(turns: tuple[HostLock, HostLock]) -> None:
    first, second = turns
    assert unlock_host(HERE) == Unlocked("free")
    first.take(never)
    broken = unlock_host(HERE)
    assert broken.state == "broken"
    assert broken.holder.startswith("tom on desk since ")
    assert second.take(lambda _: None, wait=5)
    with pytest.raises(UserError, match="by it's me on"):
        first.take(never, wait=0)
    second.give_back()
    assert first.take(never, wait=5)


@pytest.mark.usefixtures("starts_processes")
def test_a_run_that_is_gone_holds_nothing(turns: tuple[HostLock, HostLock]) -> None:
    """Killed, with its connection: nobody is at the other end of its shell any more."""
    first, second = turns
    first.take(never)
    assert first._shell
    first._shell._process.kill()
    first._shell._process.wait()
    assert second.take(never, wait=10)


@pytest.mark.usefixtures("starts_processes")
def test_a_folder_of_others_is_no_place_for_a_lock(turns: tuple[HostLock, HostLock], tmp_path: Path) -> None:
    (tmp_path / "duo").mkdir(mode=0o755)
    with pytest.raises(UserError, match="must be a folder of root with mode 0700"):
        turns[0].take(never)
