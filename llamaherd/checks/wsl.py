"""WSL: memory, paths on Windows' disks, and what `.wslconfig` is to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PureWindowsPath

from llamaherd.checks.context import RigContext
from llamaherd.checks.processor import computes_on_cpu
from llamaherd.diagnostics.findings import Finding
from llamaherd.inventory.schema import LOCAL, Wsl
from llamaherd.layout import DEFAULT_STORE
from llamaherd.text.units import show_size
from llamaherd.wsl.wslconfig import KEYS, check_setting, check_together

TOLERANCE = 0.08
"""By how much two figures of one memory may differ: 64GB and 64GiB are 7 % apart, and people mean the same by them."""

OWN_KEYS = {
    "memory": "memory",
    "swap": "swap",
    "processors": "processors",
    "networkingmode": "networking",
    "vmidletimeout": "keep_alive",
    "instanceidletimeout": "keep_alive",
}
"""Keys of `.wslconfig`, in lower case, that have a key of their own in `host.wsl`."""

_WINDOWS_DISK = re.compile(r"(?<![\w.-])/mnt/[a-z](?=/|$)")


def wsl_memory(subject: RigContext) -> Iterator[Finding]:
    """Memory of the host that is not that of its virtual machine, and mapped weights that WSL would drop."""
    host = subject.rig.host
    if host.wsl is None:
        return
    if host.wsl.memory and abs(host.ram - host.wsl.memory) > TOLERANCE * host.wsl.memory:
        message = (
            f"`ram` is {show_size(host.ram)}, and the virtual machine that the host is has {show_size(host.wsl.memory)}"
        )
        help_ = "write the same for `ram` as for `wsl.memory`, or correct that"
        yield Finding("LH064", subject.document.value(("host", "ram")), message, help_, "warning")
    mapped = [
        name
        for name, instance in subject.rig.instances.items()
        if instance.mmap is not False and computes_on_cpu(subject, instance)
    ]
    if mapped and _setting(host.wsl, "experimental", "autoMemoryReclaim").lower() != "disabled":
        message = f"WSL drops its page cache when idle, and with it the weights that `{mapped[0]}` computes on the CPU"
        help_ = "write `settings: {experimental: {autoMemoryReclaim: disabled}}` under `wsl`, or `mmap: false` there"
        place = subject.document.value(("host", "wsl", "settings", "experimental", "autoMemoryReclaim"))
        yield Finding("LH067", place, message, help_, "warning")


def windows_paths(subject: RigContext) -> Iterator[Finding]:
    """Models on a disk of Windows, which Linux reads through a slow protocol (9p)."""
    if subject.rig.host.wsl is None:
        return
    slow = "lies on a disk of Windows, from which WSL reads so slowly that loading takes minutes"
    path = subject.rig.store.path
    if _WINDOWS_DISK.match(path):
        place = subject.document.value(("store", "path"))
        help_ = f"take a folder of the distribution's own disk, such as {DEFAULT_STORE}"
        yield Finding("LH065", place, f"`{path}` {slow}", help_, "warning")
    for name, model in subject.rig.models.items():
        if model.file and subject.rig.connect.host == LOCAL and _WINDOWS_DISK.match(str(model.file)):
            place = subject.document.value(("models", name, "file"))
            help_ = "copy it into the distribution, such as to ~/models, and name it there"
            yield Finding("LH065", place, f"model `{name}` {slow}", help_, "warning")
    for name, instance in subject.rig.instances.items():
        for index, argument in enumerate(instance.extra_args):
            if found := _WINDOWS_DISK.search(argument):
                place = subject.document.value(("instances", name, "extra_args", index))
                help_ = "name a file of the distribution's own disk; models under `models` are kept there for you"
                yield Finding("LH065", place, f"`{argument[found.start() :]}` {slow}", help_, "warning")


def wsl_settings(subject: RigContext) -> Iterator[Finding]:
    """Settings that WSL does not know, or that `host.wsl` says as well; a Windows folder that is none here."""
    wsl = subject.rig.host.wsl
    if wsl is None:
        return
    for section, settings in wsl.settings.items():
        for key, value in settings.items():
            where = ("host", "wsl", "settings", section, key)
            problem = check_setting(section, key, value)
            if problem and section.lower() not in KEYS:
                place = subject.document.key(where[:-1])
                yield Finding(problem.code, place, problem.message, problem.help, problem.severity)
                break
            if problem:
                place = subject.document.value(where) if problem.about_value else subject.document.key(where)
                yield Finding(problem.code, place, problem.message, problem.help, problem.severity)
            elif own := OWN_KEYS.get(key.lower()):
                yield from _said_twice(subject, wsl, own, key, where)
    yield from _together(subject, wsl)
    profile = wsl.windows_profile
    if profile is not None and not _WINDOWS_DISK.match(profile):
        place = subject.document.value(("host", "wsl", "windows_profile"))
        message = f"`{profile}` is no folder of Windows as WSL sees it"
        windows = PureWindowsPath(profile)
        if windows.drive[1:] == ":" and windows.root:
            seen = "/".join(("/mnt", windows.drive[0].lower(), *windows.parts[1:]))
            yield Finding("LH068", place, message, f"write `windows_profile: {seen}`")
        elif not profile.startswith("/"):
            yield Finding("LH068", place, message, "write it like `/mnt/c/Users/tom`")
        else:
            help_ = "write it like `/mnt/c/Users/tom`, unless `automount.root` of /etc/wsl.conf is another one"
            yield Finding("LH068", place, message, help_, "warning")


def _together(subject: RigContext, wsl: Wsl) -> Iterator[Finding]:
    """Settings that do nothing with the mode of networking."""
    named = [(section, key) for section, keys in wsl.settings.items() for key in keys]
    places = {f"{section}.{key}".lower(): ("host", "wsl", "settings", section, key) for section, key in named}
    values = {f"{section}.{key}".lower(): str(wsl.settings[section][key]) for section, key in named}
    if wsl.networking:
        values["wsl2.networkingmode"] = wsl.networking
    for name, problem in check_together(values):
        yield Finding(
            problem.code, subject.document.value(places[name]), problem.message, problem.help, problem.severity
        )


def _said_twice(subject: RigContext, wsl: Wsl, own: str, key: str, where: tuple[str, ...]) -> Iterator[Finding]:
    given = getattr(wsl, own)
    if given is None:
        message = f"`{key}` has a key of its own, by which the rest of the rig is checked"
        yield Finding("LH066", subject.document.key(where), message, f"write `{own}:` under `wsl` instead", "warning")
    elif given is not False:
        message = f"`{key}` of .wslconfig follows from `{own}` of `wsl` already"
        yield Finding("LH066", subject.document.key(where), message, f"leave `{key}` out of `settings`")


def _setting(wsl: Wsl, section: str, key: str) -> str:
    """The value of a setting as text, and nothing where it is not given; names are compared as WSL does."""
    for name, settings in wsl.settings.items():
        for other, value in settings.items():
            if (name.lower(), other.lower()) == (section.lower(), key.lower()):
                return str(value)
    return ""
