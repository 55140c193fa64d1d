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
        "make it writable (`findmnt -T {folder}` shows how it is mounted; a disk with errors is mounted read-only: see "
        "`dmesg`), then `herd up`"
    ),
    "Operation not permitted": (
        "`lsattr -d {folder} {path}` shows whether one of them is immutable (`chattr -i` changes that), then `herd up`"
    ),
    "Input/output error": "the disk may be failing: see `dmesg` and `smartctl -a` on the host",
    "Structure needs cleaning": "the filesystem is damaged: see `dmesg`, and run `fsck` while it is not mounted",
}
_PATTERN = re.compile(rf"^[\w./\[\] -]+: (?P<what>.*?)(?:: |\(\d+: )?(?P<reason>{'|'.join(_REASONS)})[).]?$")
"""The program, what it could not do, and the error of the system."""
_ACCOUNTS = re.compile(r"^(?:user|group)\w+: cannot lock (/etc/\S+); try again later")

_MASKED = re.compile(r"^Failed to .*\b[Uu]nit (?:file )?(?P<unit>\S+) is masked\b")
"""The message of systemctl and systemd-run, versions 252 and 257."""
_NAME_TAKEN = re.compile(r"^Failed to start transient .*: Unit (\S+) was already loaded or has a fragment file\b")
"""The message for a transient unit. A mask is a fragment file, too."""


def explain_failure(lines: Iterable[str]) -> UserError | None:
    """Return why a disk could not be written or a unit not be started, by the first program that reports it.

    Return None if no program reports such an error, or if the lines contain a help.
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
                "`findmnt -T /etc` shows whether it is mounted read-only; otherwise another program changes accounts, "
                f"or a killed program has left {locked[1]}.lock: remove this file, then `herd up`",
            )
        if found := _PATTERN.match(line.strip()):
            path = _last_path(found["what"])
            # A path that could not be made does not exist: its folder can be examined.
            folder = path if found["what"].startswith("changing ") else str(PurePosixPath(path).parent)
            help_ = _REASONS[found["reason"]].format(path=path, folder=folder if path else "/var/lib /tmp /etc")
            return UserError(f"the host cannot write {path or 'a file'}: {found['reason'].lower()}", help_)
    return None


def _of_a_unit(line: str) -> UserError | None:
    """Return why systemd does not start a unit; None if the line reports no such error."""
    if masked := _MASKED.search(line):
        return _is_masked(masked["unit"])
    if taken := _NAME_TAKEN.search(line):
        unit = taken[1]
        return UserError(
            f"{unit} cannot be started: a unit of that name is on this host already",
            f"`systemctl status {unit}` shows where it is from; if it is masked, `systemctl unmask {unit}`, otherwise "
            "wait for its end, or move its file away and `systemctl daemon-reload`; then `herd up`",
        )
    return None


def _is_masked(unit: str) -> UserError:
    """Return the error of a masked unit, which systemctl names by the path of its link or by its name alone."""
    folder, _, name = unit.rpartition("/")
    fix = f"`systemctl unmask {'--runtime ' if folder.startswith('/run/') else ''}{name}`"
    if not folder:
        fix += f" (`systemctl unmask --runtime {name}` if `systemctl is-enabled {name}` prints masked-runtime)"
    return UserError(f"{name} is masked on this host, so that systemd does not start it", f"{fix}, then `herd up`")


def _last_path(what: str) -> str:
    """Return the path that an error is about: of two, the path that the program was to make."""
    quoted = re.findall(r"'(/[^']*)'", what)
    bare = re.findall(r"(/\S+?)(?:$|[\s:])", what)
    return str((quoted or bare or [""])[-1])
