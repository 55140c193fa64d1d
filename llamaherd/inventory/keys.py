"""API keys, read when they are needed and from where the inventory says. They are never stored, shown or planned."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from llamaherd.inventory.schema import Secret
from llamaherd.text.textfile import UnreadableError, read_bytes

_MOST_BYTES = 64 << 10
"""Of a file that holds a key and nothing else."""


class UnreadableKeyError(Exception):
    """A key is not where the inventory says."""


class UnmadeKey(Secret):
    """The place of a key that the next `herd up` makes. Until then it reads as one that no host has."""


def read_key(secret: Secret) -> str:
    """The key. Raises UnreadableKeyError where there is none, or where it could not be one."""
    if isinstance(secret, UnmadeKey):
        return secrets.token_urlsafe()
    if secret.env:
        key = os.environ.get(secret.env, "")
        place = f"the environment variable {secret.env}"
    else:
        place = str(secret.file)
        try:
            key = read_bytes(Path(place), _MOST_BYTES).decode()
        except UnreadableError as error:
            raise UnreadableKeyError(f"cannot read the API key in {place}: {error}") from None
        except UnicodeDecodeError:
            raise UnreadableKeyError(f"what is in {place} is no API key: it is not text") from None
    key = key.strip()
    if not key:
        raise UnreadableKeyError(f"there is no API key in {place}")
    if not key.isprintable() or " " in key:
        raise UnreadableKeyError(f"what is in {place} is no API key: it holds spaces or more than one line")
    return key


def unreadable(secret: Secret) -> str | None:
    """Why the key cannot be read, with a way out; None if it can."""
    try:
        read_key(secret)
    except UnreadableKeyError as error:
        return f"{error}\n  help: put the key there, for example the output of `openssl rand -hex 32`"
    return None
