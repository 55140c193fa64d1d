"""Measure the divergence of two servers: run the tool of the engine on a text, and parse its figures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.measure.client.requests import long_text
from llamaherd.measure.results.result import Count, NotNegative, Recorded
from llamaherd.measure.trials.trial import SCRATCH, UnitRun, is_out_of_memory
from llamaherd.memory.divergence import MOST_TOKENS, Reading

_MOST_TEXT = 1 << 20
"""Characters of the tool's output that are parsed."""
_NUMBER = r"(-?(?:[0-9]{1,40}(?:\.[0-9]{1,12})?|nan|inf))"
_ERROR = re.compile(r"^[\d.]+ E (.+)$", re.MULTILINE)
"""The first error in the tool's log, which causes those after it. The tool exits with 0 nevertheless."""
_OTHER_WORDS = re.compile(r"inconsistent vocabulary \((\d{1,9}) vs (\d{1,9})\)")
"""The tool prints this, and continues."""
_FIGURE_LETTERS = 200
_FLOOR = -0.01
"""The smallest plausible mean divergence: slightly below 0, as logits are stored in 16 bits."""


class Figure(Recorded):
    """A mean, and its standard error."""

    value: float
    error: NotNegative


class Quality(Recorded):
    """The figures of the tool. Percent are of all tokens; `ppl_ratio` is the logarithm of one, on the same text.

    Only the first two are judged. If two servers are nearly the same, the tool may print no error of the others.
    """

    kld: Figure
    same_top: Figure
    ppl: Figure | None = None
    ppl_base: Figure | None = None
    ppl_ratio: Figure | None = None
    p_change: Figure | None = None


class Compared(Recorded):
    """The outcome of a measured divergence. Without `quality`, `says` contains the reason."""

    context: Count = 0
    chunks: Count = 0
    quality: Quality | None = None
    says: str = ""
    seconds: NotNegative = 0.0

    @property
    def figures(self) -> str:
        """The mean divergence and the share of same likeliest tokens in words; empty without figures."""
        if self.quality is None:
            return ""
        kld, same = self.quality.kld, self.quality.same_top
        return (
            f"mean KLD {kld.value:.5f} ± {kld.error:.5f}, same top {same.value:.2f} ± {same.error:.2f} %, "
            f"{self.chunks} x {self.context:,} tokens"
        )


class NoFiguresError(ValueError):
    """The tool printed no figures, or implausible ones."""


def parse_quality(text: str) -> Quality:
    """Parse the figures at the end of the tool's output. Raise NoFiguresError."""
    text = text[-_MOST_TEXT:]
    if other := _OTHER_WORDS.search(text):
        raise NoFiguresError(f"both have other tokens, {int(other[1]):,} and {int(other[2]):,} of them")
    quality = Quality(
        kld=_required(text, "mean divergence", r"Mean +KLD: +"),
        same_top=_required(text, "share of same likeliest tokens", r"Same top p: +"),
        ppl=_figure(text, r"Mean PPL\(Q\) +: +"),
        ppl_base=_figure(text, r"Mean PPL\(base\) +: +"),
        ppl_ratio=_figure(text, r"Mean ln\(PPL\(Q\)/PPL\(base\)\) +: +"),
        p_change=_figure(text, r"Mean +Δp: +"),
    )
    kld, same = quality.kld.value, quality.same_top.value
    if kld < _FLOOR or not 0 <= same <= 100:
        raise NoFiguresError(f"its figures cannot be: mean KLD {kld:g}, same top {same:g} %")
    return quality


def _required(text: str, what: str, line: str) -> Figure:
    found = _figure(text, line)
    if found is None:
        wrong = _ERROR.search(text)
        raise NoFiguresError(f"it prints no {what}{f': {wrong[1][:_FIGURE_LETTERS]}' if wrong else ''}")
    return found


def _figure(text: str, line: str) -> Figure | None:
    """Return the figure of the last line that begins so; None if there is none, or it is not a number."""
    found = re.findall(rf"^{line}{_NUMBER} ± +{_NUMBER}", text, re.MULTILINE)
    value, error = map(float, found[-1]) if found else (math.nan, math.nan)
    return Figure(value=value, error=error) if math.isfinite(value) and math.isfinite(error) and error >= 0 else None


LOGITS = f"{SCRATCH}/logits"
"""The file of logits, from the first run to the second."""
_LETTERS_A_TOKEN = 6
"""Characters of text that are sent for each token to read."""
_SPARE = 1 << 30
"""Bytes that stay free on the disk."""
_TRIES = 3
"""Ways to read the text that are tried, each shorter than the previous one, while memory or disk is short."""
_RUNS = 2
"""Runs of the tool: the first stores logits, and the second compares."""
_MESSAGE_LETTERS = 300
_NO_DISK = "no room in"
"""The host's message about a full disk: a shorter text needs less disk, too."""

UnitOf = Callable[[Reading, int], str]
"""Renders the unit that runs the tool twice, each run for at most some seconds."""


class UnitHost(Protocol):
    """Runs a unit in place of a server."""

    def run_to_end(self, unit: str, room: int, /) -> UnitRun:
        """Run a unit to its end, with `room` bytes on the disk."""
        ...

    def stop(self) -> None:
        """Stop the unit, which removes its files."""
        ...

    def clock(self) -> float:
        """Return the time in seconds."""
        ...


def divergence_text() -> str:
    """Return the text for the tool, long enough for the most tokens."""
    return long_text(_LETTERS_A_TOKEN * MOST_TOKENS)


def compare_outputs(host: UnitHost, unit_of: UnitOf, readings: Iterable[Reading], seconds: float) -> Compared:
    """Measure the divergence on a host within some seconds, by the first of `readings` for which there is room.

    Raise UserError if the connection to the host ends.
    """
    began = host.clock()
    found = Compared(says="in no way is there memory for it")
    for reading in islice(readings, _TRIES):
        left = seconds - (host.clock() - began)
        found = _read(host, unit_of, reading, max(1, int(left / _RUNS)))
        if found.quality or not (is_out_of_memory(found.says) or _NO_DISK in found.says):
            break
    return found.model_copy(update={"seconds": round(host.clock() - began, 3)})


def _read(host: UnitHost, unit_of: UnitOf, reading: Reading, seconds: int) -> Compared:
    def without_figures(why: str) -> Compared:
        return Compared(context=reading.context, chunks=reading.chunks, says=why)

    try:
        unit = unit_of(reading, seconds)
    except InventoryError as error:
        return without_figures("; ".join(each.message for each in error.findings)[:_MESSAGE_LETTERS])
    except UserError as error:
        return without_figures(error.message[:_MESSAGE_LETTERS])
    try:
        ran = host.run_to_end(unit, reading.bytes + _SPARE)
    finally:
        host.stop()
    if not ran.well:
        return without_figures(ran.says[-_MESSAGE_LETTERS:] or "it ended without a message")
    try:
        return Compared(context=reading.context, chunks=reading.chunks, quality=parse_quality(ran.says))
    except NoFiguresError as error:
        return without_figures(str(error))
