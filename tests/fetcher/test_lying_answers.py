"""Answers as no usual server gives them: pages of somebody in between, drips, hints before the answer, odd words."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.onhost.fetch.job import Limits
from tests.support.fetching import BLOCK, HASTY, REPO, STEADY, Host, source, wanted
from tests.support.hub_server import Hub
from tests.support.liar import BLOCK as NOISE
from tests.support.liar import Liar, Lie, raw

FILE = "model.gguf"
WHOLE = random.Random(1).randbytes(2 * BLOCK + 12345)
SMALL = WHOLE[:300_000]
PAGE = b"<html>Please log in to this hotel's network</html>"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def chunked(body: bytes) -> bytes:
    return b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def at(liar: Liar) -> dict[str, str]:
    """A liar as a source of the file."""
    return {"name": "liar", "url": f"{liar.url}/{FILE}", "secret": "liar"}


def refusal(host: Host, lie: Lie, content: bytes = WHOLE, limits: Limits = STEADY) -> str:
    """What is said of a liar who is the only source."""
    with Liar(lie) as liar:
        (said,) = host.fetch(wanted(FILE, content, [at(liar)]), limits=limits)
    assert not host.arrived(content)
    return said


def gives(host: Host, lie: Lie, content: bytes = SMALL) -> bool:
    with Liar(lie) as liar:
        return not host.fetch(wanted(FILE, content, [at(liar)])) and host.arrived(content)


# --- a page in between ---------------------------------------------------------------------------------------

PAGES = {
    "chunked": OK + chunked(PAGE),
    "until it closes": OK.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + PAGE,
    "chunked, and cut off": OK + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + PAGE,
    "of the web, chunked": OK.replace(b"application/octet-stream", b"Text/HTML; charset=utf-8") + chunked(PAGE),
    "of the web, as long as the file": OK.replace(b"application/octet-stream", b"text/html")
    + b"Content-Length: %d\r\n\r\n" % len(WHOLE)
    + WHOLE[::-1],
}


@pytest.mark.parametrize("page", PAGES)
def test_nothing_of_a_page_is_kept(host: Host, page: str) -> None:
    """Else it would be the beginning of the file, whose hash is wrong then, and all of it would be fetched anew."""
    with Liar(raw(PAGES[page])) as liar, Hub({REPO: {FILE: WHOLE}}) as hub:
        assert host.fetch(wanted(FILE, WHOLE, [at(liar), source(hub, FILE)])) == []
        assert host.arrived(WHOLE)
        assert liar.requests
        assert hub.sent == len(WHOLE)


def test_a_page_is_said_to_be_one(host: Host) -> None:
    said = refusal(host, raw(PAGES["of the web, chunked"]))
    assert "liar sends a web page instead of the file\n  help: open the source's address in a browser" in said
    assert f"liar has {len(PAGE)} bytes where {len(WHOLE)} are expected" in refusal(host, raw(PAGES["chunked"]))


def test_a_file_that_is_a_page_is_one(host: Host) -> None:
    """Of a repository that is wanted whole."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(SMALL)
    with Liar(raw(head + SMALL)) as liar:
        place = {"name": "liar", "url": f"{liar.url}/readme.html", "secret": "liar"}
        assert host.fetch(wanted(FILE, SMALL, [place])) == []


def test_a_whole_file_of_unknown_length_is_taken(host: Host) -> None:
    assert gives(host, raw(OK + chunked(WHOLE)), WHOLE)


def test_what_was_there_before_an_answer_of_unknown_length_stays(host: Host) -> None:
    """Half of it came from a hub; then somebody in between sends other bytes, and breaks off."""
    host.connections = 1
    with Hub({REPO: {FILE: WHOLE}}) as hub:
        hub.truncate_after = BLOCK // 2
        hub.on_request = lambda _: setattr(hub, "close_at_once", len(hub.requests) > 2)
        host.fetch(wanted(FILE, WHOLE, [source(hub, FILE)]), limits=replace(STEADY, patience=1))
        assert hub.sent == BLOCK
        refusal(host, raw(OK + chunked(WHOLE[::-1][: 2 * BLOCK])))
        hub.on_request, hub.close_at_once, hub.truncate_after = (lambda _: None), False, None
        assert host.fetch(wanted(FILE, WHOLE, [source(hub, FILE)])) == []
        assert host.arrived(WHOLE)
        assert hub.sent == len(WHOLE)


