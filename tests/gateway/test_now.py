"""What hosts say of their gateways, and what is believed of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llamaherd.fleet.gateway_snapshot import (
    GatewaySnapshot,
    ServerSnapshot,
    address_line,
    gateway_lines,
    gateway_snapshot,
)
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.onhost.gateway import AddressRow, GatewayState, ModelRow, ServerRow, UserRow
from tests.support.gateway import now_of

MODEL = "model\tchat\t0"
FINE = [MODEL, "server\tchat\tbox.chat\tUP\t1\t2\t40", "user\ttom\t1\t4", "ending\t0"]


def with_status(status: str) -> str:
    return now_of([MODEL, f"server\tchat\tbox.chat\t{status}\t1\t2\t40", "ending\t0"]).models[0].servers[0].state


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("UP", "up"),
        ("UP 1/2", "up"),
        ("no check", "up"),
        ("DOWN", "down"),
        ("DOWN 1/2", "down"),
        ("MAINT", "draining"),
        ("DRAIN", "draining"),
        ("DRAIN 1/2", "draining"),
        ("MAINT (resolution)", "down"),
        ("NOLB", "down"),
        ("", "down"),
    ],
)
def test_haproxys_words_for_servers(status: str, state: str) -> None:
    assert with_status(status) == state


SERVER = ServerRow("box.chat", "UP", 1, 2, 40)
STATE = GatewayState((ModelRow("chat", 0, (SERVER,)),), (UserRow("tom", 1, 4),), 0)


def with_server(**fields: Any) -> GatewayState:
    return replace(STATE, models=(ModelRow("chat", 0, (replace(SERVER, **fields),)),))


@pytest.mark.parametrize(
    "state",
    [
        with_server(streams=-1),
        with_server(answered=10**16),
        with_server(name="\x1b[2Jbox.chat"),
        with_server(name="b" * 500),
        with_server(name=""),
        replace(STATE, models=(ModelRow("../chat", 0, ()),)),
        replace(STATE, models=(ModelRow("chat", -1, ()),)),
        replace(STATE, users=(UserRow("tom smith", 1, 4),)),
        replace(STATE, users=(UserRow("tom", 1, -4),)),
        replace(STATE, ending=-1),
        replace(STATE, returning=("../chat",)),
        replace(STATE, address=AddressRow("llm.lan", here=True)),
        replace(STATE, address=AddressRow("10.0.0.1/24", here=True)),
    ],
)
def test_a_state_that_no_gateway_can_have_is_refused(state: GatewayState) -> None:
    with pytest.raises(UnexpectedLineError):
        gateway_snapshot(state)


def test_a_state_is_read() -> None:
    assert gateway_snapshot(STATE) == now_of(FINE)


def test_a_server_alone_is_one_whose_others_are_not_up() -> None:
    told = now_of(
        [
            *FINE,
            "server\tchat\tduo.chat\tDOWN\t0\t2\t0",
            "model\tsmall\t0",
            "server\tsmall\tbox.chat\tUP\t0\t2\t0",
            "server\tsmall\tsix.chat\tUP\t0\t2\t0",
        ]
    )
    assert told.alone("box.chat") == ("chat",)
    assert told.alone("duo.chat") == ()
    assert told.down == ("duo.chat",)
    assert told.absent([("chat", "box.chat"), ("small", "duo.chat"), ("last", "six.chat")]) == ("duo.chat", "six.chat")


def test_the_table_has_a_line_for_each_server_and_user() -> None:
    told = now_of([*FINE[:2], "server\tchat\tporch.chat\tMAINT\t0\t1\t7", *FINE[2:]])
    assert told.models[0].servers[1] == ServerSnapshot("porch.chat", "draining", 0, 1, 7)
    assert list(gateway_lines(told)) == [
        "  model  waiting  server      state     streams  answered",
        "  chat   0        box.chat    up        1 of 2   40",
        "                  porch.chat  draining  0 of 1   7",
        "",
        "  user  streams",
        "  tom   1 of 4",
    ]


FALLBACKS = {"coder": "small", "small": "last", "last": "coder"}


def served(**models: dict[str, str]) -> GatewaySnapshot:
    """A gateway with these models, whose servers are in these states."""
    lines = [
        line
        for model, servers in models.items()
        for line in (
            f"model\t{model}\t0",
            *(f"server\t{model}\tbox.{name}\t{status}\t0\t2\t0" for name, status in servers.items()),
        )
    ]
    return now_of([*lines, "ending\t0"])


@pytest.mark.parametrize(
    ("models", "without"),
    [
        ({"coder": {"one": "UP"}}, ("coder",)),
        ({"coder": {"one": "UP", "two": "UP"}}, ()),
        ({"coder": {"one": "UP", "two": "DOWN"}}, ("coder",)),
        ({"coder": {"one": "UP", "two": "MAINT"}}, ("coder",)),
        ({"coder": {"one": "UP"}, "small": {"two": "UP"}}, ()),
        ({"coder": {"one": "UP"}, "small": {"two": "DOWN"}, "last": {"three": "UP"}}, ()),
        ({"coder": {"one": "UP"}, "small": {"one": "UP"}}, ("coder", "small")),
        ({"coder": {"one": "UP"}, "small": {"one": "UP"}, "last": {"two": "UP"}}, ()),
        ({"coder": {"one": "UP", "two": "UP"}, "alone": {"one": "UP"}}, ("alone",)),
        ({"coder": {"one": "DOWN"}}, ()),
    ],
)
def test_who_would_answer_without_a_server(models: dict[str, dict[str, str]], without: tuple[str, ...]) -> None:
    assert served(**models).without("box.one", FALLBACKS) == without


@pytest.mark.parametrize(
    ("status", "by_a_run", "takes"),
    [
        ("UP", False, True),
        ("UP", True, True),
        ("MAINT", False, False),
        ("MAINT", True, True),
        ("DOWN", False, False),
        ("DOWN", True, False),
    ],
)
def test_what_somebody_has_drained_stays_so_and_what_a_run_has_left_does_not(
    status: str, by_a_run: bool, takes: bool
) -> None:
    now = replace(served(coder={"one": status}), returning=("box.one",) if by_a_run else ("box.two",))
    assert now.takes("box.one") is takes
    assert not now.takes("box.three")


def test_what_comes_back_by_itself_is_said() -> None:
    now = gateway_snapshot(replace(STATE, returning=("box.chat",)))
    assert now.returning == ("box.chat",)
    assert "box.chat is drained by `herd up` or a measurement, and returns by itself" in "\n".join(gateway_lines(now))


@pytest.mark.parametrize(
    ("where", "line", "ok"),
    [
        (("here", "elsewhere"), "10.0.0.1 is on box", True),
        (("elsewhere", "here"), "10.0.0.1 is on porch", True),
        (("here", "here"), "10.0.0.1 is on box and porch at once: let their VRRP messages through", False),
        (("elsewhere", "elsewhere"), "10.0.0.1 is not on box, nor on porch: see `systemctl status", False),
    ],
)
def test_an_address_is_on_one_of_two_gateways(where: tuple[str, str], line: str, ok: bool) -> None:
    found = {
        rig: gateway_snapshot(replace(STATE, address=AddressRow("10.0.0.1", each == "here")))
        for rig, each in zip(("box", "porch"), where, strict=True)
    }
    told = address_line(found)
    assert told
    assert told.line.startswith(line)
    assert told.ok == ok


def test_gateways_without_one_say_nothing_of_it() -> None:
    assert address_line({"box": now_of(FINE)}) is None
    assert gateway_snapshot(replace(STATE, address=AddressRow("10.0.0.1", here=True))).address == AddressRow(
        "10.0.0.1", here=True
    )
    assert address_line({}) is None
