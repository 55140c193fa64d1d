"""Requests in flight of a server, by its own metrics."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path

LONGEST_ANSWER = 5.0
"""Seconds in which a whole response must arrive, also one that arrives byte by byte."""

BUSY = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))\S* ([0-9.]+)", re.MULTILINE
)


def in_flight(metrics: Sequence[str], key: str) -> int | None:
    """Return the requests that a server processes or defers, by its metrics at these URLs; None where it has none.

    A server of several models has metrics of the loaded model, and refuses URLs of other models.
    """
    counts = [count for url in metrics if (count := counted(url, key)) is not None]
    return sum(counts) if counts else None


def counted(url: str, key: str) -> int | None:
    """Return the requests at one URL; None after LONGEST_ANSWER seconds. A slow response ends with this program."""
    found: list[int | None] = []
    reader = threading.Thread(target=lambda: found.append(count_at(url, key)), daemon=True)
    reader.start()
    reader.join(LONGEST_ANSWER)
    return found[0] if found else None


def count_at(url: str, key: str) -> int | None:
    """Return the requests that a server counts at a URL; None where it does not respond."""
    request = urllib.request.Request(url)
    try:
        if key:
            request.add_header("Authorization", "Bearer " + Path(key).read_text(encoding="utf-8").strip())
        # No proxy: the server is on this host.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=3) as response:
            text = response.read(1 << 20).decode(errors="replace")
    except (OSError, ValueError):
        return None
    found = BUSY.findall(text)
    return round(sum(float(number) for number in found)) if found else None
