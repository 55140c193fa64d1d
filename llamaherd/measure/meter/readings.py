"""Parse the lines that the meter prints on a host into readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.onhost.hardware import parse_number

LONGEST = 64 << 10
"""Characters of a line: the first one lists all GPUs."""

Text = Annotated[str, Field(max_length=1024)]
Count = Annotated[int, Field(ge=0)]
Few = Annotated[dict[Text, Count], Field(max_length=64)]


class MeterPart(BaseModel):
    """Base of lines and their parts: frozen and strict, without other keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class MeterRecord(MeterPart):
    """Base of all lines. `t` is the time."""

    t: Annotated[float, Field(ge=0)]


class HostFacts(MeterPart):
    """The machine; empty or None is what it does not report."""

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


class ServerFacts(MeterPart):
    """The measured server: its first process, 0 if it does not run, and when that began, in the kernel's ticks."""

    pid: Count
    spec: Text
    started: Count

    @property
    def process(self) -> str | None:
        """The identity of this start of the server among all since the boot."""
        return f"{self.pid}@{self.started}" if self.pid else None


class Hello(MeterRecord):
    """What does not change. `no_…` is why something cannot be read, empty if it can.

    `why_smi` is why GPUs are read by nvidia-smi, and not by NVIDIA's library.
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
    """Counters of energy: millijoules by GPU, microjoules by processor. `mark` names a begin or an end."""

    k: Literal["count"]
    mark: Text | None = None
    mj: Few
    uj: Few


class Figures(MeterRecord):
    """The host and the server.

    `cpu` and `own` are microseconds of processor time: of all programs, and of the meter.
    """

    k: Literal["host"]
    own: Count
    cpu: Count
    server: Few
    available: Count | None
    swap: int
    mhz: float | None
    celsius: float | None


class ActivityLine(MeterRecord):
    """The other programs on the host, at the beginning and on request."""

    k: Literal["look"]
    ours: Annotated[tuple[Count, ...], Field(max_length=256)]
    others: Annotated[tuple[tuple[Text, Text, float], ...], Field(max_length=8)]
    apps: Annotated[tuple[tuple[Text, Count, Count | None, Text, Text], ...], Field(max_length=1024)] | None
    listens: bool | None
    in_flight: Count | None
    load: float
    battery: bool | None


class GpuLine(MeterRecord):
    """The state of a GPU, as nvidia-smi writes it."""

    k: Literal["gpu"]
    csv: Text


class Pong(MeterRecord):
    """The reply to a ping."""

    k: Literal["pong"]
    n: Text


class ErrorLine(MeterRecord):
    """Other output of nvidia-smi."""

    k: Literal["said"]
    text: Text


class Gone(MeterRecord):
    """The source of GPU readings has ended."""

    k: Literal["gone"]


class Bye(MeterRecord):
    """The last line: why it ended, and what the meter has cost, in microseconds of a processor."""

    k: Literal["bye"]
    why: Text
    own: Count


Line = Annotated[
    Hello | Counters | Figures | ActivityLine | GpuLine | Pong | ErrorLine | Gone | Bye,
    Field(discriminator="k"),
]
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


def parse_line(text: str) -> Line:
    """Parse one line. Raise UnexpectedLineError if it is no line of the meter."""
    try:
        if len(text) > LONGEST:
            raise ValueError
        return _LINE.validate_json(text)
    except (ValidationError, ValueError):
        raise UnexpectedLineError(text) from None


MOST_LINES, MOST_GPUS = 400_000, 16
"""Of one measurement: sixteen GPUs have a third of it in two hours."""


class GpuSample(NamedTuple):
    """A GPU at a moment; None if not reported. `watts` is the power of that moment, `mean_watts` mostly of a second."""

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
    """All lines, by kind. It grows as they arrive."""

    hello: Hello | None = None
    gpus: dict[str, list[GpuSample]] = field(default_factory=dict)
    counters: list[Counters] = field(default_factory=list)
    figures: list[Figures] = field(default_factory=list)
    snapshots: list[ActivityLine] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    gone: float | None = None
    bye: Bye | None = None
    lines: int = 0
    marks: int = 0

    def take(self, text: str) -> Line:
        """Add a line. Raise UnexpectedLineError if it is no line of the meter, or has no place here."""
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
                self.snapshots.append(line)
            case ErrorLine():
                self.complaints.append(line.text)
            case Gone():
                self.gone = line.t
            case Bye():
                self.bye = line
        return line

    def _take_gpu(self, line: GpuLine, text: str) -> None:
        assert self.hello
        row = dict(zip(self.hello.fields, line.csv.split(", "), strict=False))
        uuid = row.get("uuid", "")
        if len(row) != len(self.hello.fields) or (uuid not in self.gpus and len(self.gpus) >= MOST_GPUS):
            raise UnexpectedLineError(text)
        self.gpus.setdefault(uuid, []).append(_sample(line.t, row))

    @property
    def facts(self) -> dict[str, GpuFacts]:
        """The GPUs, by UUID."""
        hello = self.hello
        found = map(_facts, [_fields(hello.card_fields, each) for each in hello.cards] if hello else [])
        return {gpu.uuid: gpu for gpu in found}


def parse_readings(lines: Iterable[str]) -> Readings:
    """Parse all lines. Raise UnexpectedLineError."""
    readings = Readings()
    for line in lines:
        readings.take(line)
    return readings


def _fields(names: Iterable[str], line: str) -> dict[str, str]:
    """Return a line's fields by their names; the last one may contain commas."""
    names = tuple(names)
    return dict(zip(names, line.split(", ", max(0, len(names) - 1)), strict=False))


def _sample(at: float, row: Mapping[str, str]) -> GpuSample:
    memory = _whole(row, "memory_mib")
    return GpuSample(
        at,
        _number(row, "watts"),
        _number(row, "mean_watts"),
        _number(row, "limit"),
        _number(row, "celsius"),
        _number(row, "sm_mhz"),
        None if memory is None else memory << 20,
        _whole(row, "generation"),
        _whole(row, "lanes"),
        _bits(row.get("reasons", "")),
    )


def _facts(row: Mapping[str, str]) -> GpuFacts:
    memory = _whole(row, "memory_mib")
    return GpuFacts(
        row.get("uuid", ""),
        row.get("name", ""),
        _word(row, "pci"),
        _word(row, "driver"),
        _word(row, "vbios"),
        _number(row, "default_limit"),
        _whole(row, "most_sm_mhz"),
        _whole(row, "most_memory_mhz"),
        {"Enabled": True, "Disabled": False}.get(row.get("ecc", "")),
        None if memory is None else memory << 20,
    )


def _number(row: Mapping[str, str], name: str) -> float | None:
    return parse_number(row.get(name, ""))


def _whole(row: Mapping[str, str], name: str) -> int | None:
    value = _number(row, name)
    return None if value is None or value < 0 else int(value)


def _word(row: Mapping[str, str], name: str) -> str | None:
    word = row.get(name, "")
    return None if not word or word.startswith("[") else word


def _bits(text: str) -> int | None:
    """Parse a mask as nvidia-smi writes it, `0x0000000000000004`."""
    try:
        return int(text, 16) if text.startswith("0x") and len(text) <= 18 else None
    except ValueError:
        return None
