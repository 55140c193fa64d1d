"""Quadlets: `.container` units, as podman reads them (podman 5, man podman-systemd.unit)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.diagnostics.spelling import nearest_name
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.recipes import container_rules, unit_rules, units
from llamaherd.recipes.commands import Text, Word, positioned, word_at, word_of
from llamaherd.recipes.containers import Container, ContainerOption, container_of, options_of_run
from llamaherd.recipes.recipe import NOT_AS_IT_LOOKS, Recipe, engine_of

_SECTION = "Container"
_OPTIONS: Mapping[str, str] = {
    "PublishPort": "--publish",
    "Volume": "--volume",
    "Mount": "--mount",
    "AddDevice": "--device",
    "Network": "--network",
    "EnvironmentFile": "--env-file",
    "Memory": "--memory",
    "ShmSize": "--shm-size",
    "Ulimit": "--ulimit",
    "Secret": "--secret",
}
"""The options of `podman run` by the keys of a container."""
_KEYS = (
    *_OPTIONS,
    *("ContainerName", "Entrypoint", "Environment", "Exec", "GroupAdd", "HealthCmd", "Image", "PodmanArgs"),
)
"""Keys of a container that are read here."""
_OTHER_KEYS = frozenset(("ExposeHostPort", "Group", "HostName", "Label", "Mask", "Pod", "Pull", "Unmask", "User"))
"""Keys that podman has, and that are spelt like others."""


def is_quadlet(text: str) -> bool:
    """Return whether a text is a container's unit: it has a section `[Container]` with an image."""
    return bool(re.search(r"^\[Container\]\s*$", text, re.MULTILINE) and re.search(r"^Image\s*=", text, re.MULTILINE))


def check_text(file: Path, text: str) -> Recipe:
    """Return the recipe of a `.container` file."""
    unit = units.read_unit(positioned(text))
    meant = {each.key: name for each in unit.settings if (name := _meant(each))}
    recipe = Recipe(tuple(_misspelt(file, each, meant[each.key]) for each in unit.settings if each.key in meant))
    unit = replace(unit, settings=tuple(replace(each, key=meant.get(each.key, each.key)) for each in unit.settings))
    image = unit.last("Image", _SECTION)
    if image is None:
        message = "cannot read this file: it has no `Image=` under `[Container]`"
        return Recipe((UNREADABLE.at(Place(file), message, "name the image that the container is of"),))
    started = unit_rules.StartedUnit(file, unit)
    recipe += Recipe(tuple(unit_rules.check_unit(started)))
    container = _container(file, unit, image, text)
    recipe += container_rules.recipe_of(file, container)
    if recipe.servers or container.of_swap:
        recipe += Recipe(tuple(unit_rules.check_boot(started)))
    return recipe


def _meant(setting: units.Setting) -> str | None:
    """Return the key of which another one is a misspelling; None for one that may be right."""
    if setting.section != _SECTION or setting.key in {*_KEYS, *_OTHER_KEYS}:
        return None
    return nearest_name(setting.key, _KEYS)


def _misspelt(file: Path, setting: units.Setting, meant: str) -> Finding:
    message = f"podman has no key `{setting.key}`, and does not make this service"
    return NOT_AS_IT_LOOKS.at(Place(file, *setting.start), message, f"did you mean `{meant}`?")


def _container(file: Path, unit: units.Unit, image: units.Setting, text: str) -> Container:
    exec_, entry = unit.last("Exec", _SECTION), unit.last("Entrypoint", _SECTION)
    options = [
        ContainerOption(name, each.value, each.at) for key, name in _OPTIONS.items() for each in unit.all(key, _SECTION)
    ]
    more = tuple(word for each in unit.all("PodmanArgs", _SECTION) for word in units.words(each.value, {}))
    options += options_of_run(more)[0]
    command, folder = units.words(exec_.value, {}) if exec_ else (), file.absolute().parent
    container = container_of(options, word_of(image.value), command, folder=folder, style="quadlet")
    return replace(
        container,
        entrypoint=tuple(_program(entry)) if entry else container.entrypoint,
        environment={**container.environment, **units.unit_environment(unit, _SECTION)},
        built=image.text.endswith((".build", ".image")),
        engine=engine_of(text),
        cpus=container.cpus or unit.value("AllowedCPUs") or unit.value("CPUAffinity"),
    )


def _program(entry: units.Setting) -> Iterator[Word]:
    if entry.text.startswith("["):
        yield from (word_at(each, entry.at) for each in re.findall(r'"((?:[^"\\]|\\.)*)"', entry.text))
    elif entry.text:
        yield word_of(Text(entry.text, entry.value.at))
