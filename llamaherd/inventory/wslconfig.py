"""The keys of `.wslconfig`, and the findings about such a file or the same settings of an inventory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity, nearest
from llamaherd.text.numbers import whole_number

UNKNOWN_SETTING = Rule(
    "LH147",
    "`.wslconfig` has no such section or key.",
    why="WSL ignores it, with a warning that is easy to miss. `gpuMemory` is one of them: WSL shares the whole GPU.",
    example="""
    [wsl2]
    memory=64GB
    gpuMemory=24GB
    """,
    language="ini",
    fix="""
    write the nearest key, or put it into the section it belongs to, or leave it out. The same applies to
    `host.wsl.settings` in an inventory.
    """,
)


WRONG_SETTING = Rule(
    "LH148",
    "WSL does not read a value in a `.wslconfig`.",
    why="Or the value does nothing with the mode of networking.",
    example="""
    [wsl2]
    memory=64 GB
    """,
    language="ini",
    fix="""
    apply the fix of the help line. Sizes are whole numbers and, without a blank, K, M, G or T, with a B behind it or
    without. Switches are `true` or `false`. Backslashes are doubled.
    """,
    sometimes=("warning",),
)


WRONG_TIMEOUT = Rule(
    "LH283",
    "A timeout of WSL means something else.",
    why="""
    `vmIdleTimeout` is in milliseconds, and it is the virtual machine's. The distribution in it ends by itself some 15 s
    after its last terminal is closed, and its servers with it, unless `instanceIdleTimeout` under `[general]` prevents
    it.
    """,
    example="""
    [wsl2]
    vmIdleTimeout=-1
    """,
    language="ini",
    fix="write both keys. `herd up` writes both where `keep_alive` is on.",
    severity="warning",
)


WSL_KEYS: Mapping[str, Mapping[str, str]] = {
    "wsl2": {
        "kernel": "path",
        "kernelCommandLine": "text",
        "kernelModules": "path",
        "memory": "size",
        "processors": "int",
        "swap": "size",
        "swapFile": "path",
        "localhostForwarding": "bool",
        "nestedVirtualization": "bool",
        "guiApplications": "bool",
        "gpuSupport": "bool",
        "vmIdleTimeout": "int",
        "networkingMode": "none|nat|bridged|mirrored|consomme|virtioproxy",
        "vmSwitch": "text",
        "macAddress": "text",
        "dhcp": "bool",
        "dhcpTimeout": "int",
        "ipv6": "bool",
        "dnsProxy": "bool",
        "dnsTunneling": "bool",
        "firewall": "bool",
        "autoProxy": "bool",
        "safeMode": "bool",
        "defaultVhdSize": "size",
        "debugConsole": "bool",
        "earlyBootLogging": "bool",
        "debugConsoleLogFile": "path",
        "kernelDebugPort": "int",
        "kernelBootTimeout": "int",
        "distributionStartTimeout": "int",
        "mountDeviceTimeout": "int",
        "systemDistro": "path",
        "telemetry": "bool",
        "virtio": "bool",
        "virtio9p": "bool",
        "virtiofs": "bool",
        "hostFileSystemAccess": "bool",
        "hardwarePerformanceCounters": "bool",
        "crashDumpFolder": "path",
        "maxCrashDumpCount": "int",
        "loadKernelModules": "text",
        "loadDefaultKernelModules": "bool",
        "isolateDistroCgroup": "bool",
    },
    "general": {
        "distributionInstallPath": "path",
        "instanceIdleTimeout": "int",
    },
    "experimental": {
        "autoMemoryReclaim": "disabled|gradual|dropCache",
        "sparseVhd": "bool",
        "bestEffortDnsParsing": "bool",
        "dnsTunnelingIpAddress": "text",
        "initialAutoProxyTimeout": "int",
        "ignoredPorts": "ports",
        "hostAddressLoopback": "bool",
        "setVersionDebug": "text",
        "swiotlb": "size",
        "virtioFsAggregateShares": "bool",
        # Older homes of keys of [wsl2], still read.
        "networkingMode": "none|nat|bridged|mirrored|consomme|virtioproxy",
        "dnsTunneling": "bool",
        "firewall": "bool",
        "autoProxy": "bool",
    },
}
"""Every key by section, and its type: `bool`, `int`, `size`, `path`, `text`, `ports`, or one of several words."""

MIRRORED_ONLY = ("ignoredPorts", "hostAddressLoopback")
"""Keys of [experimental] that need `networkingMode=mirrored` (learn.microsoft.com, wsl-config)."""

LEAST_IDLE, USUAL_IDLE = 1000, 60000
"""The milliseconds below which the user probably meant seconds, and WSL's own default."""

