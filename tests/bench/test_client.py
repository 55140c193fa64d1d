"""The client against a real HTTP server that plays exact times, and against servers that break off, lie and wait."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from llamaherd.measure.client.http_client import (
    Events,
    Failure,
    NonsenseError,
    Patience,
    Reading,
    StreamedResponse,
    Target,
    stream_response,
)
from llamaherd.measure.client.requests import cache_buster, run_from_response
from llamaherd.measure.results.comparison import compare_results
from llamaherd.measure.results.result import Cell, Condition, Method, Result, Run
from llamaherd.measure.statistics import block_orders
from tests.bench.played import CHUNKED, END, PLAIN, Part, Played, Virtual, answer, chunk, delta, event, last
from tests.support.liar import Liar, whole
from tests.support.rigs import ROOT

CHAT = "/v1/chat/completions"
SOON = Patience(connect=2, first=0.5, silence=0.3, total=1.5)
KEY = "sk-canary-4711"


def asked(url: str, patience: Patience = SOON, key: str | None = None, **body: Any) -> StreamedResponse | Failure:
    return stream_response(Target(url, key), CHAT, {"messages": [], **body}, patience)


def exactly(parts: Sequence[Part]) -> StreamedResponse:
    """The answer to these parts, each seen at its very time."""
    virtual = Virtual()
    with Played(lambda _: virtual.paced(parts)) as server:
        return good(stream_response(Target(server.url), CHAT, {}, SOON, virtual.clock))


def good(found: StreamedResponse | Failure) -> StreamedResponse:
    assert isinstance(found, StreamedResponse), found
    return found


def bad(found: StreamedResponse | Failure) -> Failure:
    assert isinstance(found, Failure), found
    assert found.help
    assert "\n" not in found.message
    return found


def played(*parts: Part) -> Played:
    return Played(lambda _: parts)


def test_times_are_those_of_the_script() -> None:
    """Twenty tokens, the first after 80 ms, then one each 7 ms."""
    found = exactly(answer(20, 0.080, 0.007))
    assert [piece.at for piece in found.pieces] == [pytest.approx(80 + 7 * number) for number in range(20)]
    assert found.first_token_ms == pytest.approx(80)
    assert found.last_token_ms == pytest.approx(80 + 19 * 7)
    assert found.text == "".join(f"w{number} " for number in range(20))
    assert (found.finish, found.connect_ms) == ("length", 0)
    assert found.total_ms >= found.last_token_ms


def test_times_are_those_of_the_server() -> None:
    """By the real clock, which server and client share: nothing is seen before it was sent."""
    with played(*answer(20, 0.080, 0.007)) as server:
        found = good(asked(server.url, Patience()))
        sent = [1000 * (at - server.asked) for at, data in server.sent if b'"w' in data]
    assert len(found.pieces) == len(sent) == 20
    assert all(piece.at > true - 0.5 for piece, true in zip(found.pieces, sent, strict=True))
    assert found.last_token_ms - found.first_token_ms > 50


def test_the_request_is_what_was_asked_for() -> None:
    with played(*answer(2, 0, 0)) as server:
        good(asked(server.url + "/base/", key=KEY, seed=7))
    ((path, headers, body),) = server.requests
    assert path == "/base" + CHAT
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["accept-encoding"] == "identity"
    assert body == {"messages": [], "seed": 7, "stream": True}
    assert KEY not in repr(Target(server.url, KEY))


TIMINGS = {"cache_n": 3, "prompt_n": 40, "prompt_ms": 50.0, "predicted_n": 257, "predicted_ms": 2560.0}
CONDITION = Condition(kind="code", generated=256)


def test_what_the_engine_tells_counts() -> None:
    """As llama.cpp ends a chat: its own times, drafts, and what was in the cache."""
    timings = TIMINGS | {"draft_n": 150, "draft_n_accepted": 120, "predicted_per_second": 1e9}
    with played(*answer(3, 0.01, 0.002, timings=timings)) as server:
        found = good(asked(server.url))
    run = run_from_response(found, CONDITION, at=1.5, start=0, block=2)
    assert (run.cache_n, run.prompt_n, run.prompt_ms, run.predicted_n, run.predicted_ms) == (3, 40, 50.0, 257, 2560.0)
    assert (run.draft_n, run.draft_n_accepted, run.steps, run.clock) == (150, 120, 136, "engine")
    assert (run.at, run.block, run.stopped, run.excluded) == (1.5, 2, "length", None)
    assert run.first_token_ms == found.first_token_ms
    assert len(run.pieces_ms) == 2
    cold = CONDITION.model_copy(update={"cache": "cold"})
    assert run_from_response(found, cold, at=0).excluded == "3 tokens of the prompt came from a cache"
    longer = CONDITION.model_copy(update={"generated": 600})
    assert run_from_response(found, longer, at=0).excluded == "it ended after 257 of 600 tokens"


def test_timings_with_each_token() -> None:
    """With `timings_per_token` each piece tells how many there are by then: with drafts, several come at once."""
    parts = [(0.0, CHUNKED)]
    parts += [(0.01 * n, chunk(delta("x" * n, timings=TIMINGS | {"predicted_n": 3 * n}))) for n in (1, 2, 3)]
    with played(*parts, (0.03, chunk(last(timings=TIMINGS | {"predicted_n": 9})) + chunk(END))) as server:
        found = good(asked(server.url))
    assert [(piece.characters, piece.tokens) for piece in found.pieces] == [(1, 3), (2, 6), (3, 9)]
    assert found.timings
    assert found.timings.predicted_n == 9


def test_where_the_engine_tells_nothing_the_client_does() -> None:
    """As vLLM and others: tokens from `usage`, times from our clock, and what was cached if it is told."""
    usage = {"prompt_tokens": 50, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 20}}
    found = exactly(answer(30, 0.05, 0.004, usage=usage))
    run = run_from_response(found, Condition(kind="code", generated=30), at=0)
    assert (run.clock, run.prompt_n, run.cache_n, run.predicted_n) == ("client", 30, 20, 30)
    assert run.predicted_ms == pytest.approx(29 * 4)
    assert run.pieces_ms == (4.0,) * 29
    assert run.prompt_ms == found.first_token_ms
    with played(*answer(3, 0, 0)) as server:
        untold = run_from_response(good(asked(server.url)), CONDITION, at=0)
    assert untold.excluded == "the server does not report how many tokens it generated"


def test_thoughts_are_tokens() -> None:
    """The first token is the first one that the model wrote, and not the first that is meant for the user."""
    thought = event({"choices": [{"delta": {"reasoning_content": "hm"}}]})
    parts = ((0.0, PLAIN), (0.02, thought), (0.3, delta("x")), (0.3, last("stop") + END))
    found = exactly(parts)
    assert found.first_token_ms == pytest.approx(20)
    assert found.last_token_ms == pytest.approx(300)
    assert found.text == "hmx"


def test_llama_cpps_own_form() -> None:
    """`/completion`: content in every event, and no [DONE]."""
    stop = {"content": "", "stop": True, "stop_type": "limit", "timings": TIMINGS}
    progress = event({"prompt_progress": {"total": 9}, "content": "", "stop": False})
    word = event({"content": "a", "stop": False})
    with played((0, PLAIN), (0, progress), (0.01, word), (0.02, word), (0.02, event(stop))) as server:
        found = good(stream_response(Target(server.url), "/completion", {"prompt": [1, 2]}, SOON))
    assert (found.text, found.finish) == ("aa", "limit")
    assert run_from_response(found, CONDITION, at=0).stopped == "length"


def test_events_in_any_pieces() -> None:
    data = b': comment\r\nevent: x\r\ndata: {"a":\r\ndata: 1}\r\n\r\n' + event("[DONE]") + b"data: left"
    whole_events = list(Events().feed(data))
    assert whole_events == [b'{"a":\n1}', b"[DONE]"]
    for cut in range(len(data)):
        events = Events()
        assert [*events.feed(data[:cut]), *events.feed(data[cut:])] == whole_events


# --- what goes wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (b"401 Unauthorized", b'{"error":{"message":"Invalid API Key","type":"authentication_error"}}', "key"),
        (b"403 Forbidden", b"no", "key"),
        (b"404 Not Found", b'{"detail":"Not Found"}', "path"),
        (b"503 Service Unavailable", b'{"error":{"message":"Loading model"}}', "busy"),
        (b"429 Too Many", b'{"message":"slow down"}', "busy"),
        (b"500 Oh", b'{"error":"it broke"}', "refused"),
        (b"400 Bad", b"[" * 50_000, "refused"),
        (b"302 Found", b"", "refused"),
    ],
)
def test_refusals_are_values(status: bytes, body: bytes, why: str) -> None:
    with Liar(whole(body, b"HTTP/1.1 " + status + b"\r\n")) as liar:
        found = bad(asked(liar.url))
    assert (found.why, found.status) == (why, int(status[:3]))
    assert f"the server returns {int(status[:3])}: " in found.message
    assert len(found.message) < 400


def test_a_key_that_a_server_repeats_is_not_told() -> None:
    said = json.dumps({"error": {"message": f"wrong key {KEY}\x1b[31m"}}).encode()
    with Liar(whole(said, b"HTTP/1.1 401 No\r\n")) as liar:
        found = bad(asked(liar.url, key=KEY))
    assert "wrong key …" in found.message
    assert KEY not in found.message
    assert "\x1b" not in found.message


BODY = delta("a") + delta("b")


@pytest.mark.parametrize(
    ("parts", "why", "said", "pieces"),
    [
        (((0, PLAIN), (0, BODY)), "cut", "ends in the middle", 2),
        (((0, CHUNKED), (0, chunk(BODY))), "cut", "the connection was cut", 2),
        (((0, CHUNKED), (0, b"ffff\r\n" + BODY)), "cut", "the connection was cut", 2),
        (((0, b""),), "cut", "the connection was cut", 0),
        (((0, b"SSH-2.0-OpenSSH_9.2\r\n"),), "cut", "the connection was cut", 0),
        (((0, PLAIN), (0, last() + END)), "empty", "has no token", 0),
        (((0, PLAIN), (0, b"data: nonsense\n\n")), "nonsense", "an event that is no JSON", 0),
        (((0, PLAIN), (0, b"data: [1]\n\n")), "nonsense", "no JSON object", 0),
        (((0, PLAIN), (0, b"data: " + b"[" * 200_000 + b"\n\n")), "nonsense", "no JSON", 0),
        (((0, PLAIN), (0, b"x" * (2 << 20))), "nonsense", "a line of more than 1 MiB", 0),
        (((0, PLAIN), (0, BODY + event({"error": {"message": "out of memory"}}))), "refused", "out of memory", 2),
        (((0, PLAIN), (0, event({"error": 7}))), "refused", "without a message", 0),
        (((0, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),), "nonsense", "does not stream", 0),
        (((0, PLAIN), (0, BODY), (5, b"")), "late", "stopped sending", 2),
        (((5, PLAIN),), "late", "stopped sending", 0),
    ],
)
def test_what_breaks_off_is_a_value(parts: tuple[Part, ...], why: str, said: str, pieces: int) -> None:
    with played(*parts) as server:
        found = bad(asked(server.url))
    assert (found.why, found.pieces) == (why, pieces), found
    assert said in found.message


def test_silence_in_the_middle_is_waited_for_less_than_the_beginning() -> None:
    """Reading a long prompt takes minutes; between two tokens there are none."""
    began = time.monotonic()
    with played((0, PLAIN), (0.4, BODY), (9, b"")) as server:
        found = bad(asked(server.url, Patience(first=8, silence=0.3, total=8)))
    assert (found.why, found.pieces) == ("late", 2)
    assert 0.6 < time.monotonic() - began < 7


def drip(begin: bytes, piece: bytes) -> Iterator[Part]:
    """A piece now and then, without an end."""
    yield 0, begin
    for number in range(10_000):
        yield 0.05 * number, piece


@pytest.mark.parametrize(
    ("begin", "piece"),
    [(PLAIN, b":"), (PLAIN, delta("x")), (CHUNKED, b"0"), (b"HTTP/1.1 200 OK\r\n", b"x")],
    ids=["comment", "tokens", "length of a chunk", "headers"],
)
def test_an_answer_that_never_ends_is_ended(begin: bytes, piece: bytes) -> None:
    before, began = threading.active_count(), time.monotonic()
    with Played(lambda _: drip(begin, piece)) as server:
        found = bad(asked(server.url))
    assert found.why == "late"
    assert 1.2 < time.monotonic() - began < 30
    assert "incomplete after 1.5 s" in found.message
    while threading.active_count() > before + 1:  # what is left of the server ends when it can send no more
        assert time.monotonic() - began < 30
        time.sleep(0.05)


def test_a_flood_is_ended() -> None:
    def flood() -> Iterator[Part]:
        yield 0, PLAIN
        while True:
            yield 0, delta("x" * 4000) * 100

    with Played(lambda _: flood()) as server:
        found = bad(asked(server.url, Patience(total=60)))
    assert found.why == "nonsense"
    assert "more than 64 MiB" in found.message


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:9", "unreachable"),
        ("http://nowhere.invalid:8080", "unreachable"),
        ("http://" + "x" * 300, "unreachable"),
        ("http://xn--\u00fc.\u2603", "unreachable"),
        ("ftp://127.0.0.1", "path"),
        ("127.0.0.1:8080", "path"),
        ("http://", "path"),
        ("http://127.0.0.1:99999", "path"),
        ("http://user:pw@127.0.0.1", "path"),
        ("http://127.0.0.1/a b", "path"),
        ("http://127.0.0.1/a?b=c", "path"),
        ("http://[::1", "path"),
    ],
)
def test_where_no_server_can_be(url: str, why: str) -> None:
    found = bad(asked(url))
    assert found.why == why, found
    assert "pw" not in found.message


def test_a_port_that_takes_connections_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = bad(asked(f"http://127.0.0.1:{listening.getsockname()[1]}"))
    assert found.why == "late"


@pytest.mark.parametrize("key", ["a\nb: c", "\u2603", "\x7f"])
def test_a_key_that_no_header_can_hold(key: str) -> None:
    found = bad(asked("http://127.0.0.1:9", key=key))
    assert found.message == "no request can be sent to the server: the key has letters that no key has"


@pytest.mark.parametrize("value", [None, True, -1, 1e300, "7", [], {}])
def test_nonsense_in_figures_is_unknown(value: object) -> None:
    reading = Reading()
    wrong = dict.fromkeys(TIMINGS, value)
    reading.take(json.dumps({"timings": wrong, "usage": {"prompt_tokens": value}}).encode(), 1.0)
    assert reading.timings
    assert set(vars(reading.timings).values()) == {None}
    assert reading.usage
    assert reading.usage.prompt is None
    with pytest.raises(NonsenseError):
        reading.take(b'"x"', 1.0)


def test_it_needs_nothing_but_python() -> None:
    """It may be brought to a host: there is Python there, and no package of ours or of others."""
    script = """
