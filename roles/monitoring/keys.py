"""Keys that Prometheus and Alertmanager need, read on the controller when a step is made, and kept nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import Secret
from llamaherd.plan import WatcherPlan


def key_places(watcher: WatcherPlan) -> Iterator[tuple[str, Secret, str]]:
    """The name of each key's file on the host, where it is on this machine, and whose it is."""
    for server in watcher.servers:
        if server.key:
            yield server.name, server.key, f"server `{server.name}`"
    for each in watcher.keys:
        yield f"alerts-{each.way}", each.key, f"alerts by {each.way}"


def read_keys(watcher: WatcherPlan) -> dict[str, str]:
    """All keys by the names of their files. Raises UserError where one cannot be read."""
    keys = {}
    for name, secret, whose in key_places(watcher):
        try:
            keys[name] = read_key(secret)
        except UnreadableKeyError as error:
            raise UserError(f"the key of {whose}: {error}", "put the key there, or take it out of the YAML") from None
    return keys