# By the tests of ParseMemorySize in microsoft/WSL: `9G` is a size as `9GB` is, `9 GB` is none.
_SIZE = re.compile(r"(\d+)(?:([KMGT])B?|B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NO_SUCH_THING = {
    "gpumemory": "leave it out: WSL gives Linux the whole GPU, and how much VRAM that is cannot be set",
    "cpus": "write `processors=N`",
    "cores": "write `processors=N`",
    "systemd": "`systemd=true` belongs under `[boot]` in /etc/wsl.conf, inside Linux",
}
_OF_WSL_CONF = {"automount", "boot", "filesystem", "fileserver", "gpu", "interop", "network", "time", "user"}


@dataclass(frozen=True)
class SettingFault:
    """A mistake in one setting, without a place: it may be in a `.wslconfig` or in an inventory."""

    rule: Rule
    message: str
    help: str
    unusual: Severity | None = None
    """The severity, if it differs from the rule's."""
    about_value: bool = False

    def at(self, place: Place) -> Finding:
        """Return the mistake as a finding."""
        return self.rule.at(place, self.message, self.help, self.unusual)


def check_setting(section: str, key: str, value: str | int | bool) -> SettingFault | None:
    """Return the mistake in one setting; None if there is none. Names are case-insensitive, as in WSL."""
    known = _section(section)
    if known is None:
        return _unknown_section(section)
    by_name = {name.lower(): kind for name, kind in WSL_KEYS[known].items()}
    kind = by_name.get(key.lower())
    if kind is None:
        return _unknown_key(known, key)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    wrong = _wrong_value(key, kind, text)
    return replace(wrong, about_value=True) if wrong else None


def check_wslconfig(file: Path, text: str) -> tuple[Finding, ...]:
    """Return all mistakes in the text of a `.wslconfig`. Comments, blank lines and CRLF are allowed."""
    return tuple(_findings(file, text.removeprefix("\ufeff")))


def _findings(file: Path, text: str) -> Iterator[Finding]:
    section: str | None = None
    lines: dict[tuple[str, str], int] = {}
    first: dict[str, tuple[str, Place]] = {}
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.split("#", 1)[0].rstrip()
        content = line.strip()
        place = Place(file, number, len(line) - len(line.lstrip()) + 1)
        if not content:
            continue
        if header := re.fullmatch(r"\[([^\]]*)\]", content):
            section = header[1].strip()
            if _section(section) is None:
                problem = _unknown_section(section)
                yield problem.at(place)
            continue
        key, equals, value = (part.strip() for part in content.partition("="))
        if not equals or not key:
            message = f"`{content}` is no setting"
            yield WRONG_SETTING.at(place, message, "write `key=value`; comments begin with `#`")
        elif section is None:
            home = _home(key) or "wsl2"
            message = f"`{key}` stands under no section, so that it does nothing"
            yield UNKNOWN_SETTING.at(place, message, f"put `[{home}]` on a line above it")
        elif (known := _section(section)) is not None:
            named = (known, key.lower())
            if named in lines:
                message = f"`{key}` stands here twice; the first is at line {lines[named]}"
                yield WRONG_SETTING.at(place, message, "keep one of the two", "warning")
            lines.setdefault(named, number)
            first.setdefault(".".join(named), (value.strip('"'), place))
            if problem_here := check_setting(section, key, value.strip('"')):
                at = line.index("=") + 1
                at += len(line[at:]) - len(line[at:].lstrip()) + 1
                where = Place(file, number, at) if problem_here.about_value and value else place
                yield problem_here.at(where)
    for name, problem in check_conflicting_settings({name: value for name, (value, _) in first.items()}):
        yield problem.at(first[name][1])


def _section(name: str) -> str | None:
    return next((section for section in WSL_KEYS if section == name.lower()), None)


def _home(key: str) -> str | None:
    """Return the first section that has a key."""
    return next((section for section, keys in WSL_KEYS.items() if key.lower() in {name.lower() for name in keys}), None)


def _unknown_section(section: str) -> SettingFault:
    message = f"there is no section `[{section}]` in a .wslconfig, so that what follows does nothing"
    if section.lower() in _OF_WSL_CONF:
        return SettingFault(UNKNOWN_SETTING, message, f"`[{section}]` belongs into /etc/wsl.conf, inside Linux")
    return SettingFault(UNKNOWN_SETTING, message, nearest(section.lower(), WSL_KEYS))


