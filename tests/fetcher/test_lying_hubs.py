"""Hubs that break off, stall, refuse or lie: what is fetched is right, or it is said in a sentence why not."""

from __future__ import annotations

import random
import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from llamaherd.onhost.fetch.http_client import Connections, RangeIgnoredError, request_range
from llamaherd.onhost.fetch.job import Limits, Source
from llamaherd.onhost.fetch.transfer import Offer, Supplier
from tests.support.fetching import BLOCK, HASTY, REPO, STEADY, Host, sha256, source, wanted
from tests.support.hub_server import Hub, Request, gone

FILE = "model.gguf"
WHOLE = random.Random(1).randbytes(2 * BLOCK + 12345)
SMALL = WHOLE[:300_000]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({REPO: {FILE: WHOLE}}) as hub:
        yield hub


@pytest.fixture
def cdn() -> Iterator[Hub]:
    with Hub({REPO: {FILE: WHOLE}}, cdn=True) as hub:
        yield hub


def refused(host: Host, hub: Hub, content: bytes = WHOLE, limits: Limits = STEADY) -> str:
    """What is said when the only source is no good."""
    (said,) = host.fetch(wanted(FILE, content, [source(hub, FILE)]), limits=limits)
    assert not host.arrived(content)
    assert (host.run / "failed").read_text() == f"{said}\n"
    return said


def fetched(host: Host, hub: Hub, content: bytes = WHOLE) -> bool:
    return not host.fetch(wanted(FILE, content, [source(hub, FILE)])) and host.arrived(content)


# --- hubs that break off -------------------------------------------------------------------------------------


def test_bodies_that_end_early_are_gone_on_with(host: Host, hub: Hub) -> None:
    hub.truncate_after = BLOCK // 16
    assert fetched(host, hub)
    assert hub.sent == len(WHOLE)


def test_bodies_that_stall_are_gone_on_with(host: Host, hub: Hub) -> None:
    """From where they stopped: whoever began anew would never come further than a third of a block."""
    hub.stall_after = BLOCK // 3
    assert host.fetch(wanted(FILE, WHOLE, [source(hub, FILE)]), limits=replace(STEADY, stall=1)) == []
    assert host.arrived(WHOLE)


def test_a_hub_that_closes_at_once_is_given_up_after_some_time(host: Host, hub: Hub) -> None:
    hub.close_at_once = True
    began = time.monotonic()
    said = refused(host, hub, limits=HASTY)
    assert time.monotonic() - began >= HASTY.patience
    assert said.startswith(
        "tiny: model.gguf cannot be fetched: hub sent nothing for 1 s: the connection was closed without a response\n"
    )


def test_a_hub_that_comes_back_is_gone_on_with(host: Host, hub: Hub) -> None:
    hub.close_at_once = True

    def mend(_: Request) -> None:
        hub.close_at_once = len(hub.requests) < 6

    hub.on_request = mend
    assert fetched(host, hub)


def test_a_hub_that_is_not_there(host: Host) -> None:
    with gone({REPO: {FILE: WHOLE}}) as hub:
        assert "hub sent nothing for 1 s: connection refused" in refused(host, hub, limits=HASTY)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_errors_of_the_server_are_asked_again(host: Host, hub: Hub, status: int) -> None:
    hub.status[FILE] = status
    hub.retry_after = 0

    def mend(_: Request) -> None:
        if len(hub.requests) > 3:
            hub.status.clear()

    hub.on_request = mend
    assert fetched(host, hub)


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_hub_that_wants_to_be_left_alone_is(host: Host, hub: Hub, form: str) -> None:
    times: list[float] = []
    # With one request at a time it is known which of them is answered how.
    host.connections = 1

    def once(_: Request) -> None:
        times.append(time.time())
        hub.retry_after = 2 if form == "seconds" else formatdate(time.time() + 3, usegmt=True)
        hub.status = {FILE: 429} if len(times) == 1 else {}

    hub.on_request = once
    assert fetched(host, hub)
    assert times[1] - times[0] >= 1.9


# --- hubs that lie about what they send ----------------------------------------------------------------------


def test_wrong_bytes_of_the_right_size_are_not_kept(host: Host, hub: Hub) -> None:
    hub.corrupt.add(FILE)
    wrong = sha256(bytes(byte ^ 0xFF for byte in WHOLE))
    assert refused(host, hub).startswith(
        f"tiny: model.gguf cannot be fetched: it arrived from hub with sha256 {wrong}, but {sha256(WHOLE)} was"
        " expected; nothing of it was kept\n  help: lock the model anew"
    )
    assert hub.sent == len(WHOLE)


def test_what_was_kept_and_is_damaged_is_fetched_anew(host: Host, hub: Hub) -> None:
    hub.truncate_after = BLOCK // 16
    hub.on_request = lambda _: setattr(hub, "close_at_once", len(hub.requests) > 10)
    refused(host, hub, limits=HASTY)
    (part,) = host.incoming.glob("*.part")
    with part.open("r+b") as stream:
        stream.write(b"damage")
    hub.on_request, hub.close_at_once = (lambda _: None), False
    assert fetched(host, hub)


