"""Keys of a gateway, read on the controller when a step is made, and kept nowhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.authority import certificate_of
from llamaherd.inventory.keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import Secret
from llamaherd.plan import GatewayPlan
from llamaherd.text.textfile import UnreadableError, read_bytes
from roles.gateway.config import GatewayKeys

_MOST_PEM = 256 << 10
"""Bytes of a certificate with its chain, and of its key."""


def read_keys(plan: GatewayPlan) -> GatewayKeys:
    """All keys. Raises UserError where one cannot be read, or two users have the same."""
    owners: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for user in plan.users:
        hashes[user.name] = hashlib.sha256(_key(user.key, f"user `{user.name}`").encode()).hexdigest()
        owner = owners.setdefault(hashes[user.name], user.name)
        if owner != user.name:
            raise UserError(
                f"users `{user.name}` and `{owner}` have the same key",
                f"give each a key of their own: `herd users rotate {user.name}`",
            )
    servers = {model.name: _key(model.key, f"servers of `{model.name}`") for model in plan.models if model.key}
    return GatewayKeys(hashes, servers, _certificate(plan))


def _key(secret: Secret, whose: str) -> str:
    try:
        return read_key(secret)
    except UnreadableKeyError as error:
        raise UserError(f"the key of {whose}: {error}", "put the key there, or take it out of fleet.yaml") from None


def _certificate(plan: GatewayPlan) -> str | None:
    """Certificate and key in one text, as HAProxy reads them: of a CA of our own, or from files."""
    if plan.authority is not None:
        return certificate_of(plan.authority, plan.rig, plan.names)
    if plan.certificate is None or plan.private_key is None:
        return None
    return "".join(f"{_pem(file).strip()}\n" for file in (plan.certificate, plan.private_key))


def _pem(file: Path) -> str:
    try:
        return read_bytes(file, _MOST_PEM).decode("ascii")
    except UnreadableError as error:
        raise UserError(f"cannot read {file}: {error}", error.help) from None
    except UnicodeDecodeError:
        raise UserError(f"what is in {file} is no PEM", "name a file that begins with `-----BEGIN`") from None
