"""A host in memory to verify servers on: it records what programs get on stdin, and has servers that respond."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llamaherd.onhost.system import Ended
from roles.serve.onhost.model import ProbeResult
from tests.support.inspected_host import InspectedHost
from tests.support.played_host import File

UNIT = "Id=llama-chat.service\nActiveState=active\nUnitFileState=enabled\nResult=success\nMainPID=7\n"
KEY = "s3cr3t 'key'"
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class VerifiedHost(InspectedHost):
    """See the module. `bodies` are what curl prints, by a part of the URL; `stdin` is what programs got."""

    def __init__(self, answers: Mapping[str, Ended] | None = None, texts: Mapping[str, str] | None = None) -> None:
        super().__init__(answers, texts)
        self.bodies: dict[str, Ended] = {}
        self.stdin: list[str] = []
        self.probed: list[tuple[Mapping[str, object], str | None]] = []

    def probe(self, question: Mapping[str, object], key: str | None) -> tuple[ProbeResult, ...]:
        """Record a probe of a server, with the server's key, and return a result."""
        self.probed.append((question, key))
        return (ProbeResult("prompt", "passed", "text"),)

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Record a program with its stdin, and end it."""
        self.stdin.append(text)
        ended = super().run(argv, seconds=seconds, environment=environment)
        if argv[0] != "curl":
            return ended
        return next((how for part, how in self.bodies.items() if part in argv[-1]), Ended(0, "{}\n200\n"))

    def urls(self) -> list[str]:
        """Return what curl requested, in its order."""
        return [words[-1] for words in self.ran if words[0] == "curl"]

    def listens(self, *sockets: str, table: str = "tcp") -> None:
        """Let sockets listen: each is a hexadecimal address with its port, a blank, and its inode."""
        rows = (f"   0: {each.split()[0]} 00000000:0000 0A 0 0 0 0 0 {each.split()[1]} 1\n" for each in sockets)
        self.files[f"/proc/net/{table}"] = File(HEAD + "".join(rows))

    def opens(self, pid: int, *targets: str) -> None:
        """Let a process hold these open."""
        self.links |= {f"/proc/{pid}/fd/{number}": target for number, target in enumerate(targets)}


def container(**changes: Any) -> str:
    """Return a container as our format of `docker inspect` prints it."""
    host = {
        "RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0},
        "PidsLimit": 100,
        "Memory": 0,
        "MemorySwap": -1,
        "CpusetCpus": "",
        "Privileged": False,
        "ReadonlyRootfs": True,
        "NetworkMode": "host",
        "PidMode": "",
        "IpcMode": "private",
        "CapAdd": None,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true"],
    }
    shown = {
        "Status": "running",
        "Pid": 8,
        "Health": "healthy",
        "Image": "sha256:1f",
        "User": "990:990",
        "Labels": {"llamaherd.spec": "0a1b", "com.docker.compose.project.config_files": "/etc/c.yaml"},
        "Mounts": [
            {"Type": "bind", "Source": "/models/a b", "RW": False},
            {"Type": "volume", "Source": "/x", "RW": True},
        ],
        "HostConfig": host,
    }
    return json.dumps({**shown, **changes}) + "\n"
