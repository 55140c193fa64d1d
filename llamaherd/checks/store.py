"""A rig's store of models, and the sources that it fetches them from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import PurePosixPath

from llamaherd.checks.context import RigContext
from llamaherd.checks.references import SHARED_PORT
from llamaherd.diagnostics.findings import Finding, Place, Rule, nearest
from llamaherd.inventory.schema import HUB, LOCAL, Rig
from llamaherd.layout import DEFAULT_STORE, STATE

ALSO_THE_HUB = frozenset(("huggingface", "hf", "hugging-face", "huggingface.co", "internet"))
"""Other names of the hub."""

_UNREADABLE = {
    "home": "servers cannot read homes: their units have `ProtectHome=yes`",
    "root": "servers cannot read homes: their units have `ProtectHome=yes`",
    "tmp": "servers have a /tmp of their own, and the host empties its own",
    "run": "it lies in memory, and is empty after a restart",
    "proc": "it is no disk",
    "sys": "it is no disk",
    "dev": "it is no disk",
}
"""First folders of paths that cannot hold models, and the reason."""


CALLED_HUB = Rule(
    "LH182",
    "A rig is called `hub`.",
    why="In `store: from:` that word is the hub that models come from.",
    example="""
    rig: hub
    connect: {host: hub.lan}
    host: {os: ubuntu-24.04, cpu: {cores: 8}, ram: 32GB}
    engines: {}
    models: {}
    instances: {}
    """,
    fix="give the rig another name.",
)


def check_rig_name(subject: RigContext) -> Iterator[Finding]:
    """Report a rig whose name means the hub in `from`."""
    if subject.rig.rig == HUB:
        message = f"a rig cannot be called `{HUB}`: in `store: from:` that is the hub that models come from"
        yield CALLED_HUB.at(subject.document.value(("rig",)), message, "rename the rig")


NO_FOLDER = Rule(
    "LH183",
    "The store lies where servers cannot read it, or where nothing lasts.",
    why="Units have `ProtectHome=yes` and a `/tmp` of their own; `/run`, `/proc`, `/sys` and `/dev` are no disks.",
    example="""
    store: {path: /home/tom/models}
    """,
    fix="""
    name a folder of its own on a large disk, such as `/srv/models`. A folder of models in a home may be named in
    `from`: they are copied from there.
    """,
)


def check_store_folder(subject: RigContext) -> Iterator[Finding]:
    """Report a folder that servers cannot read, or where nothing lasts."""
    path = subject.rig.store.path
    if reason := _no_place(path):
        help_ = f"take a folder of its own on a large disk, such as {DEFAULT_STORE} or /srv/models"
        message = f"`{path}` is no folder for models: {reason}"
        yield NO_FOLDER.at(subject.document.value(("store", "path")), message, help_)


def _no_place(path: str) -> str | None:
    parts = PurePosixPath(path).parts
    if len(parts) < 2:
        return "it is the whole host"
    if path == str(STATE):
        return "builds lie there too"
    return _UNREADABLE["tmp"] if parts[1:3] == ("var", "tmp") else _UNREADABLE.get(parts[1])


BAD_ORIGIN = Rule(
    "LH181",
    "`from` of a store is empty, repeats a source, or names the rig or the store itself.",
    why="Nothing could come from there, or nothing more.",
    example="""
    store: {from: []}
    """,
    fix="write `from: [hub]`, which is also the default.",
)


def check_origins(subject: RigContext) -> Iterator[Finding]:
    """Report problems of `from` itself. A value inherited from other files may name the rig itself."""
    rig, document, named = subject.rig, subject.document, subject.rig.store.from_
    if not named:
        place = document.value(("store", "from"))
        message = "`from` is empty, so that no model can be fetched"
        yield BAD_ORIGIN.at(place, message, f"write `from: [{HUB}]`, or leave it out")
    for index, origin in enumerate(named):
        place = document.value(("store", "from", index))
        if origin in named[:index]:
            help_ = "the first place counts: leave this one out"
            yield BAD_ORIGIN.at(place, f"`from` names `{origin}` twice", help_)
        elif origin == rig.rig != HUB and place.file == document.file:
            yield BAD_ORIGIN.at(place, f"rig `{rig.rig}` would take models from itself", "leave it out")
        elif origin == rig.store.path:
            message = f"`{origin}` is the store itself, and its files are never fetched again"
            yield BAD_ORIGIN.at(place, message, "leave it out")


UNKNOWN_PEER = Rule(
    "LH180",
    "A rig takes models from a rig that is not in its fleet.",
    why="`store: from:` names other rigs of the same folder, `hub`, or folders of the host.",
    example="""
    store: {from: [sixx, hub]}
    """,
    fix="correct the name, or add the file of that rig to the folder.",
)


def check_known_peers(subject: RigContext) -> Iterator[Finding]:
    """Report rigs that are not in the fleet."""
    rig, named = subject.rig, subject.rig.store.from_
    for origin in dict.fromkeys(rig.store.neighbours):
        if origin not in {rig.rig, *subject.names}:
            message = f"`from` names rig `{origin}`, which is not in this fleet"
            help_ = nearest(origin, {*subject.names, HUB} - {rig.rig})
            place = subject.document.value(("store", "from", named.index(origin)))
            yield UNKNOWN_PEER.at(place, message, f"did you mean `{HUB}`?" if origin in ALSO_THE_HUB else help_)


def _peers(subject: RigContext) -> Iterator[tuple[str, Rig, Place]]:
    """Yield the rigs that models are taken from, and where that is written."""
    for name in dict.fromkeys(subject.rig.store.neighbours):
        if name != subject.rig.rig and (peer := subject.rigs.get(name)):
            yield name, peer, subject.document.value(("store", "from", subject.rig.store.from_.index(name)))


UNREACHED_NEIGHBOUR = Rule(
    "LH184",
    "A peer's address means another machine on the host that uses it.",
    why="""
    `connect.host` is this machine, or an address of loopback, and no `share.address` sets its address in the LAN.
    """,
    example="""
    $ herd check
    /home/tom/fleet/two.yaml:9:10: error LH184: rig `one` has the address @local, which other hosts cannot reach
      help: give rig `one` an address of the LAN: `store: {share: {address: 192.168.1.20}}`
    """,
    language="console",
    fix="write `store: {share: {address: …}}` with its address in the LAN, in the file of the rig that shares.",
)


def check_peer_addresses(subject: RigContext) -> Iterator[Finding]:
    """Report peers whose addresses mean another machine on this rig."""
    for name, peer, place in _peers(subject):
        address = peer.address
        if is_own_host(address):
            message = f"rig `{name}` has the address {address}, which other hosts cannot reach"
            help_ = f"give rig `{name}` an address of the LAN: `store: {{share: {{address: 192.168.1.20}}}}`"
            yield UNREACHED_NEIGHBOUR.at(place, message, help_)


def is_own_host(address: str) -> bool:
    """Return whether an address means the host that uses it."""
    with suppress(ValueError):
        parsed = ip_address(address)
        return parsed.is_loopback or parsed.is_unspecified
    return address in (LOCAL, "localhost")


UNUSED_PEER = Rule(
    "LH185",
    "A rig takes models from a peer that declares none of them.",
    why="A rig shares the models of its own instances: the same repository and files, or the same hash.",
    example="""
    $ herd -i fleet check
    fleet/two.yaml:9:10: warning LH185: rig `one` declares none of the models of this rig
      help: leave it out, or declare the models there that both serve
    """,
    language="console",
    fix="take the peer out of `from`, or give it the model as well.",
    severity="warning",
)


def check_unused_peers(subject: RigContext) -> Iterator[Finding]:
    """Report peers that have nothing for this rig."""
    for name, peer, place in _peers(subject):
        if subject.rig.models and not _wanted(subject.rig) & _wanted(peer):
            message = f"rig `{name}` declares none of the models of this rig, so that there is nothing to take"
            yield UNUSED_PEER.at(place, message, "leave it out, or declare the models there that both serve")


def _wanted(rig: Rig) -> set[tuple[str, ...]]:
    """Return what identifies a model's files: the hub's repository and pattern, or the hash."""
    return {(m.hf, m.files) if m.hf else (m.sha256 or str(m.file),) for m in rig.models.values()}


def check_share_port(subject: RigContext) -> Iterator[Finding]:
    """Report an instance on the port that a peer takes models from."""
    rig = subject.rig
    takers = [name for name, other in subject.rigs.items() if rig.rig in other.store.neighbours and name != rig.rig]
    for name, instance in rig.instances.items() if takers else ():
        if instance.port == rig.store.share.port:
            message = f"port {instance.port} is where rig `{takers[0]}` would take models from this rig"
            help_ = "give the instance another port, or write `store: {share: {port: N}}`"
            yield SHARED_PORT.at(subject.document.value(("instances", name, "port")), message, help_)
