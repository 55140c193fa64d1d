"""Probes of a verification: what clients do beyond a streamed chat, within a limit for all of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing

from roles.serve.onhost.model import ProbeResult
from roles.serve.onhost.proof import (
    CALLED,
    FORMED,
    ProofStep,
    read_caps,
    try_embedding,
    try_order,
    try_schema,
    try_step,
    try_tools,
    why_not_tried,
)
from roles.serve.onhost.session import SHORT, Limits, Session
from roles.serve.onhost.wire import NotServingError, parse_declared

SECONDS = 30
"""Limit of all probes of a server. They take a second, unless it hangs or responds to other clients."""
_LIMITS = Limits(later=SECONDS, step=10, steps=2)


def probe_server(question: Mapping[str, object], key: str | None, limits: Limits = _LIMITS) -> tuple[ProbeResult, ...]:
    """Try what clients do, and return the result of each probe: all of them if the first one has not failed.

    A probe is left out where the server's chat template does not support it. Raise DocumentError.
    """
    session = Session(parse_declared(question, key), time.monotonic() + limits.later, limits)
    with closing(session.connection):
        return tuple(_results(session))


def _results(session: Session) -> Iterator[ProbeResult]:
    first, *others = _PROBES.get(session.server.kind, _PROBES["chat"])
    result = _result(session, first)
    if result:
        yield result
    if result is None or result.outcome != "failed":
        yield from filter(None, (_result(session, each) for each in others))


def _result(session: Session, step: ProofStep) -> ProbeResult | None:
    """Return how a probe ended; None where the server does not support it."""
    try:
        ending, found = try_step(session, step)
    except NotServingError as error:
        return ProbeResult(step.name, "failed", str(error))
    match ending:
        case "passed":
            return ProbeResult(step.name, "passed", found)
        case "unsupported":
            return ProbeResult(step.name, "note", found) if found else None
        case _:
            return ProbeResult(step.name, "note", f"not tried, since {why_not_tried(session, ending)}")


def _try_prompt(session: Session) -> str:
    """Require text in a response that is not streamed, and read what the chat template supports."""
    session.require_text(session.complete, "a prompt that is not streamed")
    read_caps(session)
    return "text in a response that is not streamed"


_PROBES = {
    "chat": (
        ProofStep("prompt", _try_prompt, 8, SHORT),
        ProofStep("schema", try_schema, 16, FORMED),
        ProofStep("tools", try_tools, 120, CALLED),
    ),
    "embeddings": (ProofStep("embeddings", try_embedding, 16, 1),),
    "rerank": (ProofStep("rerank", try_order, 64, 1),),
}
"""By what a server is for. The first probe measures how fast the others will be."""
