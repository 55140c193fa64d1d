"""Names that a rig declares and uses, and settings that must agree: ports, listeners, the choice of GPUs, groups."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

from llamaherd.checks.context import RigContext
from llamaherd.checks.suggestions import as_written
from llamaherd.diagnostics.findings import Edit, Finding, Rule
from llamaherd.diagnostics.spelling import misspelled_name, one_slip
from llamaherd.engines import TRAITS, CommandLine
from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.engines.flags.task import NO_MTP
from llamaherd.engines.llama_cpp import ROUTED_SINCE, ROUTER_FLAGS, NotRoutedError, router_section
from llamaherd.inventory.exact_edits import value_edit
from llamaherd.inventory.schema import Card, Instance, Rig
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
    for name, instance, engine in subject.servers:
        heads = instance.draft is not None and instance.draft.mtp
        if heads and instance.parallel > 1 and TRAITS[engine.kind].mtp_for_one_slot:
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


ALIKE = ("engine", "on", "listen", "port", "api_key", "environment", "cpus")
"""Keys of the one server that all instances of a group share."""

LONE_MEMBER = Rule(
    "LH340",
    "A group has one instance.",
    why="Nothing swaps with it: its name may be misspelt, here or in the others.",
    example="""
    instances:
      helper: {group: card}
    """,
    fix="give the other instances the same `group`, or take it out.",
)


def check_group_size(subject: RigContext) -> Iterator[Finding]:
    """Report groups of one instance."""
    servers = subject.rig.servers
    groups = [each.group for each in subject.rig.instances.values() if each.group]
    for name, instance in subject.rig.instances.items():
        if instance.group and groups.count(instance.group) == 1:
            place = subject.document.value(("instances", name, "group"))
            meant = misspelled_name(instance.group, [group for group in groups if group != instance.group])
            help_ = f"did you mean `group: {meant}`?" if meant else "give another instance this group, or leave it out"
            yield LONE_MEMBER.at(place, f"group `{instance.group}` has no instance but `{name}`", help_)
        elif instance.group in subject.rig.instances and name == servers[instance.group][0]:
            place = subject.document.value(("instances", name, "group"))
            yield GROUPS_NAME.at(
                place,
                f"group `{instance.group}` has the name of an instance, and both would use {instance.group}'s unit",
                f"call the group something else, such as `group: {instance.group}-group`",
            )


GROUPS_NAME = Rule(
    "LH341",
    "A group has the name of an instance.",
    why="A group is one server. Its unit, its user and its key's file have the name of the group.",
    example="""
    instances:
      one: {engine: main, model: small, context: 8192, threads: 2, port: 8003, group: one}
      two: {engine: main, model: 35b, context: 8192, threads: 2, port: 8003, group: one}
    """,
    fix="give the group a name that no instance has.",
)

CONTRADICTS_GROUP = Rule(
    "LH342",
    "Instances of a group contradict each other.",
    why="""
    They are one server: with one engine, at one address and port, with one key, on the same GPUs, and with the
    environment and processors that each of its models inherits. Everything else may differ. Two that serve the same
    model cannot be distinguished: a request names a model.
    """,
    example="""
    instances:
      one: {engine: main, model: small, context: 8192, threads: 2, port: 8003, group: card}
      two: {engine: main, model: 35b, context: 8192, threads: 2, port: 8004, group: card}
    """,
    fix="write the same in all of them, or leave one out of the group. `instance_defaults` sets it once.",
)


def check_group_settings(subject: RigContext) -> Iterator[Finding]:
    """Report instances of a group that could not be one server."""
    for first, name, instance in _later_members(subject.rig):
        declared = subject.rig.instances[first]
        for key in ALIKE:
            if getattr(declared, key) != getattr(instance, key):
                message = f"`{first}` and `{name}` are one server by `group: {instance.group}`, and differ in `{key}`"
                place = subject.document.value(("instances", name, key))
                yield CONTRADICTS_GROUP.at(place, message, f"write the same `{key}` in both, or leave one out of it")
        before = _before(subject.rig, name)
        if same := [one for one in before if subject.rig.instances[one].model == instance.model]:
            message = f"`{same[0]}` and `{name}` of group `{instance.group}` both serve `{instance.model}`"
            place = subject.document.value(("instances", name, "model"))
            help_ = "leave one out of the group: a request names a model, and both have the same name"
            yield CONTRADICTS_GROUP.at(place, message, help_)


def _later_members(rig: Rig) -> Iterator[tuple[str, str, Instance]]:
    """Yield each instance of a group but the first, with the name of the first."""
    for names in rig.servers.values():
        yield from ((names[0], name, rig.instances[name]) for name in names[1:])


def _before(rig: Rig, name: str) -> tuple[str, ...]:
    names = rig.servers[rig.server_of(name)]
    return names[: names.index(name)]


CANNOT_SWAP = Rule(
    "LH343",
    "An instance cannot be in a group.",
    why="""
    A group is llama.cpp's router, as a unit of systemd: no other engine has one, and a container is started by Docker.
    The arguments of each instance are in a preset file, which cannot contain everything: a value ends at `;` and `#`, a
    flag can occur once, and flags that the router sets are dropped. A `gate` compares two servers with one model each.
    Versions before July 2026 end the running requests when another model is requested: a warning.
    """,
    example="""
    instances:
      one: {engine: main, model: small, context: 8192, threads: 2, port: 8003, group: card, backend: compose}
      two: {engine: main, model: 35b, context: 8192, threads: 2, port: 8003, group: card, backend: compose}
    """,
    fix="apply the fix of the help line, or leave the instance out of the group.",
    sometimes=("warning",),
)


def check_group_swaps(subject: RigContext) -> Iterator[Finding]:
    """Report instances of groups that the server of a group could not run."""
    for name, instance in subject.rig.instances.items():
        if instance.group is None:
            continue
        for key, why, help_ in _unable(subject, name, instance):
            place = subject.document.value(("instances", name, key))
            yield CANNOT_SWAP.at(place, f"instance `{name}` cannot be in a group: {why}", help_)
        if not _before(subject.rig, name) and (version := _old(subject, name)):
            message = f"{version} ends the running requests of group `{instance.group}` when another model is requested"
            place = subject.document.value(("instances", name, "group"))
            yield CANNOT_SWAP.at(place, message, "take a version of July 2026 or later", "warning")


def _unable(subject: RigContext, name: str, instance: Instance) -> Iterator[tuple[str, str, str]]:
    """Yield each key that keeps an instance out of groups, with the reason and the help."""
    engine, command = subject.rig.engines.get(instance.engine), subject.facts.instances[name].command
    if instance.backend != "systemd":
        yield "backend", "it is a container", "write `backend: systemd`, or leave `group` out"
    if instance.gate:
        yield "gate", "its gate compares servers with one model each", "take `gate` out, or leave `group` out"
    if engine is None:
        return
    known = subject.facts.instances[name].flags
    if not TRAITS[engine.kind].swaps:
        able = " or ".join(kind for kind, traits in TRAITS.items() if traits.swaps)
        yield "engine", f"{engine.kind} has no router", f"use an engine of kind {able}, or leave `group` out"
    elif known and not all(known.knows(flag) for flag in ROUTER_FLAGS):
        yield "engine", f"{known} has no router", "take a newer version, or leave `group` out"
    elif known and command and (why := _inexpressible(command, known)):
        yield "extra_args", why, "take it out, or leave `group` out"


def _inexpressible(line: CommandLine, known: Catalogue) -> str | None:
    """Return the part of a command line that a preset file cannot contain."""
    try:
        router_section(line.arguments, known)
    except NotRoutedError as error:
        return str(error)
    return None


def _old(subject: RigContext, name: str) -> Catalogue | None:
    """Return the version of an instance's engine, if it ends requests to swap models."""
    known = subject.facts.instances[name].flags
    return known if known and TRAITS[known.kind].swaps and known.date and known.date < ROUTED_SINCE else None
