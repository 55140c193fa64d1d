"""A connection has limits for the whole of a response, whatever a server sends. Nothing hangs, grows or is followed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from roles.serve.onhost.wire import (
    Connection,
    NotServingError,
    Response,
    direct_group,
    parse_declared,
    requests_in_flight,
)
from tests.support.liar import LIES, OK, Liar, Lie, raw, whole

SECONDS = 1.5


def silence(_: Liar) -> Iterator[bytes]:
    """Send nothing for a while."""
    time.sleep(4)
    yield b""


def fetched(lie: Lie) -> tuple[Response | None, str, float]:
    """Return the response of a liar, or why there is none, and the seconds that it took."""
    began = time.monotonic()
    with Liar(lie) as liar:
        connection = Connection(liar.url, began + SECONDS, "secret")
        try:
            return connection.fetch("a page", "/page"), "", time.monotonic() - began
        except NotServingError as error:
            return None, str(error), time.monotonic() - began
        finally:
            connection.close()


@pytest.mark.parametrize("name", LIES)
def test_every_response_ends(name: str) -> None:
    response, why, seconds = fetched(LIES[name])
    assert (response is None) == bool(why)
    assert why == "" or why.startswith("a page ")
    assert seconds < SECONDS + 5


def test_a_redirect_is_not_followed() -> None:
    response, _, _ = fetched(LIES["a redirect to a file"])
    assert response
    assert response.status == 302


def test_the_message_of_an_error() -> None:
    for body, message in (
        (b'{"error": {"message": "no\\n  room"}}', "no room"),
        (b'{"error": "no"}', '{"error": "no"}'),
        (b"\xff" + b"x" * 300, "\ufffd" + "x" * 199),
    ):
        with pytest.raises(NotServingError) as error:
            Response(500, body).require_ok("a page")
        assert str(error.value) == f"a page returns HTTP 500: {message}"


@pytest.mark.parametrize(
    ("lie", "count"),
    [
        (whole(b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"), 3),
        (whole(b'vllm:num_requests_running{model_name="a b"} 1.0\nvllm:num_requests_waiting{} 0.5\n'), 2),
        (whole(b"llamacpp:requests_processing nan\n"), 0),
        (whole(b"llamacpp:requests_processing 1\n", OK.replace(b"200 OK", b"500 No")), 0),
        (raw(OK + b"Content-Length: 99\r\n\r\nllamacpp:requests_processing 1\n"), 1),
        (raw(b"SSH-2.0\r\n"), 0),
        (raw(OK + b"\r\n", then=b" ", drip=True), 1),
        (raw(), 0),
        (silence, 1),
    ],
    ids=["llama.cpp", "vLLM", "no number", "an error", "cut off", "no HTTP", "drips", "closes", "silent"],
)
def test_requests_in_flight(lie: Lie, count: int) -> None:
    with Liar(lie) as liar:
        began = time.monotonic()
        assert requests_in_flight([f"{liar.url}/metrics"], "secret") == count
        assert time.monotonic() - began < 6
        assert b"Authorization: Bearer secret" in liar.heads[0]


def test_a_key_that_no_header_can_have_counts_as_none() -> None:
    with Liar(whole(b"llamacpp:requests_processing 1\n")) as liar:
        assert requests_in_flight([f"{liar.url}/metrics"], "se\ncret") == 0
        assert liar.heads == []


def test_a_key_is_not_shown() -> None:
    assert "canary" not in repr(parse_declared({}, "canary"))


def test_a_connection_that_is_not_open_is_not_hung_up() -> None:
    connection = Connection("http://127.0.0.1:9/", time.monotonic() + 1)
    connection.hang_up()
    assert connection.sock is None


def test_the_group_is_restored_after_an_error() -> None:
    before = os.getegid()
    with pytest.raises(ValueError, match="enough"), direct_group(before):
        raise ValueError("enough")
    assert os.getegid() == before
