"""What becomes of requests at the gateway: the real HAProxy, by the configuration of a host, before two servers.

The servers are plain ones on loopback that record what reaches them, so that they can be held, hurried, and ended at
will. The box has real ones.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from llamaherd.inventory.schema import Rig
from tests.support.gateway import (
    KEYS,
    SERVERS_KEY,
    Answer,
    Running,
    Upstream,
    free_port,
    made,
    rig_at,
    running,
    until,
)

PATHS = ("chat/completions", "completions", "responses", "messages", "messages/count_tokens", "embeddings", "rerank")


@pytest.fixture
def servers() -> Iterator[list[Upstream]]:
    upstreams = [Upstream(), Upstream()]
    yield upstreams
    for each in upstreams:
        each.hold.set()
        each.shutdown()
        each.server_close()


Start = Callable[..., Running]


@pytest.fixture
def start(servers: list[Upstream], tmp_path: Path) -> Iterator[Start]:
    """Starts a gateway before both servers: `coder` is the first, or both; `small` is the second."""
    one, two = servers
    ended = []

    def begin(
        coder: str = "serve: [box.one]", *, queue: str = "{}", tom: str = "streams: 50", more: str = ""
    ) -> Running:
        text = f"""
        gateway:
          on: [box]
          port: {free_port()}
          queue: {queue}
          users:
            tom: {{key: {{env: A}}, {tom}}}
            ann: {{key: {{env: B}}, models: [small]}}
          models:
            coder: {{{coder}}}
            small: {{serve: [box.two]}}
            {more}
        """
        context = running(made(text, [rig()]), tmp_path)
        gateway = context.__enter__()
        ended.append(context)
        for server in servers:
            server.seen.clear()
        return gateway

    def rig() -> Rig:
        return rig_at({"one": one.port, "two": two.port})

    yield begin
    for context in ended:
        context.__exit__(None, None, None)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as workers:
        yield workers


def asked(pool: ThreadPoolExecutor, gateway: Running, number: int, model: str = "coder") -> list[Future[Answer]]:
    """Requests that are sent at the same time."""
    return [pool.submit(gateway.ask, model=model) for _ in range(number)]


def as_bytes(body: bytes) -> bytes:
    """A request of Tom's."""
    key = f"X-Api-Key: {KEYS['tom']}"
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\n{key}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_a_request_reaches_the_server_of_its_model(start: Start, servers: list[Upstream]) -> None:
    gateway = start("serve: [box.one], aliases: [gpt-4o, qwen/qwen3:32b]")
    by = {
        name: json.loads(gateway.ask(model=name).body)["by"] for name in ("coder", "gpt-4o", "qwen/qwen3:32b", "small")
    }
    first, second = (server.port for server in servers)
    assert by == {"coder": first, "gpt-4o": first, "qwen/qwen3:32b": first, "small": second}
    assert gateway.ask().headers["x-herd-instance"] == "box.one"


def test_the_model_is_found_behind_all_messages(start: Start, servers: list[Upstream]) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": 'ä" \\ ' * 300_000}], "model": "small"}).encode()
    assert len(body) > 2_000_000
    assert start().ask(body=body).status == 200
    assert servers[1].seen[0].body == body


@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key"])
def test_servers_see_their_own_key_and_no_users(start: Start, servers: list[Upstream], header: str) -> None:
    key = KEYS["tom"]
    beside = {header: f"Bearer {key}" if header == "Authorization" else key}
    strange = {
        "X-Conversation-Id": "7",
        "Cookie": "a",
        "X-Forwarded-For": "9.9.9.9",
        "Accept": "a",
        "Connection": "X-A",
    }
    answer = start().ask(key=None, headers={**beside, **strange})
    assert answer.status == 200
    (seen,) = servers[0].seen
    assert {name: value for name, value in seen.headers.items() if name not in ("host", "content-length")} == {
        "authorization": f"Bearer {SERVERS_KEY}",
        "content-type": "application/json",
    }
    assert SERVERS_KEY not in str(answer.headers)
    assert "x-herd-fallback" not in answer.headers, "what a server says of that is its own"


