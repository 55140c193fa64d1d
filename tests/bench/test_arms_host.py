"""When requests are kept off what serves, while arms are measured in its place: scripts that say what a host says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.trials.trial import TrialHost, Variant
from tests.support.conversations import play_verb
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root
from tests.support.trials import trial

pytestmark = needs_root

ARM = Variant("A", "box/chat", next(each for each in planned(cpu_rig()).instances if each.name == "chat"))
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
REFUSED = """
echo '{"event":"error","message":"another measurement goes on here","help":"wait","log":[]}'
exit 1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


Begin = Callable[..., TrialHost]


@pytest.fixture
def host(log: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """A host that is measured; the log has what it does, and what is done around that."""

    def note(word: str) -> None:
        with log.open("a") as file:
            file.write(f"{word}\n")

    @contextmanager
    def aside(*, refuses: bool) -> Iterator[None]:
        note("aside")
        if refuses:
            raise UserError("no", "not at all")
        try:
            yield
        finally:
            note("back")

    def begin(script: str, *, refuses: bool = False, beside: bool = False) -> TrialHost:
        play_verb(monkeypatch, script.replace("{log}", str(log)))
        given = trial([ARM], [] if beside else [ARM.instance], drain=partial(aside, refuses=refuses), report=note)
        return TrialHost(given, "salts")

    return begin


@pytest.mark.usefixtures("starts_processes")
def test_nothing_new_is_sent_from_before_it_is_stopped_until_it_serves_again(log: Path, host: Begin) -> None:
    with host(STOPS):
        assert log.read_text().split() == ["aside", "stopped"]
    lines = log.read_text().splitlines()
    assert lines == ["aside", "stopped", "serves", "back", "llama-chat is as before, after 1.5 s"]


@pytest.mark.usefixtures("starts_processes")
def test_what_ends_it_changes_nothing_of_that(log: Path, host: Begin) -> None:
    with pytest.raises(KeyboardInterrupt), host(STOPS):
        raise KeyboardInterrupt
    assert log.read_text().splitlines()[:4] == ["aside", "stopped", "serves", "back"]


@pytest.mark.usefixtures("starts_processes")
def test_a_host_that_ends_in_the_middle_is_sent_requests_again(log: Path, host: Begin) -> None:
    with pytest.raises(UserError), host(STOPS.replace("echo armed", "exit 1")):
        pass
    assert log.read_text().split() == ["aside", "stopped", "back"]


@pytest.mark.usefixtures("starts_processes")
def test_what_is_not_stopped_goes_on_being_sent_requests(log: Path, host: Begin) -> None:
    with host(BESIDE, beside=True):
        pass
    assert not log.exists()


@pytest.mark.usefixtures("starts_processes")
def test_where_another_measurement_goes_on_nobody_is_told(log: Path, host: Begin) -> None:
    with pytest.raises(UserError, match="another measurement goes on here"), host(REFUSED):
        pass
    assert not log.exists()


@pytest.mark.usefixtures("starts_processes")
def test_what_cannot_be_kept_off_stops_nothing(log: Path, host: Begin) -> None:
    with pytest.raises(UserError), host(STOPS, refuses=True):
        pass
    assert log.read_text().split() == ["aside"]
