"""Ansible plays and tasks that carry a recipe: files that they write, commands, and containers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from llamaherd.diagnostics.findings import InventoryError, Place
from llamaherd.inventory.yaml_file import TOO_LARGE, Path_, parse_yaml
from llamaherd.inventory.yaml_file import Document as YamlDocument
from llamaherd.recipes import containers, shell
from llamaherd.recipes.commands import Document, Position, Text, Word, positioned, split, unveil, word_of, yaml_text_at
from llamaherd.recipes.compose_service import as_list, as_mapping, variables_of
from llamaherd.recipes.containers import Container, bind_mounts, published_port, word_at
from llamaherd.recipes.recipe import MOST_SERVERS, NOT_READ, Recipe
from llamaherd.recipes.servers import names_engine
from llamaherd.text.numbers import whole_number

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
    return _Reader(file, shell.reader_of(file, text), document, positioned(whole), above).tasks((), document.data, 0)


@dataclass(frozen=True)
class _Reader:
    file: Path
    reader: shell.Reader
    document: YamlDocument
    whole: Text
    above: int
    """The number of lines that stand above the file's own."""

    def tasks(self, path: Path_, value: Any, depth: int) -> Recipe:
        """Return the recipe of all tasks below a path."""
        recipe = Recipe()
        if depth > _DEEPEST:
            return recipe
        for step, below in value.items() if isinstance(value, dict) else enumerate(as_list(value)):
            if len(recipe.servers) >= MOST_SERVERS:
                message = f"{MOST_SERVERS} servers are started up to this line: the rest is not checked"
                place = Place(self.file, *self._at((*path, step)))
                return recipe + Recipe((TOO_LARGE.at(place, message, "cut it into several files"),))
            name = str(step).rpartition(".")[2] if isinstance(value, dict) else ""
            if name in _WRITING or name in _RUNNING or name in _CONTAINERS or name in _OTHER_FILES:
                recipe += self._task(name, (*path, step), below)
            elif name == "definition" and "services" in as_mapping(below):
                text, at = yaml.safe_dump(below, sort_keys=False, allow_unicode=True), self._at((*path, step))
                recipe += Recipe(documents=(Document(Text(text, (at,) * len(text)), "compose.yaml"),))
            elif isinstance(below, dict | list):
                recipe += self.tasks((*path, step), below, depth + 1)
        return recipe

    def _task(self, name: str, path: Path_, value: Any) -> Recipe:
        given = as_mapping(value)
        if name in _WRITING:
            content, target = _WRITING[name]
            if isinstance(given.get(content), str):
                text = self._text((*path, content), given[content])
                return Recipe(documents=(Document(text, str(given.get(target, ""))),))
            name = "template"
        if name in _OTHER_FILES:
            keys = (key for key in ("src", "file", "name") if isinstance(given.get(key), str))
            source = unveil(str(given.get(next(keys, ""), value if isinstance(value, str) else "")))
            if name == "template" and not names_engine(source + str(given.get("dest", ""))):
                return Recipe()
            if not names_engine(self.whole.chars):
                return Recipe()
            message = f"`{source or name}` is another file, and is not read"
            place = Place(self.file, *self._at(path))
            return Recipe((NOT_READ.at(place, message, "check that file by itself", "note"),))
        if name in _CONTAINERS:
            return self._container(path, given)
        argv = given.get("argv")
        if isinstance(argv, list):
            words = tuple(word_at(str(each), self._at((*path, "argv", at))) for at, each in enumerate(argv))
            return self.reader.check_words(words)
        key = "cmd" if "cmd" in given else "_raw_params"
        line = value if isinstance(value, str) else given.get(key)
        if not isinstance(line, str):
            return Recipe()
        text = self._text(path if line is value else (*path, key), line)
        if name == "command":
            return self.reader.check_words(tuple(word_of(raw) for raw, _ in split(text)))
        return self.reader.fresh().read(text)

    def _container(self, path: Path_, given: dict[str, Any]) -> Recipe:
        if not isinstance(given.get("image"), str):
            return Recipe()
        command: tuple[Word, ...] = ()
        if isinstance(given.get("command"), str):
            command = tuple(word_of(raw) for raw, _ in split(self._text((*path, "command"), given["command"])))
        for index, item in enumerate(as_list(given.get("command"))):
            command += (word_of(self._text((*path, "command", index), str(item))),)
        ports = next((key for key in ("published_ports", "ports", "publish") if key in given), "ports")
        published = [
            published_port(str(each), self._at((*path, ports, at))) for at, each in enumerate(as_list(given.get(ports)))
        ]
        devices = [as_mapping(each) for each in as_list(given.get("device_requests"))]
        counts = [whole_number(str(each.get("count")), 999) for each in devices]
        gpu = bool(devices) or "nvidia" in f"{given.get('runtime')}{given.get('device')}{given.get('devices')}"
        env = next((key for key in ("env", "environment") if key in given), "env")
        network = given.get("network_mode", given.get("network"))
        volumes = next((key for key in ("volumes", "volume") if key in given), "volumes")
        container = Container(
            image=word_of(self._text((*path, "image"), given["image"])),
            command=command,
            ports=tuple(published),
            environment={
                key: word_of(Text(value, (self._at((*path, env, key)),) * len(value)))
                for key, value in variables_of(given.get(env)).items()
            },
            gpu=gpu,
            host_network=self._at((*path,)) if network == "host" else None,
            binds=bind_mounts(as_list(given.get(volumes))),
            memory=str(given.get("memory", "")),
            shares_memory="ipc_mode" in given or "shm_size" in given,
            memlock="memlock" in str(given.get("ulimits")),
            settings_elsewhere="env_file" in given,
            cards=sum(filter(None, counts)) if counts and None not in counts else None,
        )
        return containers.recipe_of(self.file, container)

    def _at(self, path: Path_) -> Position:
        place = self.document.value(path)
        return max(place.line - self.above, 1), place.column

    def _text(self, path: Path_, value: str) -> Text:
        text = yaml_text_at(self.document, self.whole, path, value)
        return Text(text.chars, tuple((max(line - self.above, 1), column) for line, column in text.at))
