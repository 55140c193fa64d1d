"""`herd open`: a real sshd, and a server with a page, without one, or none at all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from llamaherd.host.tunnel import steady_port
from tests.bench.played import Part, Played
from tests.support.gateway import free_port
from tests.support.rigs import changed, cpu_rig
from tests.support.ssh_hosts import HERD
from tests.support.sshd import running_sshd

KEY = "sk-canary-page-4d1e"
PAGE = b"<!doctype html><title>llama.cpp</title>"


def response(status: bytes, kind: bytes, body: bytes) -> list[Part]:
    header = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
    return [(0, header + body)]


WITH_PAGE = response(b"200 OK", b"text/html; charset=utf-8", PAGE)
WITHOUT = response(b"404 Not Found", b"application/json", b'{"error":{"message":"File Not Found","code":404}}')
COMPRESSED = response(b"415 Unsupported Media Type", b"text/plain", b"Error: gzip is not supported by this browser")
WRONG_KEY = response(b"401 Unauthorized", b"application/json", b'{"error":{"message":"Invalid API Key"}}')


@dataclass
class Site:
    """A rig behind a real sshd, whose server returns a script to each request."""

    folder: Path
    server: Played
    script: Sequence[Part] = field(default_factory=lambda: WITH_PAGE)

    def start(self, port: int) -> subprocess.Popen[str]:
        """Start `herd open --no-browser` at a port."""
        return subprocess.Popen(
            [HERD, "open", "-i", str(self.folder / "box.yaml"), "--no-browser", "chat", "--port", str(port)],
            env=os.environ | {"CHAT_KEY": KEY},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_sshd() as sshd, Played(lambda _: found.script) as server:
        found = Site(tmp_path, server)
        port = int(server.url.rsplit(":", 1)[1])
        rig = changed(cpu_rig(), {"instances/chat/port": port, "connect": sshd.declared})
        (tmp_path / "box.yaml").write_text(yaml.safe_dump(rig))
        yield found


def test_the_page_is_there_until_ctrl_c(site: Site) -> None:
    port = free_port()
    herd = site.start(port)
    assert herd.stdout
    assert herd.stdout.readline() == f"http://127.0.0.1:{port}\n"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as page:
        assert page.read() == PAGE
    herd.send_signal(signal.SIGINT)
    out, err = herd.communicate(timeout=30)
    assert (herd.returncode, out.strip()) == (0, "")
    assert err == "if the page prompts for an API key, it is the value of CHAT_KEY\nCtrl-C ends the tunnel\n"
    assert KEY not in err
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20)


def test_a_compressed_page_is_one(site: Site) -> None:
    site.script = COMPRESSED
    herd = site.start(port := free_port())
    assert herd.stdout
    assert herd.stdout.readline() == f"http://127.0.0.1:{port}\n"
    herd.send_signal(signal.SIGINT)
    herd.communicate(timeout=30)
    assert herd.returncode == 0


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            WITHOUT,
            "error: the server of box/chat has no page: its engine has none, or was built without one\n"
            "  help: chat on the terminal with `herd chat box/chat`; for a page, use llama.cpp with `ref:`",
        ),
        (WRONG_KEY, "error: box/chat: the server returns 401: Invalid API Key"),
        (None, "error: no server on 127.0.0.1 port "),
    ],
    ids=["no page", "wrong key", "no server"],
)
def test_without_a_page_that_is_an_error(site: Site, script: list[Part] | None, message: str) -> None:
    if script:
        site.script = script
    else:
        rig = yaml.safe_load((site.folder / "box.yaml").read_text())
        rig["instances"]["chat"]["port"] = free_port()
        (site.folder / "box.yaml").write_text(yaml.safe_dump(rig))
    herd = site.start(free_port())
    out, err = herd.communicate(timeout=60)
    assert (herd.returncode, out) == (1, "")
    assert message in err


def test_a_port_that_is_in_use_is_named(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, err = site.start(port).communicate(timeout=60)
    assert err == f"error: port {port} of this machine is in use\n  help: choose another with `--port`\n"


def test_the_port_of_an_instance_stays_the_same_while_it_is_free() -> None:
    port = steady_port("duo/coder")
    with socket.create_server(("127.0.0.1", port)):
        assert steady_port("duo/coder") != port
    assert steady_port("duo/coder") == steady_port("duo/coder")
    assert 20_000 <= steady_port("duo/coder") < 30_000
