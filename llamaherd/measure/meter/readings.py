"""Parse the lines that the meter prints on a host into readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.onhost.hardware import parse_number

LONGEST = 64 << 10
"""Characters of a line: the first has all GPUs."""

Text = Annotated[str, Field(max_length=1024)]
Count = Annotated[int, Field(ge=0)]
Few = Annotated[dict[Text, Count], Field(max_length=64)]


class MeterRecord(BaseModel):
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


class Hello(MeterRecord):
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


class Counters(MeterRecord):
    """Counters of energy: millijoules by GPU, microjoules by processor. `mark` is what was being begun or ended."""

    k: Literal["count"]
    mark: Text | None = None
    mj: Few
    uj: Few


class Figures(MeterRecord):
    """The host and the server. `cpu` and `own` are microseconds that were computed: by all, and by the meter."""

    k: Literal["host"]
    own: Count
    cpu: Count
    server: Few
    available: Count | None
    swap: int
    mhz: float | None
    celsius: float | None


class ActivityLine(MeterRecord):
    """What is looked for at the beginning and on demand: who else is there."""

    k: Literal["look"]
    ours: Annotated[tuple[Count, ...], Field(max_length=256)]
    others: Annotated[tuple[tuple[Text, Text, float], ...], Field(max_length=8)]
    apps: Annotated[tuple[tuple[Text, Count, Count | None, Text, Text], ...], Field(max_length=1024)] | None
    listens: bool | None
    in_flight: Count | None
    load: float
    battery: bool | None


class GpuLine(MeterRecord):
    """How a GPU is, as nvidia-smi writes it."""

    k: Literal["gpu"]
    csv: Text


class Pong(MeterRecord):
    """The answer to a ping."""

    k: Literal["pong"]
    n: Text


class ErrorLine(MeterRecord):
    """What else nvidia-smi has said."""

    k: Literal["said"]
    text: Text


class Gone(MeterRecord):
    """What tells of GPUs has ended."""

    k: Literal["gone"]


class Bye(MeterRecord):
    """The last line: why it is over, and what watching has cost, in microseconds of a processor."""

    k: Literal["bye"]
    why: Text
    own: Count


Line = Annotated[
    Hello | Counters | Figures | ActivityLine | GpuLine | Pong | ErrorLine | Gone | Bye,
    Field(discriminator="k"),
]
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


def parse_line(text: str) -> Line:
    """One line. Raises UnaskedError on one that cannot have been told."""
    try:
        if len(text) > LONGEST:
            raise ValueError
        return _LINE.validate_json(text)
    except (ValidationError, ValueError):
        raise UnexpectedLineError(text) from None


MOST_LINES, MOST_GPUS = 400_000, 16
"""Of one measurement: sixteen GPUs have a third of it in two hours."""


class GpuSample(NamedTuple):
    """A GPU at a moment; None is what it does not tell. `watts` are those of now, `mean_watts` mostly of a second."""

    at: float
    watts: float | None
    mean_watts: float | None
    limit: float | None
    celsius: float | None
    sm_mhz: float | None
    memory_bytes: int | None
    generation: int | None
    lanes: int | None
    reasons: int | None


class GpuFacts(NamedTuple):
    """A GPU; the names are those of a result."""

    uuid: str
    name: str
    address: str | None
    driver: str | None
    vbios: str | None
    power_default_watts: float | None
    most_sm_mhz: int | None
    most_memory_mhz: int | None
    ecc: bool | None
    memory_bytes: int | None


@dataclass
class Readings:
    """All that was told, by kind. It grows while it is read."""

    hello: Hello | None = None
    gpus: dict[str, list[GpuSample]] = field(default_factory=dict)
    counters: list[Counters] = field(default_factory=list)
    figures: list[Figures] = field(default_factory=list)
    looks: list[ActivityLine] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    gone: float | None = None
    bye: Bye | None = None
    lines: int = 0
    marks: int = 0

    def take(self, text: str) -> Line:
        """Take in a line. Raises UnaskedError on one that cannot have been told."""
        line = parse_line(text)
        self.lines += 1
        if self.lines > MOST_LINES or (self.hello is None) != isinstance(line, Hello) or self.bye:
            raise UnexpectedLineError(text)
        match line:
            case Hello():
                self.hello = line
            case GpuLine():
                self._take_gpu(line, text)
            case Counters():
                self.counters.append(line)
                self.marks += line.mark is not None
            case Figures():
                self.figures.append(line)
            case ActivityLine():
                self.looks.append(line)
            case ErrorLine():
                self.complaints.append(line.text)
            case Gone():
                self.gone = line.t
            case Bye():
                self.bye = line
        return line

    def _take_gpu(self, line: GpuLine, text: str) -> None:
        assert self.hello
        said = dict(zip(self.hello.fields, line.csv.split(", "), strict=False))
        uuid = said.get("uuid", "")
        if len(said) != len(self.hello.fields) or (uuid not in self.gpus and len(self.gpus) >= MOST_GPUS):
            raise UnexpectedLineError(text)
        self.gpus.setdefault(uuid, []).append(_sample(line.t, said))

    @property
    def facts(self) -> dict[str, GpuFacts]:
        """The GPUs, by UUID."""
        hello = self.hello
        found = map(_facts, [_fields(hello.card_fields, each) for each in hello.cards] if hello else [])
        return {gpu.uuid: gpu for gpu in found}


def parse_readings(lines: Iterable[str]) -> Readings:
    """All lines. Raises UnaskedError."""
    readings = Readings()
    for line in lines:
        readings.take(line)
    return readings


def _fields(names: Iterable[str], line: str) -> dict[str, str]:
    """A line's fields by their names; the last one may have commas."""
    names = tuple(names)
    return dict(zip(names, line.split(", ", max(0, len(names) - 1)), strict=False))


def _sample(at: float, said: Mapping[str, str]) -> GpuSample:
    memory = _whole(said, "memory_mib")
    return GpuSample(
        at,
        _number(said, "watts"),
        _number(said, "mean_watts"),
        _number(said, "limit"),
        _number(said, "celsius"),
        _number(said, "sm_mhz"),
        None if memory is None else memory << 20,
        _whole(said, "generation"),
        _whole(said, "lanes"),
        _bits(said.get("reasons", "")),
    )


def _facts(said: Mapping[str, str]) -> GpuFacts:
    memory = _whole(said, "memory_mib")
    return GpuFacts(
        said.get("uuid", ""),
        said.get("name", ""),
        _word(said, "pci"),
        _word(said, "driver"),
        _word(said, "vbios"),
        _number(said, "default_limit"),
        _whole(said, "most_sm_mhz"),
        _whole(said, "most_memory_mhz"),
        {"Enabled": True, "Disabled": False}.get(said.get("ecc", "")),
        None if memory is None else memory << 20,
    )


def _number(said: Mapping[str, str], name: str) -> float | None:
    return parse_number(said.get(name, ""))


def _whole(said: Mapping[str, str], name: str) -> int | None:
    value = _number(said, name)
    return None if value is None or value < 0 else int(value)


def _word(said: Mapping[str, str], name: str) -> str | None:
    word = said.get(name, "")
    return None if not word or word.startswith("[") else word


def _bits(text: str) -> int | None:
    """A mask as nvidia-smi writes it, `0x0000000000000004`."""
    try:
        return int(text, 16) if text.startswith("0x") and len(text) <= 18 else None
    except ValueError:
        return None
