"""Names that a rig declares and uses, and settings that must agree: ports, listeners and the choice of GPUs."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

from llamaherd.checks.context import RigContext
from llamaherd.checks.suggestions import as_written
from llamaherd.diagnostics.findings import Edit, Finding, Rule
from llamaherd.diagnostics.spelling import one_slip
from llamaherd.engines import TRAITS
from llamaherd.engines.flags.drafting import NO_MTP
from llamaherd.inventory.exact_edits import value_edit
from llamaherd.inventory.schema import Card, Rig
from llamaherd.inventory.suggestions import declared_items, suggest_name
from llamaherd.inventory.yaml_file import Document, Path_

_USES: Mapping[str | int, str] = {"draft": " to draft", "tune": " to be tried"}
"""The use of a name, by the key that contains it."""

UNDECLARED = Rule(
    "LH020",
    "An instance names an engine, a model or a GPU that its rig does not declare.",
    example="""
    instances:
      coder:
        engine: mian
    """,
    fix="correct the name, or declare it under `engines`, `models` or `gpus.cards` of the same rig.",
)


def check_declared_names(subject: RigContext) -> Iterator[Finding]:
    """Report engines, models and GPUs that an instance names and the rig does not declare."""
    rig, document = subject.rig, subject.document
    cards = rig.gpus.cards if rig.gpus else {}
    for name, instance in rig.instances.items():
        where = ("instances", name)
        wanted: list[tuple[tuple[str | int, ...], str, str, Container[str]]] = [
            (("engine",), "engine", instance.engine, rig.engines),
            (("model",), "model", instance.model, rig.models),
        ]
        if instance.draft and instance.draft.model:
            wanted.append((("draft", "model"), "model", instance.draft.model, rig.models))
        for place, model in enumerate(instance.tune.models if instance.tune else ()):
            wanted.append((("tune", "models", place), "model", model, rig.models))
        for path, kind, value, known in wanted:
            if value not in known:
                use = _USES.get(path[0], "")
                message = f"instance `{name}` names {kind} `{value}`{use}, which this rig does not declare"
                edits = _name_edits(document, (*where, *path), kind, value)
                help_ = suggest_name(document.data, kind, value)
                yield UNDECLARED.at(document.value((*where, *path)), message, help_, edits=edits)
        for index, card in enumerate(instance.on):
            if card not in cards:
                message = f"instance `{name}` names GPU `{card}`, which this rig does not declare"
                edits = _name_edits(document, (*where, "on", index), "card", card)
                yield UNDECLARED.at(
                    document.value((*where, "on", index)), message, _cards(document.data, card), edits=edits
                )


def _name_edits(document: Document, path: Path_, kind: str, name: str) -> tuple[Edit, ...]:
    """Return the edit that writes the declared name that a name is, apart from one letter."""
    meant = one_slip(name, declared_items(document.data, kind))
    return value_edit(document, path, as_written(meant)) if meant else ()


def _cards(data: Mapping[str, Any], card: str) -> str:
    """Return the fix for a GPU that is not declared."""
    if card in ("cpu", "none"):
        return "leave `on` out: without GPUs it runs on the CPU"
    names = declared_items(data, "card")
    if card in ("all", "gpu", "gpus", "cuda", "auto") and names:
        return f"did you mean `on: [{', '.join(names)}]`, all of them?"
    return suggest_name(data, "card", card)


SHARED_PORT = Rule(
    "LH021",
    "Two instances of a rig have one port.",
    example="""
    instances:
      second: {engine: main, model: small, context: 8192, threads: 2, port: 8001}
    """,
    fix="give each instance a port of its own.",
)


def check_port_owners(subject: RigContext) -> Iterator[Finding]:
    """Report two instances on one port."""
    owners: dict[int, str] = {}
    for name, instance in subject.rig.instances.items():
        taken = instance.port in owners
        if taken and subject.rig.server_of(owners[instance.port]) != subject.rig.server_of(name):
            yield SHARED_PORT.at(
                subject.document.value(("instances", name, "port")),
                f"port {instance.port} is already the port of instance `{owners[instance.port]}`",
                f"write another one, such as `port: {_free(instance.port, subject.rig)}`",
            )
        owners.setdefault(instance.port, name)


def _free(port: int, rig: Rig) -> int:
    """Return the next port that no instance has."""
    taken: set[int] = {instance.port for instance in rig.instances.values()}
    later: Iterator[int] = (each for each in (*range(port, 65536), *range(8000, port)) if each not in taken)
    return next(later)


OPEN_WITHOUT_KEY = Rule(
    "LH022",
    "An instance would listen beyond its own host without an API key.",
    why="""
    Every machine that reaches the port could use it. A server that a [gateway](../gateway.md#servers-own-keys) sends to
    needs no key in the inventory: `herd up` makes one.
    """,
    example="""
    instances:
      open: {engine: main, model: small, context: 8192, threads: 2, port: 8003, listen: 0.0.0.0}
    """,
    fix="add `api_key`, or leave `listen` out and stay on 127.0.0.1.",
)


def check_open_listeners(subject: RigContext) -> Iterator[Finding]:
    """Report servers that other machines reach and that need no key."""
    for name, instance in subject.rig.instances.items():
        if not instance.loopback and instance.api_key is None:
            yield OPEN_WITHOUT_KEY.at(
                subject.document.value(("instances", name, "listen")),
                f"instance `{name}` would listen on {instance.listen} with no API key",
                f"add `api_key: {{file: keys/{name}}}`, or leave `listen` out to stay on loopback",
            )


def check_head_slots(subject: RigContext) -> Iterator[Finding]:
    """Report drafting by the model's own heads for more slots than the engine supports."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        heads = instance.draft is not None and instance.draft.mtp
        if heads and engine and instance.parallel > 1 and TRAITS[engine.kind].mtp_for_one_slot:
            yield NO_MTP.at(
                subject.document.value(("instances", name, "parallel")),
                f"{engine.kind} drops MTP when it serves more than one slot",
                "set `parallel: 1`, or leave `draft` out",
            )


NOT_TOLD_APART = Rule(
    "LH027",
    "An instance must run on one GPU of several, and nothing identifies it.",
    why="""
    CUDA's own order of GPUs is no name. It is also an error when one instance's GPUs are identified in different ways:
    CUDA takes UUIDs or numbers, and not both.
    """,
    example="""
    gpus:
      cards:
        other: {model: RTX 3090}
    instances:
      helper: {on: [other]}
    """,
    fix="give each GPU its `uuid`, which `nvidia-smi -L` shows; or each its `pci` address, or its `index`.",
)


def check_gpu_selection(subject: RigContext) -> Iterator[Finding]:
    """Report GPUs of several that are not identified, or each in another way."""
    cards = subject.rig.gpus.cards if subject.rig.gpus else {}
    for name, instance in subject.rig.instances.items():
        place = subject.document.value(("instances", name, "on"))
        ways = {_way(cards[card]) for card in instance.on if card in cards}
        if len(cards) > 1 and None in ways:
            message = f"instance `{name}` runs on one GPU of several, and nothing identifies it"
            help_ = "give each GPU its `uuid`, as `nvidia-smi -L` shows it, or its `pci` address"
            yield NOT_TOLD_APART.at(place, message, help_)
        elif "uuid" in ways and len(ways) > 1:
            message = (
                f"the GPUs of instance `{name}` are identified in different ways, which CUDA does not take together"
            )
            help_ = "give each of them its `uuid`, or each of them its `pci` address or `index`"
            yield NOT_TOLD_APART.at(place, message, help_)


def _way(card: Card) -> str | None:
    """Return the kind of a GPU's identifier: CUDA takes UUIDs or numbers, and numbers follow from the other
    two keys.
    """
    if card.uuid:
        return "uuid"
    return "number" if card.pci or card.index is not None else None


def check_unused(subject: RigContext) -> Iterator[Finding]:
    """Report engines, models and GPUs that no instance uses. Inherited ones may be for other rigs."""
    rig = subject.rig
    cards = rig.gpus.cards if rig.gpus else {}
    instances = rig.instances.values()
    yield from _unused(subject, "engine", ("engines",), rig.engines, {each.engine for each in instances})
    yield from _unused(subject, "model", ("models",), rig.models, rig.used_models)
    yield from _unused(subject, "GPU", ("gpus", "cards"), cards, {name for each in instances for name in each.on})


UNUSED = Rule(
    "LH075",
    "An engine, a model or a GPU is declared, and no instance uses it.",
    why="Only what is used comes to a host.",
    example="""
    models:
      big: {hf: unsloth/Qwen3.5-122B-A10B-GGUF, quant: UD-Q6_K_XL}
    """,
    fix="""
    name it in an instance, or take it out. What a rig inherits from `defaults.yaml` or another rig is not
    counted.
    """,
    severity="warning",
)


def _unused(
    subject: RigContext, what: str, where: Path_, declared: Collection[str], used: Collection[str]
) -> Iterator[Finding]:
    if set(used) - set(declared):
        return  # a misspelt name is a finding of its own, and makes the intended one seem unused
    for name in declared:
        place = subject.document.key((*where, name))
        if name not in used and place.file == subject.document.file:
            message = f"no instance uses {what} `{name}`"
            yield UNUSED.at(place, message, f"name it in an instance, or take {what} `{name}` out")
