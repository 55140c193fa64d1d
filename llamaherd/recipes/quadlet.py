"""Quadlets: `.container` units, as podman reads them (podman 5, man podman-systemd.unit)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.diagnostics.spelling import nearest_name
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.recipes import containers, docker_run, unit_rules, unit_service, units
from llamaherd.recipes.commands import Text, Word, positioned, unveil, word_of
from llamaherd.recipes.containers import (
    Container,
    bind_of_mount,
    bind_of_volume,
    mount_target,
    published_port,
    variables_of_files,
    word_at,
)
from llamaherd.recipes.recipe import NOT_AS_IT_LOOKS, Recipe, engine_of

_SECTION = "Container"
_KEYS = (
    *("AddDevice", "ContainerName", "Entrypoint", "Environment", "EnvironmentFile", "Exec", "GroupAdd", "HealthCmd"),
    *("Image", "Memory", "Mount", "Network", "PodmanArgs", "PublishPort", "Secret", "ShmSize", "Ulimit", "Volume"),
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
    named = [(unveil(each.text), each.at) for each in unit.all("EnvironmentFile", _SECTION)]
    variables, unread = variables_of_files(file.absolute().parent, named)
    container = _container(unit, image)
    container = replace(
        container,
        engine=engine_of(text),
        environment={**variables, **container.environment},
        settings_elsewhere=container.settings_elsewhere or bool(unread),
        unread=(*container.unread, *(f"EnvironmentFile={name}" for name in unread)),
    )
    recipe += containers.recipe_of(file, container)
    if recipe.servers or containers.is_swap(container):
        recipe += Recipe(tuple(unit_service.check_boot(started)))
    return recipe


def _meant(setting: units.Setting) -> str | None:
    """Return the key of which another one is a misspelling; None for one that may be right."""
    if setting.section != _SECTION or setting.key in {*_KEYS, *_OTHER_KEYS}:
        return None
    return nearest_name(setting.key, _KEYS)


def _misspelt(file: Path, setting: units.Setting, meant: str) -> Finding:
    message = f"podman has no key `{setting.key}`, and does not make this service"
    return NOT_AS_IT_LOOKS.at(Place(file, *setting.start), message, f"did you mean `{meant}`?")


def _container(unit: units.Unit, image: units.Setting) -> Container:
    ports = unit.all("PublishPort", _SECTION)
    network = unit.last("Network", _SECTION)
    exec_, entry = unit.last("Exec", _SECTION), unit.last("Entrypoint", _SECTION)
    # PodmanArgs are options of `podman run`, before the image.
    more = tuple(word for each in unit.all("PodmanArgs", _SECTION) for word in units.words(each.value, {}))
    extra = docker_run.container_of((*more, word_of(image.value))) or Container(word_of(image.value))
    volumes, mounts = unit.all("Volume", _SECTION), unit.all("Mount", _SECTION)
    devices = [
        each.text for each in unit.all("AddDevice", _SECTION) if "nvidia" in each.text or "/dev/dri" in each.text
    ]
    gpu_names = [each.rpartition("=")[2] for each in devices if "nvidia.com/gpu=" in each]
    every = unit.all("Volume", _SECTION) + mounts
    targets = [target for each in every if (target := mount_target(unveil(each.text)))]
    binds = [bind_of_volume(unveil(each.text)) for each in volumes] + [
        bind_of_mount(unveil(each.text)) for each in mounts
    ]
    return Container(
        image=word_of(image.value),
        command=units.words(exec_.value, {}) if exec_ else (),
        entrypoint=tuple(_program(entry)) if entry else None,
        ports=tuple(published_port(unveil(each.text), each.at) for each in ports) + extra.ports,
        environment={**extra.environment, **units.unit_environment(unit, _SECTION)},
        gpu=bool(devices) or extra.gpu,
        host_network=network.at if network and network.text == "host" else extra.host_network,
        mounts=(*targets, *(extra.mounts or ())),
        binds=tuple(bind for bind in binds if bind) + extra.binds,
        memlock=any("memlock" in each.text for each in unit.all("Ulimit", _SECTION)) or extra.memlock,
        shares_memory=bool(unit.value("ShmSize", _SECTION)) or extra.shares_memory,
        memory=unveil(unit.value("Memory", _SECTION)) or extra.memory,
        built=image.text.endswith((".build", ".image")),
        settings_elsewhere=bool(unit.all("Secret", _SECTION)) or extra.settings_elsewhere,
        unread=extra.unread,
        gpu_ids=tuple(gpu_names) if "all" not in gpu_names else (),
        cards=len(gpu_names) if gpu_names and "all" not in gpu_names else extra.cards,
        cpus=extra.cpus or unit.value("AllowedCPUs") or unit.value("CPUAffinity"),
        style="quadlet",
    )


def _program(entry: units.Setting) -> Iterator[Word]:
    if entry.text.startswith("["):
        yield from (word_at(each, entry.at) for each in re.findall(r'"((?:[^"\\]|\\.)*)"', entry.text))
    elif entry.text:
        yield word_of(Text(entry.text, entry.value.at))
