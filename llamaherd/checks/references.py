"""What in a rig must go together: names that are declared, ports of one owner, listeners with a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.engines import TRAITS
from llamaherd.inventory.declared_names import declared_of, way_out
from llamaherd.inventory.schema import Card, Rig
from llamaherd.reference.distributions import COMPOSE_PACKAGES


def references(subject: RigContext) -> Iterator[Finding]:
    """Names, ports, listeners and backends that do not go together."""
    rig, document = subject.rig, subject.document
    ports: dict[int, str] = {}
    for name, instance in rig.instances.items():
        where = ("instances", name)
        engine = rig.engines.get(instance.engine)
        for field, known in (("engine", rig.engines), ("model", rig.models)):
            value = getattr(instance, field)
            if value not in known:
                yield Finding(
                    "LH020",
                    document.value((*where, field)),
                    f"instance `{name}` wants {field} `{value}`, which this rig does not declare",
                    way_out(document.data, field, value),
                )
        if instance.draft and instance.draft.model and instance.draft.model not in rig.models:
            yield Finding(
                "LH020",
                document.value((*where, "draft", "model")),
                f"instance `{name}` wants model `{instance.draft.model}` to draft, which this rig does not declare",
                way_out(document.data, "model", instance.draft.model),
            )
        cards = rig.gpus.cards if rig.gpus else {}
        for index, card in enumerate(instance.on):
            if card not in cards:
                yield Finding(
                    "LH020",
                    document.value((*where, "on", index)),
                    f"instance `{name}` wants card `{card}`, which this rig does not declare",
                    _cards(document.data, card),
                )
        if instance.port in ports:
            yield Finding(
                "LH021",
                document.value((*where, "port")),
                f"port {instance.port} is taken by instance `{ports[instance.port]}` already",
                f"write another one, such as `port: {_free(instance.port, rig)}`",
            )
        ports.setdefault(instance.port, name)
        if instance.backend == "compose" and rig.host.os not in COMPOSE_PACKAGES:
            yield Finding(
                "LH026",
                document.value((*where, "backend")),
                f"{rig.host.os} has no Docker Compose 2 of its own",
                f"use `backend: systemd`, or a host with one of {', '.join(COMPOSE_PACKAGES)}",
            )
        if instance.backend == "compose" and instance.on and engine and engine.source:
            yield Finding(
                "LH028",
                document.value((*where, "backend")),
                f"the image made for `{name}` would lack the CUDA libraries that its engine is linked against",
                "use `backend: systemd`, or an engine with an `image` by digest",
            )
        ways = {_way(cards[card]) for card in instance.on if card in cards}
        if len(cards) > 1 and None in ways:
            yield Finding(
                "LH027",
                document.value((*where, "on")),
                f"instance `{name}` is to run on a card of several, and nothing tells which that is",
                "give each card its `uuid`, as `nvidia-smi -L` shows it, or its `pci` address",
            )
        elif "uuid" in ways and len(ways) > 1:
            yield Finding(
                "LH027",
                document.value((*where, "on")),
                f"the cards of instance `{name}` are told apart in different ways, which CUDA does not take together",
                "give each of them its `uuid`, or each of them its `pci` address or `index`",
            )
        if not instance.loopback and instance.api_key is None:
            yield Finding(
                "LH022",
                document.value((*where, "listen")),
                f"instance `{name}` would listen on {instance.listen} with no API key",
                f"add `api_key: {{file: keys/{name}}}`, or leave `listen` out to stay on loopback",
            )
        if engine and engine.image and instance.backend == "systemd":
            yield Finding(
                "LH025",
                document.value((*where, "engine")),
                f"instance `{name}` runs an image, which systemd does not start",
                "add `backend: compose`",
            )
        heads = instance.draft is not None and instance.draft.mtp
        if heads and engine and instance.parallel > 1 and TRAITS[engine.kind].mtp_for_one_slot:
            yield Finding(
                "LH023",
                document.value((*where, "parallel")),
                f"{engine.kind} drops MTP when it serves more than one slot",
                "set `parallel: 1`, or leave `draft` out",
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
