"""Read Compose files: the container of each service, with extended services, variables and written files.

Whether Compose accepts a file is not checked: `docker compose config` does that better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.inventory.yaml_file import TOO_LARGE, UNREADABLE, Document, parse_yaml
from llamaherd.recipes import commands, compose_rules, containers, servers
from llamaherd.recipes.commands import Document as Written
from llamaherd.recipes.commands import (
    Position,
    Text,
    Word,
    expand,
    interpolated,
    is_veiled,
    positioned,
    unveil,
    word_of,
)
from llamaherd.recipes.compose_service import (
    Service,
    as_list,
    as_mapping,
    given_cards,
    given_ids,
    has_cards,
    may_lock,
    most_memory,
    mount_targets,
    service_of,
    shares_memory,
    variables_of,
)
from llamaherd.recipes.containers import Container, bind_mounts, variables_of_files
from llamaherd.recipes.recipe import NOT_AS_IT_LOOKS, NOT_READ, OTHER_VARIABLE, Published, Recipe

MOST_SERVICES = 200
"""The most services of one file that are checked: each is compared with all others."""


def check_text(file: Path, text: str, outside: Mapping[str, str]) -> Recipe:
    """Return the recipe of a Compose file. `outside` are the variables of its `.env`.

    Raise InventoryError (LH001, LH003) for a text that is not YAML.
    """
    return _Reader(parse_yaml(file, text, merging=True), positioned(text), outside).read()


def check_excerpt(file: Path, text: str) -> Recipe:
    """Return the recipe of a Compose file on a page, for which other files are unknown."""
    return _Reader(parse_yaml(file, text, merging=True), positioned(text), {}, whole=False).read()


@dataclass(frozen=True)
class _Reader:
    document: Document
    text: Text
    outside: Mapping[str, str]
    whole: bool = True
    """False for a part of a page."""

    def read(self) -> Recipe:
        """Return the recipe of all services, and the files that `configs` holds."""
        declared = as_mapping(self.document.data.get("services"))
        recipe = Recipe(tuple(self._unread(declared)), documents=tuple(self._configs()))
        keyed = any(containers.has_swap_keys(each.text.chars) for each in recipe.documents)
        services: list[Service] = []
        for number, (name, value) in enumerate(declared.items()):
            if number == MOST_SERVICES:
                message = f"{number} services come before this one: it and the services below are not checked"
                place = self.document.key(("services", name))
                recipe += Recipe((TOO_LARGE.at(place, message, "cut it into several files"),))
                break
            if isinstance(value, dict):
                service, unread = service_of(self.document, self.text, name, files=self.whole)
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
                text = commands.yaml_text_at(self.document, self.text, ("configs", name, "content"), content)
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
            words = (containers.word_at(service.name, service.at),)  # its own image
        if not words:
            return Recipe(), service
        environment = variables_of(declared.get("environment"))
        command, empty = self._command(service, "command", environment)
        network = service.last("network_mode")
        folder = self.document.file.absolute().parent
        variables, unread = variables_of_files(folder, self._files(service) if self.whole else ())
        container = Container(
            image=words[0],
            command=command,
            entrypoint=self._command(service, "entrypoint", environment)[0] if "entrypoint" in declared else None,
            ports=tuple(self._ports(service)),
            environment={**variables, **self._settings(service)},
            gpu=has_cards(declared),
            host_network=network[0].at("network_mode") if network and network[1] == "host" else None,
            mounts=mount_targets(declared) if service.complete else None,
            binds=bind_mounts(as_list(declared.get("volumes"))),
            memlock=may_lock(declared),
            shares_memory=shares_memory(declared),
            memory=most_memory(declared),
            cards=given_cards(declared),
            gpu_ids=given_ids(declared),
            cpus=str(declared.get("cpuset", "")),
            built="build" in declared,
            settings_elsewhere=bool(unread) or not service.complete or keyed,
            unread=tuple(f"env_file: {name}" for name in unread),
        )
        server = containers.server_of(container)
        service = replace(service, container=container, server=server)
        recipe = Recipe(tuple(containers.check_container(self.document.file, container)))
        recipe += Recipe(tuple(containers.check_start(self.document.file, container, server)))
        if server is None and not container.official:
            return recipe, service
        recipe += Recipe((*self._empty(empty, environment), *self._split(service)))
        if server:
            recipe += Recipe(tuple(containers.check_needs(self.document.file, container, server)))
            reported = {each.place for each in recipe.findings if each.code == NOT_AS_IT_LOOKS.code}
            found = servers.check_server(self.document.file, server)
            recipe += Recipe(tuple(each for each in found if each.place not in reported), (server,))
        return recipe, service

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

    def _settings(self, service: Service) -> dict[str, Word]:
        """Return the variables of a service, with their positions."""
        found: dict[str, Word] = {}
        for source, step, item in service.items("environment"):
            name, equals, value = (step, "=", item) if isinstance(step, str) else str(item).partition("=")
            if equals and value is not None:
                at = source.at("environment", step)
                text = interpolated(Text(str(value), (at,) * len(str(value))), self.outside)
                found[str(name)] = word_of(commands.without_dollars(text), at)
        return found

    def _files(self, service: Service) -> Iterator[tuple[str, Position]]:
        """Yield the files of variables of a service."""
        source, files = service.last("env_file") or (service.sources[-1], None)
        for each in [files] if isinstance(files, str | dict) else as_list(files):
            path = as_mapping(each).get("path", each)
            yield interpolated(Text(str(path), ((1, 1),) * len(str(path))), self.outside).chars, source.at("env_file")

    def _ports(self, service: Service) -> Iterator[Published]:
        for source, step, port in service.items("ports"):
            start = source.at("ports", step)
            if isinstance(port, dict):
                container = str(port.get("target", ""))
                host = str(port.get("published", container))
                yield Published(f"{host}:{container}", start, str(port.get("host_ip", "")), host, container)
            elif isinstance(port, str | int):
                resolved = interpolated(source.text(str(port), "ports", step), self.outside).chars
                published = containers.published_port(unveil(resolved), start)
                unknown = bool(published.address) and is_veiled(resolved[: len(published.address)])
                yield replace(published, unknown=unknown)
