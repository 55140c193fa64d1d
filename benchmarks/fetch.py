"""How fast models are fetched, beside curl, `hf download` and aria2c, and what is fetched twice when runs are killed.

    .venv/bin/python benchmarks/fetch.py [speed] [paced] [shards] [killed] [memory]

Everything goes over the loopback device, from a hub in a process of its own. `speed` and `paced` fetch one file of
2 GB, without a limit and over a line of 250 MB/s, and show the best of some rounds; `shards` four of 200 MB from a hub
that answers after 40 ms and gives each connection 100 Mbit/s; `killed` one of 256 MB at 10 MB/s, killed a hundred
times; `memory` one of 4 GB. Files are written to the folder for temporary files (TMPDIR). Without arguments it is all
of them: some minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.support.fetching import REPO, Host
from tests.support.hub_server import Hub

GB, MB = 10**9, 10**6
ROUNDS = 3
HF = Path(sys.executable).parent / "hf"


class Remote:
    """A hub in another process, so that it shares no interpreter with what is measured."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.url: str
        self.commit: str
        self.url, self.commit = pipe.recv()

    def set(self, **faults: object) -> None:
        """Change attributes of the hub."""
        self._pipe.send(faults)
        self._pipe.recv()

    def sent(self) -> int:
        """Bytes of bodies that it has sent."""
        self._pipe.send({})
        count: int = self._pipe.recv()
        return count

    def address(self, path: str) -> str:
        """The URL of a file."""
        return f"{self.url}/{REPO}/resolve/{self.commit}/{path}"


def serve(files: Mapping[str, Path], pipe: Connection) -> None:
    """Be a hub until the other end is closed."""
    with Hub({REPO: files}) as hub, suppress(EOFError):
        pipe.send((hub.url, hub.commit(REPO)))
        while True:
            for name, value in pipe.recv().items():
                setattr(hub, name, value)
            pipe.send(hub.sent)