def test_a_hub_that_ignores_ranges_is_read_from_the_beginning(host: Host, hub: Hub) -> None:
    hub.ignore_ranges = True
    # Each body goes a little further than the one before, which has to be read again.
    hub.on_request = lambda _: setattr(hub, "truncate_after", len(hub.requests) * BLOCK // 16)
    assert fetched(host, hub)


def test_a_part_that_was_claimed_before_ranges_were_ignored_is_not_taken_for_the_whole(hub: Hub) -> None:
    """Else several requests that were under way then would write the same bytes at once."""
    hub.ignore_ranges = True
    offer = Offer(Source(**source(hub, FILE)), Supplier("hub", HASTY), None, HASTY.patience)
    offer.ignores_ranges = True
    lines = Connections(HASTY)
    with pytest.raises(RangeIgnoredError):
        request_range(lines, offer, BLOCK, 2 * BLOCK, len(WHOLE))
    with request_range(lines, offer, 0, len(WHOLE), len(WHOLE)) as body:
        assert (body.at, body.end) == (0, len(WHOLE))
    lines.close()
    assert [request.range for request in hub.requests] == [f"bytes={BLOCK}-{2 * BLOCK - 1}", None]


def test_a_hub_that_ignores_ranges_only_later(host: Host, hub: Hub) -> None:
    hub.truncate_after = BLOCK // 5
    hub.on_request = lambda _: setattr(hub, "close_at_once", len(hub.requests) > 8)
    refused(host, hub, limits=HASTY)
    hub.on_request = lambda _: None
    hub.close_at_once, hub.truncate_after, hub.ignore_ranges = False, None, True
    assert fetched(host, hub)


def test_a_file_that_changes_half_way_is_begun_anew(host: Host, hub: Hub) -> None:
    host.connections = 1  # of several, chance decides which asks first
    hub.replace(REPO, FILE, WHOLE[::-1])

    def change(_: Request) -> None:
        if len(hub.requests) == host.connections + 1:
            hub.replace(REPO, FILE, WHOLE)

    hub.on_request, hub.truncate_after = change, BLOCK // 16
    assert fetched(host, hub)


def test_a_file_that_changes_all_the_time_is_refused(host: Host, hub: Hub) -> None:
    hub.truncate_after = BLOCK // 16
    hub.on_request = lambda _: hub.etags.update({FILE: f'"{len(hub.requests)}"'})
    assert "hub changes the file while it is fetched" in refused(host, hub)


def test_another_range_than_asked_for(host: Host, hub: Hub) -> None:
    hub.content_range = f"bytes 5-{len(WHOLE) - 1}/{len(WHOLE)}"
    assert "hub sends bytes 5 to " in refused(host, hub)


@pytest.mark.parametrize("said", ["", "bytes", "bytes 0-1/", f"bytes 9-1/{len(WHOLE)}"])
def test_a_range_that_is_none(host: Host, hub: Hub, said: str) -> None:
    hub.content_range = said or " "
    assert "hub sends " in refused(host, hub)


def test_another_size_in_the_range(host: Host, hub: Hub) -> None:
    hub.replace(REPO, FILE, WHOLE + b"more")
    assert f"hub has {len(WHOLE) + 4} bytes where {len(WHOLE)} are expected" in refused(host, hub)


def test_a_file_that_is_shorter_than_the_range(host: Host, hub: Hub) -> None:
    hub.replace(REPO, FILE, WHOLE[: BLOCK + 5])
    assert f"hub has {BLOCK + 5} bytes where {len(WHOLE)} are expected" in refused(host, hub)


@pytest.mark.parametrize("off", [-7, 7])
def test_another_length_than_that_of_the_range(host: Host, hub: Hub, off: int) -> None:
    hub.length_off = off
    found = re.search(r"hub sends (\d+) bytes for a range of (\d+)", refused(host, hub))
    assert found
    assert int(found[1]) == int(found[2]) + off


def test_a_page_in_place_of_the_file(host: Host, hub: Hub) -> None:
    hub.replace(REPO, FILE, b"<html>Please log in</html>")
    hub.ignore_ranges = True
    said = refused(host, hub)
    assert f"hub has 26 bytes where {len(WHOLE)} are expected" in said
    assert "a login page or a proxy may be in between" in said


def test_encoded_bodies_are_refused(host: Host, hub: Hub) -> None:
    hub.encoding = "gzip"
    assert "hub sends files encoded as gzip" in refused(host, hub)


# --- redirects and tokens ------------------------------------------------------------------------------------


def test_the_token_stays_with_its_host(host: Host, cdn: Hub) -> None:
    cdn.token = "hf_secret"
    host.secret("hub", "hf_secret")
    assert fetched(host, cdn)
    assert {request.had_auth for request in cdn.requests} == {True}
    assert {request.had_auth for request in cdn.cdn_requests} == {False}
    assert all(request.range for request in cdn.cdn_requests)
    # Where the hub leads to is asked directly from then on.
    assert len(cdn.requests) <= host.connections


def test_an_address_that_expires_is_asked_for_anew(host: Host, cdn: Hub) -> None:
    cdn.signature = "first"
    host.connections = 1

    def expire(_: Request) -> None:
        if len(cdn.cdn_requests) == 2:
            cdn.signature = "second"

    cdn.on_request = expire
    assert fetched(host, cdn)
    assert len(cdn.requests) == 2


def test_redirects_may_be_relative(host: Host, hub: Hub) -> None:
    path = f"/{REPO}/resolve/{hub.commit(REPO)}"
    hub.redirects = {f"{path}/old": "./older%20one", f"{path}/older%20one": FILE}
    assert not host.fetch(wanted(FILE, WHOLE, [source(hub, "old")]))
    assert host.arrived(WHOLE)


def test_redirects_without_end(host: Host, hub: Hub) -> None:
    hub.redirects = {f"/{REPO}/resolve/{hub.commit(REPO)}/{FILE}": FILE}
    assert "hub redirects more than 10 times" in refused(host, hub)


@pytest.mark.parametrize("location", ["ftp://example.org/x", "http://[::1/", "file:///etc/passwd", "http://h:99999/"])
def test_redirects_to_nowhere(host: Host, hub: Hub, location: str) -> None:
    hub.redirects = {f"/{REPO}/resolve/{hub.commit(REPO)}/{FILE}": location}
    assert "hub redirects to an address without http or https" in refused(host, hub)


def certificate(folder: Path) -> ssl.SSLContext:
    """A certificate for 127.0.0.1, which nobody trusts, as cert.pem and key.pem."""
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    names = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def test_tls(host: Host, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody vouches for is refused; one that is trusted gives files, and may not lead to plain http."""
    from llamaherd.onhost.fetch import http_client

    context = certificate(host.root)
    with Hub({REPO: {FILE: SMALL}}, tls=context) as secure:
        http_client._trust.cache_clear()
        assert "hub has no certificate for 127.0.0.1 that can be trusted (self-signed" in refused(host, secure, SMALL)
        monkeypatch.setenv("SSL_CERT_FILE", str(host.root / "cert.pem"))
        http_client._trust.cache_clear()
        path = f"/{REPO}/resolve/{secure.commit(REPO)}/{FILE}"
        secure.redirects = {path: f"{hub.url}{path}"}
        assert "hub redirects from https to http" in refused(host, secure, SMALL)
        secure.redirects = {}
        assert fetched(host, secure, SMALL)
        http_client._trust.cache_clear()
    assert hub.requests == []


def test_a_token_that_is_missing(host: Host, hub: Hub) -> None:
    hub.token = "hf_secret"
    said = refused(host, hub)
    assert f"hub requires a token for {REPO} (401)\n  help: give one as HF_TOKEN" in said


def test_a_token_that_is_refused(host: Host, hub: Hub) -> None:
    hub.token = "hf_secret"
    host.secret("hub", "hf_wrong")
    said = refused(host, hub)
    assert f"hub does not accept the token for {REPO} (401)\n  help: check HF_TOKEN" in said
    assert "hf_wrong" not in said


def test_a_token_that_cannot_be_sent(host: Host, hub: Hub) -> None:
    host.secret("hub", "hf_\nSet-Cookie: x")
    assert refused(host, hub).startswith("the token `hub` holds odd characters")
    assert hub.requests == []


@pytest.mark.parametrize("token", [None, "hf_secret"])
def test_a_gated_repository(host: Host, hub: Hub, token: str | None) -> None:
    hub.gated.add(REPO)
    if token:
        host.secret("hub", token)
    said = refused(host, hub)
    assert f"hub sends {REPO} only to accounts that its owner has granted access (40{3 if token else 1})" in said
    assert f"open {hub.url}/{REPO} in a browser and request access" in said


def test_a_revision_that_is_gone(host: Host, hub: Hub) -> None:
    (said,) = host.fetch(wanted(FILE, WHOLE, [source(hub, FILE, commit="0" * 40)]))
    assert f"hub no longer has this revision of {REPO} (404)" in said
    assert "herd lock --upgrade" in said


def test_a_file_that_is_too_large_for_http(host: Host, hub: Hub) -> None:
    hub.status[FILE] = 400
    (said,) = host.fetch(wanted(FILE, WHOLE, [source(hub, FILE)]))
    assert f"hub does not send this file of {REPO} over HTTP (400)" in said
    assert f"`hf download {REPO}` on this host" in said


def test_a_file_that_is_gone(host: Host, hub: Hub) -> None:
    (said,) = host.fetch(wanted(FILE, WHOLE, [source(hub, "other.gguf")]))
    assert f"hub has no such file in this revision of {REPO} (404)" in said
