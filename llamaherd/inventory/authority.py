"""The fleet's own CA for the gateway. Its private key is in the inventory folder and never leaves it.

Each file is written atomically and follows from the previous ones, so the next run completes an interrupted one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.file_writer import create_atomically, remove_abandoned, report_write_errors, write_atomically
from llamaherd.text.textfile import UnreadableError, read_bytes

KEY, ROOT = "root.key", "root.pem"
"""The CA's private key, and the certificate that clients trust."""
_MOST_BYTES = 64 << 10


@dataclass(frozen=True)
class Root:
    """The certificate that clients trust: its file, its text, its fingerprint, and when it expires."""

    file: Path
    pem: str
    fingerprint: str
    ends: datetime


def make_root(folder: Path, now: datetime | None = None) -> bool:
    """Create a CA in a folder, or its missing files. Return whether a file was created.

    Raises UserError.
    """
    from llamaherd.inventory.certificates import new_key, root_for

    key, root = folder / KEY, folder / ROOT
    remove_abandoned(key, root)
    if root.exists():
        root_in(folder)
        return False
    with report_write_errors():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not key.exists():
            create_atomically(key, new_key(), 0o600)
        create_atomically(root, root_for(_read(key), now or datetime.now(UTC)), 0o644)
    return True


def root_in(folder: Path) -> Root:
    """Return the root certificate of the CA in a folder. Raise UserError if it or its key is missing."""
    from llamaherd.inventory.certificates import WrongPemError, fingerprint, is_root_of, valid

    pem, key = _read(folder / ROOT), _read(folder / KEY)
    try:
        if not is_root_of(pem, key):
            raise UserError(
                f"{folder / KEY} is not the key of {folder / ROOT}", "restore the key that was made with it"
            )
        return Root(folder / ROOT, pem, fingerprint(pem), valid(pem)[1])
    except WrongPemError as error:
        raise _unusable(folder, error) from None


def certificate_of(folder: Path, rig: str, names: Collection[str], now: datetime | None = None) -> str:
    """Return the certificate of a rig's gateway with its key, in PEM: the existing one, or a new one.

    Raises UserError.
    """
    from llamaherd.inventory.certificates import WrongPemError, lasting, signed

    now = now or datetime.now(UTC)
    file, root = folder / f"gateway-{rig}.pem", root_in(folder)
    _within(root, now)
    remove_abandoned(folder / KEY, folder / ROOT, file)
    if file.exists() and lasting(text := _read(file), root.pem, names, now):
        return text
    try:
        made = signed(root.pem, _read(folder / KEY), rig, names, now)
    except WrongPemError as error:
        raise _unusable(folder, error) from None
    with report_write_errors():
        write_atomically(file, made, 0o600)
    return made


def _within(root: Root, now: datetime) -> None:
    """Raise UserError if the CA must not sign now."""
    from llamaherd.inventory.certificates import valid

    if now >= root.ends:
        help_ = f"move {root.file.parent} away, make another one by `herd gateway ca`, and have clients trust that"
        raise UserError(f"the CA in {root.file.parent} has ended on {root.ends:%Y-%m-%d}", help_)
    if now < valid(root.pem)[0]:
        early = f"the CA in {root.file.parent} is not valid yet: this machine's clock is at {now:%Y-%m-%d}"
        raise UserError(early, "set the clock")


def _read(file: Path) -> str:
    try:
        return read_bytes(file, _MOST_BYTES).decode("ascii")
    except UnreadableError as error:
        help_ = "make it: `herd gateway ca`, or restore the folder of the CA that clients trust"
        raise UserError(f"cannot read {file}: {error}", help_) from None
    except UnicodeDecodeError:
        raise UserError(f"{file} contains no PEM", "restore the file") from None


def _unusable(folder: Path, error: ValueError) -> UserError:
    return UserError(f"the CA in {folder} cannot be used: {error}", "restore its files")
