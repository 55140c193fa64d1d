"""WSL's part of a host's state: what Windows says around it. `llamaherd/wsl/state.py` has the values."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.render import render


def inspect(plan: Plan) -> str:
    """Ask where WSL is declared; that the host is under it, base has asked before."""
    return render("wsl/inspect.sh.j2", profile=plan.wsl.profile, root="") if plan.wsl else ""


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    if kind != "wsl" or state.wsl is None or not fields:
        return False
    state.wsl.tell(fields[0], fields[1:])
    return True
