"""A short notation of a host's hardware for tests: a line per fact, its kind and its fields, with tabs between them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llamaherd.onhost.hardware import FoundGpu, FoundHost, parse_number

DATA = Path(__file__).parents[1] / "data"


def found_host(name: str) -> FoundHost:
    """Return the hardware of a host of `tests/data`."""
    return parse_found((DATA / f"look-{name}.txt").read_text(encoding="utf-8").splitlines())


def parse_found(lines: Iterable[str]) -> FoundHost:
    """Return the hardware in these lines."""
    found: dict[str, Any] = {"cuda": (), "cards": (), "bus": ()}
    for line in lines:
        kind, *fields = line.split("\t")
        match kind, fields:
            case "cuda", [version]:
                found["cuda"] += (version,)
            case "card", _:
                found["cards"] += (_gpu(*fields),)
            case "bus", [address, name]:
                found["bus"] += ((address, name),)
            case "amx" | "wsl", _:
                found[kind] = True
            case "memory" | "free", [kib]:
                found[kind] = int(kib or 0) << 10
            case "cores" | "threads" | "performance", [count]:
                found[kind] = int(count or 0)
            case _, [value]:
                found[kind] = value
    return FoundHost(**found)


def _gpu(index: str, uuid: str, pci: str, memory: str, *rest: str) -> FoundGpu:
    limit, default, most, driver, capability, name = rest
    total = parse_number(memory)
    return FoundGpu(
        index=int(index),
        uuid=uuid,
        pci=pci,
        memory_mib=None if total is None else int(total),
        power_limit=parse_number(limit),
        default_power=parse_number(default),
        most_power=parse_number(most),
        driver=driver,
        capability=capability,
        name=name,
    )
