"""Explain errors that programs of a host print about full disks, read-only files and masked units. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from llamaherd.diagnostics.findings import UserError

_REASONS = {
    "No space left on device": (
        "make room on that disk (`df -h {folder}`; `df -i {folder}` where it has room, but no more files), "
        "then `herd up`"
    ),
    "Disk quota exceeded": "raise the quota there (`quota`, `repquota -a`), or make room, then `herd up`",
    "Read-only file system": (
        "make it writable (`findmnt -T {folder}` says how it is mounted; a disk with errors is mounted so: see "
        "`dmesg`), then `herd up`"
    ),
    "Operation not permitted": (
        "`lsattr -d {folder} {path}` says whether one of them may not be changed (`chattr -i` lets it), then `herd up`"
    ),
    "Input/output error": "the disk may be failing: see `dmesg` and `smartctl -a` on the host",
    "Structure needs cleaning": "the filesystem is damaged: see `dmesg`, and run `fsck` while it is not mounted",
}
_PATTERN = re.compile(rf"^[\w./\[\] -]+: (?P<what>.*?)(?:: |\(\d+: )?(?P<reason>{'|'.join(_REASONS)})[).]?$")
"""The program, what it could not do, and the reason that the system gave."""
_ACCOUNTS = re.compile(r"^(?:user|group)\w+: cannot lock (/etc/\S+); try again later")

_MASKED = re.compile(r"^Failed to .*\b[Uu]nit (?:file )?(?P<unit>\S+) is masked\b")
"""What systemctl and systemd-run say of it, as of 252 and 257."""
_NAME_TAKEN = re.compile(r"^Failed to start transient .*: Unit (\S+) was already loaded or has a fragment file\b")
"""Of a unit that we start for as long as there is something to do: a mask is such a file, too."""


def explain_failure(lines: Iterable[str]) -> UserError | None:
    """Why a disk took nothing or a unit is not started, by the first program that says so.

    None where none does, or a way out is given.
    """
    lines = list(lines)
    if any(line.lstrip().startswith("help: ") for line in lines):
        return None
    for line in lines:
        if unit := _of_a_unit(line):
            return unit
        if locked := _ACCOUNTS.search(line):
            return UserError(
                f"{locked[1]} cannot be changed",
                "`findmnt -T /etc` says whether it is mounted read-only; else another program changes accounts, or one "
                f"that was killed has left {locked[1]}.lock: remove that, then `herd up`",
            )
        if found := _PATTERN.match(line.strip()):
            path = _last_path(found["what"])
            # What could not be made is not there to be asked about; what could not be changed is.
            folder = path if found["what"].startswith("changing ") else str(PurePosixPath(path).parent)
            help_ = _REASONS[found["reason"]].format(path=path, folder=folder if path else "/var/lib /tmp /etc")
            return UserError(f"the host cannot write {path or 'a file'}: {found['reason'].lower()}", help_)
    return None


def _of_a_unit(line: str) -> UserError | None:
    """Why systemd does not start a unit."""
    if masked := _MASKED.search(line):
        return _is_masked(masked["unit"])
    if taken := _NAME_TAKEN.search(line):
        unit = taken[1]
        return UserError(
            f"{unit} cannot be started: a unit of that name is on this host already",
            f"see whose it is with `systemctl status {unit}`; if it is masked, `systemctl unmask {unit}`, else let it "
            "end, or move its file away and `systemctl daemon-reload`; then `herd up`",
        )
    return None


def _is_masked(unit: str) -> UserError:
    """A unit as systemctl names it: by the path of its link, or by its name alone, which tells not which mask it is."""
    folder, _, name = unit.rpartition("/")
    way = f"`systemctl unmask {'--runtime ' if folder.startswith('/run/') else ''}{name}`"
    if not folder:
        way += f" (`systemctl unmask --runtime {name}` where `systemctl is-enabled {name}` says masked-runtime)"
    return UserError(f"{name} is masked on this host, so that systemd does not start it", f"{way}, then `herd up`")


def _last_path(what: str) -> str:
    """The path that it was about: of two, the one that was to be made."""
    quoted = re.findall(r"'(/[^']*)'", what)
    bare = re.findall(r"(/\S+?)(?:$|[\s:])", what)
    return str((quoted or bare or [""])[-1])