@pytest.mark.parametrize("path", PATHS)
def test_every_listed_path_is_passed_on_without_its_query(start: Start, servers: list[Upstream], path: str) -> None:
    assert start().ask(f"/v1/{path}?beta=true&autoload=1").status == 200
    assert servers[0].seen[0].line == f"POST /v1/{path} HTTP/1.1"


def test_models_are_those_that_a_user_may_use(start: Start) -> None:
    gateway = start("serve: [box.one], aliases: [gpt-4o]")
    listed = {
        name: [each["id"] for each in json.loads(gateway.ask("/v1/models", key=key, method="GET").body)["data"]]
        for name, key in KEYS.items()
    }
    assert listed == {"tom": ["coder", "gpt-4o", "small"], "ann": ["small"]}


def test_a_server_gets_no_more_than_its_slots(start: Start, servers: list[Upstream], pool: ThreadPoolExecutor) -> None:
    gateway = start("serve: [box.one, box.two]", queue="{length: 40}")
    for server in servers:
        server.hold.clear()
    answers = asked(pool, gateway, 12)
    until(lambda: all(server.busy == 2 for server in servers))
    until(lambda: gateway.waiting() == 8)
    assert [server.most for server in servers] == [2, 2]
    for server in servers:
        server.hold.set()
    assert [each.result().status for each in answers] == [200] * 12
    assert sum(len(server.seen) for server in servers) == 12, "none is lost, and none is asked twice"


def test_who_finds_the_queue_full_is_told_to_come_back(
    start: Start, servers: list[Upstream], pool: ThreadPoolExecutor
) -> None:
    gateway = start(queue="{length: 3}")
    servers[0].hold.clear()
    answers = asked(pool, gateway, 5)
    until(lambda: (servers[0].busy, gateway.waiting()) == (2, 3))
    refused = gateway.ask()
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "queue_full", "30")
    assert refused.message == "the queue is full: send the request again in 30 seconds, or use another model"
    servers[0].hold.set()
    assert [each.result().status for each in answers] == [200] * 5


def test_who_waits_in_vain_is_told_to_come_back(
    start: Start, servers: list[Upstream], pool: ThreadPoolExecutor
) -> None:
    gateway = start(queue="{wait: 5s}")
    servers[0].hold.clear()
    first = asked(pool, gateway, 2)
    until(lambda: servers[0].busy == 2)
    answer = gateway.ask()
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "rate_limit_exceeded", "10")
    assert answer.message == "no server was free in time: send the request again in 10 seconds"
    servers[0].hold.set()
    assert [each.result().status for each in first] == [200, 200]


def test_a_user_has_so_many_at_once_and_others_are_free(
    start: Start, servers: list[Upstream], pool: ThreadPoolExecutor
) -> None:
    gateway = start(tom="streams: 3")
    servers[0].hold.clear()
    answers = asked(pool, gateway, 3)
    until(lambda: (servers[0].busy, gateway.waiting()) == (2, 1))
    refused = gateway.ask()
    assert (refused.code, refused.headers["retry-after"]) == ("too_many_streams", "5")
    assert refused.message.endswith(": send it again when another request has ended")
    assert gateway.ask(model="small", key=KEYS["ann"]).status == 200
    servers[0].hold.set()
    assert [each.result().status for each in answers] == [200] * 3
    assert gateway.ask().status == 200, "what has ended counts no more"


def test_who_asks_again_at_once_is_not_one_too_many(start: Start, pool: ThreadPoolExecutor) -> None:
    """As many clients as the user may have requests, each with a connection for every request."""
    gateway = start(tom="streams: 4")
    answers = pool.map(lambda _: [gateway.ask().status for _ in range(300)], range(4))
    assert {status for each in answers for status in each} == {200}


