"""What in a rig must go together: names that are declared, ports of one owner, listeners with a key."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.engines import TRAITS
from llamaherd.inventory.declared_names import declared_of, way_out
from llamaherd.inventory.schema import Card, Rig
from llamaherd.reference.distributions import COMPOSE_PACKAGES


def declared_names(subject: RigContext) -> Iterator[Finding]:
    """LH020: engines, models and cards that an instance names and the rig does not declare."""
    rig, document = subject.rig, subject.document
    cards = rig.gpus.cards if rig.gpus else {}
    for name, instance in rig.instances.items():
        where = ("instances", name)
        wanted: list[tuple[tuple[str, ...], str, Container[str]]] = [
            (("engine",), instance.engine, rig.engines),
            (("model",), instance.model, rig.models),
        ]
        if instance.draft and instance.draft.model:
            wanted.append((("draft", "model"), instance.draft.model, rig.models))
        for path, value, known in wanted:
            if value not in known:
                kind, use = path[-1], " to draft" if path[0] == "draft" else ""
                message = f"instance `{name}` wants {kind} `{value}`{use}, which this rig does not declare"
                yield Finding("LH020", document.value((*where, *path)), message, way_out(document.data, kind, value))
        for index, card in enumerate(instance.on):
            if card not in cards:
                message = f"instance `{name}` wants card `{card}`, which this rig does not declare"
                yield Finding("LH020", document.value((*where, "on", index)), message, _cards(document.data, card))


def one_owner_of_a_port(subject: RigContext) -> Iterator[Finding]:
    """LH021: two instances on one port."""
    owners: dict[int, str] = {}
    for name, instance in subject.rig.instances.items():
        if instance.port in owners:
            yield Finding(
                "LH021",
                subject.document.value(("instances", name, "port")),
                f"port {instance.port} is taken by instance `{owners[instance.port]}` already",
                f"write another one, such as `port: {_free(instance.port, subject.rig)}`",
            )
        owners.setdefault(instance.port, name)


def key_beyond_loopback(subject: RigContext) -> Iterator[Finding]:
    """LH022: a server that others reach, and that asks for no key."""
    for name, instance in subject.rig.instances.items():
        if not instance.loopback and instance.api_key is None:
            yield Finding(
                "LH022",
                subject.document.value(("instances", name, "listen")),
                f"instance `{name}` would listen on {instance.listen} with no API key",
                f"add `api_key: {{file: keys/{name}}}`, or leave `listen` out to stay on loopback",
            )


def heads_for_one_slot(subject: RigContext) -> Iterator[Finding]:
    """LH023: drafting by the model's own heads, for more slots than the engine does it for."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        heads = instance.draft is not None and instance.draft.mtp
        if heads and engine and instance.parallel > 1 and TRAITS[engine.kind].mtp_for_one_slot:
            yield Finding(
                "LH023",
                subject.document.value(("instances", name, "parallel")),
                f"{engine.kind} drops MTP when it serves more than one slot",
                "set `parallel: 1`, or leave `draft` out",
            )


def images_in_containers(subject: RigContext) -> Iterator[Finding]:
    """LH025: an engine that is an image, under systemd."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine and engine.image and instance.backend == "systemd":
            yield Finding(
                "LH025",
                subject.document.value(("instances", name, "engine")),
                f"instance `{name}` runs an image, which systemd does not start",
                "add `backend: compose`",
            )


def compose_there(subject: RigContext) -> Iterator[Finding]:
    """LH026: containers on a system that has no Docker Compose 2 of its own."""
    system = subject.rig.host.os
    for name, instance in subject.rig.instances.items():
        if instance.backend == "compose" and system not in COMPOSE_PACKAGES:
            yield Finding(
                "LH026",
                subject.document.value(("instances", name, "backend")),
                f"{system} has no Docker Compose 2 of its own",
                f"use `backend: systemd`, or a host with one of {', '.join(COMPOSE_PACKAGES)}",
            )


def cards_told_apart(subject: RigContext) -> Iterator[Finding]:
    """LH027: cards of several that nothing tells from the others, or each in another way."""
    cards = subject.rig.gpus.cards if subject.rig.gpus else {}
    for name, instance in subject.rig.instances.items():
        place = subject.document.value(("instances", name, "on"))
        ways = {_way(cards[card]) for card in instance.on if card in cards}
        if len(cards) > 1 and None in ways:
            message = f"instance `{name}` is to run on a card of several, and nothing tells which that is"
            help_ = "give each card its `uuid`, as `nvidia-smi -L` shows it, or its `pci` address"
            yield Finding("LH027", place, message, help_)
        elif "uuid" in ways and len(ways) > 1:
            message = (
                f"the cards of instance `{name}` are told apart in different ways, which CUDA does not take together"
            )
            help_ = "give each of them its `uuid`, or each of them its `pci` address or `index`"
            yield Finding("LH027", place, message, help_)


def built_for_containers(subject: RigContext) -> Iterator[Finding]:
    """LH028: a CUDA engine that was built on the host, in a container without CUDA's libraries."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if instance.backend == "compose" and instance.on and engine and engine.source:
            yield Finding(
                "LH028",
                subject.document.value(("instances", name, "backend")),
                f"the image made for `{name}` would lack the CUDA libraries that its engine is linked against",
                "use `backend: systemd`, or an engine with an `image` by digest",
            )


def _cards(data: Mapping[str, Any], card: str) -> str:
    """What to write for a card that is not declared."""
    if card in ("cpu", "none"):
        return "leave `on` out: without cards it runs on the CPU"
    names = declared_of(data, "card")
    if card in ("all", "gpu", "gpus", "cuda", "auto") and names:
        return f"did you mean `on: [{', '.join(names)}]`, all of them?"
    return way_out(data, "card", card)


def _free(port: int, rig: Rig) -> int:
    """The next port that no instance has."""
    taken: set[int] = {instance.port for instance in rig.instances.values()}
    later: Iterator[int] = (each for each in (*range(port, 65536), *range(8000, port)) if each not in taken)
    return next(later)


def _way(card: Card) -> str | None:
    """By what a card is told from others: CUDA takes UUIDs or numbers, and numbers follow from the other two."""
    if card.uuid:
        return "uuid"
    return "number" if card.pci or card.index is not None else None
