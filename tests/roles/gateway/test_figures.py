"""What a gateway that is watched tells of itself, and to whom: the real HAProxy, asked from several addresses."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from llamaherd.lock import Lock
from llamaherd.plan import GatewayFigures
from roles.gateway.config import configuration
from tests.support.gateway import KEYS, Running, Upstream, fleet_of, free_port, keys_of, made, rig_at, running, until
from tests.support.monitoring import rigs
from tests.support.ours import plan

ASKER = "127.0.0.3"


@pytest.fixture(name="gateway")
def _gateway(tmp_path: Path) -> Iterator[Running]:
    """A gateway before one server, which lets one address ask for its figures."""
    server = Upstream()
    text = f"gateway: {{on: [box], port: {free_port()}, users: {{tom: {{key: {{env: A}}, streams: 1}}}}, "
    text += "models: {coder: {serve: [box.one]}}}"
    figures = GatewayFigures(listen="0.0.0.0", port=free_port(), asker=ASKER)
    watched = made(text, [rig_at({"one": server.port})]).model_copy(update={"figures": figures})
    try:
        with running(watched, tmp_path) as begun:
            until(lambda: begun.ask().status == 200)
            server.hold.clear()
            yield begun
    finally:
        server.stop()


def asked(gateway: Running, source: str, path: str = "/metrics") -> tuple[int, str]:
    """What it tells somebody at this address; no status where it says nothing."""
    assert gateway.plan.figures
    line = http.client.HTTPConnection("127.0.0.1", gateway.plan.figures.port, timeout=10, source_address=(source, 0))
    with suppress(OSError, http.client.HTTPException):
        line.request("GET", path)
        answer = line.getresponse()
        return answer.status, answer.read().decode()
    return 0, ""


def value(text: str, metric: str, *labels: str) -> float:
    """One figure of many."""
    lines = [line for line in text.splitlines() if line.startswith(f"{metric}{{") and all(x in line for x in labels)]
    (line,) = lines
    return float(line.rpartition(" ")[2])


def test_it_tells_what_alerts_ask_for(gateway: Running) -> None:
    _, before = asked(gateway, ASKER)
    assert value(before, "haproxy_server_status", 'proxy="m_coder"', 'server="box.one"', 'state="UP"') == 1
    assert value(before, "haproxy_server_status", 'proxy="m_coder"', 'server="box.one"', 'state="DOWN"') == 0
    assert value(before, "haproxy_server_check_up_down_total", 'proxy="m_coder"', 'server="box.one"') >= 0
    assert value(before, "haproxy_backend_queue_time_average_seconds", 'proxy="m_coder"') >= 0
    assert value(before, "haproxy_backend_current_queue", 'proxy="m_coder"') == 0
    assert not [key for key in KEYS.values() if key in before]


def test_who_is_told_to_come_back_is_counted_and_nobody_else(gateway: Running) -> None:
    # Who has just been answered is counted until the connection is closed.
    until(lambda: value(asked(gateway, ASKER)[1], "haproxy_frontend_current_sessions", 'proxy="gateway"') == 0)
    before = value(asked(gateway, ASKER)[1], "haproxy_frontend_requests_denied_total", 'proxy="gateway"')
    held = _begun(gateway)
    until(lambda: value(asked(gateway, ASKER)[1], "haproxy_server_current_sessions", 'server="box.one"') == 1)
    refused = gateway.ask()
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "too_many_streams", "5")
    assert gateway.ask(key="wrong").status == 401
    _, told = asked(gateway, ASKER)
    assert value(told, "haproxy_frontend_requests_denied_total", 'proxy="gateway"') == before + 1
    held.close()


def _begun(gateway: Running) -> http.client.HTTPConnection:
    """A request whose answer is not there yet."""
    line = http.client.HTTPConnection("127.0.0.1", gateway.plan.port, timeout=10)
    line.request("POST", "/v1/completions", b'{"model": "coder"}', {"Authorization": f"Bearer {KEYS['tom']}"})
    return line


def test_nobody_but_who_watches_and_its_own_host_may_ask(gateway: Running) -> None:
    assert asked(gateway, "127.0.0.2") == (0, "")
    assert asked(gateway, ASKER)[0] == asked(gateway, "127.0.0.1")[0] == 200
    assert asked(gateway, ASKER, "/other")[0] == 404


def test_a_gateway_tells_the_rig_that_watches() -> None:
    """On its own host it tells that alone; and nothing where nobody watches."""
    every = rigs()
    gateway = "gateway: {on: [box, porch], users: {tom: {key: {env: A}}}, models: {small: {serve: [box.drafter]}}}"
    told = {}
    for name, more in (("box", "on: box"), ("porch", "on: box"), ("left out", "on: box, rigs: [box]")):
        rig = every["porch" if name == "left out" else name]
        planned = plan(rig, Lock(), every, fleet=fleet_of(f"{gateway}\nmonitoring: {{{more}}}"))
        assert planned.gateway
        told[name] = planned.gateway.figures
        bound = re.findall(r"^    bind (\S+)", configuration(planned.gateway, keys_of(planned.gateway)).text, re.M)
        assert len(bound) == (1 if name == "left out" else 2)
    assert told == {
        "box": GatewayFigures(listen="127.0.0.1", port=8405),
        "porch": GatewayFigures(listen="0.0.0.0", port=8405, asker="192.0.2.1"),
        "left out": None,
    }
