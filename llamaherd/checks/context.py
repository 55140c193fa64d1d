"""What a check is given."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from llamaherd.diagnostics.findings import Finding
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Card, Instance, Rig
from llamaherd.inventory.yamlfile import Document


@dataclass(frozen=True)
class RigContext:
    """A rig, where it stands in its file, and the headers of those of its models that are locked, by name.

    `projectors` are the bytes of vision projectors by name of model. `rigs` are those around it that can be read,
    itself included, by name; `names` also has those that cannot.
    """

    rig: Rig
    document: Document
    headers: Mapping[str, Header] = field(default_factory=dict)
    projectors: Mapping[str, int] = field(default_factory=dict)
    rigs: Mapping[str, Rig] = field(default_factory=dict)
    names: Collection[str] = ()

    def cards(self, instance: Instance) -> tuple[Card, ...]:
        """The GPUs that an instance runs on, as far as they are declared."""
        declared = self.rig.gpus.cards if self.rig.gpus else {}
        return tuple(declared[name] for name in instance.on if name in declared)


class RigCheck(Protocol):
    """Yields what is wrong or doubtful about one rig. It must do for rigs with any number of other mistakes."""

    def __call__(self, subject: RigContext, /) -> Iterator[Finding]: ...
