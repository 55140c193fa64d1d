"""What `docker login` keeps: user and password by host, in Docker's own file."""

from __future__ import annotations

import base64
import binascii
import os
import re
from pathlib import Path
from typing import Any

from llamaherd.lock.resolve.image_name import DOCKER_HUB
from llamaherd.text.numbers import parse_json

_DOCKER_HUB_LOGIN = "https://index.docker.io/v1/"  # what `docker login` calls it in its file


def docker_logins() -> dict[str, str]:
    """By host, what `docker login` keeps in its file: base64 of user and password.

    A login that a credential helper keeps is not asked for.
    """
    folder = os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
    try:
        entries = json_object(Path(folder, "config.json").read_bytes()).get("auths")
    except (OSError, RuntimeError):
        return {}
    found: dict[str, str] = {}
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        login = entry.get("auth") if isinstance(entry, dict) else None
        if isinstance(login, str) and _is_base64(login):
            host = re.sub(r"^https?://|/.*", "", key)
            found[DOCKER_HUB if key == _DOCKER_HUB_LOGIN else host] = login
    return found


def _is_base64(text: str) -> bool:
    try:
        return b":" in base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False


def json_object(body: bytes) -> dict[str, Any]:
    """A JSON object; an empty one for anything else."""
    try:
        value = parse_json(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
