"""Clients on the box while a server there is changed: one asks for its health, another has it write without end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from box.host import BoxHost

ASK = """
while :; do
    if curl -s -o /dev/null -f -m 1 http://127.0.0.1:{port}/health; then date +%s.%N; fi
    sleep 0.1
done >/run/answered
"""
STOPPED = 0.3
"""Seconds between two answers of the one, by which a server was stopped."""
# A stream takes two seconds or so, and a second goes by before the next: a server that is drained finds that moment.
STREAM = """
exec python3 -I - >/run/streamed <<'END'
import http.client, json, pathlib, time
key = pathlib.Path("/etc/llamaherd/keys/{server}")
headers = {{"Content-Type": "application/json"}}
if key.exists():
    headers["Authorization"] = "Bearer " + key.read_text().strip()
prompt = [{{"role": "user", "content": "Count."}}]
body = {{"messages": prompt, "max_tokens": {tokens}, "ignore_eos": True, "stream": True}}
while True:
    began, came, end = time.time(), 0, "refused"
    connection = http.client.HTTPConnection("127.0.0.1", {port}, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        end = "cut" if answer.status == 200 else "refused"
        for line in answer if answer.status == 200 else ():
            came += line.startswith(b"data: ")
            if line.strip() == b"data: [DONE]":
                end = "whole"
    except (OSError, http.client.HTTPException):
        end = "cut" if came else end
    connection.close()
    print(json.dumps([began, time.time(), came, end]), flush=True)
    time.sleep(1 if end == "whole" else 0.1)
END
"""


@dataclass(frozen=True)
class Streams:
    """Answers that a client had written to it: how many came whole, and how many were cut, by whom.

    `cut`: by the server that served before. `later`: by one that was tried, as it was taken back.
    """

    whole: int
    cut: int
    later: int

    def __str__(self) -> str:
        """For a table."""
        return f"{self.whole} whole, {self.cut} cut, {self.later} cut later"


@contextmanager
def asking(box: BoxHost, port: int) -> Iterator[None]:
    """A client on the box, meanwhile, that asks for its health ten times a second."""
    with beside(box, ASK.format(port=port)):
        yield


@contextmanager
def streaming(box: BoxHost, server: str, port: int, tokens: int) -> Iterator[None]:
    """A client on the box, meanwhile, to whom one answer after the other is written: each of so many tokens."""
    with beside(box, STREAM.format(server=server, port=port, tokens=tokens)):
        yield


@contextmanager
def beside(box: BoxHost, script: str) -> Iterator[None]:
    """A script on the box, meanwhile; ended with what it has started."""
    if not script:
        yield
        return
    unit = f"bench-{time.monotonic_ns()}"
    box.exec("systemd-run", "-q", f"--unit={unit}", "sh", "-c", script)
    try:
        yield
    finally:
        box.exec("systemctl", "stop", unit, check=False)


def answered(box: BoxHost) -> list[float]:
    """When the one was answered."""
    return [float(line) for line in box.exec("cat", "/run/answered").split()]


def streamed(box: BoxHost, times: Sequence[float]) -> Streams:
    """What the other was told, beside when the first was answered. What ends with the client itself does not count."""
    found = [json.loads(line) for line in box.exec("cat", "/run/streamed").splitlines()]
    began = [at for at, _, _, end in found if end == "cut"]
    stopped = next((before for before, after in pairwise(times) if after - before > STOPPED), times[-1])
    before = sum(at <= stopped for at in began)
    return Streams(sum(end == "whole" for *_, end in found), before, len(began) - before)
