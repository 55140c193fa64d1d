"""Define `Result`: one measurement with its provenance, its telemetry and each request."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# What is beyond these is a mistake of whoever wrote it, and would make rates endless.
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Positive = Annotated[float, Field(ge=1e-6, le=1e15)]
NotNegative = Annotated[float, Field(ge=0, le=1e15)]


class Recorded(BaseModel):
    """Base of all that a result holds: frozen, taken as it is, and nothing besides. No number is endless or none."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Host(Recorded):
    """The machine. `swapped_bytes` is what of the server lay in swap: then nothing else counts."""

    name: str | None = None
    os: str | None = None
    kernel: str | None = None
    libc: str | None = None
    wsl: str | None = None
    cpu: str | None = None
    microcode: str | None = None
    cores: Count | None = None
    threads: Count | None = None
    smt: bool | None = None
    governor: str | None = None
    ram_bytes: Count | None = None
    ram_mhz: Count | None = None
    ram_channels: Count | None = None
    swapped_bytes: Count | None = None
    ambient_celsius: float | None = None


class Gpu(Recorded):
    """A GPU that the server uses. The link is that under load: idle ones fall back to the first generation."""

    name: str
    uuid: str | None = None
    address: str | None = None
    memory_bytes: Count | None = None
    vbios: str | None = None
    power_limit_watts: Positive | None = None
    power_default_watts: Positive | None = None
    most_sm_mhz: Count | None = None
    most_memory_mhz: Count | None = None
    ecc: bool | None = None
    pcie_generation: Count | None = None
    pcie_lanes: Count | None = None
    idle_celsius: float | None = None


class Engine(Recorded):
    """What serves: `build` is the hash of ours, `version` what it says of itself, `image` its digest."""

    kind: str | None = None
    version: str | None = None
    commit: str | None = None
    build: str | None = None
    options: tuple[str, ...] = ()
    compiler: str | None = None
    cuda: str | None = None
    architectures: str | None = None
    image: str | None = None


class ModelFile(Recorded):
    """A file that was loaded: every shard, a draft model, a projector."""

    part: Literal["weights", "draft", "projector"] = "weights"
    name: str
    repo: str | None = None
    revision: str | None = None
    sha256: Sha256 | None = None
    size: Count | None = None
    quant: str | None = None


class Server(Recorded):
    """How it was started: hashes of the plan and of its own part, arguments and variables without secrets.

    `context` and `slots` are what it says that it has, and not what it was asked for. `group` is that of instances
    which one server has in turn: what was measured was loaded then, and the others were not.
    """

    plan: str | None = None
    spec: str | None = None
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    user: str | None = None
    context: Count | None = None
    slots: Count | None = None
    group: str | None = None


class Around(Recorded):
    """What else there was: other instances of the rig, other programs on its GPUs, the load before."""

    instances: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    load: NotNegative | None = None


class Provenance(Recorded):
    """All that a speed depends on, and by which it can be measured again."""

    host: Host = Host()
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    engine: Engine = Engine()
    model: str | None = None
    files: tuple[ModelFile, ...] = ()
    server: Server = Server()
    around: Around = Around()


class Slowed(Recorded):
    """The share of readings at which a GPU's clock was held down for this reason."""

    reason: str
    share: NotNegative


class GpuTelemetry(Recorded):
    """One GPU over a time. Joules are by its own counter of energy, and by its power; `sm_mhz` is the median clock."""

    gpu: Count
    counted_joules: NotNegative | None = None
    integrated_joules: NotNegative | None = None
    watts: NotNegative | None = None
    peak_watts: NotNegative | None = None
    celsius_begin: float | None = None
    celsius_end: float | None = None
    celsius_most: float | None = None
    sm_mhz: NotNegative | None = None
    slowed: tuple[Slowed, ...] = ()

    @property
    def joules(self) -> float | None:
        """By the counter, where there is one."""
        return self.integrated_joules if self.counted_joules is None else self.counted_joules


class Telemetry(Recorded):
    """A time. `joules` of the processor and its memory are by RAPL; `others` and `meter` are processors that were used.

    `doubts` are sentences: what speaks against taking it as it is.
    """

    seconds: NotNegative
    gpus: tuple[GpuTelemetry, ...] = ()
    processor_joules: NotNegative | None = None
    processor_celsius: float | None = None
    processor_mhz: NotNegative | None = None
    processors: NotNegative | None = None
    others: NotNegative | None = None
    meter: NotNegative | None = None
    faults: Count | None = None
    read_bytes: Count | None = None
    doubts: tuple[str, ...] = ()

    @property
    def joules(self) -> float | None:
        """Of all GPUs; None where there is none, or one of them does not tell."""
        known = [gpu.joules for gpu in self.gpus if gpu.joules is not None]
        return sum(known) if known and len(known) == len(self.gpus) else None

    @property
    def watts(self) -> float | None:
        """Of all GPUs, on average."""
        joules = self.joules
        return None if joules is None or not self.seconds else joules / self.seconds


class Peak(Recorded):
    """The most that the server held at a time: of a GPU's memory, or without one of RAM; beside what was planned."""

    gpu: Count | None = None
    held_bytes: Count | None = None
    planned_bytes: Count | None = None


FORMAT: Final = 1
"""Counted up with what an earlier version could not read, or would read otherwise."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
"""Of a rig or an instance: it names a folder."""


def is_timestamp(text: str) -> bool:
    """Return whether a text is a time that something can have been measured at."""
    try:
        return 1970 <= datetime.fromisoformat(text).year < 9000
    except ValueError:
        return False


def _check_timestamp(text: str) -> str:
    """A time that there is. Raises ValueError, as for a thirteenth month."""
    if not is_timestamp(text):
        raise ValueError("must be a time that there is")
    return text


Timestamp = Annotated[
    str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"), AfterValidator(_check_timestamp)
]
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
    began: Timestamp
    ended: Timestamp | None = None
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
