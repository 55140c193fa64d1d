"""A gateway by figures: the real HAProxy, by the configuration that a host is given, before servers that answer by a
script (`gateway_servers.py`). All of it is on this machine's loopback.

    .venv/bin/python -m benchmarks.gateway [many|latency|keys|faults ...]
        [--minutes 10] [--letters 10000] [--large 0] [--requests 2000] [--tries 100000] [--seconds 90] [--patience 20]

- `many`: a thousand clients that ask all the time, before two servers of two slots: nine users with 111 each, and one
  with a single client, whose requests must not wait for the many. Each answer is a stream of five pieces, which names
  its request; servers write down what they began. With `--large 0.05`, one request of twenty has a megabyte.
- `latency`: requests of 10 KB and 1 MB, through the gateway and straight to the server, in an order drawn by lot for
  each round. Each way keeps its connection.
- `keys`: how long wrong keys take: one that begins as a user's, one that only looks like it, one of another kind, all
  of one length; and one that is longer by 4 KB, to see whether a difference would be seen.
- `faults`: `gateway_faults.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import secrets
import statistics
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.gateway_clients import NUMBERS, Asked, Came, Line, ask
from benchmarks.gateway_faults import FAULTS, children, show
from benchmarks.gateway_servers import Server, servers
from llamaherd.measure.statistics import half_width
from roles.gateway.config import GatewayKeys
from tests.support.gateway import Running, free_port, key_hashes, made, rig_at, running, until

MANY, EACH = [f"user-{number}" for number in range(9)], 111
PIECES, PAUSE = 5, 0.01
RAMP = 20
"""Seconds in which all clients begin at once, which are not counted where it is about waiting."""
SIZES = {"10 KB": 10_000, "1 MB": 1_000_000}
LOT = 100
"""Requests of each kind in a lot, whose medians are compared."""


@contextmanager
def gateway_of(
    folder: Path, behind: Sequence[Server], users: dict[str, int]
) -> Iterator[tuple[Running, dict[str, str]]]:
    """A gateway with these users, each with so many streams; and their keys."""
    keys = {name: f"sk-herd-{secrets.token_hex(24)}" for name in users}
    names = [f"server-{number}" for number in range(len(behind))]
    declared = ", ".join(f"{name}: {{key: {{env: A}}, streams: {streams}}}" for name, streams in users.items())
    text = f"""
    gateway:
      on: [box]
      port: {free_port()}
      queue: {{length: 1200, wait: 1h}}
      users: {{{declared}}}
      models: {{coder: {{serve: [{", ".join(f"box.{name}" for name in names)}]}}}}
    """
    plan = made(text, [rig_at({name: server.port for name, server in zip(names, behind, strict=True)})])
    with running(plan, folder, GatewayKeys(key_hashes(keys), {"coder": "sk-of-servers"})) as gateway:
        body, key = b'{"n":0,"pieces":0,"pause":0,"model":"coder"}', next(iter(keys.values()))
        until(lambda: gateway.ask(key=key, body=body).status == 200)
        yield gateway, keys


def many(folder: Path, minutes: float, letters: int, large: float) -> None:
    """A thousand clients; prints what became of all requests, how long the single one waited, and HAProxy's memory."""
    with (
        servers(folder, 2) as behind,
        gateway_of(folder, behind, {**dict.fromkeys(MANY, EACH), "one": 1}) as (it, keys),
    ):
        end = time.monotonic() + minutes * 60
        came = asyncio.run(_asked(it.plan.port, keys, end, letters, large))
        memory = sum(_most_memory(pid) for pid in [it.process.pid, *children(it.process.pid)])
    began = [(number, moment) for server in behind for number, times in server.began.items() for moment in times]
    twice = sum(times > 1 for number, times in Counter(number for number, _ in began).items() if number)
    else_ = dict(Counter(each.status for each in came if not each.whole))
    print(f"many: {len(came)} requests of {len(MANY) * EACH + 1} clients in {minutes:g} min, {letters} letters each")
    print(f"  whole {sum(each.whole for each in came)}, else {else_}, begun twice {twice}")
    print(f"  at once on a server {max(server.most for server in behind)} at most")
    settled = [each for each in came if each.sent > came[0].sent + RAMP]
    own = [each for each in settled if each.asked.key == keys["one"]]
    others = [each for each in settled if each.asked.key != keys["one"]]
    for name, some in (("the single client", own), ("the many", others)):
        print(f"  {name} waited, ms at p50 / p99 / most: {_row([each.waited for each in some])}")
    ahead = _ahead(own, dict(began))
    print(
        f"  begun before the single client's request: {statistics.mean(ahead):.2f} at the mean, {dict(Counter(ahead))}"
    )
    print(f"  HAProxy took {memory / 1e6:.0f} MB at most; {100 * large:g} % of requests had 1 MB")


def _ahead(own: Sequence[Came], began: dict[int, float]) -> list[int]:
    """How many answers servers began between the moments when each request was sent and when it was begun."""
    moments = sorted(began.values())
    return [bisect_left(moments, began[each.asked.number]) - bisect_left(moments, each.sent) for each in own]


