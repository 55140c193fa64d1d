"""Groups: several instances that are one server, which has one of their models loaded."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.diagnostics.spelling import misspelled_name
from llamaherd.engines import TRAITS, CommandLine
from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.engines.llama_cpp import ROUTED_SINCE, ROUTER_FLAGS, NotRoutedError, router_section
from llamaherd.inventory.schema import Instance, Rig

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
