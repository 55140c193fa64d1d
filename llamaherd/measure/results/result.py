"""Define `Result`: one measurement with its provenance, its telemetry and each request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# Values beyond these bounds are mistakes, and would make rates infinite.
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Positive = Annotated[float, Field(ge=1e-6, le=1e15)]
NotNegative = Annotated[float, Field(ge=0, le=1e15)]


class Recorded(BaseModel):
    """Base of all parts of a result: frozen, strict, without other keys. Numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Host(Recorded):
    """The machine. `swapped_bytes` is how much of the server lay in swap: then no figure counts."""

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
    """The engine: `build` is the hash of our build, `version` what the engine reports, `image` its digest."""

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

    `context` and `slots` are what the server reports, and not the requested values. `group` is that of instances which
    share one server: the measured one was loaded, and the others were not.
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
    """The environment: other instances of the rig, other programs on its GPUs, the load before."""

    instances: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    load: NotNegative | None = None


class Provenance(Recorded):
    """Everything that a speed depends on, and that is needed to measure it again."""

    host: Host = Host()
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    engine: Engine = Engine()
    model: str | None = None
    files: tuple[ModelFile, ...] = ()
    server: Server = Server()
    around: Around = Around()


class Slowed(Recorded):
    """The share of readings with a reduced clock for this reason."""

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
        """The energy by the counter, or else by the power."""
        return self.integrated_joules if self.counted_joules is None else self.counted_joules


class Telemetry(Recorded):
    """A time. `joules` of the processor and its memory are by RAPL; `others` and `meter` are processors that were used.

    `doubts` are sentences: reasons against the figures.
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
        """The energy of all GPUs; None if there is none, or one of them is unknown."""
        known = [gpu.joules for gpu in self.gpus if gpu.joules is not None]
        return sum(known) if known and len(known) == len(self.gpus) else None

    @property
    def watts(self) -> float | None:
        """The mean power of all GPUs."""
        joules = self.joules
        return None if joules is None or not self.seconds else joules / self.seconds


class Peak(Recorded):
    """The peak of a GPU's memory, or of RAM if there is no `gpu`, and the planned amount."""

    gpu: Count | None = None
    held_bytes: Count | None = None
    planned_bytes: Count | None = None


FORMAT: Final = 1
"""Incremented when an earlier version could not read a result, or would misread it."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
"""The name of a rig or an instance: it names a folder."""


def is_timestamp(text: str) -> bool:
    """Return whether a text is a time that something can have been measured at."""
    try:
        return 1970 <= datetime.fromisoformat(text).year < 9000
    except ValueError:
        return False


def _check_timestamp(text: str) -> str:
    """Return a valid time. Raise ValueError, as for a thirteenth month."""
    if not is_timestamp(text):
        raise ValueError("must be a valid time")
    return text


Timestamp = Annotated[
    str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"), AfterValidator(_check_timestamp)
]
Id = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{12})?$")]
SourceKind = Literal["herd", "llama-bench", "sweep-bench", "llama-benchy", "table"]


Kind = Literal[
    "code", "prose", "copy-edit", "extract", "reasoning", "long", "embeddings", "rerank", "random", "unknown"
]
"""The kind of text. `long` is our own prose and code, for prefill; `embeddings` and `rerank` are inputs of such a
server. Results of other tools are `random` or `unknown`. An earlier version cannot read a result with a new kind."""


BY_URL = "url"
"""The rig of a result that was measured by a URL."""


class Source(Recorded):
    """What measured. `notes` are the limits of a result compared with our own measurements."""

    kind: SourceKind = "herd"
    notes: tuple[str, ...] = ()


class SuiteRef(Recorded):
    """The prompts, by the hash of all of them."""

    name: str
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Method(Recorded):
    """How it was measured.

    `series` is the same for both variants of a measurement in blocks, and `arm` is one of them. `seed` decides orders.
    `rule` is the criterion to stop. `anyway` are the obstacles that the user has overruled.
    """

    client: Literal["host", "controller"] | None = None
    seed: str | None = None
    warm_up: Count | None = None
    rule: str | None = None
    series: str | None = None
    arm: Literal["A", "B"] | None = None
    anyway: tuple[str, ...] = ()


class Condition(Recorded):
    """The conditions that two runs must share to be compared.

    `depth` is how many tokens were in the cache before, `context` how many were allocated, if nothing else is known.
    `prompt` and `generated` are the requested tokens. `power_limit_watts` is the limit of each GPU, if the measurement
    sets one.
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

    `prompt_ms` and `predicted_ms` are the engine's own, or the client's if `clock` is `client`: until the first token,
    and from there to the last. `first_token_ms` and `total_ms` are the client's. `pieces_ms` are the times between
    pieces of the response, as a reader receives them. `prompt_per_second` and `predicted_per_second` come from other
    tools, if times are unknown. `excluded` is why the run does not count.
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
        """The passes of the model after the first token: each gives one token, and the accepted tokens of a draft."""
        if self.predicted_n is None:
            return None
        steps = self.predicted_n - 1 - (self.draft_n_accepted or 0)
        return steps if steps > 0 else None

    @property
    def predicted_seconds(self) -> float | None:
        """The time from the first token to the last: measured, or derived from the rate."""
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
    """A start of the server; `process` identifies it, and `ready_seconds` is how long it took to load."""

    process: str | None = None
    ready_seconds: NotNegative | None = None


class Cell(Recorded):
    """A condition, and all runs under it. `telemetry` is of the times in which they ran, combined."""

    condition: Condition
    runs: tuple[Run, ...] = ()
    telemetry: Telemetry | None = None

    @property
    def counted(self) -> tuple[Run, ...]:
        """The runs that are not excluded."""
        return tuple(run for run in self.runs if not run.excluded)


class Result(Recorded):
    """A measurement of one instance. `ended` is None if it was interrupted; `id` is the hash of all the rest.

    `rest` is the telemetry without requests, `work` that from the first run to the last. `unmeasured` are sentences:
    what this host does not report.
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
        """The conditions of its cells."""
        return tuple(cell.condition for cell in self.cells)

    @property
    def label(self) -> str:
        """The name of what was measured, for messages."""
        return self.stack or f"{self.rig}/{self.instance}"


def lost_runs(result: Result) -> Iterator[str]:
    """Yield why a result lacks runs: it was cut off, or runs do not count."""
    if not result.ended:
        yield "it was cut off"
    excluded = Counter(run.excluded for cell in result.cells for run in cell.runs if run.excluded)
    for why, many in excluded.items():
        yield f"{many} {'run does' if many == 1 else 'runs do'} not count: {why}"
