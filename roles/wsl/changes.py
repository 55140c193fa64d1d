"""WSL: the user's `.wslconfig` with our keys in it, systemd in wsl.conf, and scripts that are Windows' to run.

Nothing here stops WSL: that would end every distribution, and this connection with them. What waits for a restart is
said, with the command, for as long as the state of the virtual machine shows that it waits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from llamaherd.converge.disks import Refusal
from llamaherd.converge.steps import RunScript
from llamaherd.host.state import HostState
from llamaherd.plan import Plan, WslPlan
from llamaherd.planner.wsl import FOLDER, SCRIPTS
from llamaherd.text.quoting import base64_lines
from llamaherd.text.render import render
from llamaherd.wsl import wslconf
from llamaherd.wsl.merge import Merged, MergeError, canonical, counting, merge
from llamaherd.wsl.reading import read
from llamaherd.wsl.state import WslMachineState, WslState

BACKUP = ".before-llamaherd"
"""Behind the name of a user's file: as it was before we first changed it."""

_SHOWN = 0.9
"""Of the memory of a virtual machine, Linux shows about 97 %: the kernel keeps the rest. Below this it has less."""
_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


class _File(NamedTuple):
    """What is to lie on the host. Of one that is `kept`, the user has a share: its backup is kept, and late changes."""

    path: str
    text: bytes
    kept: bool = False
    seen: bytes | None = None

    @property
    def folder(self) -> str:
        """Where it lies."""
        return self.path.rpartition("/")[0]

    @property
    def content(self) -> str:
        """As a here-document can hold it."""
        return base64_lines(self.text)

    @property
    def before(self) -> str:
        """The sha256 of what was seen there; empty for no file."""
        return "" if self.seen is None else hashlib.sha256(self.seen).hexdigest()


def wsl_refusals(plan: Plan, seen: HostState) -> list[Refusal]:
    """A host that is not what is declared, a Windows user who cannot be found, and files that are better left alone."""
    if plan.wsl is None:
        if seen.wsl is None:
            return []
        message = "this host is a distribution under WSL, and the inventory does not say so"
        return [Refusal(message, "add `wsl: {}` to `host:`: the driver of its cards is Windows' own, for one thing")]
    if seen.wsl is None:
        message = "the inventory says that this host is a distribution under WSL 2, and it is none"
        return [Refusal(message, "take `wsl:` out of `host:`, or correct `connect:`")]
    if seen.wsl.release.endswith("-Microsoft"):
        message = "this distribution is under WSL 1, which has no systemd and lends no card"
        return [Refusal(message, "`wsl --set-version NAME 2` in Windows changes that")]
    problems = []
    profile = profile_of(plan.wsl, seen.wsl)
    if profile is None:
        problems.append(_not_found(plan.wsl, seen.wsl))
    try:
        wslconf.merge_wslconf(_content(seen.wsl, wslconf.PATH))
        if profile is not None:
            _merged(plan.wsl, seen.wsl, profile)
    except MergeError as error:
        problems.append(Refusal(error.message, error.help))
    return problems


def starts_systemd(plan: Plan, seen: HostState) -> bool:
    """Whether systemd does not run because wsl.conf does not say so yet, which `wsl_steps` sees to."""
    if plan.wsl is None or seen.wsl is None:
        return False
    try:
        return wslconf.merge_wslconf(before := _content(seen.wsl, wslconf.PATH)) != (before or b"")
    except MergeError:
        return False


def profile_of(planned: WslPlan, seen: WslState) -> str | None:
    """The folder of the Windows user that WSL belongs to: the declared one, the only one, or that with the disk."""
    if planned.profile:
        return planned.profile if planned.profile in seen.profiles else None
    candidates = list(seen.profiles)
    if len(candidates) > 1:
        candidates = [path for path, disk in seen.profiles.items() if disk]
    return candidates[0] if len(candidates) == 1 else None


