"""Wait until a server answers no request any more, for so many seconds at most."""

import json
import re
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

LARGEST = 1 << 20
"""Bytes of an answer."""
BUSY = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))\S* ([0-9.]+)", re.MULTILINE
)


def main(path: str, seconds: float) -> None:
    asked = json.loads(Path(path).read_text(encoding="utf-8"))
    end = time.monotonic() + seconds
    told = False
    while count := in_flight(asked):
        if time.monotonic() > end:
            sys.stdout.write(f"{count} of them did not end in time, and {'are' if count > 1 else 'is'} cut off\n")
            return
        if not told:
            plural = "s" if count > 1 else ""
            sys.stdout.write(f"waiting for {count} request{plural} in flight, for up to {seconds:g} s\n")
            sys.stdout.flush()
            told = True
        time.sleep(0.2)


def in_flight(asked: dict[str, Any]) -> int:
    """Requests that are answered or wait for that, of all models that it has."""
    urls = asked["metrics"] if isinstance(asked["metrics"], list) else [asked["metrics"]]
    return sum(in_flight_at(url, asked) for url in urls)


def in_flight_at(url: str, asked: dict[str, Any]) -> int:
    """The same of one model; 0 where nobody says. One that is too busy to say answers some."""
    request = urllib.request.Request(url)
    if asked["key"]:
        request.add_header("Authorization", "Bearer " + Path(asked["key"]).read_text(encoding="utf-8").strip())
    # No proxy: this host is asked.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=2) as answer:
            said = answer.read(LARGEST).decode(errors="replace")
    except OSError as error:
        return int(isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError))
    return round(sum(float(number) for number in BUSY.findall(said)))


main(sys.argv[1], float(sys.argv[2]))
