"""Hosts that are measured, and send a line now and then for ever: each wait for them ends by its total."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.remote import RemoteError
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.bench import job
from llamaherd.measure.bench.job import PowerHold, ServerConnection
from llamaherd.measure.meter import meter as metering
from llamaherd.measure.meter.meter import Meter
from llamaherd.measure.trials import trial as arms_host
from llamaherd.measure.trials.trial import TrialHost, Variant
from llamaherd.onhost import gauges as requests
from llamaherd.onhost.document import dump
from llamaherd.onhost.reservation import HELD
from tests.bench.meter_lines import hello, line
from tests.bench.played import PLAIN, Played
from tests.support.conversations import play_verb
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root
from tests.support.trials import trial

pytestmark = needs_root

HERE = Connect(host=LOCAL)
CHAT = next(each for each in planned(cpu_rig()).instances if each.name == "chat")
ARM = Variant("A", "box/chat", CHAT)
SPEAKS = "while echo; do sleep 0.1; done"
"""A word now and then, as hosts say one, and never the one that is waited for."""
LIMIT, SOON = 1, 15
RESTORES = "the host restores llama-chat by itself; run `herd verify box` to check it"


COMMANDS: dict[str, Callable[[TrialHost], object]] = {
    "start": lambda host: host.start("A"),
    "stop": lambda host: host.stop(),
    "place": lambda host: host.place(ARM),
    "run": lambda host: host.run_to_end("[Service]", 1),
}


@contextmanager
def ends_in_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert LIMIT <= time.monotonic() - began < SOON


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (arms_host, job):
        monkeypatch.setattr(module, "_WORD_SECONDS", LIMIT)
    monkeypatch.setattr(job, "_LOCK_SECONDS", LIMIT)
    monkeypatch.setattr(metering, "_LATE", 0)


@pytest.fixture
def arms(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], TrialHost]:
    """A host that runs a script in place of the verb."""

    def begin(script: str) -> TrialHost:
        play_verb(monkeypatch, script)
        return TrialHost(trial([ARM], [CHAT], report=print), "salts")

    return begin


@pytest.mark.parametrize(
    ("before", "does"), [("", "preparing a measurement"), ("echo mine; read -r _; ", "stopping the running servers")]
)
def test_a_host_that_is_never_ready_for_a_comparison(before: str, does: str, arms: Callable[[str], TrialHost]) -> None:
    with ends_in_time(), pytest.raises(RemoteError, match=f"this machine did not finish {does} within 1 s"):
        arms(before + SPEAKS).__enter__()


@pytest.mark.parametrize(
    ("command", "does"),
    [
        ("start", "starting a server"),
        ("stop", "stopping a server"),
        ("place", "writing a unit"),
        ("run", "reading a text as a server"),
    ],
)
def test_a_command_of_a_comparison_that_is_never_done(
    command: str, does: str, arms: Callable[[str], TrialHost], capsys: pytest.CaptureFixture[str]
) -> None:
    """The host goes on to say a word now and then; each command has all of the time."""
    placed = "read -r _; echo placed; " if command == "run" else ""
    with arms(f"echo armed; {placed}{SPEAKS}") as host:
        time.sleep(LIMIT)  # nothing is waited for meanwhile
        with ends_in_time(), pytest.raises(RemoteError, match=f"this machine did not finish {does} within 1 s"):
            COMMANDS[command](host)
    assert RESTORES in capsys.readouterr().out


def test_a_host_on_which_nothing_serves_again(
    arms: Callable[[str], TrialHost], capsys: pytest.CaptureFixture[str]
) -> None:
    host = arms(f"echo armed; while read -r _; do :; done; {SPEAKS}").__enter__()
    with ends_in_time():
        host.__exit__()
    assert RESTORES in capsys.readouterr().out


@pytest.mark.parametrize("says", ["", "gpu GPU-1 200 100 300"])
def test_power_limits_that_are_never_read(says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play_verb(monkeypatch, f"while echo {says}; do sleep 0.1; done")
    with ends_in_time(), pytest.raises(RemoteError, match="did not finish setting power limits within 1 s"):
        PowerHold(HERE, ["GPU-1"], [200], 60).__enter__()


def test_power_limits_that_are_never_set(monkeypatch: pytest.MonkeyPatch) -> None:
    play_verb(monkeypatch, f"echo gpu GPU-1 200 100 300; echo armed; {SPEAKS}")
    found = PowerHold(HERE, ["GPU-1"], [200], 60).__enter__()
    time.sleep(LIMIT)
    with ends_in_time(), pytest.raises(RemoteError, match="did not finish setting power limits within 1 s"):
        found.hold(200)
    found.__exit__()


def test_the_lock_of_measurements_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", "secret")
    play_verb(monkeypatch, "while printf x; do sleep 0.1; done")
    with ends_in_time(), pytest.raises(UserError, match="did not finish taking the lock of measurements within 1 s"):
        ServerConnection(HERE, CHAT, "tom").__enter__()


def refused(message: str) -> str:
    """Return a script that fails as a verb does."""
    return f"echo '{dump({'event': 'error', 'message': message, 'help': 'wait', 'log': []})}'; exit 1"


@pytest.mark.usefixtures("starts_processes")
def test_why_the_lock_of_measurements_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", "secret")
    play_verb(monkeypatch, refused("another measurement runs on this host, by ann"))
    with pytest.raises(UserError, match="another measurement runs on this host, by ann") as raised:
        ServerConnection(HERE, CHAT, "tom").__enter__()
    assert raised.value.help == "wait"
    play_verb(monkeypatch, "echo oh no >&2; exit 1")
    with pytest.raises(RemoteError, match="the lock of this host cannot be taken: oh no"):
        ServerConnection(HERE, CHAT, "tom").__enter__()
    play_verb(monkeypatch, f"echo '{HELD}'; cat")
    with ServerConnection(HERE, CHAT, "tom") as way_there:
        assert way_there.refused() is None


@pytest.mark.usefixtures("starts_processes")
def test_limits_that_are_set_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    warns = dump({"event": "warning", "text": "GPU-1 is odd"})
    play_verb(
        monkeypatch,
        "echo gpu GPU-1 200 100 300; echo armed; read -r line; echo held 200; read -r line; echo failed GPU-1 is busy;"
        f" read -r line; echo '{warns}'; exit 1",
    )
    with PowerHold(HERE, ["GPU-1"], [200], 60) as found:
        found.hold(200)
        with pytest.raises(UserError, match="GPU-1 is busy"):
            found.hold(300)
        with pytest.raises(RemoteError, match="ended halfway: GPU-1 is odd"):
            found.hold(None)


def test_a_meter_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says hello, and then something again and again, and nothing of how the host is."""
    speaks = f"echo '{hello()}'; while echo '{line('pong', 101.0, n='x')}'; do sleep 0.1; done"
    play_verb(monkeypatch, speaks)
    with ends_in_time(), pytest.raises(RemoteError, match="did not finish watching its server within 1 s"):
        Meter(HERE, CHAT, LIMIT).__enter__()


def test_a_server_that_drips_what_it_counts_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LONGEST_RESPONSE", LIMIT)
    before, began = threading.active_count(), time.monotonic()
    drips = [(0.0, PLAIN), *((0.05 * number, b"#") for number in range(60))]
    with Played(lambda _: iter(drips)) as server, ends_in_time():
        assert requests.count_in_flight([server.url], "") is None
    while threading.active_count() > before:  # what is left to itself ends with the answer
        assert time.monotonic() - began < 60
        time.sleep(0.05)
    line = b"llamacpp:requests_processing 2\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(line), line)
    with Played(lambda _: iter([(0, answer)])) as server:
        assert requests.count_in_flight([server.url], "") == 2
