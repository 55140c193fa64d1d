"""Requests in flight end before a server does: its metrics are scripted here, and nft is played."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from llamaherd.onhost.system import Ended
from roles.serve.onhost import tools
from roles.serve.onhost.tools import NFT, drain, let_in
from tests.support.liar import OK, Liar, raw
from tests.support.proofs import Programs

LLAMA = """# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing {busy}
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 0
llamacpp:tokens_predicted_total 4711
"""
VLLM = """vllm:num_requests_running{{model_name="m"}} {busy}.0
vllm:num_requests_waiting{{model_name="m"}} 0.0
"""


class Scripted(ThreadingHTTPServer):
    """Reports requests in flight so many times; the first response takes a while."""

    daemon_threads = True
    text = LLAMA
    status = 200
    requests = 0
    busy = 0
    busy_at: frozenset[int] = frozenset()
    late = 0.0
    key: str | None = None


class Handler(BaseHTTPRequestHandler):
    """Of such a server."""

    server: Scripted

    def do_GET(self) -> None:
        self.server.requests += 1
        self.server.key = self.headers["Authorization"]
        if self.server.requests == 1:
            time.sleep(self.server.late)
        busy = self.server.requests <= self.server.busy or self.server.requests in self.server.busy_at
        body = self.server.text.format(busy=2 if busy else 0).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A server that listens."""
    with Scripted(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _reports_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each wait reported."""
    monkeypatch.setattr(tools, "_QUIET_SECONDS", 0)


@dataclass
class Nft:
    """nft, which keeps its arguments and the last line of its rules."""

    code: int = 0
    calls: list[str] = field(default_factory=list)

    def __call__(self, arguments: Sequence[str], text: str) -> Ended:
        self.calls.append(text.splitlines()[-1] if text else " ".join(arguments))
        return Ended(self.code)


OPEN = "delete table inet llamaherd-shut"


def drained(
    port: int,
    seconds: float = 30,
    *,
    nft: Nft | None = None,
    led: bool = False,
    key: str | None = "secret\n",
    group: int | None = None,
    **declared: object,
) -> tuple[list[str], float]:
    """Drain a server. Return the lines of progress, and the seconds that it took."""
    system = Programs({NFT: nft} if nft else {})
    question = {"metrics": f"http://127.0.0.1:{port}/metrics", "key": "/nonexistent"} | declared
    began = time.monotonic()
    drain(question, key=key, seconds=seconds, group=os.getgid() if group is None else group, led=led, system=system)
    return system.lines, time.monotonic() - began


@pytest.mark.parametrize("text", [LLAMA, VLLM])
def test_it_waits_until_all_requests_have_ended(server: Scripted, text: str) -> None:
    server.text, server.busy = text, 3
    lines, _ = drained(server.server_port)
    assert lines == ["waiting for 2 requests in flight, for up to 30 s"]
    assert server.requests == 4
    assert server.key == "Bearer secret"


def test_a_short_wait_is_not_reported(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a request of a probe that has just been ended."""
    monkeypatch.setattr(tools, "_QUIET_SECONDS", 10)
    server.busy = 3
    assert drained(server.server_port)[0] == []
    assert server.requests == 4


def test_an_idle_server_is_not_waited_for(server: Scripted) -> None:
    assert drained(server.server_port, key=None)[0] == []
    assert server.requests == 1
    assert server.key is None


def test_it_waits_no_longer_than_it_may(server: Scripted) -> None:
    server.busy = 1000
    lines, seconds = drained(server.server_port, 1)
    assert server.requests < server.busy
    assert lines[-1] == "2 of them did not end in time, and are cut off"
    assert seconds >= 1


def test_all_models_of_a_group_are_waited_for(server: Scripted) -> None:
    server.busy = 2
    url = f"http://127.0.0.1:{server.server_port}/metrics?model="
    lines, _ = drained(0, metrics=[f"{url}a", f"{url}b"])
    assert lines == ["waiting for 4 requests in flight, for up to 30 s"]


def test_a_server_that_computes_too_hard_to_report_is_waited_for(server: Scripted) -> None:
    server.late = 3
    assert drained(server.server_port)[0] == ["waiting for 1 request in flight, for up to 30 s"]


@pytest.mark.parametrize("status", [404, 501])
def test_a_server_without_metrics_is_not_waited_for(server: Scripted, status: int) -> None:
    server.status, server.busy = status, 1000
    assert drained(server.server_port)[0] == []


@pytest.mark.parametrize("line", ["llamacpp:requests_processing 9" + "9" * 400, "llamacpp:requests_processing 1.2.3"])
def test_odd_numbers_are_requests_in_flight(server: Scripted, line: str) -> None:
    server.text = line
    assert drained(server.server_port, 0.3)[0][-1].endswith(" of them did not end in time, and are cut off")


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("declared", [{}, {"metrics": []}, {"metrics": 7}, {"metrics": "http://127.0.0.1/metrics"}])
def test_a_server_that_is_gone_or_not_known_is_not_waited_for(declared: dict[str, object]) -> None:
    nft = Nft()
    question = {"metrics": "http://127.0.0.1:9/metrics"} | declared
    drain(question, key=None, seconds=30, group=os.getgid(), led=False, system=Programs({NFT: nft}))
    assert nft.calls == ([] if declared else ["}"])


def test_a_server_that_drips_is_not_waited_for_without_end() -> None:
    """Each of its bytes comes in time, and the last never: it counts as busy."""
    with Liar(raw(OK + b"\r\n", then=b" ", drip=True)) as liar:
        lines, seconds = drained(int(liar.host.rpartition(":")[2]), 1)
    assert lines[-1] == "1 of them did not end in time, and is cut off"
    assert seconds < 12


def test_connections_are_refused_after_the_last_count(server: Scripted) -> None:
    nft = Nft()
    assert drained(server.server_port, nft=nft)[0] == []
    assert (server.requests, nft.calls) == (2, ["}"])


def test_a_request_between_two_counts_is_waited_for_with_the_port_open(server: Scripted) -> None:
    nft = Nft()
    server.busy_at = frozenset({2, 3})
    lines, _ = drained(server.server_port, nft=nft)
    assert lines == ["waiting for 2 requests in flight, for up to 30 s"]
    assert nft.calls == ["}", OPEN, "}"]
    assert server.requests == 5


def test_no_connection_is_refused_while_they_are_redirected(server: Scripted) -> None:
    nft = Nft()
    drained(server.server_port, nft=nft, led=True)
    assert (server.requests, nft.calls) == (1, [])


def test_a_host_whose_kernel_cannot_refuse_them(server: Scripted) -> None:
    nft = Nft(code=1)
    assert drained(server.server_port, nft=nft)[0] == []
    assert (server.requests, nft.calls) == (1, ["}"])


def test_the_group_of_the_process_is_restored(server: Scripted) -> None:
    groups: list[int] = []

    class Group(Nft):
        def __call__(self, arguments: Sequence[str], text: str) -> Ended:
            groups.append(os.getegid())
            assert f"meta skgid != {other} " in text
            return super().__call__(arguments, text)

    # Another group is root's to take alone.
    before = os.getegid()
    other = 2_009_999_999 if os.geteuid() == 0 else before
    drained(server.server_port, nft=Group(), group=other)
    assert groups == [other]
    assert os.getegid() == before


def test_a_process_that_cannot_have_the_group_refuses_no_connection(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise PermissionError

    nft = Nft()
    monkeypatch.setattr("os.setegid", refuse)
    assert drained(server.server_port, nft=nft)[0] == []
    assert nft.calls == []


def test_connections_are_accepted_again() -> None:
    nft = Nft()
    let_in(Programs({NFT: nft}))
    assert nft.calls == [OPEN]
