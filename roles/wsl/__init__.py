"""WSL: the keys of `.wslconfig` and wsl.conf, and scripts to run in Windows."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address

from llamaherd.host.state import HostState, ScriptState, TextState, WslMachineState, WslState
from llamaherd.inventory import wsl_files
from llamaherd.inventory.schema import Rig, Wsl
from llamaherd.inventory.wsl_files import (
    Merged,
    MergeError,
    canonical_name,
    effective_settings,
    merge_wslconfig,
    read_settings,
)
from llamaherd.onhost.verbs import NoInput
from llamaherd.plan import Estimate, Plan, TextFile, WslPlan
from llamaherd.plan.devices import declared_power
from llamaherd.render import render
from llamaherd.role.changes import Change, RunVerb
from llamaherd.role.preflight import Refusal
from llamaherd.role.role import Inspection, Planning, PlanPart, Role, Task
from llamaherd.text.numbers import whole_number
from roles.wsl.onhost import FilesInput, Found, InspectInput, WindowsFile

FOLDER = "llamaherd"
"""Of the Windows user's folder: what is ours."""
SCRIPTS = ("gpu-power.ps1", "port-proxy.ps1", "autostart.ps1")
"""All that we may have written there."""

_FOR_EVER = "-1"


def plan(planning: Planning) -> PlanPart:
    """Return the settings of WSL."""
    return PlanPart(fields={"wsl": plan_wsl(planning.rig)})


def plan_wsl(rig: Rig) -> WslPlan | None:
    """Return the declared settings of WSL; None if the host is not under WSL."""
    wsl = rig.host.wsl
    if wsl is None:
        return None
    settings = wslconfig(wsl)
    effective = {
        canonical_name(f"{name}.{key}"): value for name, keys in settings.items() for key, value in keys.items()
    }
    mode = effective.get("wsl2.networkingmode", "nat").lower()
    ports = sorted({each.port for each in rig.instances.values() if not ip_address(each.listen).is_loopback})
    return WslPlan(
        profile=wsl.windows_profile.rstrip("/") if wsl.windows_profile else None,
        settings=settings,
        scripts=tuple(_scripts(rig, mode, ports)),
    )


def wslconfig(wsl: Wsl) -> dict[str, dict[str, str]]:
    """Return the content of `.wslconfig`, by section and key."""
    # The keys of `wsl` come before those of `settings`. Both timeouts: with the first alone, the distribution still
    # ends when it is idle, and its servers with it (microsoft/WSL#11239).
    own: dict[str, dict[str, str | None]] = {
        "wsl2": {
            "memory": _size(wsl.memory) if wsl.memory else None,
            "swap": None if wsl.swap is None else _size(wsl.swap),
            "processors": str(wsl.processors) if wsl.processors else None,
            "networkingMode": wsl.networking,
            "vmIdleTimeout": _FOR_EVER if wsl.keep_alive else None,
        },
        "general": {"instanceIdleTimeout": _FOR_EVER if wsl.keep_alive else None},
    }
    chosen: dict[str, dict[str, str]] = {}
    names = set()
    further = {section: {key: _written(value) for key, value in keys.items()} for section, keys in wsl.settings.items()}
    sections: list[tuple[str, Mapping[str, str | None]]] = [*own.items(), *further.items()]
    for section, keys in sections:
        for key, value in keys.items():
            name = canonical_name(f"{section}.{key}")
            if value is not None and name not in names:
                names.add(name)
                chosen.setdefault(section, {})[key] = value
    return chosen


def _written(value: str | int | bool) -> str:
    """Return a value of `.wslconfig`; a `#` would begin a comment, and a line's end would end it."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value).replace("\r", "").replace("\n", "\\n")
    quoted = '"' in text or ("#" not in text and text == text.strip())
    return text if quoted else f'"{text}"'


def _size(size: int) -> str:
    """Return bytes as WSL writes them, which takes GB for 2^30: an inventory's 64GB and 64GiB are 64GB there."""
    for factor, unit in ((10**9, "GB"), (1 << 30, "GB"), (10**6, "MB"), (1 << 20, "MB")):
        if size % factor == 0:
            return f"{size // factor}{unit}" if size else "0"
    return f"{size}B"


