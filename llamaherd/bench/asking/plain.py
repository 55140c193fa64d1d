"""Asks a server for one JSON value, within the same bounds of time as for an answer, and within bounds of size.

On the standard library alone, as it may be brought to a host.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llamaherd.bench.asking.client import Exchange, Failure, Patience, Target, carried_out
from llamaherd.bench.asking.stream import NonsenseError, short

MOST = 8 << 20
"""Bytes of an answer: the numbers of a million tokens."""

SOON = Patience(first=60, silence=60, total=120)
"""For what takes a server no thought."""


@dataclass(frozen=True)
class Told:
    """What a server has answered: any JSON value. `total_ms` is how long it took, on an open connection."""

    value: Any
    total_ms: float


def tell(target: Target, path: str, body: Mapping[str, Any] | None = None, patience: Patience = SOON) -> Told | Failure:
    """What a server says at a path; without a body it is asked by GET."""
    return carried_out(_Plain, target, path, body, patience)


class _Plain(Exchange[Told]):
    """One whose answer is one JSON value."""

    accepted = "application/json"

    def _taken(self, response: http.client.HTTPResponse, sent: float) -> Told | Failure:
        kind = response.headers.get_content_type()
        if kind != self.accepted:
            raise NonsenseError(f"answers with {short(kind)}, and not with JSON")
        data = response.read(MOST + 1)
        total_ms = 1000 * (self._clock() - sent)
        if len(data) > MOST:
            raise NonsenseError(f"answers with more than {MOST >> 20} MiB")
        if self._overdue or (response.length or 0) > 0:
            return self._failed("cut", "the answer ends in the middle")
        try:
            return Told(json.loads(data), total_ms)
        except (ValueError, RecursionError):
            raise NonsenseError("answers with what is no JSON") from None
