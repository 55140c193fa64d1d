"""Read Compose files: the container of each service, with extended services, variables and written files.

Whether Compose accepts a file is not checked: `docker compose config` does that better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.inventory.yaml_file import TOO_LARGE, UNREADABLE, Document
from llamaherd.recipes import commands, compose_rules, container_rules
from llamaherd.recipes.commands import Document as Written
from llamaherd.recipes.commands import Word, YamlFile, expand, interpolated, placed, word_of, yaml_file
from llamaherd.recipes.compose_service import Service, as_list, as_mapping, options_of, service_of
from llamaherd.recipes.containers import container_of
from llamaherd.recipes.recipe import NOT_AS_IT_LOOKS, NOT_READ, OTHER_VARIABLE, Recipe

MOST_SERVICES = 200
"""The most services of one file that are checked: each is compared with all others."""


def check_text(file: Path, text: str, outside: Mapping[str, str]) -> Recipe:
    """Return the recipe of a Compose file. `outside` are the variables of its `.env`.

    Raise InventoryError (LH001, LH003) for a text that is not YAML.
    """
    return _Reader(yaml_file(file, text, merging=True), outside).read()


def check_excerpt(file: Path, text: str) -> Recipe:
    """Return the recipe of a Compose file on a page, for which other files are unknown."""
    return _Reader(yaml_file(file, text, merging=True), {}, whole=False).read()


@dataclass(frozen=True)
class _Reader:
    file: YamlFile
    outside: Mapping[str, str]
    whole: bool = True
    """False for a part of a page."""

    @property
    def document(self) -> Document:
        """The data of the file."""
        return self.file.document

    def read(self) -> Recipe:
        """Return the recipe of all services, and the files that `configs` holds."""
        declared = as_mapping(self.document.data.get("services"))
        recipe = Recipe(tuple(self._unread(declared)), documents=tuple(self._configs()))
        keyed = any(container_rules.has_swap_keys(each.text.chars) for each in recipe.documents)
        services: list[Service] = []
        for number, (name, value) in enumerate(declared.items()):
            if number == MOST_SERVICES:
                message = f"{number} services come before this one: it and the services below are not checked"
                place = self.document.key(("services", name))
                recipe += Recipe((TOO_LARGE.at(place, message, "cut it into several files"),))
                break
            if isinstance(value, dict):
                service, unread = service_of(self.file, name, files=self.whole)
                found, service = self._service(service, keyed=keyed)
                recipe += Recipe(tuple(unread)) + found
                services.append(service)
        return recipe + Recipe(tuple(compose_rules.check_services(self.document, services, whole=self.whole)))

    def _unread(self, services: Mapping[str, Any]) -> Iterator[Finding]:
        included = self.document.data.get("include")
        if included and self.whole:
            message = "`include` names other files, which are not read"
            place = self.document.value(("include",))
            yield NOT_READ.at(place, message, "check each of them by itself", "note")
        elif not services and self.whole:
            message = "cannot read this file: it has no services"
            yield UNREADABLE.at(Place(self.document.file), message, "give the file that holds `services:`")

    def _configs(self) -> Iterator[Written]:
        """Yield the files that the file itself holds, after Compose has put variables in."""
        for name, value in as_mapping(self.document.data.get("configs")).items():
            content = as_mapping(value).get("content")
            if isinstance(content, str):
                text = self.file.value(("configs", name, "content"), content)
                text = commands.without_dollars(interpolated(text, self.outside))
                yield Written(text, self._target(name))

    def _target(self, name: str) -> str:
        for service in as_mapping(self.document.data.get("services")).values():
            for each in as_list(as_mapping(service).get("configs")):
                if as_mapping(each).get("source") == name and as_mapping(each).get("target"):
                    return str(each["target"])
        return name

    def _service(self, service: Service, *, keyed: bool) -> tuple[Recipe, Service]:
        declared = service.declared
        image = service.last("image")
        words = expand(image[0].text(image[1], "image"), self.outside) if image and isinstance(image[1], str) else ()
        if not words and image is None and "build" in declared:
            words = (Word(placed(service.name, service.at), service.at),)  # its own image
        if not words:
            return Recipe(), service
        options = [*options_of(service, self.outside, files=self.whole)]
        environment = dict(each.value.partition("=")[::2] for each in options if each.name == "--env")
        command, empty = self._command(service, "command", environment)
        folder = self.document.file.absolute().parent
        container = container_of(options, words[0], command, folder=folder, style="compose")
        container = replace(
            container,
            entrypoint=self._command(service, "entrypoint", environment)[0] if "entrypoint" in declared else None,
            mounts=container.mounts if service.complete else None,
            built="build" in declared,
            settings_elsewhere=container.settings_elsewhere or not service.complete or keyed,
        )
        recipe = container_rules.recipe_of(self.document.file, container)
        server = recipe.servers[0] if recipe.servers else None
        if server or container.official:
            found = (*self._empty(empty, environment), *self._split(service))
            reported = {each.place for each in found if each.code == NOT_AS_IT_LOOKS.code}
            kept = (each for each in recipe.findings if each.place not in reported)
            recipe = Recipe((*kept, *found), recipe.servers)
        return recipe, replace(service, container=container, server=server)

    def _command(
        self, service: Service, key: str, environment: Mapping[str, str]
    ) -> tuple[tuple[Word, ...], list[Word]]:
        """Return the words of a command as intended, and those that Compose leaves empty."""
        source, command = service.last(key) or (service.sources[-1], None)
        known = {**environment, **self.outside}
        words: list[Word] = []
        empty: list[Word] = []
        if isinstance(command, str):
            text = commands.read_compose_command(source.text(command, key)).text
            words += expand(text, known)
            empty += expand(text, self.outside)
        for index, item in enumerate(as_list(command)):
            if item is not None:
                text = source.text(str(item), key, index)
                words.append(word_of(commands.without_dollars(interpolated(text, known)), source.at(key, index)))
                empty.append(word_of(interpolated(text, self.outside), source.at(key, index)))
        return tuple(words), [word for word in empty if set(word.unset) & set(environment)]

    def _split(self, service: Service) -> Iterator[Finding]:
        """Report the syntax of a shell that Compose reads otherwise."""
        source, command = service.last("command") or (service.sources[-1], None)
        if not isinstance(command, str):
            return
        split = commands.read_compose_command(source.text(command, "command"))
        file = self.document.file
        if split.continued:
            message = "to Compose a backslash continues no line: what follows it becomes a part of an argument"
            way_out = "leave the backslashes out: behind `>` all lines are one"
            yield NOT_AS_IT_LOOKS.at(Place(file, *split.continued), message, way_out)
        note = next((word for word in expand(split.text, self.outside) if str(word) == "#"), None)
        if note:
            message = "to Compose no comment begins inside of a text: `#` and what follows are arguments"
            yield NOT_AS_IT_LOOKS.at(Place(file, *note.start), message, "put it above `command:`")
        if split.operator:
            sign, at = split.operator
            message = f"Compose runs no shell: it drops `{sign}` and the rest, without a warning"
            way_out = "leave it out, or start a shell: `entrypoint: [sh, -c]`, and `command` a list of one text"
            yield NOT_AS_IT_LOOKS.at(Place(file, *at), message, way_out)

    def _empty(self, words: list[Word], environment: Mapping[str, str]) -> Iterator[Finding]:
        found = {name: word for word in reversed(words) for name in word.unset if name in environment}
        for name, word in found.items():
            message = f"`${{{name}}}` is empty here: Compose reads its shell and .env, and not `environment:`"
            way_out = f"write the value itself, `{environment[name]}`, or put `{name}` into .env"
            yield OTHER_VARIABLE.at(Place(self.document.file, *word.start), message, way_out)