@contextmanager
def hub_of(files: Mapping[str, Path]) -> Iterator[Remote]:
    """A hub with these files."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(files, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Remote(ours)
    finally:
        ours.close()
        process.join()


def made(path: Path, size: int) -> str:
    """Write a file of random bytes; returns its sha256."""
    digest, chance = hashlib.sha256(), random.Random(path.name)
    with path.open("wb") as stream:
        for start in range(0, size, 16 * MB):
            piece = chance.randbytes(min(16 * MB, size - start))
            digest.update(piece)
            stream.write(piece)
    return digest.hexdigest()


def seconds_of(command: Sequence[str | Path], **variables: str) -> float:
    """How long a command takes; ends this program if it fails."""
    began = time.perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **variables})
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return time.perf_counter() - began


def wanted(hub: Remote, path: str, sha256: str, size: int) -> dict[str, Any]:
    """A file of a job."""
    return {
        "name": path,
        "sha256": sha256,
        "size": size,
        "sources": [{"name": "hub", "url": hub.address(path), "secret": "hub"}],
    }


def fetched(folder: Path, *files: Mapping[str, Any], connections: int = 8) -> float:
    """Seconds of the fetcher for these files, which it must bring whole."""
    host = Host(folder / "ours", connections=connections)
    began = time.perf_counter()
    with host.start(*files) as run:
        said, _ = run.communicate()
    seconds = time.perf_counter() - began
    if run.returncode:
        sys.exit(said)
    shutil.rmtree(host.root)
    return seconds


def rated(what: str, size: int, *rounds: float) -> float:
    """Print the rate of the best round, since others on the machine only ever add; returns it in bytes per second."""
    rate = size / min(rounds)
    print(f"  {what:28} {rate / MB:7.0f} MB/s  {', '.join(f'{each:.2f}' for each in sorted(rounds))} s", flush=True)
    return rate


def one_file(folder: Path, line: int | None) -> None:
    """One large file, beside curl, with and without a hash after it."""
    size, path, got = 2 * GB, folder / "model.gguf", folder / "got"
    sha256 = made(path, size)
    times: dict[str, list[float]] = {"curl": [], "openssl sha256": [], "fetch": []}
    with hub_of({path.name: path}) as hub:
        hub.set(line=line)
        for _ in range(ROUNDS):
            times["curl"].append(seconds_of(["curl", "-sf", "-o", got, hub.address(path.name)]))
            times["openssl sha256"].append(seconds_of(["openssl", "dgst", "-sha256", got]))
            got.unlink()
            times["fetch"].append(fetched(folder, wanted(hub, path.name, sha256, size)))
    rates = {name: rated(name, size, *seconds) for name, seconds in times.items()}
    both = rated("curl, then openssl", size, *map(sum, zip(times["curl"], times["openssl sha256"], strict=True)))
    least = min(rates["curl"], rates["openssl sha256"])
    ratios = ", ".join(f"{rates['fetch'] / each:.2f}" for each in (rates["curl"], both, least))
    print(f"  fetch beside curl, curl and then openssl, the slower of both: {ratios}")


def shards(folder: Path) -> None:
    """Four shards over a long line, beside `hf download` and aria2c."""
    size, sums = 200 * MB, {}
    paths = [folder / f"model-{number:05}-of-00004.gguf" for number in range(1, 5)]
    for path in paths:
        sums[path.name] = made(path, size)
    with hub_of({path.name: path for path in paths}) as hub:
        hub.set(latency=0.04, bytes_per_second=12_500_000)
        got = folder / "got"
        variables = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        rated("hf download", 4 * size, seconds_of([HF, "download", REPO, "--local-dir", got], **variables))
        shutil.rmtree(got)
        if shutil.which("aria2c"):
            command = [
                "aria2c",
                "-q",
                "-j1",
                "-x8",
                "-s8",
                "-d",
                str(got),
                "-Z",
                *(hub.address(path.name) for path in paths),
            ]
            rated("aria2c -j1 -x8 -s8", 4 * size, seconds_of(command))
            shutil.rmtree(got)
        rated("fetch", 4 * size, fetched(folder, *(wanted(hub, name, sha256, size) for name, sha256 in sums.items())))


def killed(folder: Path) -> None:
    """One file, killed a hundred times at moments of chance; what the hub sent, beside what was needed."""
    size, path = 256 * MB, folder / "model.gguf"
    sha256 = made(path, size)
    with hub_of({path.name: path}) as hub:
        host = Host(folder / "ours", connections=8)
        file = wanted(hub, path.name, sha256, size)
        until_whole("fetch", hub, size, lambda: host.start(file))
        whole = host.incoming / sha256
        if seconds_of(["sha256sum", whole]) and hashlib.sha256(whole.read_bytes()).hexdigest() != sha256:
            sys.exit("what came is wrong")
        if shutil.which("aria2c"):
            command = ["aria2c", "-q", "-c", "-x8", "-s8", "-d", str(folder / "got"), hub.address(path.name)]
            until_whole("aria2c -x8 -s8", hub, size, lambda: subprocess.Popen(command, text=True))


def until_whole(what: str, hub: Remote, size: int, start: Callable[[], subprocess.Popen[str]]) -> None:
    """Start and kill a hundred times, then let it end; prints how much was sent for nothing."""
    chance, before, kills = random.Random(5), hub.sent(), 0
    # The line is shared by eight connections, and the file is not whole before the last kill.
    hub.set(bytes_per_second=10 * MB // 8)
    for _ in range(100):
        with start() as run:
            time.sleep(chance.uniform(0.1, 0.3))
            kills += run.poll() is None
            run.kill()
    hub.set(bytes_per_second=None)
    with start() as run:
        run.communicate()
    if run.returncode:
        sys.exit(f"{what} ended with {run.returncode}")
    wasted = hub.sent() - before - size
    print(f"  {what:28} killed {kills} times; {wasted / MB:.2f} MB sent for nothing: {100 * wasted / size:.2f} %")


def memory(folder: Path) -> None:
    """What the process has in memory at most, for a large file and many connections."""
    size, path = 4 * GB, folder / "hollow"
    with path.open("wb") as stream:
        stream.truncate(size)
    sha256 = subprocess.run(["sha256sum", path], check=True, capture_output=True, text=True).stdout.split()[0]
    with hub_of({path.name: path}) as hub:
        host, most = Host(folder / "ours", connections=16), 0
        run = host.start(wanted(hub, path.name, sha256, size))
        while run.poll() is None:
            with suppress(OSError):
                status = Path(f"/proc/{run.pid}/status").read_text(encoding="ascii")
                most = max([most, *map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))])
            time.sleep(0.1)
    print(f"  {most / 1024:.0f} MiB at most, for {size / GB:.0f} GB by 16 connections; it ended with {run.returncode}")


PARTS: Mapping[str, Callable[[Path], None]] = {
    "speed": lambda folder: one_file(folder, None),
    "paced": lambda folder: one_file(folder, 250 * MB),
    "shards": shards,
    "killed": killed,
    "memory": memory,
}


def main() -> None:
    """Measure what is asked for, and print the figures."""
    parser = argparse.ArgumentParser(description="Measure how models are fetched.")
    parser.add_argument("part", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; without one, all of them")
    parts = parser.parse_args().part or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    for part in parts:
        print(part, flush=True)
        with tempfile.TemporaryDirectory() as name:
            PARTS[part](Path(name))


if __name__ == "__main__":
    main()
