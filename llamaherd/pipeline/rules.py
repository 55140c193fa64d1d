"""The rules for an inventory's files and rigs, and the index of the rules of all rooms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import NamedTuple

import llamaherd
from llamaherd.diagnostics.findings import Rule

NO_INVENTORY = Rule(
    "LH005",
    "There is no inventory.",
    why="""
    The path does not exist, or the folder holds no `.yaml` or `.yml` file of a rig. `defaults.yaml`, Compose files and
    a config.yaml of llama-swap are none. Without a path, neither the current folder nor a folder above it is a fleet
    folder, and `HERD_INVENTORY` is not set.
    """,
    example="""
    $ herd -i ~/flete check
    /home/tom/flete: error LH005: the inventory does not exist
    """,
    language="console",
    fix="""
    write one YAML file per rig there, or let `herd init` write the first. Or run the command in a [fleet
    folder](../fleet.md#which-fleet-a-command-uses) or below it, or name the place with `-i` or `HERD_INVENTORY`.
    """,
)


SAME_NAME = Rule(
    "LH006",
    "Two files declare rigs of one name.",
    why="A command could not distinguish them.",
    example="""
    $ herd -i ~/fleet check
    /home/tom/fleet/cellar.yaml:1:6: error LH006: there are two rigs named `attic`
    """,
    language="console",
    fix="rename one. The name is the value of `rig:`, whatever the file is called.",
)


UNKNOWN_RIG = Rule(
    "LH007",
    "A name is not a rig of the inventory.",
    why="An argument of `herd`, or pyinfra's `--limit`, names it. pyinfra alone would do nothing and report success.",
    example="""
    $ herd plan atic
    /home/tom/fleet: error LH007: there is no rig `atic`
      help: did you mean `attic`?
    """,
    language="console",
    fix="use one of the names that the help line gives. `--limit` also takes patterns such as `attic*`.",
)


SAME_MACHINE = Rule(
    "LH008",
    "Two rigs are one machine.",
    why="""
    Both have `connect: local`, or the same host and port. Each would remove the other's instances. Two names for one
    host are not detected.
    """,
    example="""
    $ herd check
    /home/tom/fleet/two.yaml:2:10: error LH008: rig `two` is this machine, and so is rig `one`
      help: declare one rig per machine
    """,
    language="console",
    fix="put the instances of both into one rig.",
    sometimes=("warning",),
)


NOT_SIZED = Rule(
    "LH162",
    "A model's file is on this machine and cannot be sized.",
    why="""
    Its header is read from the file until `herd lock` has stored it. No engine loads a file whose header cannot be
    read.
    """,
    example="""
    $ herd check attic
    fleet/attic.yaml:15:17: warning LH162: model `35b` cannot be sized: it ends inside its header, at byte 4096
      help: name a GGUF file
    """,
    language="console",
    fix="name a whole GGUF file. Of a set, name the first shard.",
    severity="warning",
)


ROOMS = ("inventory", "engines", "lock", "recipes", "checks", "pipeline")
"""Where inventories, locks and recipes are read and checked."""


class Section(NamedTuple):
    """The codes from one number on, up to the next section's."""

    first: int
    about: str
    also: str = ""


SECTIONS = (
    Section(1, "Files and rigs"),
    Section(10, "Keys and values"),
    Section(20, "What must go together"),
    Section(30, "The lock"),
    Section(36, "Ports"),
    Section(40, "Toolkit, driver, GPUs and caches"),
    Section(60, "Processor, RAM, WSL, images, and what is not used"),
    Section(100, "Arguments"),
    Section(120, "Variables"),
    Section(130, "Build options"),
    Section(140, "Recipes"),
    Section(150, "Memory"),
    Section(170, "Models and engines"),
    Section(180, "The store"),
    Section(190, "systemd units"),
    Section(200, "Compose files"),
    Section(
        210,
        "Arguments that contradict one another or the rig",
        "These rules check the whole command line and environment that a server gets: in an inventory, a script, "
        "a unit and a Compose file alike.",
    ),
    Section(230, "Toolkits and GPUs"),
    Section(240, "Memory of explicit options"),
    Section(250, "Options that are idle, or refused", "These check the whole command line, too."),
    Section(263, "Around containers and services"),
    Section(274, "Names and values that stand for nothing"),
    Section(290, "Roles of a fleet's own"),
    Section(300, "The gateway", "These check `fleet.yaml` and the rigs in its folder."),
    Section(320, "Monitoring", "These check `fleet.yaml` and the rigs in its folder."),
    Section(330, "What a change must prove"),
    Section(340, "Groups that swap"),
    Section(350, "A virtual address of two gateways", "These check `fleet.yaml` and the rigs in its folder."),
    Section(360, "Idle servers and sleeping rigs"),
)
"""A new rule takes the first free number of its section that never had a page, or opens one at the end."""


@cache
def rules() -> Mapping[str, Rule]:
    """Return all rules by their codes, in order. This loads every module of those packages."""
    return {rule.code: rule for rule in sorted(set(_declared()), key=lambda rule: rule.code)}


def rules_index() -> str:
    """Return the tables of all rules, in Markdown, section by section."""
    return "\n".join(_table(section) for section in SECTIONS)


def section_of(rule: Rule) -> Section:
    """Return the section of a rule in the table of all rules."""
    return next(section for section in reversed(SECTIONS) if section.first <= int(rule.code.removeprefix("LH")))


def _table(section: Section) -> str:
    rows = [rule.row for rule in rules().values() if section_of(rule) == section]
    intro = [section.also, ""] if section.also else []
    lines = [f"## {section.about}", "", *intro, "| code | severity | what is wrong |", "| --- | --- | --- |", *rows]
    return "\n".join(lines) + "\n"


def _declared() -> Iterator[Rule]:
    rooms = (f"{llamaherd.__name__}.{room}" for room in ROOMS)
    for room in map(import_module, rooms):
        for module in walk_packages(room.__path__, f"{room.__name__}."):
            values = vars(import_module(module.name)).values()
            yield from (value for value in values if isinstance(value, Rule))
