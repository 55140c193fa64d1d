"""Keys of servers that are not made yet: before one is, hosts are asked whether they have it from another machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from llamaherd.checks.files import MISSING_FILE
from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.host.protocol import UnaskedError, query_verb
from llamaherd.host.remote import AT_ONCE, NoPythonError, Remote, RemoteError
from llamaherd.inventory.keys import UnmadeKey
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.server_keys import ServerKey, make_key, with_server_keys
from llamaherd.layout import KEYS
from llamaherd.onhost.queries import KeysFound, KeysInput
from llamaherd.pipeline.load_fleet import Survey

Made = Callable[[ServerKey], None]
"""Is told of a key that was just made."""
_SECONDS = 60
_ANOTHER = "`openssl rand -hex 32`, with mode 600"


def with_keys(surveyed: Survey, chosen: Collection[str], made: Made | None) -> Survey:
    """The fleet, whose servers on the rigs that are chosen have keys, as gateways before them do.

    Those that are missing are made where somebody is told so; else they are as if they were. None is made while a rig
    that asks for it does not answer: a finding says so. Raises InventoryError where a host has one that is not here.
    """
    of_all = surveyed.own is not None and not surveyed.own.on.isdisjoint(chosen)
    missing = [
        key for key in surveyed.keys if not key.is_made and (of_all or not key.servers.keys().isdisjoint(chosen))
    ]
    if not missing:
        return surveyed
    there = _ask(missing, surveyed.around)
    if elsewhere := [finding for key in missing for finding in _made_elsewhere(key, there)]:
        raise InventoryError(elsewhere)
    silent = {rig for rig, found in there.items() if isinstance(found, RemoteError)}
    new = [key for key in missing if silent.isdisjoint(key.servers)]
    untold = [_unasked(key, min(silent & key.servers.keys())) for key in missing if key not in new]
    told = replace(surveyed, findings=(*surveyed.findings, *untold))
    if made is None:
        return replace(told, around={name: with_server_keys(rig, new, UnmadeKey) for name, rig in told.around.items()})
    for key in new:
        make_key(key)
        made(key)
    return told


def _made_elsewhere(key: ServerKey, there: Mapping[str, Collection[str] | RemoteError]) -> Iterator[Finding]:
    """A key that a host has, and this machine has not."""
    for rig in key.servers:
        found = there[rig]
        if not isinstance(found, RemoteError) and found:
            server = min(found)
            message = f"there is no file {key.file}, and the host of rig `{rig}` has a key for `{server}`"
            help_ = f"bring the file from where `herd up` made it, or what is in {KEYS / server} on that host; or "
            yield MISSING_FILE.at(Place(key.file), message, f"{help_}write another key there: {_ANOTHER}", "error")
            return


def _unasked(key: ServerKey, rig: str) -> Finding:
    message = f"there is no file {key.file}, and rig `{rig}` cannot be asked whether it has that key"
    help_ = f"`herd up` makes it when that rig answers; or write a key there: {_ANOTHER}"
    return MISSING_FILE.at(Place(key.file), message, help_, "warning")


def _ask(keys: Iterable[ServerKey], rigs: Mapping[str, Rig]) -> dict[str, frozenset[str] | RemoteError]:
    """Which servers have a key on the hosts of these rigs; or why one could not be asked."""
    asked = {rig: sorted(servers) for key in keys for rig, servers in key.servers.items()}

    def ask(name: str) -> frozenset[str] | RemoteError:
        given = KeysInput(tuple(asked[name]))
        try:
            remote = Remote(rigs[name].connect, note_key=True)
            found = frozenset(query_verb(remote, "llamaherd.queries.keys", given, KeysFound, _SECONDS).names)
        except NoPythonError:
            return frozenset()  # such a host was never set up
        except RemoteError as error:
            return error
        return found if found <= {*given.names} else UnaskedError(f"a key of {min(found)}")

    with ThreadPoolExecutor(min(AT_ONCE, len(asked))) as pool:
        return dict(zip(asked, pool.map(ask, asked), strict=True))
