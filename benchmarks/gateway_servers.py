"""Servers that answer by a script, each a process of its own: what a gateway is measured before.

A request says how it is to be answered: `pieces`, so many, each after `pause` seconds; none is one short answer at
once. Which request was begun and ended when stands in a file, a line each, which outlives a server that is killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tests.support.gateway import free_port

_MOST_HEAD = 1 << 16
_ATTACH_FILTER, _BPF_RETURN = 26, 0x06
"""Linux's SO_ATTACH_FILTER, which `socket` does not name, and BPF's instruction that takes so much of a packet."""


@dataclass(frozen=True)
class Server:
    """A server that runs: where, as which process, and the file of what it does."""

    port: int
    process: subprocess.Popen[bytes]
    file: Path

    @property
    def began(self) -> dict[int, list[float]]:
        """When it began to answer each request, by that request's number; twice is a fault."""
        return self._times("began")

    @property
    def most(self) -> int:
        """How many it has answered at once."""
        at_once = most = 0
        for line in self.file.read_text().splitlines():
            at_once += 1 if line.startswith("began") else -1
            most = max(most, at_once)
        return most

    def _times(self, what: str) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {}
        for line in self.file.read_text().splitlines():
            kind, number, moment = line.split()
            if kind == what:
                found.setdefault(int(number), []).append(float(moment))
        return found

    def signal(self, number: int) -> None:
        """Have it end, stand still, go on, hang, or be off: SIGUSR1 has it answer nothing but its health, and SIGUSR2
        has Linux drop all that comes to it, as if its rig were switched off, from when this returns."""
        self.process.send_signal(number)
        if number == signal.SIGUSR2:
            assert self.process.stdout
            assert self.process.stdout.readline() == b"off\n"


@contextmanager
def servers(folder: Path, number: int) -> Iterator[list[Server]]:
    """So many servers, until they are ended."""
    made = []
    try:
        for each in range(number):
            port, file = free_port(), folder / f"server-{each}"
            file.touch()
            command = [sys.executable, "-m", __name__, str(port), str(file)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            made.append(Server(port, process, file))
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
        yield made
    finally:
        for server in made:
            server.process.kill()
            server.process.wait()


class _Answering:
    """What one server does with each connection."""

    def __init__(self, port: int, log: TextIO) -> None:
        self.port, self.log, self.hangs = port, log, False
        self.lines: set[socket.socket] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what comes on a connection, until it is closed."""
        line = writer.get_extra_info("socket")
        self.lines.add(line)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                if head.startswith(b"GET /health"):
                    _say(writer, b"{}")
                else:
                    await self._answer(json.loads(body), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self.lines.discard(line)

    async def _answer(self, asked: dict[str, float], writer: asyncio.StreamWriter) -> None:
        number = int(asked["n"])
        self._note("began", number)
        try:
            if self.hangs:
                await asyncio.sleep(3600)
            if not asked["pieces"]:
                return _say(writer, json.dumps({"n": number}).encode())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for piece in range(int(asked["pieces"])):
                await asyncio.sleep(asked["pause"])
                text = f"data: {number}.{piece}\n\n".encode()
                writer.write(b"%x\r\n%b\r\n" % (len(text), text))
                await writer.drain()
        finally:
            # Before the last word: with that, the gateway sends the next request.
            self._note("ended", number)
        return writer.write(b"0\r\n\r\n")

    def _note(self, what: str, number: int) -> None:
        self.log.write(f"{what} {number} {time.monotonic()}\n")
        self.log.flush()

    def hang(self) -> None:
        """Answer no request any more, but say that all is well."""
        self.hangs = True


def _be_off(lines: Iterable[socket.socket]) -> None:
    """Have Linux drop all that comes to these sockets, and stand still."""
    nothing = ctypes.create_string_buffer(struct.pack("HBBI", _BPF_RETURN, 0, 0, 0))
    for line in lines:
        line.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(nothing)))
    print("off", flush=True)
    time.sleep(3600)


def _length(head: bytes) -> int:
    named = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(named[0].partition(b":")[2]) if named else 0


def _say(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


async def _main(port: int, file: Path) -> None:
    with file.open("a") as log:
        answering = _Answering(port, log)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, answering.hang)
        server = await asyncio.start_server(answering.serve, "127.0.0.1", port, limit=_MOST_HEAD, backlog=1024)
        loop.add_signal_handler(signal.SIGUSR2, lambda: _be_off([*server.sockets, *answering.lines]))
        print("ready", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), Path(sys.argv[2])))
