"""Plan the settings of WSL, and the scripts to run in Windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from llamaherd.inventory.schema import Rig, Wsl
from llamaherd.inventory.wsl_files import canonical_name
from llamaherd.plan import TextFile, WslPlan
from llamaherd.plan.devices import declared_power
from llamaherd.render import render
from llamaherd.role.role import Planning, PlanPart

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
    wanted: dict[str, dict[str, str]] = {}
    said = set()
    further = {section: {key: _written(value) for key, value in keys.items()} for section, keys in wsl.settings.items()}
    sections: list[tuple[str, Mapping[str, str | None]]] = [*own.items(), *further.items()]
    for section, keys in sections:
        for key, value in keys.items():
            name = canonical_name(f"{section}.{key}")
            if value is not None and name not in said:
                said.add(name)
                wanted.setdefault(section, {})[key] = value
    return wanted


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