async def _asked(port: int, keys: dict[str, str], end: float, letters: int, large: float) -> list[Came]:
    came = []

    async def client(key: str) -> None:
        while time.monotonic() < end:
            size = 1_000_000 if random.random() < large else letters
            came.append(await ask(port, Asked(key, next(NUMBERS), PIECES, PAUSE, size), 600))

    whose = [*(key for name, key in keys.items() if name != "one" for _ in range(EACH)), keys["one"]]
    await asyncio.gather(*(client(key) for key in whose))
    return came


def _most_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def _row(seconds: Sequence[float]) -> str:
    """Median, 99th percentile and most, in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"{1e3 * cuts[49]:.2f} / {1e3 * cuts[98]:.2f} / {1e3 * max(seconds):.2f}"


def latency(folder: Path, requests: int) -> None:
    """So many requests of each size and way; prints median, 99th percentile and most of each, and the differences."""
    found: dict[tuple[str, str], list[float]] = {}
    with servers(folder, 1) as behind, gateway_of(folder, behind, {"tom": 4}) as (it, keys):
        lines = {"straight": Line(behind[0].port), "gateway": Line(it.plan.port)}
        ways = [(size, way) for size in SIZES for way in lines]
        for number in range(requests + 20):
            for size, way in random.sample(ways, len(ways)):
                data = Asked(keys["tom"], next(NUMBERS), 0, 0, SIZES[size]).data
                status, took = lines[way].timed(data)
                assert status == 200
                if number >= 20:
                    found.setdefault((size, way), []).append(took)
    print(f"latency: {requests} of each, ms at p50 / p99 / most")
    for size in SIZES:
        straight, through = found[size, "straight"], found[size, "gateway"]
        cuts = [statistics.quantiles(each, n=100, method="inclusive") for each in (straight, through)]
        longer = ", ".join(f"{1e3 * (cuts[1][at] - cuts[0][at]):.2f}" for at in (49, 98))
        print(f"  {size}: straight {_row(straight)}, gateway {_row(through)}; longer by {longer} at p50, p99")


def keys_timed(folder: Path, tries: int) -> None:
    """So many of each kind of wrong key; prints how much longer each takes than one that only looks like a key."""
    medians: dict[str, list[float]] = {}
    with servers(folder, 1) as behind, gateway_of(folder, behind, {"tom": 4}) as (it, keys):
        line = Line(it.plan.port)
        for _ in range(max(2, tries // LOT)):
            lot = [(kind, data) for kind in KINDS for data in (_wrong(kind, keys["tom"]) for _ in range(LOT))]
            took: dict[str, list[float]] = {}
            for kind, data in random.sample(lot, len(lot)):
                status, seconds = line.timed(data)
                assert status == 401
                took.setdefault(kind, []).append(seconds)
            for kind, each in took.items():
                medians.setdefault(kind, []).append(statistics.median(each))
    print(
        f"keys: {tries} of each kind, in lots of {LOT}; the median takes {1e6 * statistics.mean(medians[ALIKE]):.1f} µs"
    )
    for kind in KINDS:
        if kind != ALIKE:
            off = [1e9 * (a - b) for a, b in zip(medians[kind], medians[ALIKE], strict=True)]
            half = half_width(statistics.stdev(off), len(off), len(off) - 1)
            mean = statistics.mean(off)
            seen = "a difference" if abs(mean) > half else "no difference"
            print(f"  {kind}: longer by {mean:.0f} ns ({mean - half:.0f} to {mean + half:.0f}, 95 %): {seen}")


ALIKE = "looks like a key"
KINDS = ("begins as a user's", ALIKE, "of another kind", "longer by 4 KB")


def _wrong(kind: str, right: str) -> bytes:
    """A request with a wrong key, none twice."""
    key = {
        KINDS[0]: right[:-8] + secrets.token_hex(4),
        ALIKE: f"sk-herd-{secrets.token_hex(24)}",
        KINDS[2]: secrets.token_urlsafe(len(right))[: len(right)],
        KINDS[3]: f"sk-herd-{secrets.token_hex(24 + 2048)}",
    }[kind]
    return f"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


def main() -> None:
    """Measure all, or the parts that are named."""
    parser = argparse.ArgumentParser(description="Measure a gateway.")
    parser.add_argument("parts", nargs="*", choices=[[], "many", "latency", "keys", "faults"], metavar="PART")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--letters", type=int, default=10_000)
    parser.add_argument("--large", type=float, default=0)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--tries", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--patience", type=float, default=20)
    wished = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    parts: dict[str, Callable[[Path], None]] = {
        "latency": lambda folder: latency(folder, wished.requests),
        "keys": lambda folder: keys_timed(folder, wished.tries),
        "faults": lambda folder: show(FAULTS, folder, wished.seconds, wished.patience),
        "many": lambda folder: many(folder, wished.minutes, wished.letters, wished.large),
    }
    for name, part in parts.items():
        if name in (wished.parts or parts):
            with tempfile.TemporaryDirectory() as folder:
                part(Path(folder))


if __name__ == "__main__":
    main()
