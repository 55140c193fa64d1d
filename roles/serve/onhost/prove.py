"""Prove that a server serves: query it as a client does in its first minute, or probe it in short.

Each wait has a limit for the whole of it: the first response by what is left of the load's, all that follows by limits
of its own. The proof ends with a prompt that is as long as three seconds allow by the speed of the first one: the model
is in memory by then. A slow server has three tries, and the best counts. None counts while the server responds to other
clients, or while its host computes for others. A server that may have any speed, and has served here before, is not
measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from llamaherd.onhost.document import DocumentError
from roles.serve.onhost.declared import parse_declared
from roles.serve.onhost.processes import ROOT
from roles.serve.onhost.session import LIMITS, Limits, Session
from roles.serve.onhost.speed import GOOD, How, Proof, judge, judge_restored, measure, parse_speeds, undrafted
from roles.serve.onhost.steps import CHAT_STEPS, LAST, STEPS, WITHOUT_PROMPTS, run_steps, try_stream
from roles.serve.onhost.wire import NoResponseError, NotServingError

RESPONDS, WRONG, NO_RESPONSE = 0, 1, 3
"""How a probe ends."""

__all__ = ["NO_RESPONSE", "RESPONDS", "WRONG", "How", "Limits", "Proof", "probe", "prove"]


def prove(
    question: Mapping[str, object],
    *,
    key: str | None,
    speeds: str,
    how: How,
    seconds: float,
    short: bool,
    pids: Sequence[str],
    other: Mapping[str, object] | None = None,
    slow: float = 0.0,
    report: Callable[[str], None],
    limits: Limits = LIMITS,
    root: Path = ROOT,
) -> Proof:
    """Prove a server after a switch, and return how that ended.

    `key` is the text of its key, None where it has none. `speeds` is the text of the file of known speeds. `seconds`
    are left for its load. `short`: it was proved side by side a moment ago, so that a prompt and a stream are enough;
    so they are for a restored one. `pids` are its processes. `other` is the question of the server that runs side by
    side with it. `slow` is `Proof.slow` of the server that a restored one replaces.
    """
    try:
        server = parse_declared(question, key, pids)
        beside = None if other is None else parse_declared(other, key)
    except DocumentError as error:
        return Proof("bad", f"what its proof compares cannot be read: {error}")
    first_end = time.monotonic() + min(max(limits.first, seconds), server.seconds)
    session = Session(server, first_end, limits, report, beside, root)
    try:
        with closing(session.connection):
            return _prove(session, first_end + limits.later, speeds, how, short or how == "back", slow)
    except NotServingError as error:
        return Proof("bad", str(error))


def _prove(session: Session, end: float, speeds: str, how: How, short: bool, slow: float) -> Proof:
    if step := WITHOUT_PROMPTS.get(session.server.kind):
        step.run(session)
        session.deadline, session.began = end, time.monotonic()
        run_steps(session, () if short else (*STEPS, LAST))
        return GOOD
    first = measure(session, session.deadline)
    session.deadline, session.began = end, time.monotonic()
    if why := undrafted(session.server, first):
        return Proof("undeclared", why)
    if short:
        session.shared = True
        try_stream(session)
    else:
        run_steps(session, (*STEPS, *CHAT_STEPS, LAST))
    if how == "beside":
        return GOOD
    known = parse_speeds(speeds)
    return judge_restored(session, first, known, slow) if how == "back" else judge(session, first, known, how)


def probe(
    question: Mapping[str, object],
    *,
    key: str | None,
    seconds: float,
    pids: Sequence[str] = (),
    limits: Limits = LIMITS,
) -> tuple[int, str]:
    """Send one prompt and one that is streamed, or the request of an embedding, within so many seconds.

    Return RESPONDS, WRONG or NO_RESPONSE, and the reason. A question that cannot be read probes nothing.
    """
    try:
        server = parse_declared(question, key, pids)
    except DocumentError:
        return RESPONDS, ""
    session = Session(server, time.monotonic() + seconds, limits, shared=True)
    try:
        with closing(session.connection):
            if step := WITHOUT_PROMPTS.get(server.kind):
                step.run(session)
            else:
                session.require_text(session.complete, "a prompt")
                try_stream(session)
    except NoResponseError as error:
        return NO_RESPONSE, str(error)
    except NotServingError as error:
        return WRONG, str(error)
    return RESPONDS, ""
