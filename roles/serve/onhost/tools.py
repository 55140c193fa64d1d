"""What a switch does by HTTP, nftables and /proc. Tests of the switch play it; it has tests of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from llamaherd.onhost.system import System
from roles.serve.onhost.model import CandidateInput, GpuNeed, Question, Room
from roles.serve.onhost.speed import How, Proof


class Tools(Protocol):
    """The parts of a switch that query the server, the GPUs and the firewall."""

    def prove(
        self,
        question: Question,
        *,
        key: str | None,
        speeds: str,
        how: How,
        seconds: float,
        short: bool,
        pids: Sequence[str],
        other: Question | None,
        slow: float,
        direct: bool,
        system: System,
    ) -> Proof:
        """Prove that a server serves as declared."""

    def drain(self, question: Question, *, key: str | None, seconds: int, led: bool, system: System) -> None:
        """Wait for the requests in flight, and refuse new connections for a moment."""

    def let_in(self, system: System) -> None:
        """Accept connections again."""

    def lead(self, server: str, candidate: CandidateInput, system: System) -> bool:
        """Lead new connections to the candidate. Return whether they are."""

    def lead_back(self, server: str, system: System, *, end: bool) -> None:
        """Lead new connections to the server itself again; with `end`, remove what was made for it."""

    def lacks_gpus(self, system: System, needs: Sequence[GpuNeed], pids: Sequence[str]) -> str:
        """Return what GPUs lack once processes have ended; empty where nothing."""

    def lacks_ram(self, system: System, need: int, own: Sequence[str], others: Sequence[str]) -> str:
        """Return what RAM lacks once processes have ended; empty where nothing."""

    def lacks_beside(self, system: System, room: Room, candidate: CandidateInput | None) -> str:
        """Return what lacks for a second server; empty where nothing."""