import sys
before = set(sys.modules)
import llamaherd.measure.client.http_client
foreign = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(sorted(foreign), sorted(name for name in sys.modules if name.startswith("llamaherd.")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == (
        "['llamaherd'] ['llamaherd.measure', 'llamaherd.measure.client', 'llamaherd.measure.client.http_client']"
    )


# --- all of it together --------------------------------------------------------------------------------------


def measured(speeds: dict[str, float], blocks: int, tokens: int = 30) -> tuple[Result, Result]:
    """Two servers of so many milliseconds a token, with an error of 1 %, asked in blocks by the client, as results."""
    condition = Condition(kind="code", generated=tokens)
    runs: dict[str, list[Run]] = {"A": [], "B": []}
    virtual, lot = Virtual(), random.Random(1)

    def script(arm: str) -> Iterator[Part]:
        usage = {"prompt_tokens": 9, "completion_tokens": tokens}
        return virtual.paced(answer(tokens, 0.01, speeds[arm] / 1000 * (1 + lot.gauss(0, 0.01)), usage=usage))

    with Played(lambda _: script("A")) as a, Played(lambda _: script("B")) as b:
        urls = {"A": a.url, "B": b.url}
        for block, order in enumerate(block_orders("played", blocks)):
            for arm in order:
                body = {"messages": [{"role": "user", "content": cache_buster("played", block)}]}
                found = good(stream_response(Target(urls[arm]), CHAT, body, SOON, virtual.clock))
                runs[arm].append(run_from_response(found, condition, at=0, block=block))
    one, other = (
        Result(
            llamaherd="1",
            rig="played",
            instance=arm.lower(),
            began="2026-01-01T00:00:00Z",
            ended="2026-01-01T00:00:00Z",
            method=Method(series="s", arm="A" if arm == "A" else "B"),
            cells=(Cell(condition=condition, runs=tuple(runs[arm])),),
        )
        for arm in ("A", "B")
    )
    return one, other


@pytest.mark.parametrize(("slower", "verdict"), [(1.05, "slower"), (1.0, "same"), (0.95, "faster")])
def test_what_is_told_of_servers_whose_speed_is_known(slower: float, verdict: str) -> None:
    """Real requests over real HTTP, in eight blocks, timed by the client."""
    rows = {row.metric.name: row for row in compare_results(*measured({"A": 4.0, "B": 4.0 * slower}, 8)).rows}
    decode = rows["decode"]
    assert decode.judgement
    assert decode.judgement.verdict == verdict, decode
    assert (decode.ratio.unit, decode.ratio.n) == ("block", 8)
    assert decode.ratio.low is not None
    assert decode.ratio.high is not None
    assert decode.ratio.low < 1 / slower < decode.ratio.high
    assert decode.a.value == pytest.approx(250, rel=0.02)
