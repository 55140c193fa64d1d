"""A server that is not declared any more, and serves until what replaces it does."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.layout import service_of


@dataclass(frozen=True)
class Going:
    """A server that is not declared any more: a unit, a container, or both."""

    name: str
    unit: bool
    container: bool
    port: bool = False
    """Whether it has the port of the instance that it is seen from, or will have when it starts."""
    serves: bool = False
    """Whether it runs."""

    @property
    def service(self) -> str:
        """Its name to systemd and Docker."""
        return service_of(self.name)
