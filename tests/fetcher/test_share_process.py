"""Lending as a process: its connections, its clients (curl is one), when it ends, and what it says."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.lending import BODY, RIGHT, SHA256, TOKEN, Lending, ask, begun, ended, listening, started
from tests.support.stores import REPOSITORY, stored

_MUCH = 64 << 20  # more than the kernel's buffers take


def test_one_connection_serves_many_requests(lending: Lending) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", lending.port, timeout=60)
    sockets = set()
    for start in range(0, 50_000, 10_000):
        connection.request("GET", f"/{SHA256}", headers={**RIGHT, "Range": f"bytes={start}-{start + 9999}"})
        sockets.add(connection.sock.getsockname())
        assert connection.getresponse().read() == BODY[start : start + 10_000]
    assert len(sockets) == 1
    connection.close()


def test_a_body_in_a_request_is_not_taken_for_the_next_one(lending: Lending) -> None:
    inner = f"GET / HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    outer = f"GET /{SHA256} HTTP/1.1\r\nContent-Length: {len(inner)}\r\n\r\n{inner}"
    with socket.create_connection(("127.0.0.1", lending.port), timeout=60) as connection:
        connection.sendall(outer.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_four_clients_at_once_put_the_file_together(lending: Lending) -> None:
    size = -(-len(BODY) // 16)
    ranges = [f"bytes={start}-{start + size - 1}" for start in range(0, len(BODY), size)]
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(lambda text: ask(lending, Range=text).body, ranges)
    assert b"".join(parts) == BODY


def test_curl_goes_on_where_it_was(lending: Lending, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(BODY[:1_234_567])
    authorization = f"Authorization: Bearer {TOKEN}"
    subprocess.run(["curl", "-fsS", "-C", "-", "-o", part, "-H", authorization, lending.url(SHA256)], check=True)
    assert part.read_bytes() == BODY


def test_a_client_that_goes_away_harms_nobody(lending: Lending) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", lending.port), timeout=60) as connection:
            connection.sendall(f"GET /{SHA256} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            connection.recv(1000)
    assert ask(lending).body == BODY


def test_more_clients_than_places_wait_for_one(lending: Lending) -> None:
    held = [socket.create_connection(("127.0.0.1", lending.port), timeout=60) for _ in range(64)]
    late = socket.create_connection(("127.0.0.1", lending.port), timeout=0.7)
    late.sendall(f"HEAD /{SHA256} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    with pytest.raises(TimeoutError):
        late.recv(1000)
    for connection in held:
        connection.close()
    late.settimeout(60)
    assert late.recv(1000).startswith(b"HTTP/1.1 200 ")
    late.close()


@contextlib.contextmanager
def impatient(root: Path, more: str = "") -> Iterator[Lending]:
    """A share process that waits for its clients for a second."""
    code = f"""
import sys
from pathlib import Path
from llamaherd.onhost.fetch import share
share._PATIENCE = 1
{more}
p = Path(sys.argv[1])
share.serve_store(p / "store", p / "run", "127.0.0.1", 0, 60)
"""
    process = subprocess.Popen([sys.executable, "-c", code, root], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    with ended(listening(process, root)) as lending:
        yield lending


def much(store: Path) -> str:
    """A file of 64 MiB in a store; its sha256."""
    [sha256] = stored(store / "large/x/0123", {"x.gguf": bytes(_MUCH)})
    return sha256


@contextlib.contextmanager
def asked_for_much(lending: Lending, sha256: str = "") -> Iterator[tuple[socket.socket, Path]]:
    """A connection on which the head of an answer came, of 64 MiB; and the file that they come from."""
    sha256 = sha256 or much(lending.store)
    with socket.create_connection(("127.0.0.1", lending.port), timeout=60) as connection:
        connection.sendall(f"GET /{sha256} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        while connection.recv(1, socket.MSG_PEEK) != b"\0":
            connection.recv(1)
        yield connection, lending.store / "large/x/0123/x.gguf"


def taken(connection: socket.socket) -> int:
    """The bytes that come until there are no more."""
    count = 0
    with contextlib.suppress(ConnectionError):
        while count < _MUCH and (part := connection.recv(1 << 20)):
            count += len(part)
    return count


def test_a_silent_client_is_let_go(root: Path) -> None:
    with (
        impatient(root) as lending,
        socket.create_connection(("127.0.0.1", lending.port), timeout=0.1) as connection,
    ):
        begin = time.monotonic()
        while not is_closed(connection):
            assert time.monotonic() - begin < 60
            connection.sendall(b"G")  # a byte now and then does not keep it
        assert time.monotonic() - begin > 0.9


def test_a_slow_client_is_waited_for(root: Path) -> None:
    """For longer than its patience, as no pause is as long; where this machine made one longer, it is tried anew."""
    with impatient(root) as lending:
        sha256 = much(lending.store)
        while (count := taken_slowly(lending, sha256)) is None:
            pass
    assert count == _MUCH


def taken_slowly(lending: Lending, sha256: str) -> int | None:
    """The bytes that come to a client that makes pauses; None if one of them was too long."""
    with asked_for_much(lending, sha256) as (connection, _):
        early, last, longest = 0, time.monotonic(), 0.0
        for _ in range(6):
            early += len(connection.recv(4 << 20))
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
            time.sleep(0.25)
        longest = max(longest, time.monotonic() - last)
        return early + taken(connection) if longest < 0.7 else None


def test_a_client_that_takes_nothing_is_let_go(root: Path) -> None:
    with impatient(root) as lending, asked_for_much(lending) as (connection, _):
        while len(connections(lending)) > 1:  # one is where it listens
            time.sleep(0.05)
        assert taken(connection) < _MUCH


def test_a_client_that_takes_a_little_for_ever_is_let_go(root: Path) -> None:
    """An answer takes no longer than a token is good for; who pauses too long for this machine is let go anyway."""
    with impatient(root, "share._LONGEST = 2") as lending, asked_for_much(lending) as (connection, _):
        began, count = time.monotonic(), 0
        connection.settimeout(60)
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(16 << 10):
                count += len(part)
                assert time.monotonic() - began < 30
                time.sleep(0.05)
        assert 0 < count < _MUCH


def connections(lending: Lending) -> list[str]:
    """The sockets that a share process has."""
    names = []
    for handle in Path(f"/proc/{lending.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(str(handle.readlink()))
    return [name for name in names if name.startswith("socket:")]


def test_a_file_that_is_cut_off_ends_the_answer(own: Lending) -> None:
    with asked_for_much(own) as (connection, path):
        os.truncate(path, 1)
        assert taken(connection) < _MUCH


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has ended a connection; waits for as long as its timeout."""
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False


