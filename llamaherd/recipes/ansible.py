"""Ansible plays and tasks that carry a recipe: files that they write, commands, and containers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from llamaherd.diagnostics.findings import InventoryError, Place
from llamaherd.inventory.yaml_file import TOO_LARGE, Path_, parse_yaml
from llamaherd.recipes import container_rules, shell
from llamaherd.recipes.commands import (
    Document,
    Word,
    YamlFile,
    as_list,
    as_mapping,
    placed,
    positioned,
    split,
    unveil,
    word_of,
)
from llamaherd.recipes.containers import ContainerOption, container_of, gpus_of
from llamaherd.recipes.recipe import MOST_SERVERS, NOT_READ, Recipe
from llamaherd.recipes.servers import names_engine

_WRITING = {"copy": ("content", "dest"), "blockinfile": ("block", "path")}
"""Modules that write a file: the keys of its content and its path."""
_RUNNING = frozenset(("command", "shell", "raw"))
_CONTAINERS = frozenset(("docker_container", "podman_container"))
_OTHER_FILES = frozenset(("template", "include_tasks", "import_tasks", "include_role", "import_role"))
_MODULES = "|".join(
    (*_WRITING, *_RUNNING, *_CONTAINERS, *_OTHER_FILES, "hosts", "tasks", "systemd", "docker_compose(?:_v2)?")
)
_TASKS = re.compile(rf"^[ \t]*(?:- +)?(?:[a-z]+\.[a-z]+\.)?(?:{_MODULES})[ \t]*:", re.MULTILINE)
_HEAD = re.compile(r"\A(?:[ \t]*(?:#[^\n]*)?\r?\n)*---[ \t]*$", re.MULTILINE)
_DEEPEST = 20


def is_ansible(text: str) -> bool:
    """Return whether a YAML file is a list of plays or tasks."""
    first = re.sub(r"\A(?:[ \t]*(?:#[^\n]*|---)?[ \t]*\n)+", "", text)
    return first.startswith("- ") and _TASKS.search(text) is not None


def check_text(file: Path, text: str) -> Recipe:
    """Return the recipe of plays or tasks. Raise InventoryError for a text that is not YAML."""
    head = _HEAD.match(text)
    # A list becomes the value of a key, in the line of `---` or in one above the file.
    whole = f"{text[: head.end()].rstrip()[:-3]}_:{text[head.end() :]}" if head else f"_:\n{text}"
    above = 0 if head else 1
    try:
        document = parse_yaml(file, whole)
    except InventoryError as error:
        places = [Place(each.place.file, max(each.place.line - above, 1), each.place.column) for each in error.findings]
        raise InventoryError(
            [replace(each, place=place, edits=()) for each, place in zip(error.findings, places, strict=True)]
        ) from None
    reader = _Reader(file, shell.reader_of(file, text), YamlFile(document, positioned(whole), above))
    return reader.tasks((), document.data, 0)


@dataclass(frozen=True)
class _Reader:
    file: Path
    reader: shell.Reader
    yaml: YamlFile

    def tasks(self, path: Path_, value: Any, depth: int) -> Recipe:
        """Return the recipe of all tasks below a path."""
        recipe = Recipe()
        if depth > _DEEPEST:
            return recipe
        for step, below in value.items() if isinstance(value, dict) else enumerate(as_list(value)):
            if len(recipe.servers) >= MOST_SERVERS:
                message = f"{MOST_SERVERS} servers are started up to this line: the rest is not checked"
                place = Place(self.file, *self.yaml.at((*path, step)))
                return recipe + Recipe((TOO_LARGE.at(place, message, "cut it into several files"),))
            name = str(step).rpartition(".")[2] if isinstance(value, dict) else ""
            if name in _WRITING or name in _RUNNING or name in _CONTAINERS or name in _OTHER_FILES:
                recipe += self._task(name, (*path, step), below)
            elif name == "definition" and "services" in as_mapping(below):
                text, at = yaml.safe_dump(below, sort_keys=False, allow_unicode=True), self.yaml.at((*path, step))
                recipe += Recipe(documents=(Document(placed(text, at), "compose.yaml"),))
            elif isinstance(below, dict | list):
                recipe += self.tasks((*path, step), below, depth + 1)
        return recipe

    def _task(self, name: str, path: Path_, value: Any) -> Recipe:
        given = as_mapping(value)
        if name in _WRITING:
            content, target = _WRITING[name]
            if isinstance(given.get(content), str):
                text = self.yaml.value((*path, content), given[content])
                return Recipe(documents=(Document(text, str(given.get(target, ""))),))
            name = "template"
        if name in _OTHER_FILES:
            keys = (key for key in ("src", "file", "name") if isinstance(given.get(key), str))
            source = unveil(str(given.get(next(keys, ""), value if isinstance(value, str) else "")))
            if name == "template" and not names_engine(source + str(given.get("dest", ""))):
                return Recipe()
            if not names_engine(self.yaml.text.chars):
                return Recipe()
            message = f"`{source or name}` is another file, and is not read"
            place = Place(self.file, *self.yaml.at(path))
            return Recipe((NOT_READ.at(place, message, "check that file by itself", "note"),))
        if name in _CONTAINERS:
            return self._container(path, given)
        argv = given.get("argv")
        if isinstance(argv, list):
            words = tuple(word_of(self.yaml.value((*path, "argv", at), str(each))) for at, each in enumerate(argv))
            return self.reader.check_words(words)
        key = "cmd" if "cmd" in given else "_raw_params"
        line = value if isinstance(value, str) else given.get(key)
        if not isinstance(line, str):
            return Recipe()
        text = self.yaml.value(path if line is value else (*path, key), line)
        if name == "command":
            return self.reader.check_words(tuple(word_of(raw) for raw, _ in split(text)))
        return self.reader.fresh().read(text)

    def _container(self, path: Path_, given: dict[str, Any]) -> Recipe:
        if not isinstance(given.get("image"), str):
            return Recipe()
        command: tuple[Word, ...] = ()
        if isinstance(given.get("command"), str):
            command = tuple(word_of(raw) for raw, _ in split(self.yaml.value((*path, "command"), given["command"])))
        for index, item in enumerate(as_list(given.get("command"))):
            command += (word_of(self.yaml.value((*path, "command", index), str(item))),)
        options = [
            ContainerOption(name, placed(each, self.yaml.at((*path, key, *step))), self.yaml.at((*path, key, *step)))
            for key, name in _OPTIONS.items()
            for step, each in _values(given.get(key))
        ]
        image = word_of(self.yaml.value((*path, "image"), given["image"]))
        return container_rules.recipe_of(self.file, container_of(options, image, command, folder=None))


_OPTIONS = {
    **dict.fromkeys(("published_ports", "ports", "publish"), "--publish"),
    **dict.fromkeys(("env", "environment"), "--env"),
    **dict.fromkeys(("volumes", "volume"), "--volume"),
    **dict.fromkeys(("network_mode", "network"), "--network"),
    **dict.fromkeys(("device", "devices"), "--device"),
    "device_requests": "--gpus",
    "runtime": "--runtime",
    "memory": "--memory",
    "ulimits": "--ulimit",
    "ipc_mode": "--ipc",
    "shm_size": "--shm-size",
    "env_file": "--env-file",
}
"""The options of `docker run` by the keys of a container."""


def _values(value: Any) -> Iterator[tuple[Path_, str]]:
    """Yield the values of an option, each with its steps below the key."""
    if isinstance(value, dict):
        yield from (((name,), f"{name}={setting}") for name, setting in value.items())
    elif isinstance(value, list):
        yield from (
            ((step,), gpus_of(each) if isinstance(each, dict) else str(each)) for step, each in enumerate(value)
        )
    elif value is not None:
        yield (), str(value)
