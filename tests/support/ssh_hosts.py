"""Hosts to run `herd` against, whole: an `ssh` of the tests' own is the way to them, and all else is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from llamaherd.host.protocol import BEGIN
from llamaherd.onhost.document import dump
from tests.support.host_lines import inspected
from tests.support.ours import plans
from tests.support.rigs import converged

HERD = str(Path(sys.executable).parent / "herd")
PROGRAM = "/opt/llamaherd/libexec/started"
RIGS = {"attic": 2301, "duo": 2302, "six": 2303}
SSH = f"""#!{sys.executable}
import os, pathlib, sys, time

there = pathlib.Path(__file__).parent / sys.argv[sys.argv.index("-p") + 1]
if (there / "asleep").exists():
    print("ssh: connect to host duo port 22: Connection timed out", file=sys.stderr)
    sys.exit(255)
if (there / "gone").exists():
    print("ssh: connect to host duo port 22: Connection refused", file=sys.stderr)
    sys.exit(255)
sys.stdin.readline()
print("llamaherd: a shell is there", flush=True)
script = ""
for line in sys.stdin:
    script += line
    if '"verb":"llamaherd.reservation.hold_run"' in line:
        print('{{"event":"value","value":"held"}}', flush=True)  # and then until the controller has ended
    elif line == "}}\\n" and "echo 'llamaherd: go'" in script:
        print("llamaherd: go", flush=True)  # the document follows
if '"verb":"llamaherd.gateway.wake"' in script:
    with open(there.parent / "log", "a") as log:
        print(there.name, "woke", file=log)
    if not (there / "broken").exists():
        for each in there.parent.glob("*/asleep"):
            each.unlink()
    print('{{"event":"result","value":{{"networks":1}}}}')
    sys.exit(0)
if '"verb":"llamaherd.gateway.status"' in script:
    print((there / "gateway").read_text())
    sys.exit(0)
if '"verb":"llamaherd.server_control.pauses"' in script:
    print('{{"event":"result","value":{{"left":{{}}}}}}')
    sys.exit(0)
if script and "llamaherd.reservation.hold_run" not in script:
    inspects = '"verb":"inspect"' in script
    asks = inspects or '"verb":"llamaherd.releases.read"' in script or {BEGIN!r} in script
    with open(there.parent / "log", "a") as log:
        print(there.name, "looked" if asks else "changed", file=log)
    if asks:
        world = (there / ("after" if (there / "done").exists() else "before")).read_text()
        if (there / "half").exists():
            print(world[: len(world) // 2], flush=True)
            while True:
                time.sleep(1)
                print(end="x" if (there / "drips").exists() else "", flush=True)
        print(world if inspects else '{{"event":"result","value":{{"releases":[],"texts":{{}}}}}}')
    elif (there / "broken").exists():
        if "echo 'llamaherd: go'" in script:
            print('{{"event": "error", "message": "it broke", "help": "", "log": []}}')
            sys.exit(1)
        sys.exit("it broke")
    elif not (there / "stuck").exists():
        (there / "done").touch()
"""


@dataclass(frozen=True)
class Hosts:
    """Three hosts that lack a program of ours, and what becomes of them."""

    folder: Path

    def planned(self, name: str) -> list[str]:
        """Return the state of a host that is as planned, in the notation of tests."""
        return (self.folder / str(RIGS[name]) / "planned").read_text().splitlines()

    def mark(self, name: str, what: str) -> None:
        """Have a host be `done` already, `broken`, `gone`, `asleep`, or `stuck` though what is run there ends well.

        One that is `half` prints half of a response and no more, or one that `drips`, too, nothing but letters.
        """
        (self.folder / str(RIGS[name]) / what).touch()

    def lacks(self, name: str, *paths: str) -> None:
        """Have a host lack these files of ours until it is changed."""
        self.become(name, "before", [line for line in self.planned(name) if not any(path in line for path in paths)])

    def become(self, name: str, when: str, lines: Iterable[str]) -> None:
        """Have a host be in this state `before` it is changed, or `after`."""
        result = dump({"event": "result", "value": inspected(lines)})
        (self.folder / str(RIGS[name]) / when).write_text(result)

    def rig(self, name: str) -> Path:
        """A rig's file."""
        return self.folder / "fleet" / f"{name}.yaml"

    def herd(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        return subprocess.run(
            [HERD, "-i", str(self.folder / "fleet"), *words],
            cwd=self.folder,
            env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def log(self) -> list[tuple[str, str]]:
        """Which host was looked at or changed, in that order."""
        names = {str(port): name for name, port in RIGS.items()}
        log = self.folder / "log"
        words = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [(names[port], what) for port, what in words]

    @property
    def turns(self) -> list[str]:
        """The hosts in the order in which they were changed."""
        return [name for name, _ in groupby(name for name, what in self.log if what == "changed")]


def three_hosts(folder: Path) -> Hosts:
    """Those hosts, with their fleet, in an empty folder."""
    (folder / "fleet").mkdir()
    hosts = Hosts(folder)
    for name, port in RIGS.items():
        rig = {"rig": name, "connect": {"host": "127.0.0.1", "port": port}, "engines": {}, "models": {}}
        rig |= {"host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "4GB"}, "instances": {}}
        hosts.rig(name).write_text(json.dumps(rig))
    for name, (_, plan) in plans(folder / "fleet").items():
        (folder / str(RIGS[name])).mkdir()
        (folder / str(RIGS[name]) / "planned").write_text("\n".join(converged(plan, {})))
        hosts.become(name, "after", hosts.planned(name))
        hosts.lacks(name, PROGRAM)
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    return hosts