def wsl_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Write what differs. Without systemd the run ends here: that wants a restart, which is not ours to do."""
    if plan.wsl is None or seen.wsl is None or (profile := profile_of(plan.wsl, seen.wsl)) is None:
        return []
    before = {path: _content(seen.wsl, path) for path in (wslconf.PATH, f"{profile}/.wslconfig")}
    wanted = [wslconf.merge_wslconf(before[wslconf.PATH]), _merged(plan.wsl, seen.wsl, profile).text]
    files = [
        _File(path, text, kept=True, seen=had)
        for (path, had), text in zip(before.items(), wanted, strict=True)
        if text != (had or b"")
    ]
    scripts = {f"{profile}/{script.path}": script.text.encode() for script in plan.wsl.scripts}
    have = {path: script.sha256 for path, script in seen.wsl.scripts.items()}
    files += [_File(path, text) for path, text in scripts.items() if have.get(path) != _sha256(text)]
    stale = sorted({f"{profile}/{FOLDER}/{name}" for name in SCRIPTS} & have.keys() - scripts.keys())
    put = render("steps/wsl-files.sh.j2", files=files, stale=stale, backup=BACKUP)
    steps = [RunScript(put)] if files or stale else []
    return steps if seen.systemd else [*steps, RunScript(render("steps/wsl-restart.sh.j2"))]


def wsl_notes(plan: Plan, seen: HostState) -> list[str]:
    """What is left for people to do in Windows, or to know, told by the state that is there after `wsl_steps`."""
    if plan.wsl is None or seen.wsl is None or (profile := profile_of(plan.wsl, seen.wsl)) is None:
        return []
    merged = _merged(plan.wsl, seen.wsl, profile)
    path = f"{profile}/.wslconfig"
    had = seen.wsl.files.get(path)
    notes = list(merged.notes)
    if had is None or had.content != merged.text or (seen.wsl.machine and had.written > seen.wsl.machine.started):
        notes.append(
            f"{path} is newer than the virtual machine that runs, and counts from its next start: `wsl --shutdown` in "
            "Windows ends all distributions, and this connection; start this one again then"
        )
    elif seen.wsl.machine:
        notes += [f"{path} says {said}: {_WHY}" for said in _lacking(merged.text, seen.wsl.machine)]
    for script in plan.wsl.scripts:
        done = seen.wsl.scripts.get(f"{profile}/{script.path}")
        if done is None or done.applied != _sha256(script.text.encode()):
            command = f'powershell -ExecutionPolicy Bypass -File "$HOME\\{script.path.replace("/", chr(92))}"'
            notes.append(f"still to be run in Windows, in a PowerShell of an administrator: {command}")
    return notes


_WHY = "Windows has no more to give, or another user's .wslconfig counts (`host: wsl: windows_profile:`)"


def _lacking(text: bytes, machine: WslMachineState) -> Iterator[str]:
    """What the file says and the virtual machine does not have, though it was started after that."""
    says = {name: setting.value for name, setting in counting(read(text.decode().lstrip("\ufeff")), canonical).items()}
    size = re.fullmatch(r"(\d+)(B|KB|MB|GB|TB)?", says.get("wsl2.memory", ""), re.IGNORECASE)
    if size and machine.memory < _SHOWN * int(size[1]) * _UNITS[(size[2] or "").upper()]:
        yield f"memory={size[0]}, and the virtual machine has {machine.memory >> 20}MB"
    processors = says.get("wsl2.processors", "")
    if processors.isdecimal() and machine.processors < int(processors):
        yield f"processors={processors}, and the virtual machine has {machine.processors}"


def _merged(planned: WslPlan, seen: WslState, profile: str) -> Merged:
    return merge(_content(seen, f"{profile}/.wslconfig"), planned.settings)


def _content(seen: WslState, path: str) -> bytes | None:
    return seen.files[path].content if path in seen.files else None


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _not_found(planned: WslPlan, seen: WslState) -> Refusal:
    if planned.profile:
        message = f"there is no folder {planned.profile}, which the inventory says is the Windows user's"
        return Refusal(
            message, "correct `host: wsl: windows_profile:`; `ls /mnt/c/Users` on the host shows which there are"
        )
    if seen.profiles:
        message = f"which Windows user WSL belongs to cannot be told: there are {', '.join(sorted(seen.profiles))}"
        return Refusal(message, f"say it with `host: wsl: windows_profile: {min(seen.profiles)}`, or another of them")
    message = "the Windows user's folder cannot be found: no disk of Windows is mounted that has one which WSL can open"
    return Refusal(
        message, "say it with `host: wsl: windows_profile: /mnt/c/Users/NAME`, and see `automount` in /etc/wsl.conf"
    )
