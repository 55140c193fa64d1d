"""A service of a Compose file: its declared values, and the variables in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llamaherd.diagnostics.findings import Finding, Rule, Severity
from llamaherd.inventory.yaml_file import Document, Path_
from llamaherd.recipes.containers import Container
from llamaherd.recipes.memory_limits import limit_bytes
from llamaherd.recipes.recipe import ServerCommand
from llamaherd.text.numbers import whole_number

SHARED = 1 << 30
"""Bytes of shared or locked memory that are more than a container's default."""


@dataclass(frozen=True)
class Service:
    """One service: its declaration, and its container and server if they are known."""

    path: Path_
    declared: Mapping[str, Any]
    container: Container | None = None
    server: ServerCommand | None = None

    @property
    def name(self) -> str:
        """The name of the service in the file."""
        return str(self.path[-1])

    @property
    def profiles(self) -> frozenset[str]:
        """The profiles with which it starts; empty for all."""
        given = self.declared.get("profiles")
        return frozenset(map(str, given)) if isinstance(given, list) else frozenset()

    def may_run_with(self, other: Service) -> bool:
        """Return whether both may run at the same time."""
        return not self.profiles or not other.profiles or bool(self.profiles & other.profiles)


def as_mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def mount_target(volume: Any) -> str | None:
    """Return the path in the container where a volume or a config is mounted."""
    if isinstance(volume, dict):
        return str(volume.get("target", "")) or None
    parts = re.sub(r"\$\{[^}]*\}|^[A-Za-z]:(?=[\\/])", "", str(volume)).split(":")
    return parts[1] if len(parts) > 1 else parts[0]


