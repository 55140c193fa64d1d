"""WSL: the user's `.wslconfig` with our keys in it, systemd in wsl.conf, and scripts that are Windows' to run.

Nothing here stops WSL: that would end every distribution, and this connection with them. What waits for a restart is
said, with the command, for as long as the state of the virtual machine shows that it waits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan, WslPlan
from llamaherd.role.changes import Change, RunVerb
from llamaherd.text.numbers import whole
from llamaherd.wsl import wslconf
from llamaherd.wsl.merge import Merged, canonical, counting, merge_wslconfig
from llamaherd.wsl.reading import read_settings
from llamaherd.wsl.state import WslMachineState, WslState
from roles.wsl.onhost import FilesInput, RestartInput, WindowsFile
from roles.wsl.plan import FOLDER, SCRIPTS

_SHOWN = 0.9
"""Of the memory of a virtual machine, Linux shows about 97 %: the kernel keeps the rest. Below this it has less."""
_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def profile_of(planned: WslPlan, seen: WslState) -> str | None:
    """The folder of the Windows user that WSL belongs to: the declared one, the only one, or that with the disk."""
    if planned.profile:
        return planned.profile if planned.profile in seen.profiles else None
    candidates = list(seen.profiles)
    if len(candidates) > 1:
        candidates = [path for path, disk in seen.profiles.items() if disk]
    return candidates[0] if len(candidates) == 1 else None


def wsl_changes(plan: Plan, state: HostState) -> list[Change]:
    """Write what differs. Without systemd the run ends here: that wants a restart, which is not ours to do."""
    if plan.wsl is None or state.wsl is None or (profile := profile_of(plan.wsl, state.wsl)) is None:
        return []
    before = {path: content_of(state.wsl, path) for path in (wslconf.WSL_CONF, f"{profile}/.wslconfig")}
    wanted = [wslconf.merge_wslconf(before[wslconf.WSL_CONF]), merged(plan.wsl, state.wsl, profile).text]
    files = [
        WindowsFile(path, text.decode(), kept=True, before="" if had is None else _sha256(had))
        for (path, had), text in zip(before.items(), wanted, strict=True)
        if text != (had or b"")
    ]
    scripts = {f"{profile}/{script.path}": script.text for script in plan.wsl.scripts}
    have = {path: script.sha256 for path, script in state.wsl.scripts.items()}
    files += [
        WindowsFile(path, text, kept=False, before="")
        for path, text in scripts.items()
        if have.get(path) != _sha256(text.encode())
    ]
    stale = sorted({f"{profile}/{FOLDER}/{name}" for name in SCRIPTS} & have.keys() - scripts.keys())
    changes = []
    if files or stale:
        put = RunVerb("wsl.write", FilesInput(tuple(files), tuple(stale)))
        why = (*(f"{file.path} has another text" for file in files), *(f"{path} is of no use" for path in stale))
        changes.append(Change("update", "files", ", ".join([*(file.path for file in files), *stale]), why, put))
    if not state.systemd:
        wait = RunVerb("wsl.require_systemd", RestartInput())
        changes.append(Change("stop", "run", "WSL", ("systemd runs only once Windows has started it anew",), wait))
    return changes


def wsl_notes(plan: Plan, state: HostState) -> list[str]:
    """What is left for people to do in Windows, or to know, told by the state that is there after `wsl_changes`."""
    if plan.wsl is None or state.wsl is None or (profile := profile_of(plan.wsl, state.wsl)) is None:
        return []
    text = merged(plan.wsl, state.wsl, profile)
    path = f"{profile}/.wslconfig"
    had = state.wsl.files.get(path)
    notes = list(text.notes)
    if had is None or had.content != text.text or (state.wsl.machine and had.written > state.wsl.machine.started):
        notes.append(
            f"{path} is newer than the virtual machine that runs, and counts from its next start: `wsl --shutdown` in "
            "Windows ends all distributions, and this connection; start this one again then"
        )
    elif state.wsl.machine:
        notes += [f"{path} says {said}: {_WHY}" for said in _lacking(text.text, state.wsl.machine)]
    for script in plan.wsl.scripts:
        done = state.wsl.scripts.get(f"{profile}/{script.path}")
        if done is None or done.applied != _sha256(script.text.encode()):
            command = f'powershell -ExecutionPolicy Bypass -File "$HOME\\{script.path.replace("/", chr(92))}"'
            notes.append(f"still to be run in Windows, in a PowerShell of an administrator: {command}")
    return notes


_WHY = "Windows has no more to give, or another user's .wslconfig counts (`host: wsl: windows_profile:`)"


def _lacking(text: bytes, machine: WslMachineState) -> Iterator[str]:
    """What the file says and the virtual machine does not have, though it was started after that."""
    says = {
        name: setting.value
        for name, setting in counting(read_settings(text.decode().lstrip("\ufeff")), canonical).items()
    }
    size = re.fullmatch(r"(\d+)(B|KB|MB|GB|TB)?", says.get("wsl2.memory", ""), re.IGNORECASE)
    number = whole(size[1]) if size else None
    if size and number is not None and machine.memory < _SHOWN * number * _UNITS[(size[2] or "").upper()]:
        yield f"memory={size[0]}, and the virtual machine has {machine.memory >> 20}MB"
    processors = says.get("wsl2.processors", "")
    if machine.processors < (whole(processors) or 0):
        yield f"processors={processors}, and the virtual machine has {machine.processors}"


def merged(planned: WslPlan, seen: WslState, profile: str) -> Merged:
    """The user's `.wslconfig` with ours in it. Raises MergeError."""
    return merge_wslconfig(content_of(seen, f"{profile}/.wslconfig"), planned.settings)


def content_of(seen: WslState, path: str) -> bytes | None:
    """A file as it is."""
    return seen.files[path].content if path in seen.files else None


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
