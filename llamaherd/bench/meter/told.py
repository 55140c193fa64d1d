"""The lines that `llamaherd/onhost/meter.py` writes on a host, as frozen values. Pure.

All times are seconds of the host's monotonic clock, which all programs of the host share.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from llamaherd.host.protocol import UnaskedError

LONGEST = 64 << 10
"""Characters of a line: the first has all GPUs."""

Text = Annotated[str, Field(max_length=1024)]
Count = Annotated[int, Field(ge=0)]
Few = Annotated[dict[Text, Count], Field(max_length=64)]


class Told(BaseModel):
    """Base of all that is told: frozen, taken as it is, and nothing besides. `t` is when."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    t: Annotated[float, Field(ge=0)]


class HostFacts(BaseModel):
    """The machine; empty or None is what it does not tell."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Text
    kernel: Text
    os: Text
    libc: Text
    cpu: Text
    microcode: Text
    threads: Count | None
    smt: bool | None
    governor: Text
    ram_bytes: Count | None


class ServerFacts(BaseModel):
    """What is measured: its first process, 0 where it does not run, and when that began, in the kernel's ticks."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    pid: Count
    spec: Text
    started: Count

    @property
    def process(self) -> str | None:
        """What tells this start of it from every other one since the boot."""
        return f"{self.pid}@{self.started}" if self.pid else None


class Hello(Told):
    """What stays as it is. `no_…` is why something cannot be told, empty where it can.

    `why_smi` is why nvidia-smi tells how GPUs are, and not NVIDIA's library.
    """

    k: Literal["hello"]
    wall: float
    every: Annotated[float, Field(gt=0)]
    card_fields: Annotated[tuple[Text, ...], Field(max_length=32)]
    cards: Annotated[tuple[Text, ...], Field(max_length=16)]
    fields: Annotated[tuple[Text, ...], Field(max_length=32)]
    no_smi: Text
    why_smi: Text
    host: HostFacts
    virtual: Text
    no_nvml: Text
    no_counter: Annotated[dict[Text, Text], Field(max_length=16)]
    rapl: Few
    no_rapl: Text
    server: ServerFacts
    battery: bool | None


class Counters(Told):
    """Counters of energy: millijoules by GPU, microjoules by processor. `mark` is what was being begun or ended."""

    k: Literal["count"]
    mark: Text | None = None
    mj: Few
    uj: Few


class Figures(Told):
    """The host and the server. `cpu` and `own` are microseconds that were computed: by all, and by the meter."""

    k: Literal["host"]
    own: Count
    cpu: Count
    server: Few
    available: Count | None
    swap: int
    mhz: float | None
    celsius: float | None


class Seen(Told):
    """What is looked for at the beginning and on demand: who else is there."""

    k: Literal["look"]
    ours: Annotated[tuple[Count, ...], Field(max_length=256)]
    others: Annotated[tuple[tuple[Text, Text, float], ...], Field(max_length=8)]
    apps: Annotated[tuple[tuple[Text, Count, Count | None, Text, Text], ...], Field(max_length=1024)] | None
    listens: bool | None
    in_flight: Count | None
    load: float
    battery: bool | None


class GpuLine(Told):
    """How a GPU is, as nvidia-smi writes it."""

    k: Literal["gpu"]
    csv: Text


class Pong(Told):
    """The answer to a ping."""

    k: Literal["pong"]
    n: Text


class Complaint(Told):
    """What else nvidia-smi has said."""

    k: Literal["said"]
    text: Text


class Gone(Told):
    """What tells of GPUs has ended."""

    k: Literal["gone"]


class Bye(Told):
    """The last line: why it is over, and what watching has cost, in microseconds of a processor."""

    k: Literal["bye"]
    why: Text
    own: Count


Line = Annotated[
    Hello | Counters | Figures | Seen | GpuLine | Pong | Complaint | Gone | Bye,
    Field(discriminator="k"),
]
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


def parse(text: str) -> Line:
    """One line. Raises UnaskedError on one that cannot have been told."""
    try:
        if len(text) > LONGEST:
            raise ValueError
        return _LINE.validate_json(text)
    except (ValidationError, ValueError):
        raise UnaskedError(text) from None
