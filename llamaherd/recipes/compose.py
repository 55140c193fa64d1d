"""Read Compose files: the container of each service, with extended services, variables and written files.

Whether Compose accepts a file is not checked: `docker compose config` does that better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import Finding, InventoryError, Place, Rule
from llamaherd.inventory.yaml_file import TOO_LARGE, UNREADABLE, Document, Path_
from llamaherd.recipes import container_rules
from llamaherd.recipes.commands import Document as Written
from llamaherd.recipes.commands import (
    Position,
    Text,
    Word,
    YamlFile,
    as_list,
    as_mapping,
    expand,
    interpolated,
    placed,
    read_compose_command,
    without_dollars,
    without_jinja,
    word_at,
    word_of,
    yaml_file,
)
from llamaherd.recipes.containers import Container, ContainerOption, container_of, gpus_of
from llamaherd.recipes.recipe import (
    NOT_AS_IT_LOOKS,
    NOT_AT_BOOT,
    NOT_READ,
    OTHER_VARIABLE,
    WANTED_TWICE,
    Recipe,
    ServerCommand,
    text_of,
    visible_gpus,
)
from llamaherd.recipes.servers import gpu_utilization, is_loopback
from llamaherd.recipes.unit_rules import SECRET_NAME
from llamaherd.text.numbers import whole_number

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
        return recipe + Recipe(tuple(check_services(self.document, services, whole=self.whole)))

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
                text = without_dollars(interpolated(text, self.outside))
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
            words = (word_at(service.name, service.at),)  # its own image
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
            text = read_compose_command(source.text(command, key)).text
            words += expand(text, known)
            empty += expand(text, self.outside)
        for index, item in enumerate(as_list(command)):
            if item is not None:
                text = source.text(str(item), key, index)
                words.append(word_of(without_dollars(interpolated(text, known)), source.at(key, index)))
                empty.append(word_of(interpolated(text, self.outside), source.at(key, index)))
        return tuple(words), [word for word in empty if set(word.unset) & set(environment)]

    def _split(self, service: Service) -> Iterator[Finding]:
        """Report the syntax of a shell that Compose reads otherwise."""
        source, command = service.last("command") or (service.sources[-1], None)
        if not isinstance(command, str):
            return
        split = read_compose_command(source.text(command, "command"))
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


_DEEPEST = 5
"""How many services a service may extend, one by one."""
_REPLACED = frozenset(("command", "entrypoint", "image", "build", "healthcheck"))
"""Keys whose value replaces that of an extended service as a whole."""


@dataclass(frozen=True)
class Source:
    """One mapping of a service: its own, or that of a service that it extends."""

    file: YamlFile
    path: Path_
    declared: Mapping[str, Any]
    elsewhere: Position | None = None
    """Where the checked file names another file that holds this mapping."""

    def at(self, *steps: str | int) -> Position:
        """Return the position of a value below."""
        return self.elsewhere or self.file.at((*self.path, *steps))

    def text(self, value: Any, *steps: str | int) -> Text:
        """Return a value below with the position of each of its characters."""
        if self.elsewhere:
            return placed(str(value), self.elsewhere)
        return self.file.value((*self.path, *steps), str(value))


@dataclass(frozen=True)
class Service:
    """One service: its mappings, the last of which counts most, and its container and server if they are known."""

    name: str
    sources: tuple[Source, ...]
    container: Container | None = None
    server: ServerCommand | None = None
    complete: bool = True
    """False if a part of it is in a file that was not read."""

    @property
    def declared(self) -> dict[str, Any]:
        """All values together."""
        merged: dict[str, Any] = {}
        for source in self.sources:
            for key, value in source.declared.items():
                merged[key] = value if key in _REPLACED else _merged(merged.get(key), value)
        return merged

    def last(self, key: str) -> tuple[Source, Any] | None:
        """Return the value of a key that replaces others, and its source."""
        found = [(source, source.declared[key]) for source in self.sources if source.declared.get(key) is not None]
        return found[-1] if found else None

    def items(self, key: str) -> Iterator[tuple[Source, str | int, Any]]:
        """Yield the items of a list or mapping in all sources, each with its step."""
        for source in self.sources:
            value = source.declared.get(key)
            for step, item in value.items() if isinstance(value, dict) else enumerate(as_list(value)):
                yield source, step, item

    @property
    def at(self) -> Position:
        """The position of the service."""
        return self.sources[-1].at()

    @property
    def profiles(self) -> frozenset[str]:
        """The profiles with which it starts; empty for all."""
        return frozenset(map(str, as_list(self.declared.get("profiles"))))

    def may_run_with(self, other: Service) -> bool:
        """Return whether both may run at the same time."""
        return not self.profiles or not other.profiles or bool(self.profiles & other.profiles)


def _merged(before: Any, value: Any) -> Any:
    """Return two values of one key as Compose merges them (compose-spec/spec.md, "Merge")."""
    if isinstance(before, dict) and isinstance(value, dict):
        return {**before, **{key: _merged(before.get(key), each) for key, each in value.items()}}
    return [*before, *value] if isinstance(before, list) and isinstance(value, list) else value


def service_of(file: YamlFile, name: str, *, files: bool) -> tuple[Service, list[Finding]]:
    """Return a service with those that it extends, and a finding for each that was not read.

    `files`: whether other files may be read.
    """
    declared = file.document.data["services"][name]
    sources, found = [Source(file, ("services", name), as_mapping(declared))], list[Finding]()
    while len(sources) <= _DEEPEST and (base := sources[0].declared.get("extends")):
        first = sources[0]
        wanted = base if isinstance(base, str) else str(as_mapping(base).get("service", ""))
        named = as_mapping(base).get("file")
        here, elsewhere = first.file, first.elsewhere
        if isinstance(named, str):
            elsewhere = first.at("extends")
            other = _other_file(first.file.document.file.absolute().parent / named) if files else None
            if other is None:
                message = f"`{name}` extends a service of `{named}`, which was not read: what it sets is unknown"
                way_out = "put the file next to this one, or check what `docker compose config` prints"
                found.append(NOT_READ.at(Place(file.document.file, *elsewhere), message, way_out))
                return Service(name, tuple(sources), complete=False), found
            here = other
        services = as_mapping(here.document.data.get("services"))
        if not isinstance(services.get(wanted), dict):
            return Service(name, tuple(sources), complete=False), found
        sources.insert(0, Source(here, ("services", wanted), services[wanted], elsewhere))
    return Service(name, tuple(sources)), found


def _other_file(path: Path) -> YamlFile | None:
    text = text_of(path)
    try:
        return yaml_file(path, without_jinja(text), merging=True) if text is not None else None
    except InventoryError:
        return None


def options_of(service: Service, outside: Mapping[str, str], *, files: bool) -> Iterator[ContainerOption]:
    """Yield the options of `docker run` for the same container. `files`: whether files of variables may be read."""
    for key, name in _LISTS.items():
        for source, step, item in service.items(key):
            for value in _values(key, step, item):
                yield _option(name, value, source.at(key, step), outside)
    declared = service.declared
    if declared.get("secrets"):
        yield _option("--mount", "target=/run/secrets", service.at, outside)
    for key, name in _SINGLE.items():
        if found := service.last(key):
            yield _option(name, str(found[1]), found[0].at(key), outside)
    if declared.get("privileged") is True:
        yield _option("--privileged", "", service.at, outside)
    resources = as_mapping(as_mapping(declared.get("deploy")).get("resources"))
    limit = as_mapping(resources.get("limits")).get("memory")
    if limit is not None and "mem_limit" not in declared:
        yield _option("--memory", str(limit), service.at, outside)
    limit = as_mapping(declared.get("ulimits")).get("memlock")
    limit = as_mapping(limit).get("soft") if isinstance(limit, dict) else limit
    yield _option("--ulimit", f"memlock={limit}", service.at, outside)
    reserved = as_list(as_mapping(resources.get("reservations")).get("devices"))
    for device in (each for each in (*reserved, *as_list(declared.get("gpus"))) if isinstance(each, dict)):
        yield _option("--gpus", gpus_of(device), service.at, outside)
    if isinstance(declared.get("gpus"), str | int):
        yield _option("--gpus", str(declared["gpus"]), service.at, outside)
    owner, named = service.last("env_file") or (service.sources[-1], None)
    for each in ([named] if isinstance(named, str | dict) else as_list(named)) if files else ():
        yield _option("--env-file", str(as_mapping(each).get("path", each)), owner.at("env_file"), outside)


_LISTS = {
    "ports": "--publish",
    "volumes": "--volume",
    "configs": "--mount",
    "environment": "--env",
    "devices": "--device",
    "cap_add": "--cap-add",
}
_SINGLE = {
    "network_mode": "--network",
    "runtime": "--runtime",
    "ipc": "--ipc",
    "shm_size": "--shm-size",
    "mem_limit": "--memory",
    "cpuset": "--cpuset-cpus",
}
"""The options of `docker run` by keys of a service with several values, and with one."""


def _option(name: str, value: str, at: Position, outside: Mapping[str, str]) -> ContainerOption:
    return ContainerOption(name, without_dollars(interpolated(placed(value, at), outside)), at)


def _values(key: str, step: str | int, item: Any) -> Iterator[str]:
    """Yield the value of an option for an item of a list or mapping."""
    given = as_mapping(item)
    if key == "environment":
        pair = f"{step}={item}" if isinstance(step, str) and item is not None else str(item)
        if "=" in pair:
            yield pair
    elif key == "ports" and given:
        inside = str(given.get("target", ""))
        parts = (given.get("host_ip"), given.get("published", inside), inside)
        protocol = "/udp" if given.get("protocol") == "udp" else ""
        yield ":".join(str(each) for each in parts if each is not None) + protocol
    elif key == "configs":
        yield f"target={given.get('target', '') if given else f'/{item}'}"
    elif given:
        yield f"source={given.get('source', '')},target={given.get('target', '')}"
    elif isinstance(item, str | int):
        yield str(item)


KEY_IN_COMPOSE = Rule(
    "LH202",
    "A key or token is in a Compose file.",
    why="Compose files are copied, committed and shown.",
    example="""
    services:
      server:
        image: example/llama.cpp
        environment:
          HF_TOKEN: hf_0123456789
    """,
    fix="put it into a file of mode 0600 that `env_file` names.",
    severity="warning",
)


_MOST_CARDS = 16
"""The number of GPUs that `all` means when two services are compared."""


def check_services(document: Document, services: list[Service], *, whole: bool) -> Iterator[Finding]:
    """Yield the faults of services, and the conflicts between them. `whole`: whether the text is a whole file."""
    for service in services:
        if whole and service.server and not _started_again(service.declared):
            message = f"`{service.name}` stays down after a crash or a reboot: it has no `restart:`"
            yield NOT_AT_BOOT.at(Place(document.file, *service.at), message, "add `restart: unless-stopped`", "note")
        yield from _secrets(document, service)
    short: set[str] = set()
    for first, second in combinations(services, 2):
        if first.may_run_with(second) and (first.server or second.server):
            yield from _ports(document, first, second)
            found = tuple(_shares(document, first, second)) if second.name not in short else ()
            short |= {second.name} if found else set()
            yield from found


def _started_again(declared: Mapping[str, Any]) -> bool:
    """Return whether a service sets when Docker starts it again."""
    return "restart" in declared or "restart_policy" in as_mapping(declared.get("deploy"))


def _secrets(document: Document, service: Service) -> Iterator[Finding]:
    """Report secrets in the file."""
    for source, step, item in service.items("environment"):
        name, _, value = (step, "", item) if isinstance(step, str) else str(item).partition("=")
        text = "" if value is None else str(value)
        if SECRET_NAME.search(str(name)) and text.isascii() and text and "$" not in text and not text.startswith("/"):
            message = f"the value of `{name}` is in this file: every reader or copy of the file has it"
            way_out = f"put `{name}=…` into a file of mode 0600, and name that in `env_file`"
            yield KEY_IN_COMPOSE.at(Place(document.file, *source.at("environment", step)), message, way_out)


def _ports(document: Document, first: Service, second: Service) -> Iterator[Finding]:
    """Report ports of the host that two services publish."""
    taken: dict[tuple[str, bool], list[str]] = {}
    for port in first.container.ports if first.container else ():
        taken.setdefault((port.host, port.text.endswith("/udp")), []).append(port.address)
    for port in second.container.ports if second.container else ():
        addresses = dict.fromkeys(taken.get((port.host, port.text.endswith("/udp")), ()))
        if whole_number(port.host) is not None and any(_overlap(port.address, other) for other in addresses):
            message = f"port {port.host} of the host is `{first.name}`'s already: the second does not start"
            yield WANTED_TWICE.at(Place(document.file, *port.start), message, "publish each on a port of its own")


def _shares(document: Document, first: Service, second: Service) -> Iterator[Finding]:
    """Report two servers of vLLM that take more of one GPU than there is."""
    both = [each.server for each in (first, second) if each.server and each.server.program == "vllm"]
    shares = [gpu_utilization(server) for server in both]
    if len(both) == 2 and _cards(first) & _cards(second) and sum(shares) > 1:
        message = f"`{first.name}` takes {shares[0]:g} of a GPU, and `{second.name}` {shares[1]:g} of the same one"
        way_out = "give each a GPU by `device_ids`, or shares that add up to less than 1"
        yield WANTED_TWICE.at(Place(document.file, *second.at), f"{message}: the second does not start", way_out)


def _overlap(first: str, second: str) -> bool:
    everywhere = {"", "0.0.0.0", "::", "[::]"}
    return first in everywhere or second in everywhere or first == second or (is_loopback(first) and first == second)


def _cards(service: Service) -> frozenset[str]:
    """Return the ids of the GPUs of a service. A count means the first ones."""
    if (container := service.container) is None:
        return frozenset()
    if (visible := visible_gpus(container.environment)) is not None:
        return frozenset(visible)
    count = container.cards if container.cards is not None else _MOST_CARDS if container.gpu else 0
    return frozenset(container.gpu_ids or map(str, range(min(count, _MOST_CARDS))))
