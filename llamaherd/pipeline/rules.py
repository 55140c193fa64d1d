"""Every rule that a finding can be of. Each stands beside the function that finds it; here they are put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import NamedTuple

import llamaherd
from llamaherd.diagnostics.rule import Rule

ROOMS = ("inventory", "wsl", "engines", "lock", "recipes", "checks", "pipeline")
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
        "These rules look at the whole command line and environment that a server gets: in an inventory, a script, "
        "a unit and a Compose file alike.",
    ),
    Section(230, "Toolkits and GPUs"),
    Section(240, "Memory beside the keys"),
    Section(250, "Options that are idle, or refused", "These look at the whole command line, too."),
    Section(263, "Around containers and services"),
    Section(274, "Names and values that stand for nothing"),
    Section(290, "Roles of a fleet's own"),
    Section(300, "The gateway", "These look at `fleet.yaml` and the rigs beside it."),
    Section(320, "Monitoring", "These look at `fleet.yaml` and the rigs beside it."),
    Section(330, "What a change must prove"),
    Section(340, "Groups that swap"),
    Section(350, "An address that two gateways have in turn", "These look at `fleet.yaml` and the rigs beside it."),
)
"""A new rule takes the first free number of its section that never had a page, or opens one at the end."""


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by their codes, in order. This loads every module of those rooms."""
    return {rule.code: rule for rule in sorted(set(_declared()), key=lambda rule: rule.code)}


def index() -> str:
    """The tables of all rules, in Markdown, section by section."""
    return "\n".join(_table(section) for section in SECTIONS)


def section_of(rule: Rule) -> Section:
    """Where the table of all has a rule."""
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
