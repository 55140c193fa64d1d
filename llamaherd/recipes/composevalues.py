"""What Compose puts in for `$` in a file's texts, and what else it looks for around the file.

Source: compose-go 2.9.1, template/template.go (the pattern of what follows a `$`), loader/validate.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llamaherd.diagnostics.findings import Finding, Severity
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.yamlfile import Document, Path_
from llamaherd.recipes.composeservice import Service, as_mapping, listed

_DOLLAR = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<named>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?P<default>:?[-+?][^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}"
    r"|(?P<wrong>\S{0,12}))"
)
OF_A_SESSION = frozenset({"HOME", "USER", "PWD", "PATH", "LOGNAME", "SHELL", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"})
"""What every shell hands on to Compose. Of `UID` and `HOSTNAME` bash keeps its own to itself."""
_WHERE_EMPTY_HARMS = ("command", "entrypoint", "image", "ports", "user", "volumes", "device_ids")


def check(document: Document, services: list[Service], outside: Mapping[str, str], *, whole: bool) -> Iterator[Finding]:
    """Everything wrong with variables, and with names and files that are not there.

    `outside` is what the `.env` beside it sets; of a part shown on a page (not `whole`) nobody knows what lies there.
    """
    rules = _Rules(document, outside, whole)
    for service in services:
        yield from rules.variables(service.path, service.declared, _given(service))
        if "include" not in document.data and "override" not in document.file.name:
            yield from rules.names(service)
        if whole:
            yield from rules.files(service)


def _own(name: str) -> bool:
    """Whether a file is the one that everybody keeps out of what is shown and copied."""
    return name.removeprefix("./") == ".env"


def _given(service: Service) -> frozenset[str]:
    environment = service.declared.get("environment")
    return frozenset({*as_mapping(environment), *(str(each).partition("=")[0] for each in listed(environment))})


DOLLAR = Rule(
    "LH263",
    "A `$` in a Compose file is not what it is taken for.",
    why="""
    Compose puts variables in, from its shell and `.env`. It refuses the file for what is no variable, and puts in
    nothing for one that is set nowhere. It does not ask `environment:`.
    """,
    example="""
    services:
      llm:
        image: ghcr.io/ggml-org/llama.cpp:server@sha256:0000000000000000000000000000000000000000000000000000000000000000
        command: -m /models/a.gguf -ot exps$=CPU
        volumes: ["/srv/models:/models:ro"]
    """,
    way_out="write `$$` for a dollar sign, and `${NAME:?}` to be told of a variable that is not set.",
    sometimes=("warning",),
)


NAMED_NOWHERE = Rule(
    "LH264",
    "A Compose file names what is nowhere.",
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
    way_out="declare it, or put the file there.",
    sometimes=("warning",),
)


@dataclass(frozen=True)
class _Rules:
    document: Document
    outside: Mapping[str, str]
    whole: bool

    def _said(self, rule: Rule, path: Path_, message: str, way_out: str, severity: Severity | None = None) -> Finding:
        return rule.at(self.document.value(path), message, way_out, severity)

    def variables(self, path: Path_, value: Any, given: frozenset[str]) -> Iterator[Finding]:
        """What stands behind each `$` of all texts below a path."""
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(listed(value)))
        for step, below in pairs:
            yield from self.variables((*path, step), below, given)
        for found in _DOLLAR.finditer(value) if isinstance(value, str) else ():
            if found["wrong"] is not None:
                message = f"`{found[0]}` is no variable of Compose, which refuses the file"
                yield self._said(DOLLAR, path, message, "write `$$` for a dollar sign, `${NAME:-else}` for a default")
            elif name := found["named"] or found["braced"]:
                yield from self._unset(path, value, found, name, given)

    def _unset(
        self, path: Path_, value: str, found: re.Match[str], name: str, given: frozenset[str]
    ) -> Iterator[Finding]:
        if found["default"] is not None or name in self.outside or name in OF_A_SESSION:
            return
        in_environment = "environment" in path
        if in_environment and found["named"] and not name.isupper() and found[0] != value:
            message = f"Compose takes `{found[0]}` for a variable, and puts in nothing for one that is set nowhere"
            yield self._said(DOLLAR, path, message, f"write `$${name}` for the text itself", "warning")
        elif "healthcheck" in path and name in given:
            message = f"`{found[0]}` is put in by Compose, which does not ask `environment:` for it"
            yield self._said(DOLLAR, path, message, f"write `$${name}`, which the container's shell puts in")
        elif self.whole and name not in given and set(path) & set(_WHERE_EMPTY_HARMS):
            message = f"`{name}` is set nowhere here: where the shell has none, Compose puts in nothing, and goes on"
            way_out = f"put `{name}=…` into .env beside this file, or write `${{{name}:?}}` to be told"
            yield self._said(DOLLAR, path, message, way_out, "warning")

    def names(self, service: Service) -> Iterator[Finding]:
        """Networks, secrets and configs of a service that the file declares nowhere."""
        for key in ("networks", "secrets", "configs"):
            wanted = service.declared.get(key)
            steps: list[tuple[str | int, str]] = [(name, name) for name in as_mapping(wanted)]
            for index, item in enumerate(listed(wanted)):
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
                    yield self._said(NAMED_NOWHERE, (*service.path, key, step), message, way_out)
        base = service.declared.get("extends")
        base = (
            base if isinstance(base, str) else None if "file" in as_mapping(base) else as_mapping(base).get("service")
        )
        if isinstance(base, str) and base not in as_mapping(self.document.data.get("services")):
            message = f"`{base}` is no service of this file, and Compose refuses it"
            yield self._said(
                NAMED_NOWHERE, (*service.path, "extends"), message, "write `extends: {file: …, service: …}`"
            )

    def files(self, service: Service) -> Iterator[Finding]:
        """Files that Compose reads before it starts anything."""
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
            message = f"there is no `{name}` beside this file, and Compose does not start without it"
            yield self._said(
                NAMED_NOWHERE, path, message, "put it there, with mode 0600 where it holds a key", "warning"
            )
