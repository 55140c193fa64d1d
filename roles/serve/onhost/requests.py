"""Requests to servers by curl, as clients send them. An inspection has an HTTP client of its own."""

from __future__ import annotations

from llamaherd.onhost.system import TIMED_OUT, System
from roles.serve.onhost.verified import Requests, Responses

MOST_BYTES = 128 << 10
"""Bytes of a response: a chat of 64 tokens has some 20 kB, and what a server has loaded not much more."""
_SECONDS = 5
"""Limit of a request for which the server computes nothing."""
_SPARE = 10
_RATE = "1M"
"""Bytes per second: curl before 8.4 does not end a response that exceeds its limit without declaring its length."""
_NO_RESPONSE = "curl: (28)"


def send_requests(server: str, given: Requests, system: System) -> Responses:
    """Return the responses of a server. After a first request without a response, no further request is sent."""
    health = _request(given.health_url, "", system)
    if _NO_RESPONSE in health:
        return Responses(health=health)
    header = _authorization(given.key_file, system)
    keyless = _request(given.keyless_url, "", system) if given.keyless_url else ""
    models = _request(given.models_url, header, system)
    props = {server: _request(given.props_url, header, system)} if given.props_url else {}
    chats = {}
    for each in given.chats:
        chats[each.name] = _request(each.url, header, system, each.body, given.chat_seconds)
        if each.props_url:
            props[each.name] = _request(each.props_url, header, system)
    return Responses(health, keyless, models, props, chats)


def _authorization(key_file: str, system: System) -> str:
    """Return the header with a server's key; empty where it has none."""
    key = (system.read(key_file) or "").partition("\n")[0] if key_file else ""
    return f"Authorization: Bearer {key}\n" if key_file else ""


def _request(url: str, header: str, system: System, body: str = "", seconds: int = _SECONDS) -> str:
    """Return what curl prints: the body, its errors, and the status. The header comes on stdin, as argv is public.

    Use no configuration of root and no proxy: the request goes to this host.
    """
    limits = ("--max-time", str(seconds), "--max-filesize", str(MOST_BYTES), "--limit-rate", _RATE)
    posted = ("-H", "Content-Type: application/json", "--data-raw", body) if body else ()
    words = ("curl", "-q", "-sS", "-g", "--noproxy", "*", *limits, "-H", "@-", "-w", r"\n%{http_code}\n", *posted, url)
    ended = system.run(words, seconds=seconds + _SPARE, text=header)
    if ended.code == TIMED_OUT:
        return f"curl did not end within {seconds + _SPARE} s"
    content, _, status = ended.out.rstrip("\n").rpartition("\n")
    if len(content) > MOST_BYTES:
        return f"the response has more than {MOST_BYTES} bytes"
    return "\n".join([content, *ended.err.splitlines(), status])
