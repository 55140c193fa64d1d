"""How many requests a server has, by its own figures."""

# For Python 3.10 and its standard library alone.
import re
import threading
import urllib.request
from pathlib import Path

LONGEST_ANSWER = 5.0
"""Seconds until all of an answer is there: one that drips is none."""

BUSY = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))\S* ([0-9.]+)", re.MULTILINE
)


def in_flight(metrics: list[str], key: str) -> int | None:
    """Requests that a server answers or lets wait, by all that it tells at these URLs; None where it does not say.

    One that has several models in turn tells of that which is loaded, and refuses the others.
    """
    told = [count for url in metrics if (count := counted(url, key)) is not None]
    return sum(told) if told else None


def counted(url: str, key: str) -> int | None:
    """What it says at one of them, in time. An answer that drips is left to itself, and ends with this program."""
    found: list[int | None] = []
    asking = threading.Thread(target=lambda: found.append(count_at(url, key)), daemon=True)
    asking.start()
    asking.join(LONGEST_ANSWER)
    return found[0] if found else None


def count_at(url: str, key: str) -> int | None:
    """Return the requests that a server counts at a URL; None where it does not respond."""
    request = urllib.request.Request(url)
    try:
        if key:
            request.add_header("Authorization", "Bearer " + Path(key).read_text(encoding="utf-8").strip())
        # No proxy: this host is asked.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=3) as answer:
            said = answer.read(1 << 20).decode(errors="replace")
    except (OSError, ValueError):
        return None
    found = BUSY.findall(said)
    return round(sum(float(number) for number in found)) if found else None
