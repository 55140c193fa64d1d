"""The gateway of a host, queried and set by verbs, on a played host."""

from __future__ import annotations

import pytest

from llamaherd.onhost.gateway import (
    NO_GATEWAY,
    OTHER_VERSION,
    AddressRow,
    DrainInput,
    DrainState,
    GatewayState,
    Held,
    ModelRow,
    ReadyInput,
    RenewInput,
    ServerRow,
    UserRow,
    drain,
    ready,
    renew,
    status,
)
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError
from llamaherd.onhost.verbs import NoInput
from tests.support.played_host import File
from tests.support.recording import RecordingHost

TALK = "/opt/llamaherd/libexec/gateway-talk"
ADDRESS = "/opt/llamaherd/libexec/virtual-address"
FACTS = "model\tchat\t3\nserver\tchat\tbox.chat\tUP 1/2\t1\t2\t40\nuser\ttom\t1\t4\nending\t1\n"
SERVER = "box.chat"
TIMER = "llamaherd-ready-box.chat.timer"
IS_TIMED = f"systemctl is-active -q {TIMER}"
SET_TIMER = [
    *("systemd-run", "-q", "--collect", "--unit=llamaherd-ready-box.chat", "--on-active=900s"),
    *("--timer-property=AccuracySec=1s", TALK, "ready", "box.chat"),
]


def host_with(**ends: Ended) -> RecordingHost:
    """Return a host with a gateway, whose program ends so for each command."""
    host = RecordingHost({}, files={TALK: File("")})
    host.ends |= {f"{TALK} {words}": ended for words, ended in ends.items()}
    return host


def test_the_state_of_a_gateway() -> None:
    host = host_with(status=Ended(0, FACTS))
    host.ends["systemctl list-units"] = Ended(0, f"{TIMER} loaded active waiting a timer\n")
    found = (ModelRow("chat", 3, (ServerRow("box.chat", "UP 1/2", 1, 2, 40),)),)
    assert status(NoInput(), host) == GatewayState(found, (UserRow("tom", 1, 4),), 1, ("box.chat",))


@pytest.mark.parametrize(
    ("where", "address"),
    [
        ("10.0.0.1 here\n", AddressRow("10.0.0.1", here=True)),
        ("10.0.0.1 elsewhere\n", AddressRow("10.0.0.1", here=False)),
        ("", None),
        ("10.0.0.1 there\n", None),
    ],
)
def test_a_gateway_that_shares_an_address(where: str, address: AddressRow | None) -> None:
    host = host_with(status=Ended(0, FACTS))
    host.files[ADDRESS] = File("")
    host.ends[f"{ADDRESS} where"] = Ended(0, where)
    assert status(NoInput(), host).address == address


@pytest.mark.parametrize(
    "output",
    [
        "",
        "model\tchat\tmany\nending\t0\n",
        "server\tchat\tbox.chat\tUP\t1\t2\t40\nending\t0\n",
        "model\tchat\t0\n",
        "left\t1\nending\t0\n",
        "a" * 100_000,
        f"{FACTS}\n",
    ],
)
def test_a_program_that_prints_something_else_fails(output: str) -> None:
    host = host_with(status=Ended(0, output), ready=Ended(0, output), drain=Ended(0, output.replace("left", "lost")))
    for run in (
        lambda: status(NoInput(), host),
        lambda: drain(DrainInput(SERVER, 0), host),
        lambda: ready(ReadyInput(SERVER), host),
    ):
        with pytest.raises(FailedError, match="its program has printed something else than its state"):
            run()


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (Ended(2, "", "usage: gateway-talk"), OTHER_VERSION[0]),
        (
            Ended(1, "", "the gateway does not do as it is told: [Errno 111] refused\n"),
            "correctly: [Errno 111] refused",
        ),
        (Ended(1, "a" * 5000, ""), f"correctly: {'a' * 200}"),
        (Ended(TIMED_OUT), "it did not respond within"),
    ],
)
def test_a_program_that_fails(ended: Ended, message: str) -> None:
    host = host_with(status=ended, drain=ended, ready=ended)
    for run in (
        lambda: status(NoInput(), host),
        lambda: drain(DrainInput(SERVER, 3), host),
        lambda: ready(ReadyInput(SERVER), host),
    ):
        with pytest.raises(FailedError) as raised:
            run()
        assert message in raised.value.message
        assert raised.value.message.count("a" * 201) == 0
        assert raised.value.fix


def test_a_host_without_a_gateway() -> None:
    host = RecordingHost({})
    for run in (
        lambda: status(NoInput(), host),
        lambda: drain(DrainInput(SERVER, 3), host),
        lambda: ready(ReadyInput(SERVER), host),
    ):
        with pytest.raises(FailedError, match=NO_GATEWAY[0]):
            run()
    assert not host.done


def test_a_drain_ends_the_timer_of_a_run() -> None:
    host = host_with(drain=Ended(0, "left\t2\nending\t1\n"))
    assert drain(DrainInput(SERVER, 60), host) == DrainState(2, 1)
    assert host.done == [["systemctl", "stop", TIMER], [TALK, "drain", SERVER, "60"]]


def test_the_timer_that_undoes_a_drain_is_set_before_it() -> None:
    host = host_with(drain=Ended(0, "left\t0\nending\t0\n"))
    drain(DrainInput(SERVER, 60, 900), host)
    assert host.done == [["systemctl", "stop", TIMER], SET_TIMER, [TALK, "drain", SERVER, "60"]]


def test_without_a_timer_nothing_is_drained() -> None:
    host = host_with(drain=Ended(0, "left\t0\nending\t0\n"))
    host.ends["systemd-run"] = Ended(1, "", "Failed to connect to bus")
    with pytest.raises(FailedError, match="no timer could be set"):
        drain(DrainInput(SERVER, 60, 900), host)
    assert not host.has_done(TALK, "drain")


@pytest.mark.parametrize(("is_timed", "held"), [(0, True), (3, False)])
def test_a_run_undoes_only_what_it_has_set(is_timed: int, held: bool) -> None:
    host = host_with(ready=Ended(0, "ready\n"))
    host.ends[IS_TIMED] = Ended(is_timed)
    assert ready(ReadyInput(SERVER, ours=True), host) == Held(held)
    assert host.has_done(TALK, "ready") is held
    assert host.has_done("systemctl", "stop") is held


def test_a_server_is_sent_requests_again_whatever_was_set() -> None:
    host = host_with(ready=Ended(0, "ready\n"))
    host.ends[IS_TIMED] = Ended(3)
    assert ready(ReadyInput(SERVER), host) == Held(held=True)
    assert host.done == [["systemctl", "stop", TIMER], [TALK, "ready", SERVER]]


@pytest.mark.parametrize(("is_timed", "held"), [(0, True), (3, False)])
def test_a_timer_begins_anew_where_it_still_runs(is_timed: int, held: bool) -> None:
    host = RecordingHost({})
    host.ends[IS_TIMED] = Ended(is_timed)
    assert renew(RenewInput(SERVER), host) == Held(held)
    assert host.done == [["systemctl", "try-restart", TIMER], IS_TIMED.split()]


def test_a_hostile_name_is_one_argument() -> None:
    server = "a b'$(id)`\n;"
    host = host_with(ready=Ended(0, "ready\n"), drain=Ended(0, "left\t0\nending\t0\n"))
    ready(ReadyInput(server), host)
    drain(DrainInput(server, 1, 2), host)
    assert {argv[0] for argv in host.done} == {"systemctl", "systemd-run", TALK}
    assert all(any(server in word for word in argv) for argv in host.done)