def test_it_says_no_token_and_no_name(own: Lending) -> None:
    ask(own)
    ask(own, Authorization="Bearer another-secret")
    own.process.send_signal(signal.SIGTERM)
    out, _ = own.process.communicate(timeout=60)
    told = out + (own.run / "progress").read_text()
    assert TOKEN not in told
    assert "another-secret" not in told


def test_it_ends_when_nobody_asks(root: Path) -> None:
    begin = time.monotonic()
    lending = begun(root, "--bind", "127.0.0.1", "--idle", "2")
    ask(lending)
    # Who has no token keeps nothing running.
    while lending.process.poll() is None and time.monotonic() - begin < 60:
        ask_without(lending)
        time.sleep(0.1)
    assert lending.process.returncode == 0
    assert time.monotonic() - begin > 2
    assert "no request for 2 s" in (lending.run / "progress").read_text()


def ask_without(lending: Lending) -> None:
    """Try without a token; the process may be gone by then."""
    try:
        assert ask(lending, Authorization="").status == 401
    except (ConnectionError, http.client.HTTPException):
        assert lending.process.wait(timeout=60) == 0


def test_a_transfer_is_no_idleness(root: Path) -> None:
    sha256 = much(root / "store")  # before its time runs: a disk that is busy takes some
    lending = begun(root, "--bind", "127.0.0.1", "--idle", "2")
    with asked_for_much(lending, sha256) as (connection, _):
        time.sleep(3)
        assert lending.process.poll() is None
        assert taken(connection) == _MUCH
    assert lending.process.wait(timeout=60) == 0


def test_it_ends_at_once_when_told_to(own: Lending) -> None:
    with socket.create_connection(("127.0.0.1", own.port), timeout=60):
        own.process.send_signal(signal.SIGTERM)
        # Nobody's request is waited for, which may take 30 s to come.
        assert own.process.wait(timeout=60) == 143


def test_a_port_that_is_taken_is_said(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = started(root, "--bind", "127.0.0.1", "--idle", "60", port=port)
        assert process.wait(timeout=60) == 1
    expected = (
        f"cannot share models at 127.0.0.1, port {port}: Address already in use\n"
        "  help: give an address of this host and a port that is free, in `store: share:`\n"
    )
    assert (root / "run/failed").read_text() == expected
    assert process.stdout
    assert process.stdout.read() == expected


def test_an_address_of_another_host_is_said(root: Path) -> None:
    process = started(root, "--bind", "192.0.2.1", "--idle", "60")
    assert process.wait(timeout=60) == 1
    assert "cannot share models at 192.0.2.1" in (root / "run/failed").read_text()


def test_it_listens_by_ipv6(root: Path) -> None:
    with ended(begun(root, "--bind", "::1", "--idle", "60")) as lending:
        connection = http.client.HTTPConnection("::1", lending.port, timeout=60)
        connection.request("GET", f"/{SHA256}", headers=RIGHT)
        assert connection.getresponse().read() == BODY