def mount_targets(service: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the mount paths in a container; None if other files may add some."""
    if "extends" in service:
        return None
    mounted = [
        found for key in ("volumes", "configs") for each in as_list(service.get(key)) if (found := mount_target(each))
    ]
    return (*mounted, "/run/secrets") if service.get("secrets") else tuple(mounted)


def variables_of(value: Any) -> dict[str, str]:
    """Return the variables of `environment:` in both its forms, without names whose value is from the shell."""
    if isinstance(value, dict):
        return {name: str(setting) for name, setting in value.items() if setting is not None}
    pairs = [str(item).partition("=") for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return {name: setting for name, equals, setting in pairs if equals}


def reserved_devices(service: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the devices that a service reserves."""
    resources = as_mapping(as_mapping(service.get("deploy")).get("resources"))
    devices = as_mapping(resources.get("reservations")).get("devices")
    return [each for each in devices if isinstance(each, dict)] if isinstance(devices, list) else []


def has_cards(service: Mapping[str, Any]) -> bool:
    """Return whether a GPU is reserved by `deploy` or `gpus`."""
    return bool(reserved_devices(service)) or bool(service.get("gpus"))


def given_cards(service: Mapping[str, Any]) -> int | None:
    """Return the number of GPUs that a service gets; None if it is not set."""
    devices = reserved_devices(service) + [each for each in as_list(service.get("gpus")) if isinstance(each, dict)]
    counts = [len(as_list(each["device_ids"])) if "device_ids" in each else each.get("count") for each in devices]
    numbers = [number for count in counts if (number := whole_number(str(count), 999)) is not None]
    return sum(numbers) if counts and len(numbers) == len(counts) else None


def may_lock(service: Mapping[str, Any]) -> bool:
    """Return whether a container may lock more memory than the default."""
    limit = as_mapping(service.get("ulimits")).get("memlock")
    limit = as_mapping(limit).get("soft", 0) if isinstance(limit, dict) else limit
    lifted = isinstance(limit, int) and (limit < 0 or limit >= SHARED)
    return lifted or "IPC_LOCK" in map(str, as_list(service.get("cap_add"))) or service.get("privileged") is True


def shares_memory(service: Mapping[str, Any]) -> bool:
    """Return whether a container has more shared memory than the default."""
    return "ipc" in service or (limit_bytes(str(service.get("shm_size"))) or 0) >= SHARED


def most_memory(service: Mapping[str, Any]) -> str:
    """Return the limit of a container's memory; empty for none."""
    limits = as_mapping(as_mapping(as_mapping(service.get("deploy")).get("resources")).get("limits"))
    limit = service.get("mem_limit", limits.get("memory", ""))
    return str(limit) if isinstance(limit, str | int) else ""


_DOLLAR = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<named>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?P<default>:?[-+?][^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}"
    r"|(?P<wrong>\S{0,12}))"
)
OF_A_SESSION = frozenset({"HOME", "USER", "PWD", "PATH", "LOGNAME", "SHELL", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"})
"""Variables that every shell exports to Compose. Bash does not export its `UID` and `HOSTNAME`."""
_WHERE_EMPTY_HARMS = ("command", "entrypoint", "image", "ports", "user", "volumes", "device_ids")


def check_interpolation(
    document: Document, services: list[Service], outside: Mapping[str, str], *, whole: bool
) -> Iterator[Finding]:
    """Yield the faults of variables, and missing names and files.

    `outside` are the variables of the `.env`. For a part of a page (not `whole`), other files are unknown.
    """
    rules = _Rules(document, outside, whole)
    for service in services:
        yield from rules.variables(service.path, service.declared, _given(service))
        if "include" not in document.data and "override" not in document.file.name:
            yield from rules.names(service)
        if whole:
            yield from rules.files(service)


def _own(name: str) -> bool:
    """Return whether a file is `.env`, which is usually not shown or copied."""
    return name.removeprefix("./") == ".env"


def _given(service: Service) -> frozenset[str]:
    environment = service.declared.get("environment")
    return frozenset({*as_mapping(environment), *(str(each).partition("=")[0] for each in as_list(environment))})


DOLLAR = Rule(
    "LH263",
    "A `$` in a Compose file is read as a variable.",
    why="""
    Compose inserts variables from its shell and `.env`. It refuses the file for an invalid variable, and inserts an
    empty text for an unset one. It does not read `environment:`.
    """,
    example="""
    services:
      llm:
        image: ghcr.io/ggml-org/llama.cpp:server@sha256:0000000000000000000000000000000000000000000000000000000000000000
        command: -m /models/a.gguf -ot exps$=CPU
        volumes: ["/srv/models:/models:ro"]
    """,
    fix="write `$$` for a dollar sign, and `${NAME:?}` to fail for an unset variable.",
    sometimes=("warning",),
)


NAMED_NOWHERE = Rule(
    "LH264",
    "A Compose file names something that does not exist.",
    why="""
    A network, secret or config must be declared at the top; files of `env_file` and `extends` are read before
    anything starts.
    """,
    example="""
    services:
      llm:
        image: ghcr.io/ggml-org/llama.cpp:server@sha256:0000000000000000000000000000000000000000000000000000000000000000
        command: -m /models/a.gguf
        volumes: ["/srv/models:/models:ro"]
        networks: [inner]
    """,
    fix="declare it, or put the file there.",
    sometimes=("warning",),
)


@dataclass(frozen=True)
class _Rules:
    document: Document
    outside: Mapping[str, str]
    whole: bool

    def _fault(self, rule: Rule, path: Path_, message: str, way_out: str, severity: Severity | None = None) -> Finding:
        return rule.at(self.document.value(path), message, way_out, severity)

    def variables(self, path: Path_, value: Any, given: frozenset[str]) -> Iterator[Finding]:
        """Report invalid and unset variables in all texts below a path."""
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(as_list(value)))
        for step, below in pairs:
            yield from self.variables((*path, step), below, given)
        for found in _DOLLAR.finditer(value) if isinstance(value, str) else ():
            if found["wrong"] is not None:
                message = f"`{found[0]}` is no variable of Compose, which refuses the file"
                yield self._fault(DOLLAR, path, message, "write `$$` for a dollar sign, `${NAME:-else}` for a default")
            elif name := found["named"] or found["braced"]:
                yield from self._unset(path, value, found, name, given)

    def _unset(
        self, path: Path_, value: str, found: re.Match[str], name: str, given: frozenset[str]
    ) -> Iterator[Finding]:
        if found["default"] is not None or name in self.outside or name in OF_A_SESSION:
            return
        in_environment = "environment" in path
        if in_environment and found["named"] and not name.isupper() and found[0] != value:
            message = f"Compose reads `{found[0]}` as a variable, and inserts an empty text for an unset one"
            yield self._fault(DOLLAR, path, message, f"write `$${name}` for the text itself", "warning")
        elif "healthcheck" in path and name in given:
            message = f"Compose inserts `{found[0]}`, and does not read it from `environment:`"
            yield self._fault(DOLLAR, path, message, f"write `$${name}`, which the container's shell inserts")
        elif self.whole and name not in given and set(path) & set(_WHERE_EMPTY_HARMS):
            message = f"`{name}` is not set here: without it in the shell, Compose inserts an empty text"
            way_out = f"put `{name}=…` into .env next to this file, or write `${{{name}:?}}` to stop with an error"
            yield self._fault(DOLLAR, path, message, way_out, "warning")

    def names(self, service: Service) -> Iterator[Finding]:
        """Report networks, secrets and configs of a service that the file does not declare."""
        for key in ("networks", "secrets", "configs"):
            wanted = service.declared.get(key)
            steps: list[tuple[str | int, str]] = [(name, name) for name in as_mapping(wanted)]
            for index, item in enumerate(as_list(wanted)):
                steps.append((index, str(as_mapping(item).get("source", "") if isinstance(item, dict) else item)))
            for step, name in steps:
                if (
                    name
                    and name not in as_mapping(self.document.data.get(key))
                    and (key, name) != ("networks", "default")
                ):
                    message = f"`{name}` is declared under no `{key}:` of this file, and Compose refuses it"
                    shown = "{}" if key == "networks" else "{file: ./" + name + "}"
                    way_out = f"add `{key}: {{{name}: {shown}}}` at the top"
                    yield self._fault(NAMED_NOWHERE, (*service.path, key, step), message, way_out)
        base = service.declared.get("extends")
        base = (
            base if isinstance(base, str) else None if "file" in as_mapping(base) else as_mapping(base).get("service")
        )
        if isinstance(base, str) and base not in as_mapping(self.document.data.get("services")):
            message = f"`{base}` is no service of this file, and Compose refuses it"
            yield self._fault(
                NAMED_NOWHERE, (*service.path, "extends"), message, "write `extends: {file: …, service: …}`"
            )

    def files(self, service: Service) -> Iterator[Finding]:
        """Report missing files that Compose reads before it starts a container."""
        wanted = service.declared.get("env_file")
        items = list(enumerate(wanted)) if isinstance(wanted, list) else [("", wanted)]
        for step, item in items:
            path = (*service.path, "env_file", *([step] if step != "" else []))
            if not (isinstance(item, dict) and item.get("required") is False):
                yield from self._missing(path, item.get("path") if isinstance(item, dict) else item)
        yield from self._missing((*service.path, "extends"), as_mapping(service.declared.get("extends")).get("file"))

    def _missing(self, path: Path_, name: Any) -> Iterator[Finding]:
        if not isinstance(name, str) or not name or "$" in name or name.startswith(("/", "~")) or _own(name):
            return
        try:
            there = (self.document.file.absolute().parent / name).exists()
        except (OSError, ValueError):
            there = False
        if not there:
            message = f"there is no `{name}` next to this file, and Compose does not start without it"
            yield self._fault(
                NAMED_NOWHERE, path, message, "put it there, with mode 0600 where it holds a key", "warning"
            )
