"""WSL: memory, paths on Windows' disks, and settings of `.wslconfig`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PureWindowsPath

from llamaherd.checks.context import RigContext
from llamaherd.checks.placement import at_once
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.inventory.schema import LOCAL, Wsl
from llamaherd.inventory.wslconfig import WSL_KEYS, check_conflicting_settings, check_setting
from llamaherd.layout import DEFAULT_STORE
from llamaherd.text.numbers import show_mib, show_size

TOLERANCE = 0.08
"""The tolerance between two figures of one memory: 64GB and 64GiB are 7 % apart, and often mean the same."""

RIG_KEYS = {
    "memory": "memory",
    "swap": "swap",
    "processors": "processors",
    "networkingmode": "networking",
    "vmidletimeout": "keep_alive",
    "instanceidletimeout": "keep_alive",
}
"""Keys of `.wslconfig`, in lower case, that have a key of their own in `host.wsl`."""

_WINDOWS_DISK = re.compile(r"(?<![\w.-])/mnt/[a-z](?=/|$)")


OTHER_RAM = Rule(
    "LH064",
    "The host's memory is not that of its virtual machine.",
    why="Under WSL, `ram` is the memory that Linux has, and `wsl.memory` is the memory that `.wslconfig` gives it.",
    example="""
    host:
      ram: 128GB
      wsl: {memory: 64GB}
    """,
    fix="write the same in both. Or leave `wsl.memory` out: WSL then takes half of Windows' memory.",
    severity="warning",
)


def check_wsl_memory(subject: RigContext) -> Iterator[Finding]:
    """Report memory of the host that is not that of its virtual machine."""
    host = subject.rig.host
    if host.wsl and host.wsl.memory and abs(host.ram - host.wsl.memory) > TOLERANCE * host.wsl.memory:
        machine = f"the virtual machine of the host has {show_size(host.wsl.memory)}"
        help_ = "write the same for `ram` as for `wsl.memory`, or correct that"
        place = subject.document.value(("host", "ram"))
        yield OTHER_RAM.at(place, f"`ram` is {show_size(host.ram)}, and {machine}", help_)


HALF_OF_WINDOWS = Rule(
    "LH084",
    "A plan under WSL needs more than half of the declared memory, and `wsl.memory` is not set.",
    why="""
    Without `wsl.memory`, WSL gives Linux half of Windows' memory. `ram` is the memory that Linux has. If it was written
    as Windows has it, the servers find half of it. `herd preflight` compares it with the host.
    """,
    example="""
    host: {ram: 1GB, wsl: {}}
    """,
    fix="write `memory` under `wsl`, or verify with `free -m` under WSL that `ram` is what Linux has.",
    severity="note",
)


def check_default_wsl_memory(subject: RigContext) -> Iterator[Finding]:
    """Report a plan that needs more than half of `ram` where WSL decides how much Linux gets (LH084)."""
    host = subject.rig.host
    if host.wsl is None or host.wsl.memory or _setting(host.wsl, "wsl2", "memory"):
        return
    needed = sum(each.ram for each in at_once(subject, subject.facts.sized).values())
    if needed > host.ram // 2:
        message = f"the instances need {show_mib(needed)} of RAM, more than half of `ram`, and WSL gives Linux half of "
        message += "Windows' memory"
        help_ = f"write `memory: {host.ram >> 20}MiB` under `wsl`, or verify `ram` with `free -m` under WSL"
        yield HALF_OF_WINDOWS.at(subject.document.value(("host", "ram")), message, help_)


RECLAIMED = Rule(
    "LH067",
    "WSL would drop the weights that the CPU computes with.",
    why="""
    Mapped weights are page cache, and WSL drops it when it is idle. The next request reads them from the
    disk again.
    """,
    example="""
    host:
      wsl: {memory: 64GB}
    """,
    after="Here `helper` computes on the CPU.",
    fix="""
    write `settings: {experimental: {autoMemoryReclaim: disabled}}` under `wsl`, or `mmap: false` for the
    instance.
    """,
    severity="warning",
)


def check_memory_reclaim(subject: RigContext) -> Iterator[Finding]:
    """Report mapped weights that WSL would drop."""
    wsl = subject.rig.host.wsl
    if wsl is None or _setting(wsl, "experimental", "autoMemoryReclaim").lower() == "disabled":
        return
    mapped = [
        name for name, facts in subject.facts.instances.items() if facts.instance.mmap is not False and facts.on_cpu
    ]
    if mapped:
        message = f"WSL drops its page cache when idle, and with it the weights that `{mapped[0]}` computes on the CPU"
        help_ = "write `settings: {experimental: {autoMemoryReclaim: disabled}}` under `wsl`, or `mmap: false` there"
        place = subject.document.value(("host", "wsl", "settings", "experimental", "autoMemoryReclaim"))
        yield RECLAIMED.at(place, message, help_)


def _setting(wsl: Wsl, section: str, key: str) -> str:
    """Return the value of a setting as text, or an empty string; names are compared as WSL does."""
    for name, settings in wsl.settings.items():
        for other, value in settings.items():
            if (name.lower(), other.lower()) == (section.lower(), key.lower()):
                return str(value)
    return ""


WINDOWS_DISK = Rule(
    "LH065",
    "A model lies on a disk of Windows.",
    why="Linux under WSL reads `/mnt/c` through a network protocol (9p): loading takes minutes instead of seconds.",
    example="""
    connect: local
    host: {wsl: {memory: 64GB}}
    models:
      small: {file: /mnt/c/models/small.gguf}
    """,
    fix="copy it into the distribution's own disk, such as `~/models`. Models of a hub are kept there anyway.",
    severity="warning",
)


def check_windows_paths(subject: RigContext) -> Iterator[Finding]:
    """Report models on a disk of Windows, which Linux reads through a slow protocol (9p)."""
    if subject.rig.host.wsl is None:
        return
    slow = "lies on a disk of Windows, from which WSL reads so slowly that loading takes minutes"
    path = subject.rig.store.path
    if _WINDOWS_DISK.match(path):
        place = subject.document.value(("store", "path"))
        help_ = f"take a folder of the distribution's own disk, such as {DEFAULT_STORE}"
        yield WINDOWS_DISK.at(place, f"`{path}` {slow}", help_)
    for name, model in subject.rig.models.items():
        if model.file and subject.rig.connect.host == LOCAL and _WINDOWS_DISK.match(str(model.file)):
            place = subject.document.value(("models", name, "file"))
            help_ = "copy it into the distribution, such as to ~/models, and name it there"
            yield WINDOWS_DISK.at(place, f"model `{name}` {slow}", help_)
    for name, instance in subject.rig.instances.items():
        for index, argument in enumerate(instance.extra_args):
            if found := _WINDOWS_DISK.search(argument):
                place = subject.document.value(("instances", name, "extra_args", index))
                help_ = "name a file of the distribution's own disk; models under `models` are kept there for you"
                yield WINDOWS_DISK.at(place, f"`{argument[found.start() :]}` {slow}", help_)


def check_wsl_settings(subject: RigContext) -> Iterator[Finding]:
    """Report settings that WSL lacks, that do nothing together, or that `host.wsl` sets as well."""
    wsl = subject.rig.host.wsl
    if wsl is not None:
        for section in wsl.settings:
            yield from _section(subject, wsl, section)
        yield from _together(subject, wsl)


def _section(subject: RigContext, wsl: Wsl, section: str) -> Iterator[Finding]:
    for key, value in wsl.settings[section].items():
        where = ("host", "wsl", "settings", section, key)
        problem = check_setting(section, key, value)
        if problem and section.lower() not in WSL_KEYS:
            place = subject.document.key(where[:-1])
            yield problem.at(place)
            return
        if problem:
            place = subject.document.value(where) if problem.about_value else subject.document.key(where)
            yield problem.at(place)
        elif own := RIG_KEYS.get(key.lower()):
            yield from _set_twice(subject, wsl, own, key, where)


def _together(subject: RigContext, wsl: Wsl) -> Iterator[Finding]:
    """Report settings that do nothing with the mode of networking."""
    named = [(section, key) for section, keys in wsl.settings.items() for key in keys]
    places = {f"{section}.{key}".lower(): ("host", "wsl", "settings", section, key) for section, key in named}
    values = {f"{section}.{key}".lower(): str(wsl.settings[section][key]) for section, key in named}
    if wsl.networking:
        values["wsl2.networkingmode"] = wsl.networking
    for name, problem in check_conflicting_settings(values):
        yield problem.at(subject.document.value(places[name]))


SET_TWICE = Rule(
    "LH066",
    "A setting of `.wslconfig` is set twice, or has a key of its own.",
    why="`memory`, `swap`, `processors`, `networkingMode` and the two idle timeouts follow from keys of `host.wsl`.",
    example="""
    host:
      wsl:
        memory: 64GB
        settings: {wsl2: {memory: 48GB}}
    """,
    fix="keep the key of `host.wsl` alone.",
    sometimes=("warning",),
)


def _set_twice(subject: RigContext, wsl: Wsl, own: str, key: str, where: tuple[str, ...]) -> Iterator[Finding]:
    given = getattr(wsl, own)
    if given is None:
        message = f"`{key}` has a key of its own, by which the rest of the rig is checked"
        yield SET_TWICE.at(subject.document.key(where), message, f"write `{own}:` under `wsl` instead", "warning")
    elif given is not False:
        message = f"`{key}` of .wslconfig follows from `{own}` of `wsl` already"
        yield SET_TWICE.at(subject.document.key(where), message, f"leave `{key}` out of `settings`")


WINDOWS_PROFILE = Rule(
    "LH068",
    "`windows_profile` is not a folder of Windows in WSL.",
    example=r"""
    host:
      wsl: {memory: 64GB, windows_profile: 'C:\Users\tom'}
    """,
    fix="write `/mnt/c/Users/tom`.",
    sometimes=("warning",),
)


def check_windows_profile(subject: RigContext) -> Iterator[Finding]:
    """Report a Windows folder that does not exist under WSL."""
    wsl = subject.rig.host.wsl
    profile = wsl.windows_profile if wsl else None
    if profile is None or _WINDOWS_DISK.match(profile):
        return
    place = subject.document.value(("host", "wsl", "windows_profile"))
    message = f"`{profile}` is not a folder of Windows in WSL"
    windows = PureWindowsPath(profile)
    if windows.drive[1:] == ":" and windows.root:
        path = "/".join(("/mnt", windows.drive[0].lower(), *windows.parts[1:]))
        yield WINDOWS_PROFILE.at(place, message, f"write `windows_profile: {path}`")
    elif not profile.startswith("/"):
        yield WINDOWS_PROFILE.at(place, message, "write it like `/mnt/c/Users/tom`")
    else:
        help_ = "write it like `/mnt/c/Users/tom`, unless `automount.root` of /etc/wsl.conf is another one"
        yield WINDOWS_PROFILE.at(place, message, help_, "warning")
