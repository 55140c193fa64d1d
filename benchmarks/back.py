"""How long `herd rollback` takes, and `herd up` with one changed server, beside the load of its model.

    .venv/bin/python -m benchmarks.back [--beside] [--times 3]

The box that scripts/box makes must be there; with --beside it is given nftables, as by `switches.py`. Printed are, for
each run, its seconds from the first to the last, those that the server took from its stop until it was healthy, what is
left, for how long nobody was answered, and the logins on the host.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.switches import HERD, NFT, PORTS, chat, declare, drafter, up
from benchmarks.switches_clients import answered, asking
from box.cli import host
from box.host import BoxHost

CONTEXTS = {"chat": (chat, 4096, 2048), "drafter": (drafter, 2048, 1024)}
COUNTED = """
logger -t counted {0}
until journalctl -q -t counted -o cat | grep -qx {0}; do sleep 0.05; done
journalctl --since=@{1} -t sshd-session -t sshd | grep -c 'Starting session'
"""


@dataclass(frozen=True)
class Took:
    """Of one run: seconds of all of it, of the load, and without an answer; and logins."""

    seconds: float
    load: float
    away: float
    logins: int

    @property
    def beyond(self) -> float:
        """Seconds beside the load."""
        return self.seconds - self.load

    def __str__(self) -> str:
        """For a table."""
        return f"{self.seconds:8.1f} {self.load:8.1f} {self.beyond:8.1f} {self.away:8.1f} {self.logins:8}"


def main() -> None:
    """Change each server as often as wished, and go back from each change."""
    parser = argparse.ArgumentParser(description="Time ways back, and changes of one server.")
    parser.add_argument("--beside", action="store_true", help="give the box nftables")
    parser.add_argument("--times", type=int, default=3)
    wished = parser.parse_args()
    box = host()
    box.exec("sh", "-c", NFT[wished.beside])
    print(f"{'run':20} {'all, s':>8} {'load, s':>8} {'beyond':>8} {'away, s':>8} {'logins':>8}")
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "box.yaml"
        declare(inventory)
        assert up(inventory)[0] == 0, "the box is not as declared, and cannot be made so"
        for server in CONTEXTS:
            there, back = zip(*(once(box, inventory, server, n) for n in range(wished.times)), strict=True)
            for what, found in ((f"herd up, {server}", there), (f"rollback, {server}", back)):
                print(f"{what:20} beyond the load, median: {statistics.median(each.beyond for each in found):.1f} s")
        declare(inventory)
        assert up(inventory)[0] == 0, "the box does not become as declared"


def once(box: BoxHost, inventory: Path, server: str, number: int) -> tuple[Took, Took]:
    """A change of a server, and the way back from it."""
    keys, one, other = CONTEXTS[server]
    declare(inventory, keys(context=one if number % 2 else other))
    there = took(box, server, inventory, "up", "--yes")
    print(f"{f'herd up, {server}':20} {there}", flush=True)
    back = took(box, server, inventory, "rollback", "box", "--yes")
    print(f"{f'rollback, {server}':20} {back}", flush=True)
    return there, back


def took(box: BoxHost, server: str, inventory: Path, *words: str) -> Took:
    """One run, which must end well."""
    since = box.exec("date", "+%s.%N").strip()
    with asking(box, PORTS[server]):
        time.sleep(1)
        began = time.monotonic()
        ended = subprocess.run(
            [HERD, "-i", inventory, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        time.sleep(1)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    times = answered(box)
    away = max(after - before for before, after in pairwise(times)) - 0.1
    load = int(box.exec("cut", "-f1", f"/var/lib/llamaherd/kept/llama-{server}/last/loaded")) / 1000
    return Took(seconds, load, away, logins(box, since))


def logins(box: BoxHost, since: str) -> int:
    """How many there were since then, by the journal, once that has all that was said until now."""
    return int(box.exec("sh", "-c", COUNTED.format(time.monotonic_ns(), since)))


if __name__ == "__main__":
    main()
