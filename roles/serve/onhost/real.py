"""The tools of a switch, on a real host."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from llamaherd.layout import DIRECT_GROUP
from llamaherd.onhost.system import System
from roles.serve.onhost.drain import NFT, drain, let_in
from roles.serve.onhost.model import CandidateInput, GpuNeed, Question, Room
from roles.serve.onhost.prove import How, Proof, prove
from roles.serve.onhost.room import lacks_beside, lacks_gpus, lacks_ram
from roles.serve.onhost.wire import direct_group

_TABLE = """\
table inet {name} {{
    chain local {{
        type nat hook output priority -101;
        meta skgid {{ {groups} }} return
        {rule}
    }}
    chain others {{
        type nat hook prerouting priority -101;
        {rule}
    }}
}}
"""


class RealTools:
    """See Tools."""

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
        """Prove a server by HTTP."""
        with direct_group(DIRECT_GROUP) if direct else nullcontext():
            return prove(
                question,
                key=key,
                speeds=speeds,
                how=how,
                seconds=seconds,
                short=short,
                pids=pids,
                other=other,
                slow=slow,
                report=system.report,
            )

    def drain(self, question: Question, *, key: str | None, seconds: int, led: bool, system: System) -> None:
        """Drain a server by its metrics."""
        with direct_group(DIRECT_GROUP) if led else nullcontext():
            drain(question, key=key, seconds=seconds, group=DIRECT_GROUP, led=led, system=system)

    def let_in(self, system: System) -> None:
        """Accept connections again."""
        let_in(system)

    def lead(self, server: str, candidate: CandidateInput, system: System) -> bool:
        """Lead new connections by nftables."""
        ended = system.run(["id", "-g", candidate.group])
        own = ended.out.strip() if ended.ok else candidate.group
        text = _TABLE.format(name=server, groups=f"{DIRECT_GROUP}, {own}", rule=candidate.rule)
        return system.run([NFT, "-f", "-"], text=text).ok

    def lead_back(self, server: str, system: System, *, end: bool) -> None:
        """Lead no connection any more."""
        system.run([NFT, "delete" if end else "flush", "table", "inet", server])

    def lacks_gpus(self, system: System, needs: Sequence[GpuNeed], pids: Sequence[str]) -> str:
        """Query nvidia-smi."""
        return lacks_gpus(needs, pids, system=system)

    def lacks_ram(self, system: System, need: int, own: Sequence[str], others: Sequence[str]) -> str:
        """Read /proc."""
        del system
        return lacks_ram(need, own, others)

    def lacks_beside(self, system: System, room: Room, candidate: CandidateInput | None) -> str:
        """Query the host for memory, a port and nftables."""
        return lacks_beside(
            room.ram,
            room.gpus,
            listen=candidate.listen if candidate else "",
            port=candidate.port if candidate else None,
            for_others=bool(candidate and candidate.for_others),
            system=system,
        )