def _scripts(rig: Rig, mode: str, ports: list[int]) -> Iterator[TextFile]:
    """Yield PowerShell for what only Windows' administrator can do."""
    # Mode `none` has no way in, and `virtioproxy` its own.
    power = declared_power(rig)
    commands = [f"-i {gpu.at} -pl {gpu.limit}" for gpu in power if gpu.limit is not None]
    commands += [f"-i {gpu.at} -lgc {gpu.clocks[0]},{gpu.clocks[1]}" for gpu in power if gpu.clocks]
    if commands:
        yield _script("gpu-power.ps1", rig, commands=commands)
    if ports and mode in {"nat", "mirrored"}:
        yield _script("port-proxy.ps1", rig, mirrored=mode == "mirrored", ports=ports)
    if rig.host.wsl and rig.host.wsl.keep_alive:
        yield _script("autostart.ps1", rig)


def _script(name: str, rig: Rig, **values: object) -> TextFile:
    text = render(f"wsl/{name}.j2", rig=rig.rig, name=name, **values)
    # Notepad of older Windows shows one long line without.
    return TextFile(path=f"{FOLDER}/{name}", text=text.replace("\n", "\r\n"))


_SHOWN = 0.9
"""Of the memory of a virtual machine, Linux shows about 97 %: the kernel keeps the rest. Below this it has less."""

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_WHY = "Windows has no more to give, or another user's .wslconfig counts (`host: wsl: windows_profile:`)"


def inspection_input(plan: Plan) -> InspectInput | None:
    """Return what to inspect where WSL is declared."""
    return InspectInput(plan.wsl.profile) if plan.wsl else None


def state_parts(found: Found) -> tuple[WslState]:
    """Return the part of the host's state. Raise ValueError for a file that is not base64."""
    files = {
        path: TextState(each.written, base64.b64decode(each.content, validate=True))
        for path, each in found.files.items()
    }
    scripts = {path: ScriptState(each.sha256, each.applied) for path, each in found.scripts.items()}
    machine = found.machine
    virtual = WslMachineState(machine.started, machine.memory, machine.processors) if machine else None
    return (WslState(found.profiles, files, scripts, virtual),)


def profile_of(planned: WslPlan, found: WslState) -> str | None:
    """Return the folder of WSL's Windows user: the declared one, the only one, or the one with the disk."""
    if planned.profile:
        return planned.profile if planned.profile in found.profiles else None
    candidates = list(found.profiles)
    if len(candidates) > 1:
        candidates = [path for path, disk in found.profiles.items() if disk]
    return candidates[0] if len(candidates) == 1 else None


def wsl_changes(plan: Plan, state: HostState) -> list[Change]:
    """Write files that differ. Without systemd the run ends here: systemd needs a restart of WSL, which you do."""
    windows = WslState.of(state)
    if plan.wsl is None or not state.system.wsl or (profile := profile_of(plan.wsl, windows)) is None:
        return []
    before = {path: file_content(windows, path) for path in (wsl_files.WSL_CONF, f"{profile}/.wslconfig")}
    merged = [wsl_files.merge_wslconf(before[wsl_files.WSL_CONF]), merged_wslconfig(plan.wsl, windows, profile).text]
    files = [
        WindowsFile(path, text.decode(), kept=True, before="" if had is None else _sha256(had))
        for (path, had), text in zip(before.items(), merged, strict=True)
        if text != (had or b"")
    ]
    scripts = {f"{profile}/{script.path}": script.text for script in plan.wsl.scripts}
    have = {path: script.sha256 for path, script in windows.scripts.items()}
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
    if not state.system.systemd:
        wait = RunVerb("wsl.require_systemd", NoInput())
        changes.append(Change("stop", "run", "WSL", ("systemd runs only once Windows has started it anew",), wait))
    return changes


def wsl_notes(plan: Plan, state: HostState) -> list[str]:
    """Return the steps left in Windows and the notes, by the state after `wsl_changes`."""
    windows = WslState.of(state)
    if plan.wsl is None or not state.system.wsl or (profile := profile_of(plan.wsl, windows)) is None:
        return []
    text = merged_wslconfig(plan.wsl, windows, profile)
    path = f"{profile}/.wslconfig"
    had = windows.files.get(path)
    notes = list(text.notes)
    if had is None or had.content != text.text or (windows.machine and had.written > windows.machine.started):
        notes.append(
            f"{path} is newer than the virtual machine that runs, and counts from its next start: `wsl --shutdown` in "
            "Windows ends all distributions, and this connection; start this one again then"
        )
    elif windows.machine:
        notes += [f"{path} says {lack}: {_WHY}" for lack in _lacking(text.text, windows.machine)]
    for script in plan.wsl.scripts:
        done = windows.scripts.get(f"{profile}/{script.path}")
        if done is None or done.applied != _sha256(script.text.encode()):
            command = f'powershell -ExecutionPolicy Bypass -File "$HOME\\{script.path.replace("/", chr(92))}"'
            notes.append(f"still to be run in Windows, in a PowerShell of an administrator: {command}")
    return notes


