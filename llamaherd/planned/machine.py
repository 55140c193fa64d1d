"""What a plan holds of the machine: where packages come from, driver and toolkits, power, WSL."""

from __future__ import annotations

from llamaherd.planned.base import Planned, TextFile


class RepositoryPlan(Planned):
    """A repository of apt besides the distribution's. `keyring` is where the key at the URL `key` is kept."""

    name: str
    url: str
    key: str
    fingerprint: str
    keyring: str
    sources: TextFile


class CardPlace(Planned):
    """A card that a server is to be on, and where it is found on the host.

    `at`: its UUID, its PCI address as nvidia-smi writes it, its number in the order of addresses, or `any` where
    nothing tells it from others.
    """

    name: str
    at: str


class CardPower(Planned):
    """What one card is held to: a power limit in watts, and a lowest and a highest clock in MHz.

    `at` says which card: its UUID, its PCI address as nvidia-smi writes it, or its number in the order of addresses.
    """

    name: str
    at: str
    limit: int | None = None
    clocks: tuple[int, int] | None = None

    @property
    def declared(self) -> str:
        """The same for people."""
        limit = f"{self.limit} W" if self.limit is not None else ""
        clocks = f"{self.clocks[0]} to {self.clocks[1]} MHz" if self.clocks else ""
        return ", ".join(filter(None, (limit, clocks)))


class PowerPlan(Planned):
    """Cards that are held to limits and clocks, from every boot on: by a program, its table, and a unit."""

    cards: tuple[CardPower, ...]
    program: TextFile
    table: TextFile
    unit: TextFile

    @property
    def files(self) -> tuple[TextFile, ...]:
        """All three, the unit last: it uses the others."""
        return (self.program, self.table, self.unit)


class WslPlan(Planned):
    """What WSL around a host must say. `profile`: the Windows user's folder as WSL sees it, where it is declared.

    `settings` are those of `.wslconfig`, by section and key, as they stand there. The paths of `scripts`, which Windows
    is to run, count from the profile.
    """

    profile: str | None
    settings: dict[str, dict[str, str]]
    scripts: tuple[TextFile, ...]
