"""Check pasted Compose files: by Compose's own JSON Schema (compose-go 2.9.1), and for faults that Compose ignores."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.inventory.yaml_file import TOO_LARGE, Document, Path_, parse_yaml
from llamaherd.recipes import commands, compose_rules, compose_service, containers, servers
from llamaherd.recipes.commands import Text, Word, expand, joined, positioned, yaml_text_at
from llamaherd.recipes.compose_rules import REFUSED_BY_COMPOSE
from llamaherd.recipes.compose_service import (
    Service,
    as_list,
    as_mapping,
    given_cards,
    has_cards,
    may_lock,
    most_memory,
    mount_targets,
    shares_memory,
    variables_of,
)
from llamaherd.recipes.containers import Container, bind_mounts
from llamaherd.recipes.recipe import (
    CONTAINER_FAILS,
    IDLE_LINE,
    NOT_AS_IT_LOOKS,
    OTHER_VARIABLE,
    Published,
    Recipe,
    ServerCommand,
)

if TYPE_CHECKING:
    from jsonschema import Draft7Validator, ValidationError


_TYPES = {
    "object": "a mapping, `key: value`",
    "array": "a list, `- item`",
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "`true` or `false`",
    "null": "nothing",
}
_MOST = 20
"""Findings of one file: what is no Compose file at all has thousands."""


@dataclass(frozen=True)
class ComposeRefusal:
    """Why Compose refuses a file, and where."""

    path: tuple[str | int, ...]
    message: str
    help: str
    of_key: bool = False
    """Whether it is about the key at `path` rather than about its value."""


@cache
def _validator() -> Draft7Validator:
    # Imported late: it takes a tenth of a second, and only Compose files need it.
    from jsonschema import Draft7Validator

    text = files("llamaherd.recipes").joinpath("data/compose-spec.json").read_text(encoding="utf-8")
    return Draft7Validator(json.loads(text))


def compose_refusals(data: dict[str, Any]) -> tuple[ComposeRefusal, ...]:
    """Return the reasons why Compose refuses a file, in the order of the schema."""
    found: list[ComposeRefusal] = []
    for error in _validator().iter_errors(data):
        found += _refusals(error)
        if len(found) >= _MOST:
            break
    return tuple(dict.fromkeys(found))


def _refusals(error: ValidationError) -> Iterator[ComposeRefusal]:
    inner = _meant(error)
    path = tuple(inner.absolute_path)
    name = _named(path)
    # The requirement of the schema: its type is open in jsonschema.
    demanded: Any = inner.validator_value
    if inner.validator == "additionalProperties" and isinstance(inner.instance, dict):
        yield from _unknown(inner, path)
        return
    if inner.validator == "required" and isinstance(inner.instance, dict):
        yield from (_missing(path, str(key)) for key in demanded if key not in inner.instance)
        return
    wanted = ""
    match inner.validator:
        case "type":
            wanted = " or ".join(_types(demanded))
        case "enum":
            wanted = "one of " + ", ".join(f"`{each}`" for each in demanded if each is not None)
        case "oneOf" | "anyOf":
            wanted = " or ".join(dict.fromkeys(_alternatives(inner)))
    if wanted:
        message = f"{name} is {_shown(inner.instance)}, and Compose requires {wanted}"
        yield ComposeRefusal(path, message, _instead(path, inner.instance, wanted))
    else:
        message = f"{name} is {_shown(inner.instance)}, which Compose refuses"
        yield ComposeRefusal(path, message, "see docs.docker.com/reference/compose-file")


_TIMES = frozenset({"interval", "timeout", "start_period", "start_interval", "stop_grace_period", "delay", "window"})


def _named(path: tuple[str | int, ...]) -> str:
    """Return a path as words."""
    if not path or isinstance(path[-1], str):
        return f"`{path[-1]}`" if path else "the file"
    parent = next((each for each in reversed(path) if isinstance(each, str)), "the list")
    return f"item {path[-1] + 1} of `{parent}`"


def _instead(path: tuple[str | int, ...], value: Any, wanted: str) -> str:
    """Return the help, with the written value if only that can be meant."""
    number = isinstance(value, int) and not isinstance(value, bool)
    if path[-1:] == ("gpus",):
        count = value if number else 1
        return f"write `gpus: all`, or a list: `gpus: [{{count: {count}}}]`"
    if number and path[-1] in _TIMES:
        return f"write it with its unit: `{value}s`"
    if number and wanted == _TYPES["string"]:
        return f'write it in quotes: `"{value}"`'
    if isinstance(value, bool) and wanted == _TYPES["string"]:
        return f'write it in quotes: `"{str(value).lower()}"`'
    if isinstance(value, str) and wanted == _TYPES["array"] and re.fullmatch(r"[\w./:-]{1,60}", value):
        return f"write a list: `[{value}]`"
    return f"write {wanted}"


def _meant(error: ValidationError) -> ValidationError:
    """Return the error within a choice of several shapes: that of the shape that is most similar to the value."""
    while error.context:
        deeper = [each for each in error.context if len(each.path) > 0 or each.validator != "type"]
        if not deeper:
            return error
        error = max(deeper, key=lambda each: (len(each.path), each.validator == "additionalProperties"))
    return error


def _unknown(error: ValidationError, path: tuple[str | int, ...]) -> Iterator[ComposeRefusal]:
    schema: Any = error.schema
    known = list(schema.get("properties", {}))
    where = f"`{path[-1]}`" if path else "the top"
    written: Any = error.instance
    for key in written:
        if key in known or str(key).startswith("x-"):
            continue
        close = get_close_matches(str(key), known, n=1, cutoff=0.7)
        way_out = f"did you mean `{close[0]}`?" if close else "leave it out, or see where it belongs"
        yield ComposeRefusal(
            (*path, key), f"Compose has no key `{key}` in {where}, and refuses the file", way_out, of_key=True
        )


def _missing(path: tuple[str | int, ...], key: str) -> ComposeRefusal:
    if key == "capabilities":
        message = "the reservation of a device names no `capabilities`, and Compose refuses the file"
        return ComposeRefusal(path, message, "add `capabilities: [gpu]`")
    where = f"`{path[-1]}`" if path else "the file"
    return ComposeRefusal(path, f"{where} lacks `{key}`, and Compose refuses the file", f"add `{key}`")


def _types(value: str | Iterable[str]) -> list[str]:
    return [_TYPES.get(each, each) for each in ([value] if isinstance(value, str) else value) if each != "null"]


def _alternatives(error: ValidationError) -> Iterator[str]:
    for each in error.context or ():
        if each.validator == "type":
            demanded: Any = each.validator_value
            yield from _types(demanded)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "empty"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case bool():
            value = str(value).lower()
    text = str(value)
    return f"`{text if len(text) < 40 else text[:40] + '…'}`"


MOST_SERVICES = 200
"""The most services of one file that are checked: each is compared with all others."""


def check_text(file: Path, text: str, outside: Mapping[str, str]) -> Recipe:
    """Return the recipe of a Compose file. `outside` are the variables of its `.env`.

    Raise InventoryError (LH001, LH003) for a text that is not YAML.
    """
    return _Reader(parse_yaml(file, text, merging=True), positioned(text), outside).read()


def check_excerpt(file: Path, text: str) -> Recipe:
    """Return the recipe of a Compose file on a page: `text` has blanks for the rest of the page."""
    return _Reader(parse_yaml(file, text, merging=True), positioned(text), {}, whole=False).read()


def settings_of(text: str) -> dict[str, str]:
    """Return the variables of a `.env` file."""
    found = re.finditer(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)
    return {each[1]: each[2].strip("\"'") for each in found}


@dataclass(frozen=True)
class _Reader:
    document: Document
    text: Text
    outside: Mapping[str, str]
    whole: bool = True
    """False for a part of a page, for which other files are unknown."""

    def read(self) -> Recipe:
        recipe = Recipe((*self._top(), *self._refused()))
        services: list[Service] = []
        for number, (name, declared) in enumerate(as_mapping(self.document.data.get("services")).items()):
            if number == MOST_SERVICES:
                message = f"{number} services come before this one: it and the services below are not checked"
                place = self.document.key(("services", name))
                recipe += Recipe((TOO_LARGE.at(place, message, "cut it into several files"),))
                break
            if isinstance(declared, dict):
                found, service = self._service(("services", name), declared)
                recipe += found
                services.append(service)
        recipe += Recipe(tuple(compose_rules.check_services(self.document, services)))
        recipe += Recipe(
            tuple(finding for each in services for finding in compose_rules.check_health(self.document, each))
        )
        recipe += Recipe(
            tuple(compose_service.check_interpolation(self.document, services, self.outside, whole=self.whole))
        )
        return recipe + Recipe(tuple(compose_rules.check_calls(self.document, services)))

    def _refused(self) -> Iterator[Finding]:
        for refusal in compose_refusals(self.document.data):
            place = self.document.key(refusal.path) if refusal.of_key else self.document.value(refusal.path)
            yield REFUSED_BY_COMPOSE.at(place, refusal.message, refusal.help)

    def _top(self) -> Iterator[Finding]:
        if "version" in self.document.data:
            message = "`version` is obsolete: Compose ignores it, with a warning at every start"
            yield IDLE_LINE.at(self.document.key(("version",)), message, "leave the line out")

    def _service(self, path: Path_, service: dict[str, Any]) -> tuple[Recipe, Service]:
        image = service.get("image")
        words = expand(self._text((*path, "image"), image), self.outside) if isinstance(image, str) else ()
        if not words:
            return Recipe(), Service(path, service)
        environment = variables_of(service.get("environment"))
        command, empty = self._command((*path, "command"), service.get("command"), environment)
        container = Container(
            image=words[0],
            command=command,
            entrypoint=self._entrypoint((*path, "entrypoint"), service, environment),
            ports=tuple(self._ports((*path, "ports"), service.get("ports"))),
            environment=self._settings((*path, "environment"), service.get("environment")),
            gpu=has_cards(service) or service.get("runtime") == "nvidia" or "devices" in service,
            privileged=self._at((*path, "privileged")) if service.get("privileged") is True else None,
            host_network=self._at((*path, "network_mode")) if service.get("network_mode") == "host" else None,
            healthcheck=self._health((*path, "healthcheck", "test"), service.get("healthcheck")),
            mounts=mount_targets(service),
            binds=bind_mounts(as_list(service.get("volumes"))),
            memlock=may_lock(service),
            shares_memory=shares_memory(service),
            memory=most_memory(service),
            cards=given_cards(service),
            built="build" in service,
            settings_elsewhere=bool(service.get("env_file") or service.get("extends")),
        )
        server = containers.server_of(container)
        recipe = Recipe(tuple(containers.check_container(self.document.file, container)))
        recipe += Recipe(tuple(containers.check_start(self.document.file, container, server)))
        if server is None and not container.official:
            return recipe, Service(path, service, container)
        recipe += Recipe(tuple(self._empty(empty, environment)))
        recipe += self._of_engine(path, service)
        if server:
            recipe = self._with_server(recipe, container, server)
        return recipe, Service(path, service, container, server)

    def _of_engine(self, path: Path_, service: dict[str, Any]) -> Recipe:
        return Recipe(
            (
                *self._split((*path, "command"), service.get("command")),
                *self._runtime(path, service),
                *self._volumes((*path, "volumes"), service.get("volumes")),
            )
        )

    def _with_server(self, recipe: Recipe, container: Container, server: ServerCommand) -> Recipe:
        recipe += Recipe(tuple(containers.check_needs(self.document.file, container, server)))
        reported = {each.place for each in recipe.findings if each.code == NOT_AS_IT_LOOKS.code}
        found = (each for each in servers.check_server(self.document.file, server) if each.place not in reported)
        return recipe + Recipe(tuple(found), (server,))

    def _at(self, path: Path_) -> tuple[int, int]:
        place = self.document.value(path)
        return place.line, place.column

    def _text(self, path: Path_, value: str) -> Text:
        """Return a value with the position of each of its characters, whether it is quoted, folded or plain."""
        return yaml_text_at(self.document, self.text, path, value)

    def _command(
        self, path: Path_, command: Any, environment: Mapping[str, str]
    ) -> tuple[tuple[Word, ...], list[Word]]:
        """Return the words of a command as intended, and those that Compose leaves empty."""
        values = [(path, command)] if isinstance(command, str) else []
        if isinstance(command, list):
            values = [((*path, index), str(item)) for index, item in enumerate(command) if item is not None]
        words: list[Word] = []
        empty: list[Word] = []
        for where, value in values:
            text = self._text(where, value)
            text = _quoted(text) if isinstance(command, list) else commands.read_compose_command(text).text
            words += expand(text, {**environment, **self.outside})
            empty += [word for word in expand(text, self.outside) if set(word.unset) & set(environment)]
        return tuple(words), empty

    def _split(self, path: Path_, command: Any) -> Iterator[Finding]:
        """Report the syntax of a shell that Compose reads otherwise."""
        if not isinstance(command, str):
            return
        split = commands.read_compose_command(self._text(path, command))
        if split.continued:
            message = "to Compose a backslash continues no line: what follows it becomes a part of an argument"
            way_out = "leave the backslashes out: behind `>` all lines are one"
            yield NOT_AS_IT_LOOKS.at(Place(self.document.file, *split.continued), message, way_out)
        note = next((word for word in expand(split.text, self.outside) if str(word) == "#"), None)
        if note:
            message = "to Compose no comment begins inside of a text: `#` and what follows are arguments"
            yield NOT_AS_IT_LOOKS.at(Place(self.document.file, *note.start), message, "put it above `command:`")
        if split.operator:
            operator, at = split.operator
            message = f"Compose runs no shell: it drops `{operator}` and the rest, without a warning"
            way_out = "leave it out, or start a shell: `entrypoint: [sh, -c]`, and `command` a list of one text"
            yield NOT_AS_IT_LOOKS.at(Place(self.document.file, *at), message, way_out)

    def _entrypoint(
        self, path: Path_, service: dict[str, Any], environment: Mapping[str, str]
    ) -> tuple[Word, ...] | None:
        """Return the program in place of that of the image. With `entrypoint: ""`, the command names it."""
        return self._command(path, service["entrypoint"], environment)[0] if "entrypoint" in service else None

    def _empty(self, words: list[Word], environment: Mapping[str, str]) -> Iterator[Finding]:
        reported: set[str] = set()
        for word in words:
            for name in word.unset:
                if name in environment and name not in reported:
                    reported.add(name)
                    message = f"`${{{name}}}` is empty here: Compose reads its shell and .env, and not `environment:`"
                    way_out = f"write the value itself, `{environment[name]}`, or put `{name}` into .env"
                    yield OTHER_VARIABLE.at(Place(self.document.file, *word.start), message, way_out)

    def _settings(self, path: Path_, value: Any) -> dict[str, Word]:
        """Return the variables of a service, with their positions."""
        places: dict[str, tuple[int, int]] = {}
        if isinstance(value, list):
            places = {str(item).partition("=")[0]: self._at((*path, index)) for index, item in enumerate(value)}
        elif isinstance(value, dict):
            places = {name: self._at((*path, name)) for name in value}
        return {name: containers.word_at(text, places[name]) for name, text in variables_of(value).items()}

    def _ports(self, path: Path_, ports: Any) -> Iterator[Published]:
        for index, port in enumerate(ports if isinstance(ports, list) else []):
            start = self._at((*path, index))
            if isinstance(port, dict):
                container = str(port.get("target", ""))
                host = str(port.get("published", container))
                yield Published(f"{host}:{container}", start, str(port.get("host_ip", "")), host, container)
            elif isinstance(port, str | int):
                resolved = expand(self._text((*path, index), str(port)), self.outside)
                text = str(resolved[0]) if resolved and not resolved[0].unknown else str(port)
                yield containers.published_port(text, start)

    def _health(self, path: Path_, healthcheck: Any) -> tuple[str, tuple[int, int]] | None:
        test = healthcheck.get("test") if isinstance(healthcheck, dict) else None
        if test is None:
            return None
        return " ".join(map(str, test)) if isinstance(test, list) else str(test), self._at(path)

    def _runtime(self, path: Path_, service: dict[str, Any]) -> Iterator[Finding]:
        if service.get("runtime") == "nvidia" and has_cards(service):
            message = "`runtime: nvidia` is redundant with the reservation of a device"
            yield IDLE_LINE.at(self.document.key((*path, "runtime")), message, "leave the line out")

    def _volumes(self, path: Path_, volumes: Any) -> Iterator[Finding]:
        declared = as_mapping(self.document.data.get("volumes"))
        for index, volume in enumerate(volumes if isinstance(volumes, list) else []):
            source = volume.split(":")[0] if isinstance(volume, str) and ":" in volume else ""
            if re.fullmatch(r"[A-Za-z0-9][\w.-]+(?:/.*)?", source) and source not in declared:
                message = f"`{source}` is the name of a volume, which is declared nowhere; a folder begins with `./`"
                way_out = f"write `./{volume}` for the folder next to this file, or better its whole path"
                yield CONTAINER_FAILS.at(self.document.value((*path, index)), message, way_out)


def _quoted(text: Text) -> Text:
    """Return an item of a list as a quoted word: blanks and quotes are kept, variables are inserted."""
    quote = Text('"', text.at[:1] or ((1, 1),))
    parts = [quote]
    for index, char in enumerate(text.chars):
        one = text.cut(index, index + 1)
        parts += [Text("\\", one.at), one] if char in '"\\`' else [one]
    return joined([*parts, quote])