def _lacking(text: bytes, machine: WslMachineState) -> Iterator[str]:
    """Yield what the file contains and the virtual machine lacks, though it started after the change."""
    settings = {
        name: setting.value
        for name, setting in effective_settings(read_settings(text.decode().lstrip("\ufeff")), canonical_name).items()
    }
    size = re.fullmatch(r"(\d+)(B|KB|MB|GB|TB)?", settings.get("wsl2.memory", ""), re.IGNORECASE)
    number = whole_number(size[1]) if size else None
    if size and number is not None and machine.memory < _SHOWN * number * _UNITS[(size[2] or "").upper()]:
        yield f"memory={size[0]}, and the virtual machine has {machine.memory >> 20}MB"
    processors = settings.get("wsl2.processors", "")
    if machine.processors < (whole_number(processors) or 0):
        yield f"processors={processors}, and the virtual machine has {machine.processors}"


def merged_wslconfig(planned: WslPlan, found: WslState, profile: str) -> Merged:
    """Return the user's `.wslconfig` with ours in it. Raise MergeError."""
    return merge_wslconfig(file_content(found, f"{profile}/.wslconfig"), planned.settings)


def file_content(found: WslState, path: str) -> bytes | None:
    """Return the content of a file."""
    return found.files[path].content if path in found.files else None


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def wsl_refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """Return a host of another kind, a Windows user that cannot be found, and files that cannot be merged."""
    if plan.wsl is None:
        if not state.system.wsl:
            return []
        message = "this host is a distribution under WSL, and the inventory does not declare it"
        return [Refusal(message, "add `wsl: {}` to `host:`: the driver of its GPUs is Windows' own, for one thing")]
    if not state.system.wsl:
        message = "the inventory declares a distribution under WSL 2, and this host is none"
        return [Refusal(message, "take `wsl:` out of `host:`, or correct `connect:`")]
    if state.system.wsl.endswith("-Microsoft"):
        message = "this distribution is under WSL 1, which has neither systemd nor GPUs"
        return [Refusal(message, "`wsl --set-version NAME 2` in Windows changes that")]
    problems = []
    windows = WslState.of(state)
    profile = profile_of(plan.wsl, windows)
    if profile is None:
        problems.append(_not_found(plan.wsl, windows))
    try:
        wsl_files.merge_wslconf(file_content(windows, wsl_files.WSL_CONF))
        if profile is not None:
            merged_wslconfig(plan.wsl, windows, profile)
    except MergeError as error:
        problems.append(Refusal(error.message, error.help))
    return problems


def _not_found(planned: WslPlan, found: WslState) -> Refusal:
    if planned.profile:
        message = f"there is no folder {planned.profile}, which the inventory declares as the Windows user's"
        help_ = "correct `host: wsl: windows_profile:`; `ls /mnt/c/Users` on the host shows which there are"
    elif found.profiles:
        message = f"several Windows users can own WSL here: there are {', '.join(sorted(found.profiles))}"
        help_ = f"set it with `host: wsl: windows_profile: {min(found.profiles)}`, or another of them"
    else:
        message = (
            "the Windows user's folder cannot be found: no disk of Windows is mounted that has one which WSL can open"
        )
        help_ = "set it with `host: wsl: windows_profile: /mnt/c/Users/NAME`, and see `automount` in /etc/wsl.conf"
    return Refusal(message, help_)


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Return WSL's settings, and the scripts for Windows' administrator."""
    wsl = plan.wsl
    if wsl is None:
        return []
    settings = [f"{section}.{key}={value}" for section, keys in wsl.settings.items() for key, value in keys.items()]
    return [
        f"  .wslconfig {' '.join(settings) or 'as it is'}",
        f"             in {wsl.profile or 'the folder of the Windows user that started WSL'}",
        *(f"             to be run in Windows: {script.path}" for script in wsl.scripts),
    ]


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield the task early: a needed restart of WSL should show before hours of building."""
    if plan.wsl:
        yield Task(
            ".wslconfig, wsl.conf and scripts",
            lambda state, _: wsl_changes(plan, state),
            notes=lambda state, _: wsl_notes(plan, state),
        )


ROLE = Role(
    name="wsl",
    summary="WSL around the host gives it what is declared, and Windows has the scripts that it is to run.",
    plan=plan,
    inspection=Inspection("wsl.inspect", inspection_input, Found, state_parts),
    refusals=lambda plan, state: [replace(each, about="kind") for each in wsl_refusals(plan, state)],
    tasks=tasks,
    describe=describe,
)
