"""Keys of servers behind a gateway for which the inventory names none: whose they are, and which file keeps each.

Each rig has one. The gateway sends a model's servers one key, whichever of them is free: so rigs that serve a model
together have one, too. It lies in the file of the first of them that has one, by name, so that a rig that joins changes
no key of those that are there.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llamaherd.inventory.schema import Rig, Secret
from llamaherd.inventory.schema.gateway import FleetFile, Gateway
from llamaherd.inventory.served import split_served
from llamaherd.inventory.written import create_whole, said

KEYS = "keys/rigs"
"""The folder of these keys, beside the inventory."""
_KEY_BYTES = 32


@dataclass(frozen=True)
class ServerKey:
    """A key, by the file that keeps it, and the servers of each rig that ask for it."""

    file: Path
    servers: Mapping[str, frozenset[str]]

    @property
    def is_made(self) -> bool:
        """Whether there is such a file."""
        return _exists(self.file)

    @property
    def made(self) -> str:
        """What is said of one that was just made, which shows none of it."""
        of = "rig" if len(self.servers) == 1 else "rigs"
        return f"made {self.file}, the key of servers of {of} {', '.join(self.servers)}: keep it with the inventory"


def server_keys(declared: FleetFile | None, rigs: Mapping[str, Rig], folder: Path) -> tuple[ServerKey, ...]:
    """The keys that these rigs need beside those that they name; `folder` is that of the fleet's file."""
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
    """The servers of each model that are open to others and have no key, each with its rig's name."""
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
    """A rig whose servers have these keys, each at a `place` of that kind."""
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
    """Make a key of chance in its file; one that is there by now stays. Raises UserError."""
    with said():
        key.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_whole(key.file, f"{secrets.token_urlsafe(_KEY_BYTES)}\n", 0o600)
