"""What a server is tuned for, and how well a candidate does it: one figure of what was measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from llamaherd.bench.results.provenance import Count, NotNegative, Positive, Recorded
from llamaherd.bench.results.result import Kind

Purpose = Literal["decode", "turn", "throughput", "efficiency"]
PURPOSES: tuple[Purpose, ...] = ("turn", "decode", "throughput", "efficiency")

WEIGHTS: Mapping[Kind, float] = MappingProxyType({"code": 0.6, "prose": 0.4})
"""How much of what is written is of each kind: drafts are accepted most in the one, and least in the other."""

READ, WRITTEN = 2000, 500
"""Tokens of a turn: new ones of its prompt, and those of its answer."""


class Figures(Recorded):
    """What was measured of a candidate: tokens a second.

    `decode` is of one request, by kind of text; `total` of all requests at once. `accepted` is the share of drafted
    tokens. `load` are seconds. `written` and `read` are what all GPUs took for a token of each, in joules, where energy
    is measured, and `together` for a token of all requests at once.
    """

    decode: dict[Kind, Positive] = Field(default_factory=dict)
    prefill: Positive | None = None
    total: Positive | None = None
    accepted: NotNegative | None = None
    load: NotNegative | None = None
    written: dict[Kind, Positive] = Field(default_factory=dict)
    read: Positive | None = None
    together: Positive | None = None
    runs: Count = 0


class Aim(Recorded):
    """What it is to be best at.

    An agent's `turn`, to `decode` one answer, `throughput` of `streams` requests, or `efficiency`: a turn's energy.
    """

    purpose: Purpose = "turn"
    streams: Count = 1

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of text that are written to know it."""
        return tuple(WEIGHTS)

    @property
    def reads(self) -> bool:
        """Whether it hangs on how a prompt is read."""
        return self.purpose in ("turn", "efficiency")

    @property
    def of_energy(self) -> bool:
        """Whether it is known by the energy that GPUs take."""
        return self.purpose == "efficiency"

    def score(self, figures: Figures) -> float | None:
        """How good it is, higher is better; None where something is not known.

        Of a turn, how many there are in an hour; of efficiency, tokens a joule; else tokens a second.
        """
        if self.purpose == "throughput":
            return figures.total
        if self.purpose == "efficiency":
            return _tokens_a_joule(figures)
        if set(WEIGHTS) - set(figures.decode):
            return None
        token = sum(share / figures.decode[kind] for kind, share in WEIGHTS.items())
        if self.purpose == "decode":
            return 1 / token
        return None if figures.prefill is None else 3600 / (READ / figures.prefill + WRITTEN * token)

    @property
    def speed(self) -> Aim:
        """The aim by which speed is judged: a turn where this one is of energy."""
        return Aim() if self.of_energy else self

    def joules(self, figures: Figures) -> float | None:
        """What GPUs take for a token of what the aim asks for."""
        if self.purpose == "throughput":
            return figures.together
        if self.purpose == "decode":
            told = [share * figures.written.get(kind, 0.0) for kind, share in WEIGHTS.items()]
            return sum(told) if all(told) else None
        saved = _tokens_a_joule(figures)
        return 1 / saved if saved else None

    def figure(self, score: float) -> str:
        """A score as people read it, without its unit."""
        if self.purpose == "efficiency":
            return f"{1 / score:.3g}"
        return f"{3600 / score:.2f}" if self.purpose == "turn" else f"{score:.1f}"

    @property
    def unit(self) -> str:
        """Of the figure."""
        return {"turn": "s a turn", "efficiency": "J a token"}.get(self.purpose, "t/s")

    def shown(self, score: float) -> str:
        """A score as people read it."""
        return f"{self.figure(score)} {self.unit}"

    def __str__(self) -> str:
        return {
            "turn": f"a turn: {READ:,} tokens read, {WRITTEN} written",
            "decode": "writing one answer",
            "throughput": f"writing {self.streams} answers at once",
            "efficiency": f"energy of a turn: {READ:,} tokens read, {WRITTEN} written",
        }[self.purpose]


def _tokens_a_joule(figures: Figures) -> float | None:
    """Of a turn, those that are read and those that are written alike."""
    if figures.read is None or set(WEIGHTS) - set(figures.written):
        return None
    token = sum(share * figures.written[kind] for kind, share in WEIGHTS.items())
    return (READ + WRITTEN) / (READ * figures.read + WRITTEN * token)
