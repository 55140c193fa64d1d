"""Proofs in process: of a scripted server, and on hosts whose programs are played."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from llamaherd.onhost.system import COMMAND_SECONDS, Ended, Entry, Host
from roles.serve.onhost.proof import prove
from roles.serve.onhost.speed import How, Proof, ProofInput
from roles.serve.transaction import proof_prompt
from tests.support.proving import Scripted
from tests.support.rigs import cpu_rig, planned


class Programs(Host):
    """A host whose programs are played: by the name of a program, what it returns for its arguments and its stdin."""

    def __init__(self, programs: Mapping[str, Callable[[Sequence[str], str], Ended]]) -> None:
        self.lines: list[str] = []
        self.programs = programs
        super().__init__(self.keep, self.keep)

    def keep(self, line: str) -> None:
        """Keep a line of progress."""
        self.lines.append(line)

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = COMMAND_SECONDS,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Return what the program is scripted to."""
        assert seconds
        assert environment is None
        if argv[0] not in self.programs:
            return Ended(127, "", f"{argv[0]}: No such file or directory")
        return self.programs[argv[0]](argv[1:], text)

    def entry(self, path: str) -> Entry | None:
        """Return a program for each that is played."""
        return Entry("file", 0o755) if path in self.programs else None


def question(server: Scripted, **declared: object) -> dict[str, object]:
    """Return the question of a scripted server."""
    (instance,) = (each for each in planned(cpu_rig()).instances if each.name == "chat")
    url = f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    return proof_prompt(instance) | {"url": url, "metrics": url, "key": None, "same": "a"} | declared


def proof(
    server: Scripted,
    folder: Path,
    how: How = "judge",
    *,
    key: str | None = None,
    speeds: str = "",
    short: bool = True,
    other: Mapping[str, object] | None = None,
    slow: float = 0.0,
    **declared: object,
) -> Proof:
    """Prove a scripted server, whose process is 7 in a /proc below the folder."""
    server.proc = folder / "proc"
    server.computes(0)
    given = ProofInput(
        question(server, **declared),
        key=key,
        how=how,
        seconds=0,
        pids=("0", "7"),
        speeds=speeds,
        short=short,
        other=other,
        slow=slow,
    )
    return prove(given, lambda _: None, root=folder)
