"""`Recipe`: what reading one comes to."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.diagnostics.findings import Finding
from llamaherd.recipes.programs import ServerCommand


@dataclass(frozen=True)
class Recipe:
    """What was found in a recipe: everything that is wrong, and the servers that it would start."""

    findings: tuple[Finding, ...] = ()
    servers: tuple[ServerCommand, ...] = ()

    def __add__(self, other: Recipe) -> Recipe:
        return Recipe(self.findings + other.findings, self.servers + other.servers)
