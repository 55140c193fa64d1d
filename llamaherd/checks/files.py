"""Files of the controller that an inventory names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Severity
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yamlfile import Document

WARNING: Severity = "warning"


MISSING_FILE = Rule(
    "LH024",
    "A file of this machine is not there.",
    why="""
    This may be a source archive, a model, an API key, the SSH key, or the host's key.

    Commands that touch no host, and `herd verify`, work without the file: it is a warning. For `herd up` and
    pyinfra it is an error. Only the SSH key and the host's key stay warnings: without them one host cannot be
    reached, and the others are deployed.

    [Keys of servers behind a gateway](../gateway.md#servers-own-keys) are made by `herd up` where the inventory names
    none. Such a file is missed where a host has a key already, which was made on another machine; that it cannot be
    made, as a host does not answer, is a warning.
    """,
    example="""
    models:
      small: {file: models/small.gguf, sha256: d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26}
    """,
    way_out="correct the path, or fetch the file. A relative path starts at the folder of the YAML file that names it.",
    sometimes=("warning",),
)


def absent_files(rig: Rig, document: Document, severity: Severity) -> Iterator[Finding]:
    """Files that are not there. This looks at the controller's disk, which no other check does."""
    named: list[tuple[tuple[str | int, ...], Path | None]] = [
        *(
            (("engines", name, "source", "archive"), engine.source.local_archive)
            for name, engine in rig.engines.items()
            if engine.source
        ),
        *((("models", name, "file"), model.file) for name, model in rig.models.items()),
        *((("instances", n, "api_key", "file"), i.api_key.file) for n, i in rig.instances.items() if i.api_key),
    ]
    # Without these one host cannot be reached, which is said of it when it is its turn; the others can.
    reaching: list[tuple[tuple[str | int, ...], Path | None]] = [
        (("connect", "key"), rig.connect.key),
        (("connect", "known_hosts"), rig.connect.known_hosts),
    ]
    for path, file, wrong in (*((*each, severity) for each in named), *((*each, WARNING) for each in reaching)):
        if file is not None and not _is_file(file):
            yield MISSING_FILE.at(
                document.value(path),
                f"there is no file {file}",
                _MADE.get(str(path[-2]), "paths are relative to this YAML file; check the spelling, or fetch it first"),
                wrong,
            )


_MADE = {"api_key": "check the spelling, or make a key and write it there: `openssl rand -hex 32`"}
"""What else can be done about a file that is not there, by the key that names it."""


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:
        return False