def _unknown_key(section: str, key: str) -> SettingFault:
    home = _home(key)
    if home:
        message = f"`{key}` does nothing under `[{section}]`"
        return SettingFault(UNKNOWN_SETTING, message, f"put it under `[{home}]`")
    help_ = _NO_SUCH_THING.get(key.lower())
    if help_ is None:
        help_ = nearest(key, [name for keys in WSL_KEYS.values() for name in keys])
        help_ = help_ if help_.startswith("did you") else "leave it out"
    return SettingFault(UNKNOWN_SETTING, f"there is no key `{key}` in a .wslconfig, so that it does nothing", help_)


def _wrong_value(key: str, kind: str, value: str) -> SettingFault | None:
    match kind:
        case "bool" if value.lower() not in {"true", "false", "1", "0"}:
            meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(value.lower(), "true` or `false")
            return SettingFault(WRONG_SETTING, f"`{value}` is neither true nor false to WSL", f"write `{key}={meant}`")
        case "int" if not re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)", value):
            return SettingFault(
                WRONG_SETTING, f"`{value}` is no whole number", f"write `{key}=` and a number, such as 8"
            )
        case "size":
            return _wrong_size(key, value)
        case "ports":
            wrong = [part.strip() for part in value.split(",") if not _is_port(part.strip())]
            if wrong:
                message = f"`{wrong[0]}` is no port: WSL reads numbers up to 65535, with commas between"
                return SettingFault(WRONG_SETTING, message, f"write `{key}=3000,9000`")
        case "path" if re.search(r"(?<!\\)\\(?!\\)", value):
            doubled = re.sub(r"\\+", r"\\\\", value)
            return SettingFault(WRONG_SETTING, "a single backslash is no backslash to WSL", f"write `{key}={doubled}`")
        case _ if "|" in kind and value.lower() not in kind.lower().split("|"):
            return SettingFault(WRONG_SETTING, f"invalid value `{value}` for `{key}`", nearest(value, kind.split("|")))
    return None


def _is_port(text: str) -> bool:
    return 0 < (whole_number(text) or 0) < 1 << 16


def check_conflicting_settings(settings: Mapping[str, str]) -> Iterator[tuple[str, SettingFault]]:
    """Return settings without effect in this networking mode. `settings` are values by `section.key` in lower case."""
    mode = settings.get("wsl2.networkingmode", settings.get("experimental.networkingmode", "nat")).lower()
    if mode == "mirrored" and "wsl2.localhostforwarding" in settings:
        message = "`localhostForwarding` does nothing with `networkingMode=mirrored`, where localhost is shared anyway"
        yield "wsl2.localhostforwarding", SettingFault(WRONG_SETTING, message, "leave it out", "warning")
    idle = settings.get("wsl2.vmidletimeout", "")
    limit = whole_number(idle) or 0
    if (idle.startswith("-") or limit > USUAL_IDLE) and "general.instanceidletimeout" not in settings:
        message = (
            "`vmIdleTimeout` keeps the virtual machine, and not the distribution in it, which ends 15 s after its "
        )
        message += "last terminal, and its servers with it"
        help_ = f"add `instanceIdleTimeout={idle}` under `[general]`"
        yield "wsl2.vmidletimeout", SettingFault(WRONG_TIMEOUT, message, help_)
    elif 0 < limit < LEAST_IDLE:
        message = f"`vmIdleTimeout={idle}` is {idle} ms: the virtual machine ends at once when it is idle"
        yield "wsl2.vmidletimeout", SettingFault(WRONG_TIMEOUT, message, f"write `vmIdleTimeout={idle}000` for seconds")
    for key in MIRRORED_ONLY if mode != "mirrored" else ():
        name = f"experimental.{key}".lower()
        if name in settings:
            message = f"`{key}` counts with `networkingMode=mirrored` alone, and the mode here is `{mode}`"
            help_ = "leave it out, or write `networkingMode=mirrored` under `[wsl2]`"
            yield name, SettingFault(WRONG_SETTING, message, help_, "warning")


def _wrong_size(key: str, value: str) -> SettingFault | None:
    size = _SIZE.fullmatch(value)
    if size is None:
        short = re.fullmatch(r"(\d+)\s*([KMGT])(?:i?B)?", value, re.IGNORECASE)
        help_ = f"write `{key}={short[1]}{short[2].upper()}B`" if short else f"write `{key}=64GB`, or `65536MB`"
        message = (
            f"`{value}` is no size to WSL: a whole number, and at once K, M, G or T, with a B behind it or without"
        )
        return SettingFault(WRONG_SETTING, message, help_)
    if 0 < (whole_number(size[1]) or 0) * _UNITS[(size[2] or "").upper()] < 1 << 20:
        message = f"`{value}` is {size[1]} {(size[2] or '').upper()}B, less than a megabyte"
        return SettingFault(WRONG_SETTING, message, f"write `{key}={size[1]}GB`")
    return None
