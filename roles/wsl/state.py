"""WSL's part of a host's state: what Windows has around it. `llamaherd/wsl/state.py` has the values."""

from __future__ import annotations

import base64

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.wsl.state import ScriptState, TextState, WslMachineState
from roles.wsl.onhost.inspection import Found, Question


def question(plan: Plan) -> Question | None:
    """Return what to inspect where WSL is declared."""
    return Question(plan.wsl.profile) if plan.wsl else None


def take(state: HostState, found: Found) -> None:
    """Add what was found to the host's state, where base has found WSL. Raise ValueError for what is not base64."""
    if state.wsl is None:
        return
    state.wsl.profiles.update(found.profiles)
    for path, text in found.files.items():
        state.wsl.files[path] = TextState(text.written, base64.b64decode(text.content, validate=True))
    for path, script in found.scripts.items():
        state.wsl.scripts[path] = ScriptState(script.sha256, script.applied)
    if found.machine:
        state.wsl.machine = WslMachineState(found.machine.started, found.machine.memory, found.machine.processors)
