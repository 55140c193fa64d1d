"""Where a rig keeps its models, and whether those can come from where it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import PurePosixPath

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, nearest
from llamaherd.inventory.schema import HUB, LOCAL, Rig
from llamaherd.layout import DEFAULT_STORE, STATE

ALSO_THE_HUB = frozenset(("huggingface", "hf", "hugging-face", "huggingface.co", "internet"))
"""What the hub is called elsewhere."""

_UNREADABLE = {
    "home": "servers see no home: their units have `ProtectHome=yes`",
    "root": "servers see no home: their units have `ProtectHome=yes`",
    "tmp": "servers have a /tmp of their own, and the host empties its own",
    "run": "it lies in memory, and is empty after a restart",
    "proc": "it is no disk",
    "sys": "it is no disk",
    "dev": "it is no disk",
}
"""First folders of paths that are no place for models, and why."""


def store(subject: RigContext) -> Iterator[Finding]:
    """A folder that servers cannot read, origins that are none, neighbours that have nothing or cannot be reached."""
    rig, document = subject.rig, subject.document
    if rig.rig == HUB:
        yield Finding(
            "LH182",
            document.value(("rig",)),
            f"a rig cannot be called `{HUB}`: in `store: from:` that is the hub that models come from",
            "rename the rig",
        )
    if reason := _no_place(rig.store.path):
        yield Finding(
            "LH183",
            document.value(("store", "path")),
            f"`{rig.store.path}` is no folder for models: {reason}",
            f"take a folder of its own on a large disk, such as {DEFAULT_STORE} or /srv/models",
        )
    yield from _origins(subject)
    takers = [name for name, other in subject.rigs.items() if rig.rig in other.store.neighbours and name != rig.rig]
    for name, instance in rig.instances.items() if takers else ():
        if instance.port == rig.store.share.port:
            yield Finding(
                "LH021",
                document.value(("instances", name, "port")),
                f"port {instance.port} is where rig `{takers[0]}` would take models from this rig",
                "give the instance another port, or write `store: {share: {port: N}}`",
            )


def _no_place(path: str) -> str | None:
    parts = PurePosixPath(path).parts
    if len(parts) < 2:
        return "it is the whole host"
    if path == str(STATE):
        return "builds lie there too"
    return _UNREADABLE["tmp"] if parts[1:3] == ("var", "tmp") else _UNREADABLE.get(parts[1])


def _origins(subject: RigContext) -> Iterator[Finding]:
    """What is wrong with `from`. What other files lend to this rig may well name it."""
    rig, document, origins = subject.rig, subject.document, subject.rig.store.from_
    if not origins:
        place = document.value(("store", "from"))
        message = "`from` is empty, so that models could come from nowhere"
        yield Finding("LH181", place, message, f"write `from: [{HUB}]`, or leave it out")
    for index, origin in enumerate(origins):
        place = document.value(("store", "from", index))
        if origin in origins[:index]:
            yield Finding(
                "LH181", place, f"`from` names `{origin}` twice", "the first place counts: leave this one out"
            )
        elif origin == rig.rig != HUB and place.file == document.file:
            yield Finding("LH181", place, f"rig `{rig.rig}` would take models from itself", "leave it out")
        elif origin == rig.store.path:
            message = f"`{origin}` is the store itself, and what lies in it is never fetched again"
            yield Finding("LH181", place, message, "leave it out")
        elif origin in rig.store.neighbours and origin not in {rig.rig, *subject.names}:
            message = f"`from` names rig `{origin}`, which is none of this fleet"
            help_ = nearest(origin, {*subject.names, HUB} - {rig.rig})
            yield Finding("LH180", place, message, f"did you mean `{HUB}`?" if origin in ALSO_THE_HUB else help_)
    for name in dict.fromkeys(rig.store.neighbours):
        if name != rig.rig and (neighbour := subject.rigs.get(name)):
            yield from _neighbour(subject, name, neighbour, origins.index(name))


def _neighbour(subject: RigContext, name: str, neighbour: Rig, index: int) -> Iterator[Finding]:
    place = subject.document.value(("store", "from", index))
    address = neighbour.store.share.address or neighbour.connect.host
    if _own_host(address):
        message = f"rig `{name}` is known as {address}, where another host does not reach it"
        help_ = f"give rig `{name}` an address of the LAN: `store: {{share: {{address: 192.168.1.20}}}}`"
        yield Finding("LH184", place, message, help_)
    if subject.rig.models and not _wanted(subject.rig) & _wanted(neighbour):
        message = f"rig `{name}` declares none of the models of this rig, so that there is nothing to take"
        yield Finding("LH185", place, message, "leave it out, or declare there what both shall serve", "warning")


def _own_host(address: str) -> bool:
    """Whether an address means the host that uses it."""
    with suppress(ValueError):
        parsed = ip_address(address)
        return parsed.is_loopback or parsed.is_unspecified
    return address in (LOCAL, "localhost")


def _wanted(rig: Rig) -> set[tuple[str, ...]]:
    """What tells a model's files: the hub's repository and pattern, or the hash."""
    return {(m.hf, m.files) if m.hf else (str(m.sha256),) for m in rig.models.values()}
