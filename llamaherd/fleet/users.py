"""Add, revoke and rotate gateway users: one key each, in its own file in the inventory folder."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.fleet.gateway import DeclaredGateway
from llamaherd.inventory.exact_edits import text_with_value
from llamaherd.inventory.file_writer import report_write_errors, write_atomically
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.pipeline.fleet_files import FLEET

KEYS_FOLDER = "keys/users"
"""The folder of users' keys, in the inventory folder."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_KEY_BYTES = 24
"""Random bytes of a key: 192 bits, which cannot be guessed from a hash."""


@dataclass(frozen=True)
class NewKey:
    """A key that was just made, to be shown once, and the file that keeps it."""

    key: str
    file: Path

    def __repr__(self) -> str:
        return f"NewKey({self.file})"


def add_user(gateway: DeclaredGateway, name: str, streams: int | None, models: Sequence[str]) -> NewKey:
    """Declare a user with a key of its own, or make the missing key of a declared user. Raise UserError."""
    if not _NAME.fullmatch(name):
        raise UserError(f"`{name[:60]}` is not a valid name", "names have up to 40 lower-case letters, digits, . _ -")
    if user := gateway.declared.users.get(name):
        if user.key.file is None or user.key.file.exists():
            raise UserError(f"there is a user `{name}` already", f"`herd users rotate {name}` makes another key")
        if streams is not None or models:
            raise UserError(f"`{name}` is declared already", f"change `streams` and `models` in {gateway.file}")
        return rotate_key(gateway, name)
    unknown = [model for model in models if model not in gateway.declared.models]
    if unknown:
        known = ", ".join(gateway.declared.models)
        raise UserError(f"the gateway has no model `{unknown[0]}`", f"its models are {known}")
    file = gateway.file.parent / KEYS_FOLDER / name
    value: dict[str, Any] = {"key": {"file": f"{KEYS_FOLDER}/{name}"}}
    value |= {"streams": streams} if streams is not None else {}
    value |= {"models": list(models)} if models else {}
    text = text_with_value(_text(gateway.file), gateway.file, ("gateway", "users", name), value)
    if file.exists():
        raise UserError(f"there is a file {file} already", "move it away, or name it in fleet.yaml yourself")
    made = _written_key(file)
    _replace(gateway.file, text)
    return made


def declare_missing_key(inventory: Path, name: str) -> None:
    """Add the file of a key to a user that fleet.yaml declares without `key`. Raise UserError."""
    file = (inventory if inventory.is_dir() else inventory.parent) / FLEET
    try:
        data = read_yaml(file).data if file.is_file() else {}
    except InventoryError:
        return  # the command reports it
    found: Any = data
    for key in ("gateway", "users", name):
        found = found.get(key) if isinstance(found, dict) else None
    if isinstance(found, dict) and "key" not in found:
        file_of_key = {"file": f"{KEYS_FOLDER}/{name}"}
        path, value = (("key",), file_of_key) if found else ((), {"key": file_of_key})
        _replace(file, text_with_value(_text(file), file, ("gateway", "users", name, *path), value))


def revoke_user(gateway: DeclaredGateway, name: str) -> Path | None:
    """Remove a user, and the key's file if it is in the inventory folder; return that file.

    Raise UserError.
    """
    user = gateway.user(name)
    text = text_with_value(_text(gateway.file), gateway.file, ("gateway", "users", name), None)
    _replace(gateway.file, text)
    folder = gateway.file.parent
    if user.key.file is None or not user.key.file.resolve().is_relative_to(folder) or _shared(gateway, name):
        return None
    with report_write_errors():
        user.key.file.unlink(missing_ok=True)
    return user.key.file


def rotate_key(gateway: DeclaredGateway, name: str) -> NewKey:
    """Give a user another key, in place of the current one. Raise UserError."""
    user = gateway.user(name)
    if user.key.file is None:
        help_ = f"set that variable to another key, or name a file: `key: {{file: {KEYS_FOLDER}/{name}}}`"
        raise UserError(f"the key of `{name}` is in the environment variable {user.key.env}", help_)
    if other := _shared(gateway, name):
        raise UserError(f"`{other}` has the same key file as `{name}`", "name a file for each in fleet.yaml")
    return _written_key(user.key.file)


def _shared(gateway: DeclaredGateway, name: str) -> str | None:
    """Return another user whose key is in the same file."""
    file = gateway.declared.users[name].key.file
    others = ((other, each) for other, each in gateway.declared.users.items() if other != name)
    return next((other for other, each in others if each.key.file == file), None)


def _written_key(file: Path) -> NewKey:
    key = f"sk-herd-{secrets.token_hex(_KEY_BYTES)}"
    with report_write_errors():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(file, f"{key}\n", 0o600)
    return NewKey(key, file)


def _text(file: Path) -> str:
    with report_write_errors():
        return file.read_text(encoding="utf-8")


def _replace(file: Path, text: str) -> None:
    """Replace a file in one step, with the same mode."""
    with report_write_errors():
        write_atomically(file, text, file.stat().st_mode & 0o777)