# --- without end ---------------------------------------------------------------------------------------------

CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(WHOLE)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (raw(OK + LENGTH, then=b"x", drip=True), "liar sent less than 512 B a second for 1 s"),
        (raw(OK, then=b"X", drip=True), "liar sent nothing for 1 s: no response in time"),
        (raw(then=b"HTTP/1.1 100 Continue\r\n\r\n"), "liar sent nothing for 1 s: no response in time"),
        (raw(then=b"HTTP/1.1 103 Early Hints\r\n\r\n", drip=True), "liar sent nothing for 1 s: no response in time"),
        (raw(OK, then=b"X-Y: z\r\n" * 1000), "liar sent nothing for 1 s: no HTTP"),
        (raw(OK + b"X-Y: ", then=NOISE), "liar sent nothing for 1 s: no HTTP"),
        (raw(b"220 mail.lan ESMTP\r\n"), "liar sent nothing for 1 s: no HTTP"),
        (raw(OK + CHUNKED, then=b"0", drip=True), "liar sent nothing for 1 s: no response in time"),
        (raw(OK + CHUNKED + b"0\r\n", then=b"X-Y: z\r\n", drip=True), "liar sent nothing for 1 s: no response in time"),
        (
            raw(b"HTTP/1.1 302 Found\r\nLocation: /y\r\n" + CHUNKED, then=b"1\r\nx\r\n", drip=True),
            "liar redirects more than 10 times",
        ),
    ],
    ids=[
        *("a body that drips", "a head that drips", "100", "103", "headers", "a header", "no HTTP"),
        *("the size of a chunk", "what follows the last chunk", "what stands beside a redirect"),
    ],
)
def test_who_never_comes_to_an_end_is_left(host: Host, lie: Lie, words: str) -> None:
    assert words in refusal(host, lie, limits=HASTY)


def test_a_line_that_is_slow_by_our_own_rule_is_not_blamed(host: Host) -> None:
    """`bandwidth` holds it back: the bytes are there at once when they are wanted."""
    host.bandwidth = [{"begin": "00:00", "end": "00:00", "bytes_per_second": 20_000}]
    with Hub({REPO: {FILE: SMALL[:60_000]}}) as hub:
        limits = replace(HASTY, slowest=50_000)
        assert host.fetch(wanted(FILE, SMALL[:60_000], [source(hub, FILE)]), limits=limits) == []


# --- odd, and right ------------------------------------------------------------------------------------------


def answered(head: bytes) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(SMALL) + SMALL


PART = b"HTTP/1.1 206 Partial Content\r\nContent-Range: %b 0-%d/%d\r\n"


@pytest.mark.parametrize(
    "head",
    [
        OK + b"Content-Encoding: Identity\r\n",
        OK + b"Content-Encoding: \r\n",
        PART % (b"Bytes", len(SMALL) - 1, len(SMALL)),
        PART % (b"BYTES ", len(SMALL) - 1, len(SMALL)),
        b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n" + OK,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + OK,
    ],
)
def test_spellings_and_hints_that_mean_nothing(host: Host, head: bytes) -> None:
    assert gives(host, raw(answered(head)))


def test_a_server_that_has_the_file_and_parts_it_not(host: Host) -> None:
    def lie(liar: Liar) -> Iterator[bytes]:
        if b"Range: " in liar.heads[-1]:
            yield b"HTTP/1.1 416 No\r\nContent-Range: bytes */%d\r\nContent-Length: 0\r\n\r\n" % len(SMALL)
        else:
            yield answered(OK)

    assert gives(host, lie)


def test_a_server_that_never_gives_it_is_quoted(host: Host) -> None:
    no = b"HTTP/1.1 416 No\r\nContent-Range: bytes */%d\r\nContent-Length: 0\r\n\r\n" % len(WHOLE)
    assert "liar returned status 416" in refusal(host, raw(no))
