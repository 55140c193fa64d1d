"""Headers over real HTTP: from a hub whose bytes come by redirect, and from servers that do what servers do."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llamaherd.diagnostics.findings import HubError
from llamaherd.gguf.parse import CHUNK, MIB, parse_header
from llamaherd.gguf.shards import HubPatience, fetch_header, read_header
from tests.support import gguf_files
from tests.support.counting import Sent
from tests.support.gguf_files import QWEN_MERGES, QWEN_TOKENS, Weight
from tests.support.hub_server import Hub

REPO = "unsloth/Qwen-GGUF"
TOKEN = "hf_canary0123456789"
QUICK = HubPatience(attempts=3, pause=0.01, longest=1.5, silence=0.5, total=20)


@dataclass(frozen=True)
class Answer:
    """What one request is given, where that is not simply the part that it asks for."""

    status: int = 206
    headers: Mapping[str, str | None] = field(default_factory=dict)
    cut: int | None = None  # bytes after which the connection is cut
    most: int | None = None  # bytes of a body that says so
    silence: float = 0.0  # seconds between the head and the body
    pace: float = 0.0  # seconds after each 64 KiB


class Server(ThreadingHTTPServer):
    """One file at every path. Each request takes the next answer; when none is left, they are as they should be."""

    daemon_threads = True
    daemon = True

    def __init__(self, content: Path | bytes, answers: list[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.answers = answers
        self.ranges: list[str | None] = []
        self.if_ranges: list[str | None] = []
        self.counted = Sent()

    @property
    def sent(self) -> int:
        return self.counted.bytes

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/m.gguf"

    @property
    def size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def part(self, start: int, count: int) -> bytes:
        if isinstance(self.content, bytes):
            return self.content[start : start + count]
        with self.content.open("rb") as stream:
            stream.seek(start)
            return stream.read(count)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: the server keeps the record."""

    def do_GET(self) -> None:
        server = self.server
        server.ranges.append(self.headers.get("Range"))
        server.if_ranges.append(self.headers.get("If-Range"))
        answer = server.answers.pop(0) if server.answers else Answer()
        start, end = 0, server.size
        if answer.status == 206:
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
            assert asked
            start, end = int(asked[1]), min(end, int(asked[2]) + 1)
        elif answer.status != 200:
            end = 0
        if answer.most is not None:
            end = min(end, start + answer.most)
        headers: dict[str, str | None] = {"Content-Length": str(end - start), "ETag": '"one"'}
        if answer.status == 206:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{server.size}"
        self.send_response(answer.status)
        for name, value in (headers | dict(answer.headers)).items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        time.sleep(answer.silence)
        self.body(answer, start, end)

    def body(self, answer: Answer, start: int, end: int) -> None:
        stop = end if answer.cut is None else start + answer.cut
        while start < stop:
            part = self.server.part(start, min(64 * 1024, stop - start))
            with self.server.counted.piece() as count:
                self.wfile.write(part)
                count(len(part))
            start += len(part)
            time.sleep(answer.pace)
        if stop < end:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(content: Path | bytes, *answers: Answer) -> Iterator[Server]:
    with Server(content, list(answers)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 35B-A3B of 21 GB with its real vocabulary; all but its header is a hole."""
    model = gguf_files.qwen(tokens=QWEN_TOKENS, merges=QWEN_MERGES)
    (path,) = gguf_files.write(model, tmp_path_factory.mktemp("big") / "m.gguf")
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of 14 MB with a header of 5 MB."""
    model = replace(gguf_files.gemma3(tokens=260_000), tensors=(Weight("token_embd.weight", (2**21,)),))
    (path,) = gguf_files.write(model, tmp_path_factory.mktemp("plain") / "m.gguf")
    data = path.read_bytes()
    header = read_header(path)
    assert 2 * CHUNK < header.data_offset < 3 * CHUNK
    assert len(data) > header.data_offset + 2 * CHUNK
    return data


def refusal(url: str, size: int, token: str | None = TOKEN, patience: HubPatience = QUICK) -> HubError:
    with pytest.raises(HubError) as caught:
        fetch_header(url, token, size, patience)
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(caught.value)
    assert "\n" not in caught.value.message
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert caught.value.help
    return caught.value


def test_a_real_header_costs_itself_and_a_chunk(big: Path, tmp_path: Path) -> None:
    with serving(big) as server:
        header, data = fetch_header(server.url, None, server.size)
        assert header == read_header(big)
        assert len(data) == header.data_offset > 10 * MIB
        assert header.data_offset <= server.sent <= header.data_offset + CHUNK
        assert len(server.ranges) <= 6
        assert server.ranges[0] == f"bytes=0-{CHUNK - 1}"
        assert server.if_ranges == [None] + ['"one"'] * (len(server.ranges) - 1)
    fetched = tmp_path / "fetched.gguf"
    fetched.write_bytes(data)
    os.truncate(fetched, big.stat().st_size)
    assert read_header(fetched) == header


def test_a_server_without_ranges_is_left_when_the_header_is_there(big: Path) -> None:
    with serving(big, Answer(200)) as server:
        header, data = fetch_header(server.url, None, server.size)
        assert header == read_header(big)
        assert len(data) == header.data_offset
        assert len(server.ranges) == 1
    # What two sockets buffer comes on top.
    assert server.sent <= header.data_offset + CHUNK + 16 * MIB


def test_a_server_may_forget_ranges_in_the_middle(plain: bytes) -> None:
    with serving(plain, Answer(), Answer(200)) as server:
        header, data = fetch_header(server.url, None, server.size)
    assert header == parse_header(plain)
    assert data == plain[: len(data)]
    assert len(server.ranges) == 2


def test_a_file_smaller_than_a_chunk_is_one_request(tmp_path: Path) -> None:
    (path,) = gguf_files.write(replace(gguf_files.gemma3(), tensors=(Weight("a.weight", (32,)),)), tmp_path / "m.gguf")
    with serving(path) as server:
        header, _ = fetch_header(server.url, None, server.size)
        assert header == read_header(path)
        assert server.ranges == [f"bytes=0-{server.size - 1}"]


@pytest.mark.parametrize(
    "answers",
    [
        [Answer(cut=MIB), Answer(cut=100), Answer(cut=0), Answer(cut=0)],
        [Answer(200, cut=MIB), Answer()],
        [Answer(200, {"Content-Length": None}, cut=MIB), Answer(503), Answer(503)],
        [Answer(cut=MIB), Answer(503), Answer(500), Answer()],
        [Answer(most=1000), Answer(most=100_000)],
        [Answer(429, {"Retry-After": "0"}), Answer(408)],
        [Answer(silence=1.0), Answer()],
    ],
    ids=["cut", "cut without ranges", "cut without a sign", "trouble", "short parts", "too many", "stalled"],
)
def test_what_is_soon_over_is_waited_for(plain: bytes, answers: list[Answer]) -> None:
    with serving(plain, *answers) as server:
        header, data = fetch_header(server.url, None, server.size, QUICK)
        assert header == parse_header(plain)
        assert data == plain[: header.data_offset]
        assert not server.answers


def test_what_was_fetched_is_not_fetched_again(plain: bytes) -> None:
    with serving(plain, Answer(cut=MIB)) as server:
        header, _ = fetch_header(server.url, None, server.size, QUICK)
    assert server.ranges[1] is not None
    assert server.ranges[1].startswith(f"bytes={MIB}-")
    assert server.sent <= header.data_offset + CHUNK


@pytest.mark.parametrize(
    ("answer", "message", "requests"),
    [
        (Answer(cut=0), r"the connection for http\S+ failed", 3),
        (Answer(silence=0.8), "did not respond in time", 3),
        (Answer(most=0, headers={"Content-Range": "bytes 0-0/{size}"}), "returned fewer bytes than it has", 3),
        (Answer(200, {"Content-Length": None}, cut=MIB), "returned fewer bytes than it has", 4),
        (Answer(500), r"the hub has a failure \(500\)", 3),
        (Answer(429), r"too many requests \(429\)", 3),
        (Answer(429, {"Retry-After": "3600"}), r"too many requests \(429\)", 1),
        (Answer(503, {"Retry-After": "3600"}), r"a failure \(503\)", 1),
        (Answer(416), "has fewer than the expected {size} bytes", 1),
        (Answer(418), "returned status 418", 1),
        (Answer(204), "returned status 204", 1),
        (Answer(410), r"does not exist \(410\)", 1),
        (Answer(headers={"Content-Range": "bytes 7-99/{size}"}), "another part than was requested", 1),
        (Answer(headers={"Content-Range": None}), "another part than was requested", 1),
        (Answer(headers={"Content-Range": "bytes 0-9/" + "9" * 5000}), "another part than was requested", 1),
        (Answer(headers={"Content-Range": "bytes 0-9/5"}), "has 5 bytes, and not the expected {size}", 1),
        (Answer(200, most=1000), "has 1000 bytes, and not the expected {size}", 1),
        (Answer(302, {"Location": "/m.gguf"}), "leads nowhere", 6),
        (Answer(302, {"Location": "ftp://127.0.0.1/m.gguf"}), "leads nowhere", 1),
    ],
)
def test_what_stays_wrong_is_said(plain: bytes, answer: Answer, message: str, requests: int) -> None:
    size = str(len(plain))
    headers = {name: value and value.replace("{size}", size) for name, value in answer.headers.items()}
    with serving(plain, *[replace(answer, headers=headers)] * 20) as server:
        error = refusal(server.url, server.size)
        assert re.search(message.replace("{size}", size), error.message)
        assert len(server.ranges) == requests


def test_a_date_to_try_again_is_honoured(plain: bytes) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    with serving(plain, Answer(503, {"Retry-After": later})) as server:
        started = time.monotonic()
        fetch_header(server.url, None, server.size, replace(QUICK, longest=5))
    # A date has whole seconds.
    assert time.monotonic() - started > 0.9


def test_a_hub_that_asks_for_patience_is_quoted(plain: bytes) -> None:
    with serving(plain, Answer(429, {"Retry-After": "3600"})) as server:
        assert refusal(server.url, server.size).help == "try again in 3600 seconds; a token raises the limit"
    with serving(plain, *[Answer(429, {"Retry-After": "soon"})] * 3) as server:
        assert refusal(server.url, server.size).help == "try again in some minutes; a token raises the limit"


def test_a_file_that_changes_between_chunks_is_not_mixed(plain: bytes) -> None:
    for answer in (Answer(headers={"ETag": '"two"'}), Answer(200, {"ETag": '"two"'})):
        with serving(plain, Answer(), answer) as server:
            assert "was changed while its header was read" in refusal(server.url, server.size).message
            assert server.if_ranges == [None, '"one"']


def test_a_weak_etag_is_not_sent_back(plain: bytes) -> None:
    with serving(plain, *[Answer(headers={"ETag": 'W/"one"'})] * 9) as server:
        fetch_header(server.url, None, server.size)
        assert set(server.if_ranges) == {None}


def test_a_trickle_ends(plain: bytes) -> None:
    with serving(plain, *[Answer(pace=0.2)] * 9) as server:
        error = refusal(server.url, server.size, patience=replace(QUICK, total=1))
        # Read to its end, it would have come.
        assert server.sent < server.size
    assert "too slowly" in error.message


def test_a_file_shorter_than_its_header_says_is_broken(plain: bytes) -> None:
    offset = len(plain) - 4 * 2**21
    for size in (offset + 1000, offset - 1000, CHUNK, 10):
        with serving(plain[:size]) as server:
            assert f"its header needs more than {size} bytes" in refusal(server.url, size).message
    with serving(b"") as server:
        assert "is an empty file" in refusal(server.url, 0).message


def test_what_is_no_model_is_named(plain: bytes) -> None:
    with serving(b"<!doctype html>" + plain) as server:
        error = refusal(server.url, server.size)
        assert (
            error.message == f"{server.url} cannot be used: it is not a GGUF file: it begins with b'<!doctype html>G'"
        )
        assert len(server.ranges) == 1


def test_a_hub_that_is_not_there_is_said() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/m.gguf"
        assert "Connection refused" in refusal(url, 1000).message


# From the hub: its redirects, and its tokens.


def address(hub: Hub, name: str = "m.gguf") -> str:
    return f"{hub.url}/{REPO}/resolve/{hub.commit(REPO)}/{name}"


@pytest.fixture
def hub(plain: bytes) -> Iterator[Hub]:
    with Hub({REPO: {"m.gguf": plain}}, TOKEN, cdn=True) as running:
        yield running


def test_the_token_does_not_follow_the_bytes(hub: Hub, plain: bytes) -> None:
    header, data = fetch_header(address(hub), TOKEN, len(plain), QUICK)
    assert header == parse_header(plain)
    assert data == plain[: header.data_offset]
    assert len(hub.requests) == len(hub.cdn_requests) == 3
    assert [request.had_auth for request in hub.requests] == [True] * 3
    assert [request.had_auth for request in hub.cdn_requests] == [False] * 3
    assert [request.range for request in hub.cdn_requests] == [
        f"bytes={start}-{start + CHUNK - 1}" for start in (0, CHUNK, 2 * CHUNK)
    ]


def test_bodies_that_are_cut_are_put_together(hub: Hub, plain: bytes) -> None:
    hub.truncate_after = 700_000
    header, data = fetch_header(address(hub), TOKEN, len(plain), QUICK)
    assert (header, data) == (parse_header(plain), plain[: len(data)])
    assert len(hub.cdn_requests) > 6


def test_a_private_repository_wants_a_token(hub: Hub, plain: bytes) -> None:
    error = refusal(address(hub), len(plain), None)
    assert error.message == f"{address(hub)} requires access (401)"
    assert "HF_TOKEN" in error.help
    error = refusal(address(hub), len(plain), "hf_wrong")
    assert "requires access (401)" in error.message
    assert "the token in use" in error.help
    hub.gated.add(REPO)
    error = refusal(address(hub), len(plain))
    assert "requires access (403)" in error.message
    assert "accepted the owner's terms" in error.help


def test_a_file_that_is_gone_is_said(hub: Hub, plain: bytes) -> None:
    url = address(hub, "absent.gguf")
    assert refusal(url, len(plain)).message == f"{url} does not exist (404)"


@pytest.mark.parametrize("token", [f"{TOKEN}\n", f"{TOKEN}…", f"{TOKEN}\0"])
def test_a_token_that_cannot_be_sent_is_not_shown(hub: Hub, plain: bytes, token: str) -> None:
    assert "the hub's token cannot be sent" in refusal(address(hub), len(plain), token).message
    assert not hub.requests
