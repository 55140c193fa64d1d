"""What a run with nothing to do costs: `herd up`, and plain pyinfra that keeps the same files and services.

    .venv/bin/python -m benchmarks.converge [--hosts 1,5,20] [--rounds 5]

Both run against the same hosts (`boxes.py`), by turns. Printed are the medians of seconds, of processor seconds (of
the process itself, and of the ssh clients that it starts), and of SSH execs, as the first host's sshd counts them;
their ratios; and what each further host costs. Processor seconds hold on a machine that does something else, too; the
others want a quiet one. Plain pyinfra does less: it knows nothing of builds, models, containers and restarts.

With LLAMAHERD_KEEP=1 the hosts are neither removed afterwards nor made anew before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.boxes import HERD, as_planned, declare, plans
from box.cli import ROOT
from box.host import BoxHost

PLAIN = """
from io import StringIO
from pyinfra import host
from pyinfra.operations import apt, files, server, systemd

plan = host.data.plan
apt.packages(name="packages", packages=plan["packages"], _sudo=True)
for user in host.loop(["llama", "llama-build"]):
    server.user(name=user, user=user, system=True, home="/nonexistent", create_home=False,
                shell="/usr/sbin/nologin", _sudo=True)
for file in host.loop([*plan["files"], *(instance["file"] for instance in plan["instances"])]):
    files.put(name=file["path"], src=StringIO(file["text"]), dest=file["path"], mode=file["mode"], _sudo=True)
for service in host.loop([i["server"]["service"] for i in plan["instances"] if i["backend"] == "systemd"]):
    systemd.service(name=service, service=service, running=True, enabled=True, _sudo=True)
"""
PLAIN_HOSTS = """
import json
from pathlib import Path

rigs = [tuple(host) for host in json.loads(Path({file!r}).read_text())]
"""
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""As people have it: without bytecode, half of a run is compiling what has been edited."""
OURS, THEIRS = "herd up", "plain pyinfra"


class Cost(NamedTuple):
    """What one run took: seconds, processor seconds of the process itself and of its children, SSH execs."""

    seconds: float
    own: float
    children: float
    execs: float

    @property
    def processor(self) -> float:
        """All processor seconds of it here."""
        return self.own + self.children


def main() -> None:
    """Run both by turns, for each number of hosts, and print the comparison."""
    parser = argparse.ArgumentParser(description="What a run with nothing to do costs.")
    parser.add_argument("--hosts", default="1,5,20", help="how many, with commas between (1,5,20)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is run (5)")
    arguments = parser.parse_args()
    counts = sorted({int(count) for count in arguments.hosts.split(",")})
    with tempfile.TemporaryDirectory() as folder, as_planned(counts[-1], Path(folder)) as hosts:
        medians: dict[str, dict[int, Cost]] = {OURS: {}, THEIRS: {}}
        for count in counts:
            for name, cost in compared(Path(folder), hosts[:count], arguments.rounds).items():
                medians[name][count] = cost
    show(medians)
    if len(counts) > 1:
        for name, costs in medians.items():
            show_slope(name, costs)
    print(f"herd --help: {statistics.median(_cost([HERD, '--help']).seconds for _ in range(9)) * 1000:.0f} ms")


def compared(folder: Path, hosts: Sequence[BoxHost], rounds: int) -> dict[str, Cost]:
    """The medians of both, against these hosts."""
    inventory = declare(folder, hosts)
    ours: list[str | Path] = [HERD, "-i", inventory, "up"]
    pyinfra: list[str | Path] = [HERD.with_name("pyinfra"), *_plain(folder, inventory, hosts), "-y"]
    measured: dict[str, list[Cost]] = {OURS: [], THEIRS: []}
    for number in range(rounds + 1):
        for name, command in ((OURS, ours), (THEIRS, pyinfra)):
            cost = _cost(command, hosts[0])
            if number:  # the first warms up
                measured[name].append(cost)
    return {name: Cost(*map(statistics.median, zip(*costs, strict=True))) for name, costs in measured.items()}


def _plain(folder: Path, inventory: Path, hosts: Sequence[BoxHost]) -> tuple[Path, Path]:
    """The two files of plain pyinfra, which is given the plans as they are and the connector that it brings."""
    planned = plans(inventory)
    data: list[tuple[str, dict[str, Any]]] = []
    for host in hosts:
        connect = {"ssh_hostname": "127.0.0.1", "ssh_port": host.port, "ssh_user": "owner", "ssh_key": str(host.key)}
        connect |= {"ssh_known_hosts_file": str(host.known_hosts), "ssh_strict_host_key_checking": "yes"}
        data.append((host.name, {**connect, "plan": planned[host.name]}))
    file = folder / f"plain-{len(hosts)}.json"
    file.write_text(json.dumps(data))
    hosts_file, deploy = file.with_name(f"hosts-{len(hosts)}.py"), folder / "plain.py"
    hosts_file.write_text(PLAIN_HOSTS.format(file=str(file)))
    deploy.write_text(PLAIN)
    return hosts_file, deploy


def _cost(command: Sequence[str | Path], counted: BoxHost | None = None) -> Cost:
    """What a run of this command takes; `counted` is the host whose execs are."""
    before = _execs(counted)
    with tempfile.TemporaryFile("w+") as said:
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=_ENVIRONMENT | {"NO_COLOR": "1", "PYINFRA_PROGRESS": "off"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        seconds = time.monotonic() - began
        # Of what has ended and is not reaped yet: its own share and its children's, which `wait4` adds up.
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[13:15]
        children = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode:
            sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{said.read()[-3000:]}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime - children, children, _execs(counted) - before)


def _execs(host: BoxHost | None) -> int:
    if not host:
        return 0
    return host.exec("journalctl", "-q", "-t", "sshd-session", "-o", "cat").count("Starting session")


def show(medians: dict[str, dict[int, Cost]]) -> None:
    """Print the table, as Markdown."""
    print("| hosts | command | s | processor s, own | of its ssh clients | SSH execs of one host |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for count, ours in medians[OURS].items():
        theirs = medians[THEIRS][count]
        for name, cost in ((OURS, ours), (THEIRS, theirs)):
            figures = f"{cost.seconds:.2f} | {cost.own:.2f} | {cost.children:.2f} | {cost.execs:.0f}"
            print(f"| {count} | {name} | {figures} |")
        ratios = f"{ours.seconds / theirs.seconds:.2f} | {ours.processor / theirs.processor:.2f} (all) | | "
        print(f"| {count} | ratio | {ratios}{ours.execs / theirs.execs:.2f} |")


def show_slope(name: str, costs: dict[int, Cost]) -> None:
    """Print what each host further than the first costs this machine."""
    least, most = min(costs), max(costs)
    own, children = (
        (getattr(costs[most], part) - getattr(costs[least], part)) / (most - least) * 1000
        for part in ("own", "children")
    )
    print(
        f"{name}: {own + children:.1f} ms of processor for each further host, {children:.1f} of it for its ssh client"
    )


if __name__ == "__main__":
    main()
