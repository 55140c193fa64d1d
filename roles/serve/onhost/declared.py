"""What the proof of a server compares it with: where it listens, and what its responses must be like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from llamaherd.onhost.document import decode
from roles.serve.onhost.processes import valid_pids
from roles.serve.onhost.wire import requests_in_flight

_SECONDS = 120.0


@dataclass(frozen=True)
class DeclaredServer:
    """The declared server: where it listens, what a client sends first, and what the response must be like.

    A question that an earlier version kept has no more than the prompt.
    """

    url: str = ""
    metrics: tuple[str, ...] = ()
    seconds: float = _SECONDS
    """Limit of the first response."""
    drafts: int = 0
    """Drafted tokens from which on some must have been accepted; 0 where nothing drafts."""
    floor: float = 0
    """Tokens/s that it must decode; 0 where any speed will do."""
    body: Mapping[str, Any] = field(default_factory=dict)
    same: str | None = None
    """What has one speed: a model on certain GPUs."""
    spec: str | None = None
    kind: str = "chat"
    models: tuple[str, ...] = ()
    models_path: str | None = None
    props_path: str | None = None
    health_path: str | None = None
    listen: str | None = None
    closed: bool = False
    """Whether it listens at no other port."""
    context: int = 0
    key: str | None = field(default=None, repr=False)
    pids: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Return the path of the prompt."""
        return urlsplit(self.url).path

    @property
    def model(self) -> str:
        """Return the name that clients send."""
        return str(self.body.get("model", ""))

    def busy(self) -> bool:
        """Return whether requests are in flight. A server that is too busy to report it has some."""
        return requests_in_flight(self.metrics, self.key) > 0


def parse_declared(question: Mapping[str, object], key: str | None, pids: Iterable[str] = ()) -> DeclaredServer:
    """Return the declared server of a question and the text of its key. Raise DocumentError where a field is wrong.

    Fields that this version does not have are left out, and so are ids of processes that are none.
    """
    names = {each.name for each in fields(DeclaredServer)} - {"key", "pids"}
    known = {name: value for name, value in question.items() if name in names}
    metrics = known.get("metrics", [])
    known["metrics"] = [metrics] if isinstance(metrics, str) else metrics
    known["key"] = None if key is None else key.strip()
    known["pids"] = list(valid_pids(pids))
    return decode(DeclaredServer, known)
