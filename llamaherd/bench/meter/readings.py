"""What a host tells while it is measured, by kind, and its GPUs at each moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.bench.meter.told import Bye, Complaint, Counters, Figures, Gone, GpuLine, Hello, Line, Seen, parse
from llamaherd.host.protocol import UnaskedError
from llamaherd.onhost.nvidia_smi import parse_number

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
    looks: list[Seen] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    gone: float | None = None
    bye: Bye | None = None
    lines: int = 0
    marks: int = 0

    def take(self, text: str) -> Line:
        """Take in a line. Raises UnaskedError on one that cannot have been told."""
        line = parse(text)
        self.lines += 1
        if self.lines > MOST_LINES or (self.hello is None) != isinstance(line, Hello) or self.bye:
            raise UnaskedError(text)
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
            case Seen():
                self.looks.append(line)
            case Complaint():
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
            raise UnaskedError(text)
        self.gpus.setdefault(uuid, []).append(_sample(line.t, said))

    @property
    def facts(self) -> dict[str, GpuFacts]:
        """The GPUs, by UUID."""
        hello = self.hello
        found = map(_facts, [_fields(hello.card_fields, each) for each in hello.cards] if hello else [])
        return {gpu.uuid: gpu for gpu in found}


def read(lines: Iterable[str]) -> Readings:
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
