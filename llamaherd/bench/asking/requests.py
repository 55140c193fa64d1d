"""Requests of a measurement to its server: with its own beginnings, and no longer than the time that is left."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.bench.asking.ask import chat_body
from llamaherd.bench.asking.client import Answer, Failure, Patience, Target, ask
from llamaherd.bench.schedule import Ask

_GRACE, _LEAST, _SILENCE = 60.0, 300.0, 60.0
"""Seconds: beyond the time that is left, at least, and between two pieces."""


@dataclass(frozen=True)
class Requests:
    """A server, where it takes chats, the name of its model, and what the beginnings of this program go by."""

    target: Target
    path: str
    model: str
    salts: str

    def send(self, wanted: Ask, seconds_left: float) -> Answer | Failure:
        """One request and its answer."""
        most = max(_LEAST, seconds_left + _GRACE)
        return ask(
            self.target,
            self.path,
            chat_body(self.model, wanted, self.salts),
            Patience(first=most, silence=_SILENCE, total=most),
        )
