"""`Result`: one measurement with everything in it, each request as it was seen.

It has *cells*, each one condition, and these have *runs*, each one request. *Starts* are those of the server.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from llamaherd.bench.results.provenance import Count, NotNegative, Positive, Provenance, Recorded
from llamaherd.bench.results.telemetry import Peak, Telemetry

FORMAT: Final = 1
"""Counted up with what an earlier version could not read, or would read otherwise."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
"""Of a rig or an instance: it names a folder."""


def is_moment(text: str) -> bool:
    """Return whether a text is a time that something can have been measured at."""
    try:
        return 1970 <= datetime.fromisoformat(text).year < 9000
    except ValueError:
        return False


def _moment(text: str) -> str:
    """A time that there is. Raises ValueError, as for a thirteenth month."""
    if not is_moment(text):
        raise ValueError("must be a time that there is")
    return text


Time = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"), AfterValidator(_moment)]
Id = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{12})?$")]
SourceKind = Literal["herd", "llama-bench", "sweep-bench", "llama-benchy", "table"]


Kind = Literal["code", "prose", "copy-edit", "extract", "reasoning", "long", "random", "unknown"]
"""Of text. `long` is our own prose and code, for prefill; what others have measured is `random` or `unknown`."""


BY_URL = "url"
"""The rig of a result that was measured by a URL, where none is known."""


class Source(Recorded):
    """Who measured. `notes` say what is less known of it than of what we measure ourselves."""

    kind: SourceKind = "herd"
    notes: tuple[str, ...] = ()


class SuiteRef(Recorded):
    """The prompts, by the hash of all of them."""

    name: str
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Method(Recorded):
    """How it was measured.

    `series` is what both arms of a measurement in blocks share, and `arm` which one this is. `seed` decides orders.
    `rule` says beforehand when it is enough. `anyway` are refusals that somebody has overruled.
    """

    client: Literal["host", "controller"] | None = None
    seed: str | None = None
    warm_up: Count | None = None
    rule: str | None = None
    series: str | None = None
    arm: Literal["A", "B"] | None = None
    anyway: tuple[str, ...] = ()


class Condition(Recorded):
    """What two runs must have in common to be compared.

    `depth` is how many tokens were in the cache before, `context` how many were allocated, where that is all that is
    said. `prompt` and `generated` are as many tokens as were asked for. `power_limit_watts` is what each GPU was held
    to for the measurement, where that is part of it.
    """

    kind: Kind
    depth: Count = 0
    prompt: Count | None = None
    generated: Count = 0
    concurrency: Annotated[int, Field(ge=1)] = 1
    cache: Literal["cold", "warm", "unknown"] = "unknown"
    sampling: Literal["instance", "greedy", "unknown"] = "unknown"
    context: Count | None = None
    power_limit_watts: Positive | None = None

    def __str__(self) -> str:
        parts: list[str] = [self.kind]
        parts += [f"{self.prompt:,} in"] if self.prompt else []
        parts += [f"{self.generated:,} out"] if self.generated else []
        parts += [f"depth {self.depth:,}"] if self.depth else []
        parts += [f"context {self.context:,}"] if self.context else []
        parts += [f"{self.concurrency} at once"] if self.concurrency > 1 else []
        parts += [f"at {self.power_limit_watts:g} W"] if self.power_limit_watts else []
        parts += [self.cache] if self.cache == "warm" else []
        return ", ".join(parts)


class Run(Recorded):
    """One request. Times are milliseconds, `at` seconds since the measurement began.

    `prompt_ms` and `predicted_ms` are the engine's own, or the client's where `clock` says so: until the first token,
    and from there to the last. `first_token_ms` and `total_ms` are the client's. `pieces_ms` are the times between
    pieces of the answer, as a reader sees them. `prompt_per_second` and `predicted_per_second` are what others have
    told, where times are not known. `excluded` is why it does not count.
    """

    at: NotNegative | None = None
    start: Count = 0
    block: Count | None = None
    prompt_n: Count | None = None
    cache_n: Count | None = None
    prompt_ms: Positive | None = None
    predicted_n: Count | None = None
    predicted_ms: Positive | None = None
    prompt_per_second: Positive | None = None
    predicted_per_second: Positive | None = None
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None
    first_token_ms: Positive | None = None
    total_ms: Positive | None = None
    pieces_ms: tuple[NotNegative, ...] = ()
    characters: Count | None = None
    clock: Literal["engine", "client"] = "engine"
    stopped: Literal["end", "length", "word"] | None = None
    watts: NotNegative | None = None
    joules: NotNegative | None = None
    celsius: float | None = None
    sm_mhz: NotNegative | None = None
    excluded: str | None = None

    @property
    def steps(self) -> int | None:
        """Passes of the model after the first token: each gives one token, and those of a draft that it accepts."""
        if self.predicted_n is None:
            return None
        steps = self.predicted_n - 1 - (self.draft_n_accepted or 0)
        return steps if steps > 0 else None

    @property
    def predicted_seconds(self) -> float | None:
        """From the first token to the last: as it was measured, or as it follows from the rate that was told."""
        if self.predicted_ms is not None:
            return self.predicted_ms / 1000
        if self.predicted_n is None or self.predicted_n < 2 or self.predicted_per_second is None:
            return None
        return (self.predicted_n - 1) / self.predicted_per_second

    @property
    def acceptance(self) -> float | None:
        """The share of drafted tokens that were accepted."""
        return (self.draft_n_accepted or 0) / self.draft_n if self.draft_n else None


class Start(Recorded):
    """A start of the server; `process` tells it from others, and `ready_seconds` is how long it took to load."""

    process: str | None = None
    ready_seconds: NotNegative | None = None


class Cell(Recorded):
    """A condition, and all runs under it. `telemetry` is of the times in which they ran, put together."""

    condition: Condition
    runs: tuple[Run, ...] = ()
    telemetry: Telemetry | None = None

    @property
    def counted(self) -> tuple[Run, ...]:
        """The runs that nothing is held against."""
        return tuple(run for run in self.runs if not run.excluded)


class Result(Recorded):
    """A measurement of one instance. `ended` is None where it was cut off; `id` is the hash of all the rest.

    `rest` is what was taken while nothing was asked, `work` from the first run to the last. `unmeasured` are sentences:
    what this host does not tell.
    """

    format: Literal[1] = FORMAT
    id: Id = ""
    llamaherd: str
    rig: Name
    instance: Name
    stack: str | None = None
    began: Time
    ended: Time | None = None
    shared: bool = False
    source: Source = Source()
    suite: SuiteRef | None = None
    method: Method = Method()
    provenance: Provenance = Provenance()
    starts: tuple[Start, ...] = ()
    rest: Telemetry | None = None
    work: Telemetry | None = None
    peaks: tuple[Peak, ...] = ()
    unmeasured: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(set(self.conditions)) != len(self.conditions):
            raise ValueError("must have each condition once")
        if any(run.start >= max(1, len(self.starts)) for cell in self.cells for run in cell.runs):
            raise ValueError("must have the start of every run")
        return self

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Those of its cells."""
        return tuple(cell.condition for cell in self.cells)

    @property
    def label(self) -> str:
        """What people call what was measured."""
        return self.stack or f"{self.rig}/{self.instance}"
