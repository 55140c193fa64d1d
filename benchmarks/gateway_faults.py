"""Faults under load: what becomes of requests when a server is killed, stands still or hangs, when its rig is switched
off, and when the gateway is reloaded or killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway_clients import NUMBERS, Asked, Came, ask
from benchmarks.gateway_servers import Server, servers
from tests.support.gateway import HAPROXY, KEYS, Running, free_port, made, rig_at, running, unit_env, until

PIECES, PAUSE = 10, 0.1
CLIENTS = 8
RESTARTS_AFTER = 2.0
"""Seconds, as `RestartSec` of the unit has it."""
PAIR, ALONE = "serve: [box.one, box.two], fallback: small", "serve: [box.one], fallback: small"


@dataclass(frozen=True)
class Fault:
    """What is done to the gateway or to its first server, and which servers the model has."""

    do: Callable[[Running, Server], None]
    serve: str = PAIR


def _sent(number: int) -> Callable[[Running, Server], None]:
    return lambda _, server: server.signal(number)


def _reload(gateway: Running, _: Server) -> None:
    gateway.reload()


def _kill(gateway: Running, _: Server) -> None:
    """All of it at once; it comes back as systemd has it come back."""
    for pid in [gateway.process.pid, *children(gateway.process.pid)]:
        os.kill(pid, signal.SIGKILL)
    gateway.process.wait()
    time.sleep(RESTARTS_AFTER)
    assert HAPROXY
    command = [HAPROXY, "-W", "-C", str(gateway.folder), "-f", str(gateway.folder / "haproxy.cfg")]
    with (gateway.folder / "log").open("ab") as log:
        env = unit_env(gateway.plan)
        gateway.process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)


FAULTS = {
    "a server of two is killed": Fault(_sent(signal.SIGKILL)),
    "a server of two stands still": Fault(_sent(signal.SIGSTOP)),
    "the rig of a server of two is switched off": Fault(_sent(signal.SIGUSR2)),
    "a server of two hangs, and says that it is well": Fault(_sent(signal.SIGUSR1)),
    "the only server is killed": Fault(_sent(signal.SIGKILL), ALONE),
    "the only server stands still": Fault(_sent(signal.SIGSTOP), ALONE),
    "the rig of the only server is switched off": Fault(_sent(signal.SIGUSR2), ALONE),
    "the gateway is reloaded": Fault(_reload),
    "the gateway is killed": Fault(_kill),
}


@dataclass(frozen=True)
class Outcome:
    """What came of a fault, as so many whole answers of so many requests.

    `hit` were streams on the first server, `elsewhere` those on others, `waiting` had not begun, and `later` were sent
    afterwards. `slowest` is the longest that one of these two waited for its first word, and `settled` the last moment
    when one was lost, both in seconds. `most` is what a server answered at once.
    """

    hit: str
    elsewhere: str
    waiting: str
    later: str
    slowest: float
    settled: float
    most: int


def children(pid: int) -> list[int]:
    """The processes that one has begun."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def tried(folder: Path, fault: Fault, seconds: float, patience: float) -> Outcome:
    """Have eight clients ask all the time, and do it after three seconds."""
    text = f"""
    gateway:
      on: [box]
      port: {free_port()}
      queue: {{length: 50}}
      users: {{tom: {{key: {{env: A}}, streams: 50}}}}
      models:
        coder: {{{fault.serve}}}
        small: {{serve: [box.three]}}
    """
    with servers(folder, 3) as behind:
        ports = {name: server.port for name, server in zip(("one", "two", "three"), behind, strict=True)}
        with running(made(text, [rig_at(ports)]), folder) as gateway:
            until(lambda: gateway.ask(model="coder", body=_short()).status == 200)
            came, moment = asyncio.run(_load(gateway, behind[0], fault, seconds, patience))
        starts = {number: times[0] for server in behind for number, times in server.began.items()}
        return outcome(came, starts, moment, max(server.most for server in behind))


def _short() -> bytes:
    return b'{"n":0,"pieces":0,"pause":0,"model":"coder"}'


async def _load(
    gateway: Running, server: Server, fault: Fault, seconds: float, patience: float
) -> tuple[list[Came], float]:
    came: list[Came] = []
    end = time.monotonic() + seconds

    async def client() -> None:
        while time.monotonic() < end:
            asked = Asked(KEYS["tom"], next(NUMBERS), PIECES, PAUSE, 1000)
            came.append(await ask(gateway.plan.port, asked, patience))
            if not came[-1].whole:
                await asyncio.sleep(0.2)

    clients = [asyncio.create_task(client()) for _ in range(CLIENTS)]
    await asyncio.sleep(3)
    moment = time.monotonic()
    await asyncio.to_thread(fault.do, gateway, server)
    await asyncio.gather(*clients)
    return came, moment


def outcome(came: Iterable[Came], starts: dict[int, float], moment: float, most: int) -> Outcome:
    """What it comes to. `starts` says when servers began what; what had not begun at `moment` waited or came later."""
    every = list(came)
    after = [each for each in every if each.ended > moment]
    begun = [each for each in after if starts.get(each.asked.number, moment) < moment]
    waiting = [each for each in after if each not in begun and each.sent < moment]
    later = [each for each in after if each.sent >= moment]
    lost = [each for each in after if not each.whole]
    return Outcome(
        hit=_ended(each for each in begun if each.by in ("box.one", "")),
        elsewhere=_ended(each for each in begun if each.by not in ("box.one", "")),
        waiting=_ended(waiting),
        later=_ended(later),
        slowest=max((each.waited for each in [*waiting, *later] if each.whole), default=0.0),
        settled=max((each.ended for each in lost), default=moment) - moment,
        most=most,
    )


def _ended(some: Iterable[Came]) -> str:
    every = list(some)
    return f"{sum(each.whole for each in every)}/{len(every)}"


def show(names: Iterable[str], folder: Path, seconds: float, patience: float) -> None:
    """Try faults, and print a line of each."""
    print(f"{'fault':47} {'hit':>7} {'others':>7} {'waiting':>8} {'later':>9} slowest, s  lost until, s  most")
    for number, name in enumerate(names):
        own = folder / f"fault-{number}"
        own.mkdir()
        ended = tried(own, FAULTS[name], seconds, patience)
        counts = f"{ended.hit:>7} {ended.elsewhere:>7} {ended.waiting:>8} {ended.later:>9}"
        print(f"{name:47} {counts} {ended.slowest:10.1f} {ended.settled:14.1f} {ended.most:>5}", flush=True)
