"""Measure how fast a server decodes, and compare that with earlier speeds of the same model on this host."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from llamaherd.onhost.document import DocumentError, decode
from roles.serve.onhost.model import ProofQuestion
from roles.serve.onhost.processes import Load, read_load
from roles.serve.onhost.session import NO_CHAT, Session
from roles.serve.onhost.wire import DeclaredServer, NotServingError

TOKENS, MOST_TOKENS, SECONDS, LEAST_SECONDS = 8, 128, 3, 0.2
"""Of a response that measures the speed: no fewer, no more, how long it should take, and must."""
CROWDED = 0.2
"""Share of all processors' time that other processes may take: with a larger share, a measurement means nothing."""
TRIES = 3
FLOOR = 0.7
"""Share of the speed that the same model had: a slower server is not accepted."""
RECENT, MOST = 5, 20
"""Speeds that count of one model, and those that are kept of all: the median of a few moves by no single one."""
_ABOVE = 1.001
"""Of the speed that is enough: clearly faster."""

How = Literal["judge", "any", "back", "beside", ""]
"""What is proved, and whether its speed matters.

`judge`: a server that may be rolled back for its speed. `any`: one that may have any speed from now on. `back`: one
that was restored. `beside`: a candidate, side by side with the running server. Empty: one that is started as before.
"""


@dataclass(frozen=True)
class Proof:
    """How a proof ended."""

    outcome: Literal["good", "bad", "undeclared"]
    """`bad`: the server does not serve. `undeclared`: it serves, and not as declared, or slower than before."""
    why: str = ""
    speeds: str = ""
    """The text of the file of known speeds from now on; empty where it does not change."""
    slow: float = 0.0
    """Tokens/s for which it was refused; 0 where it was not."""


GOOD = Proof("good")


@dataclass(frozen=True)
class ProofInput:
    """One proof: what is declared of the server, and what is known of it.

    `key` is the text of its key, None where it has none. `seconds` are left for its load. `pids` are its processes.
    """

    question: ProofQuestion
    key: str | None
    how: How
    seconds: float
    pids: Sequence[str]
    speeds: str = ""
    """The text of the file of known speeds."""
    short: bool = False
    """Whether it was proved side by side a moment ago, so that a prompt and a stream are enough."""
    other: ProofQuestion | None = None
    """The question of the server that runs side by side with it."""
    slow: float = 0.0
    """`Proof.slow` of the server that a restored one replaces."""
    direct: bool = False
    """Whether new connections are led to another server, so that those of the proof must not be."""


@dataclass(frozen=True)
class Speed:
    """What a model decoded once, in tokens/s."""

    same: str | None
    drafts: bool
    rate: float
    spec: str | None = None


@dataclass(frozen=True)
class Sample:
    """What is measured of one response: its tokens, those drafted and accepted, and tokens/s, 0 where unknown."""

    tokens: int
    drafted: int
    accepted: int
    rate: float
    counts: bool
    """Whether it is long enough to measure the speed, and other processes did not compute meanwhile."""


def parse_speeds(text: str) -> tuple[Speed, ...]:
    """Return the speeds that a file contains, the newest last; none of a damaged one."""
    found: object = None
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
    speeds = []
    for each in found if isinstance(found, list) else ():
        with suppress(DocumentError):
            speeds.append(decode(Speed, each))
    return tuple(speeds)


def _text(speeds: Sequence[Speed]) -> str:
    return json.dumps([asdict(each) for each in speeds[-MOST:]])


def measure_speed(session: Session, deadline: float, tokens: int = 0) -> Sample:
    """Send the declared prompt and return what is measured of its response. Raise NotServingError.

    `tokens` is its length; without it, a person must see something of the response.
    """
    server, what = session.server, "a prompt"
    body = {**server.body, **({"max_tokens": tokens} if tokens else {})}
    before = read_load(server.pids, session.root)
    response = session.post(what, body, deadline)
    after = read_load(server.pids, session.root)
    found, value = session.read_completion(response, body, what)
    if not tokens:
        session.require_visible(found, session.complete, what)
    try:
        return _sample(value.get("timings", {}), crowded=_is_crowded(before, after))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        raise NotServingError(f"{what} returns {NO_CHAT}") from None


