"""A proof in progress: its limits, its connection, and how fast the server was until now."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from roles.serve.onhost.completions import (
    NO_CHAT,
    Completion,
    Json,
    join_events,
    number,
    parse_body,
    parse_completion,
    read_events,
    shown,
)
from roles.serve.onhost.declared import DeclaredServer
from roles.serve.onhost.processes import ROOT
from roles.serve.onhost.wire import Connection, NotServingError, Response, explained

PROMPT = "The three primary colours are"
SHORT, RETRIED = 4, 64
"""Tokens of a step's response, and of a second try."""
LEAVING_SECONDS = 0.5
"""In which a server notices that a client has left, or has its response."""
_POLL_SECONDS = 0.02
_FASTEST = 1e6
"""Tokens a second that are believed."""
_PROGRESS_SECONDS = 3
"""Between two lines of progress."""


@dataclass(frozen=True)
class Limits:
    """Seconds that a proof may take."""

    first: float = 30
    """The least limit of the first response."""
    later: float = 120
    """Of all that follows the first response."""
    step: float = 30
    page: float = 5
    """Of a page such as /metrics."""
    steps: float = 8
    """That the steps may take by the speed of this host."""
    long: float = 0.5
    """That the long prompt may take by the speed of this host."""


LIMITS = Limits()


class Send(Protocol):
    """Sends a prompt and returns its completion."""

    def __call__(self, what: str, **more: Any) -> Completion:
        """Send it with these fields more; `what` names it in messages."""


@dataclass
class Session:
    """A proof in progress: its deadline, and what was measured.

    `reads` and `writes` are tokens a second, `density` the tokens of a character by the longest prompt until now.
    """

    server: DeclaredServer
    deadline: float
    limits: Limits = LIMITS
    report: Callable[[str], None] = field(default=lambda _: None)
    other: DeclaredServer | None = None
    """A server that runs side by side with it, on the same GPU it may be."""
    root: Path = ROOT
    began: float = field(default_factory=time.monotonic)
    reported: float = field(default_factory=time.monotonic)
    reads: float = 0.0
    writes: float = 0.0
    longest: int = 0
    density: float = 1.0
    shared: bool = False
    """Whether the server responds to other clients meanwhile."""
    caps: Json = field(default_factory=dict)
    """What it reports of its chat template."""

    def __post_init__(self) -> None:
        self.connection = self.connect(self.deadline)

    def connect(self, deadline: float) -> Connection:
        """Return a new connection to the server, which is not open yet."""
        return Connection(self.server.url, deadline, self.server.key)

    def get(self, path: str) -> Response:
        """Return a page."""
        self.connection.deadline = min(self.deadline, time.monotonic() + self.limits.page)
        return self.connection.fetch(path, path)

    def post(self, what: str, body: Json, deadline: float, path: str = "") -> Response:
        """Return the response to a POST."""
        self.connection.deadline = deadline
        return self.connection.fetch(what, path or self.server.path, body)

    def limit(self, tokens: int) -> float:
        """Return the deadline of a step, which may take ten times as long as this host takes for so many tokens."""
        seconds = self.limits.later if self.shared else max(self.limits.step, 10 * self.expected(0, tokens))
        return min(self.deadline, time.monotonic() + seconds)

    def expected(self, prompt: int, tokens: int) -> float:
        """Return the seconds that a step takes by what was measured."""
        return (prompt / self.reads if self.reads else 0) + (tokens / self.writes if self.writes else 0)

    def prompt(self, **more: Any) -> Json:
        """Return a chat request of a few tokens."""
        messages = [{"role": "user", "content": PROMPT}]
        return {"model": self.server.model, "messages": messages, "max_tokens": SHORT, **more}

    def complete(self, what: str, **more: Any) -> Completion:
        """Send a prompt that is not streamed, and return its completion."""
        body = self.prompt(**more)
        response = self.post(what, body, self.limit(body["max_tokens"]))
        return self.read_completion(response, body, what)[0]

    def read_completion(self, response: Response, body: Json, what: str) -> tuple[Completion, Json]:
        """Return a completion and the JSON that it is from, and keep how fast it was."""
        value: Json = parse_body(response.require_ok(what), what, NO_CHAT)
        found = parse_completion(value, body, self.server, what)
        self._learn(body, value, response.seconds)
        return found, value

    def _learn(self, body: Json, value: Json, seconds: float) -> None:
        """Keep how fast a prompt was read and a response written; by the clock where the server reports no times."""
        usage, times = value["usage"], value.get("timings") or {}
        length = sum(len(each["content"]) for each in body["messages"])
        if length > self.longest and usage.get("prompt_tokens"):
            self.longest, self.density = length, usage["prompt_tokens"] / length
        self.writes = max(self.writes, usage["completion_tokens"] / max(seconds, 0.001))
        with suppress(LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError):
            self.writes = max(self.writes, _speed(times["predicted_n"], times["predicted_ms"]))
            self.reads = max(self.reads, _speed(times["prompt_n"], times["prompt_ms"]))
        self.reads = self.reads or 10 * self.writes

    def stream(self, what: str, **more: Any) -> Completion:
        """Send a prompt that is streamed, and return what all its parts make."""
        body = self.prompt(**more) | {"stream": True, "stream_options": {"include_usage": True}}
        with closing(self.connect(self.limit(body["max_tokens"]))) as connection, explained(what):
            response = connection.open_response(self.server.path, body)
            events = read_events(response, body["max_tokens"], what)
            return join_events(events, body, self.server, what)

    def require_text(self, send: Send, what: str, **more: Any) -> Completion:
        """Send a prompt, and return its completion. Raise NotServingError as `require_visible` does."""
        found = send(what, **more)
        self.require_visible(found, send, what, **more)
        return found

    def require_visible(self, found: Completion, send: Send, what: str, **more: Any) -> None:
        """Raise NotServingError where a person sees nothing of a response, and nothing of two longer ones."""
        for _ in range(2):
            if found.visible:
                return
            tokens = max(SHORT, min(RETRIED, int(self.writes * self.limits.steps) or RETRIED))
            found = send(what, **more | {"max_tokens": tokens, "temperature": 0.8})
        if not found.visible:
            text = f"something other than text: {shown(found.text)}" if found.text else "nothing"
            raise NotServingError(f"{what} returns {text}")

    def stays_busy(self) -> bool:
        """Return whether other clients have requests in flight: the server may count one of ours for a moment."""
        end = time.monotonic() + LEAVING_SECONDS
        while self.server.busy():
            if time.monotonic() > end:
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def disturbed(self) -> bool:
        """Return whether this server, or the one side by side with it, responds to other clients."""
        return self.server.busy() or (self.other is not None and self.other.busy())

    def progress(self, step: str) -> None:
        """Report the step, where the proof takes long."""
        if time.monotonic() - self.reported > _PROGRESS_SECONDS:
            self.reported = time.monotonic()
            self.report(f"still proving that it serves: {step}")


def _speed(tokens: Any, milliseconds: Any) -> float:
    return min(_FASTEST, 1000 * number(tokens) / number(milliseconds))
