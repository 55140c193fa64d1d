"""What people's programs are told of a gateway, as values."""

from __future__ import annotations

from dataclasses import dataclass

KEY_VARIABLE = "HERD_KEY"
"""Where programs find the key: it is in no file of ours."""
PATIENCE = 3600
"""Seconds for an answer that does not stream: a long prompt takes minutes."""


@dataclass(frozen=True)
class ClientModel:
    """A model as a program must know it: its name, the tokens of one request, and those of an answer."""

    name: str
    context: int
    output: int


@dataclass(frozen=True)
class ClientFacts:
    """What a user's programs are told: where the gateway is, and what may be used there."""

    url: str
    models: tuple[ClientModel, ...]


@dataclass(frozen=True)
class Told:
    """A text, and where it belongs."""

    text: str
    place: str