def test_who_has_many_waiting_delays_nobody(start: Start, servers: list[Upstream], pool: ThreadPoolExecutor) -> None:
    """Of one server with two slots: Tom has thirty waiting, then comes Ann."""
    gateway = start(queue="{length: 100}")
    two = servers[1]
    two.hold.clear()
    toms = asked(pool, gateway, 30, model="small")
    until(lambda: (two.busy, gateway.waiting("small")) == (2, 28))
    ann = pool.submit(gateway.ask, model="small", key=KEYS["ann"], body=b'{"ann":1,"model":"small"}')
    until(lambda: gateway.waiting("small") == 29)
    two.hold.set()
    assert ann.result().status == 200
    assert {each.result().status for each in toms} == {200}
    place = next(n for n, seen in enumerate(two.seen) if b"ann" in seen.body)
    assert place <= 4, "behind those that are answered, and at most one answer of each slot"


def test_a_client_that_leaves_the_queue_reaches_no_server(
    start: Start, servers: list[Upstream], pool: ThreadPoolExecutor
) -> None:
    gateway = start()
    servers[0].hold.clear()
    first = asked(pool, gateway, 2)
    until(lambda: servers[0].busy == 2)
    with pytest.raises(TimeoutError):
        gateway.ask(seconds=0.5)
    until(lambda: gateway.waiting() == 0)
    servers[0].hold.set()
    assert [each.result().status for each in first] == [200, 200]
    time.sleep(0.5)
    assert len(servers[0].seen) == 2


def test_a_client_that_leaves_frees_its_slot(start: Start, servers: list[Upstream]) -> None:
    gateway = start()
    servers[0].pieces = ["data: a\n\n"] * 100
    with socket.create_connection(("127.0.0.1", gateway.plan.port), timeout=5) as line:
        line.sendall(as_bytes(b'{"model":"coder"}'))
        line.recv(100)
    until(servers[0].left.is_set, 5)


def test_words_arrive_as_they_are_said(start: Start, servers: list[Upstream]) -> None:
    gateway = start()
    servers[0].pieces = [f"data: {n}\n\n" for n in range(8)]
    times = []
    with socket.create_connection(("127.0.0.1", gateway.plan.port), timeout=5) as line:
        line.sendall(as_bytes(b'{"stream":true,"model":"coder"}'))
        said = b""
        while b"data: 7" not in said:
            said += line.recv(65536)
            times.append(time.monotonic())
    assert len(times) >= 6, "each piece by itself, and not all at the end"
    assert times[-1] - times[0] > 0.6


def test_while_no_server_answers_the_fallback_does_and_says_so(start: Start, servers: list[Upstream]) -> None:
    gateway = start("serve: [box.one], fallback: small")
    assert "x-herd-fallback" not in gateway.ask().headers
    servers[0].stop()
    began = time.monotonic()
    until(lambda: gateway.ask().status == 200, 6)
    assert time.monotonic() - began < 5
    answer = gateway.ask()
    assert (answer.headers["x-herd-fallback"], answer.headers["x-herd-instance"]) == ("small", "box.two")


def test_a_chain_of_fallbacks_is_followed(start: Start, servers: list[Upstream]) -> None:
    gateway = start("serve: [box.one], fallback: middle", more="middle: {serve: [box.one], fallback: small}")
    servers[0].healthy = False
    until(lambda: gateway.ask().headers.get("x-herd-fallback") == "small", 8)


def test_where_nothing_is_left_clients_are_told_that_it_is_down(start: Start, servers: list[Upstream]) -> None:
    gateway = start()
    servers[0].stop()
    until(lambda: gateway.ask().status == 503, 8)
    until(lambda: gateway.ask().code == "unavailable", 8)
    assert gateway.ask().message == "no server responds: send the request again in 10 seconds"
    assert gateway.ask(model="small").status == 200, "other models go on"


