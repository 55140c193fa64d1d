"""Read the API keys of servers, and create keys for servers behind a gateway that have none."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llamaherd.inventory.file_writer import create_atomically, report_write_errors
from llamaherd.inventory.schema import Rig, Secret
from llamaherd.inventory.schema.fleet_file import FleetFile, Gateway, split_served
from llamaherd.text.textfile import UnreadableError, read_bytes

_MOST_BYTES = 64 << 10
"""The most bytes of a file with a key."""


class UnreadableKeyError(Exception):
    """A key cannot be read from the place in the inventory."""


class UnmadeKey(Secret):
    """The place of a key that the next `herd up` creates. Until then it reads as a key that no host has."""


def read_key(secret: Secret) -> str:
    """Return the key. Raise UnreadableKeyError if there is none, or it is invalid."""
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


def unreadable_key(secret: Secret) -> str | None:
    """Return why the key cannot be read, with a suggestion; None if it can."""
    try:
        read_key(secret)
    except UnreadableKeyError as error:
        return f"{error}\n  help: put the key there, for example the output of `openssl rand -hex 32`"
    return None


KEYS = "keys/rigs"
"""The folder of created keys, in the inventory folder."""
_KEY_BYTES = 32


@dataclass(frozen=True)
class ServerKey:
    """A key in its file, and the servers of each rig that require it."""

    file: Path
    servers: Mapping[str, frozenset[str]]

    @property
    def is_made(self) -> bool:
        """Return whether the file exists."""
        return _exists(self.file)

    @property
    def made(self) -> str:
        """Return the message about a created key, without the key."""
        of = "rig" if len(self.servers) == 1 else "rigs"
        return f"made {self.file}, the key of servers of {of} {', '.join(self.servers)}: keep it with the inventory"


def server_keys(declared: FleetFile | None, rigs: Mapping[str, Rig], folder: Path) -> tuple[ServerKey, ...]:
    """Return the keys that rigs need in addition to those they name. `folder` is that of the fleet's file."""
    if declared is None or declared.gateway is None:
        return ()
    asking: dict[str, set[str]] = {}
    together: list[set[str]] = []
    for places in _keyless(declared.gateway, rigs):
        for rig, server in places:
            asking.setdefault(rig, set()).add(server)
        names = {rig for rig, _ in places}
        joined = names.union(*(each for each in together if each & names))
        together = [*(each for each in together if not each & names), joined]
    return tuple(
        ServerKey(_file(sorted(names), folder), {name: frozenset(asking[name]) for name in sorted(names)})
        for names in sorted(together, key=min)
    )


def _keyless(gateway: Gateway, rigs: Mapping[str, Rig]) -> Iterator[list[tuple[str, str]]]:
    """Return, by model, the servers that other machines can reach without a key, each with its rig's name."""
    for model in gateway.models.values():
        named = [place for each in model.serve if (place := split_served(each, rigs))]
        servers = [(rig, rigs[rig].server_of(instance)) for rig, instance in named]
        if keyless := [(rig, server) for rig, server in servers if _lacks_key(rigs[rig], server)]:
            yield keyless


def _lacks_key(rig: Rig, server: str) -> bool:
    instances = [rig.instances[name] for name in rig.servers[server]]
    return all(each.api_key is None and not each.loopback for each in instances)


def _file(names: list[str], folder: Path) -> Path:
    files = [folder / KEYS / name for name in names]
    return next(filter(_exists, files), files[0])


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:
        return False


def with_server_keys(rig: Rig, keys: Iterable[ServerKey], place: type[Secret] = Secret) -> Rig:
    """Return a rig whose servers have these keys, each at a `place` of that kind."""
    files = {server: key.file for key in keys for server in key.servers.get(rig.rig, ())}
    if not files:
        return rig
    instances = {
        name: each.model_copy(update={"api_key": place(file=files[server])})
        if (server := rig.server_of(name)) in files
        else each
        for name, each in rig.instances.items()
    }
    return rig.model_copy(update={"instances": instances})


def make_key(key: ServerKey) -> None:
    """Write a random key to its file, unless the file exists by now. Raise UserError."""
    with report_write_errors():
        key.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_atomically(key.file, f"{secrets.token_urlsafe(_KEY_BYTES)}\n", 0o600)