def _sample(timings: Mapping[str, Any], *, crowded: bool) -> Sample:
    """Return a sample."""
    # The first token comes with the prompt: of those after it, engines count one more or less in the same time.
    count, seconds = int(timings.get("predicted_n", 0)), float(timings.get("predicted_ms", 0)) / 1000
    drafted, accepted = int(timings.get("draft_n", 0)), int(timings.get("draft_n_accepted", 0))
    rate = (count - 1) / seconds if seconds > 0 and count > 1 else 0.0
    return Sample(count, drafted, accepted, rate, count >= TOKENS and seconds >= LEAST_SECONDS and not crowded)


def _is_crowded(before: Load, after: Load) -> bool:
    return after.others - before.others > CROWDED * (after.ticks - before.ticks)


def draft_problem(server: DeclaredServer, sample: Sample) -> str:
    """Return why a server does not draft as declared; empty where it does."""
    if server.drafts and not sample.drafted:
        return "no token was drafted, though drafting is declared"
    if server.drafts and sample.drafted >= server.drafts and not sample.accepted:
        return f"none of {sample.drafted} drafted tokens was accepted: what drafts does not fit the model"
    return ""


def judge_speed(session: Session, first: Sample, known: Sequence[Speed], how: How) -> Proof:
    """Measure a server and compare its speed with what is declared, or else with what is known."""
    server = session.server
    floor, before = server.floor, _usual(server, known)
    if how == "any" and not floor and (own := _own(server, known)):
        return Proof("good", speeds=_text([*_others(server, known), *own]))
    best, alone = _measure_best(session, first, floor or (FLOOR * before if how == "judge" else 0))
    if (fastest := max(best, first.rate)) < floor:
        return Proof("undeclared", f"it decodes {fastest:.1f} tokens/s, and `expect` allows no less than {floor:g}")
    if not alone or not best or not server.same:
        return GOOD
    slow = best < FLOOR * before
    if slow and how == "judge" and not floor:
        why = f"it decodes {best:.1f} tokens/s, and the same model decoded {before:.1f} here before"
        fix = f"`expect: {{decode: {max(best, 0.1):.1f}}}` or `herd up --retry` has it so"
        return Proof("undeclared", f"{why}: {fix}", slow=best)
    if floor or how == "any" or not slow:
        return _with_speed(server, _others(server, known) if slow else known, best)
    return GOOD


def judge_restored(session: Session, first: Sample, known: Sequence[Speed], slow: float) -> Proof:
    """Return the speeds from now on, where a restored server is as slow as the one that was refused for `slow`."""
    if session.server.same and slow:
        best, alone = _measure_best(session, first, slow / FLOOR * _ABOVE)
        if alone and 0 < best * FLOOR <= slow:
            return _with_speed(session.server, _others(session.server, known), best)
    return GOOD


def _measure_best(session: Session, first: Sample, enough: float) -> tuple[float, bool]:
    """Return the best of a few tries, 0 where no speed is known, and whether no other client disturbed them."""
    best = first.rate if first.counts and first.tokens > TOKENS else 0.0
    alone = not session.disturbed()
    most = max(TOKENS, min(MOST_TOKENS, int(first.rate * SECONDS)))
    for _ in range((TRIES if enough else 1) if first.rate else 0):
        if not alone or (best and best >= enough):
            break
        session.shared = False
        sample = measure_speed(session, session.limit(most), most)
        alone = not session.disturbed()
        best = max(best, sample.rate if sample.counts else 0)
    return best, alone


def _with_speed(server: DeclaredServer, known: Iterable[Speed], rate: float) -> Proof:
    new = Speed(server.same, bool(server.drafts), round(rate, 3), server.spec)
    return Proof("good", speeds=_text([*known, new]))


def _usual(server: DeclaredServer, known: Iterable[Speed]) -> float:
    """Return what the same model decoded on the same GPUs: only a server that drafts is compared with one that did."""
    alike = [each.rate for each in known if each.same == server.same and each.drafts <= bool(server.drafts)]
    return statistics.median_low(alike[-RECENT:]) if alike else 0.0


def _others(server: DeclaredServer, known: Iterable[Speed]) -> list[Speed]:
    """Return the speeds of other models: what was known of this one is outdated."""
    return [each for each in known if each.same != server.same]


def _own(server: DeclaredServer, known: Iterable[Speed]) -> list[Speed]:
    """Return what the very same server decoded here, if it was measured."""
    identity = (server.same, bool(server.drafts), server.spec)
    return [each for each in known if server.spec is not None and (each.same, each.drafts, each.spec) == identity]