def test_a_server_with_another_key_is_no_fault_of_the_clients(start: Start, servers: list[Upstream]) -> None:
    """A program that reads 401 asks its user for another key; one that reads 503 comes back."""
    gateway = start()
    servers[0].takes_key = False
    refused = gateway.ask()
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "server_key", "10")
    servers[0].takes_key = True
    assert gateway.ask().status == 200


def test_a_server_that_goes_away_leaves_its_work_to_the_other(start: Start, servers: list[Upstream]) -> None:
    gateway = start("serve: [box.one, box.two]")
    until(lambda: gateway.ask().status == 200)
    servers[0].stop()
    assert {gateway.ask().status for _ in range(12)} == {200}, "what could not be sent is sent to the other"


@pytest.mark.parametrize("header", ["X-Session-Affinity", "X-Claude-Code-Session-Id", "X-Session-Id", "Session-Id"])
def test_a_session_stays_on_its_server_while_that_is_free(
    start: Start, servers: list[Upstream], pool: ThreadPoolExecutor, header: str
) -> None:
    gateway = start("serve: [box.one, box.two], sticky: session")
    first = gateway.ask(headers={header: "s1"}).headers["x-herd-instance"]
    again = {gateway.ask(headers={header: "s1"}).headers["x-herd-instance"] for _ in range(6)}
    assert again == {first}
    busy, free = servers if first == "box.one" else servers[::-1]
    busy.hold.clear()
    time.sleep(0.2)  # until the gateway, too, has seen the last answer end
    holding = []
    for number in (1, 2):
        holding.append(pool.submit(gateway.ask, headers={header: "s1"}))
        until(lambda number=number: busy.busy == number)
    assert gateway.ask(headers={header: "s1"}).headers["x-herd-instance"] != first, "it does not wait for it"
    assert len(free.seen) == 1
    busy.hold.set()
    assert {each.result().status for each in holding} == {200}


def test_a_user_stays_on_a_server(start: Start) -> None:
    gateway = start("serve: [box.one, box.two], sticky: user")
    assert len({gateway.ask().headers["x-herd-instance"] for _ in range(8)}) == 1


def test_many_clients_at_once_get_one_answer_each(
    start: Start, servers: list[Upstream], pool: ThreadPoolExecutor
) -> None:
    gateway = start("serve: [box.one, box.two]", queue="{length: 400}", tom="streams: 500")
    bodies = [json.dumps({"n": n, "model": "coder"}).encode() for n in range(300)]
    answers = list(pool.map(lambda body: gateway.ask(body=body).status, bodies))
    assert answers == [200] * 300
    reached = [seen.body for server in servers for seen in server.seen]
    assert sorted(reached) == sorted(bodies)
    assert max(server.most for server in servers) <= 2


def test_a_stream_goes_on_through_a_reload(start: Start, servers: list[Upstream], pool: ThreadPoolExecutor) -> None:
    gateway = start()
    servers[0].hold.clear()
    held = pool.submit(gateway.ask)
    until(lambda: servers[0].busy == 1)
    gateway.reload()
    assert gateway.ask(model="small").status == 200
    servers[0].hold.set()
    assert held.result().status == 200


def test_threads_end() -> None:
    """The servers here are ours to end: one that is left would answer another test."""
    until(lambda: not [each for each in threading.enumerate() if "serve_forever" in each.name])


def test_nobody_is_upgraded_to_http2(servers: list[Upstream], start: Start) -> None:
    """Up to 2.8 it is refused, by 2.4 in its own words; 3.0 takes the header away, and a plain request is left."""
    gateway, body = start(), b'{"messages":[],"model":"coder"}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEYS['tom']}\r\n"
    head += "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    answer = gateway.raw(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert re.match(rb"HTTP/1\.1 (400|501|200) ", answer), answer
    assert all(not {"upgrade", "http2-settings"} & set(each.headers) for server in servers for each in server.seen)
