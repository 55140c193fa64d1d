"""When requests are kept off what serves, while arms are measured in its place: scripts that say what a host says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llamaherd.bench.arms.host import ArmsHost
from llamaherd.bench.arms.units import Arm
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import LOCAL, Connect
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root

pytestmark = needs_root

ARM = Arm("A", "box/chat", next(each for each in planned(cpu_rig()).instances if each.name == "chat"))
STOPS = """
echo mine
read -r go && [ "$go" = go ] || exit 1
echo stopped >>{log}
echo armed
while read -r _; do :; done
echo serves >>{log}
echo back 1500
"""
BESIDE = "echo armed\nwhile read -r _; do :; done\necho back 0"
REFUSED = "echo another measurement goes on here >&2\necho '  help: wait' >&2\nexit 1"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def host(log: Path, script: str, *, refuses: bool = False) -> ArmsHost:
    """A host that is measured; the log has what it does, and what is done around that."""

    def note(word: str) -> None:
        with log.open("a") as file:
            file.write(f"{word}\n")

    @contextmanager
    def aside() -> Iterator[None]:
        note("aside")
        if refuses:
            raise UserError("no", "not at all")
        try:
            yield
        finally:
            note("back")

    return ArmsHost(Connect(host=LOCAL), script.replace("{log}", str(log)), {"A": ARM}, {"A": None}, "salts", aside())


@pytest.mark.usefixtures("starts_processes")
def test_nothing_new_is_sent_from_before_it_is_stopped_until_it_serves_again(log: Path) -> None:
    with host(log, STOPS) as measured:
        assert log.read_text().split() == ["aside", "stopped"]
    assert measured.back == 1.5
    assert log.read_text().split() == ["aside", "stopped", "serves", "back"]


@pytest.mark.usefixtures("starts_processes")
def test_what_ends_it_changes_nothing_of_that(log: Path) -> None:
    with pytest.raises(KeyboardInterrupt), host(log, STOPS):
        raise KeyboardInterrupt
    assert log.read_text().split() == ["aside", "stopped", "serves", "back"]


@pytest.mark.usefixtures("starts_processes")
def test_a_host_that_ends_in_the_middle_is_sent_requests_again(log: Path) -> None:
    with pytest.raises(UserError), host(log, STOPS.replace("echo armed", "exit 1")):
        pass
    assert log.read_text().split() == ["aside", "stopped", "back"]


@pytest.mark.usefixtures("starts_processes")
def test_what_is_not_stopped_goes_on_being_sent_requests(log: Path) -> None:
    with host(log, BESIDE):
        pass
    assert not log.exists()


@pytest.mark.usefixtures("starts_processes")
def test_where_another_measurement_goes_on_nobody_is_told(log: Path) -> None:
    with pytest.raises(UserError, match="another measurement goes on here"), host(log, REFUSED):
        pass
    assert not log.exists()


@pytest.mark.usefixtures("starts_processes")
def test_what_cannot_be_kept_off_stops_nothing(log: Path) -> None:
    with pytest.raises(UserError), host(log, STOPS, refuses=True):
        pass
    assert log.read_text().split() == ["aside"]
