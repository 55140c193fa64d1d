"""A short notation of a host's hardware for tests: a line per fact, its kind and its fields, with tabs between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from llamaherd.onhost.hardware import FoundGpu, FoundHost
from llamaherd.onhost.nvidia_smi import parse_number

DATA = Path(__file__).parents[1] / "data"


def found_host(name: str) -> FoundHost:
    """Return the hardware of a host of `tests/data`."""
    return parse_found((DATA / f"look-{name}.txt").read_text(encoding="utf-8").splitlines())


def parse_found(lines: Iterable[str]) -> FoundHost:
    """Return the hardware in these lines."""
    found = FoundHost()
    for line in lines:
        kind, *fields = line.split("\t")
        match kind, fields:
            case "cuda", [version]:
                found = replace(found, cuda=(*found.cuda, version))
            case "card", [index, uuid, pci, memory, limit, default, most, driver, capability, name]:
                total = parse_number(memory)
                watts = map(parse_number, (limit, default, most))
                size = None if total is None else int(total)
                gpu = FoundGpu(int(index), uuid, pci, size, *watts, driver, capability, name)
                found = replace(found, cards=(*found.cards, gpu))
            case "bus", [address, name]:
                found = replace(found, bus=(*found.bus, (address, name)))
            case "amx" | "wsl", _:
                found = replace(found, **{kind: True})
            case "memory" | "free", [kib]:
                found = replace(found, **{kind: int(kib or 0) << 10})
            case "cores" | "threads" | "performance", [count]:
                found = replace(found, **{kind: int(count or 0)})
            case _, [value]:
                found = replace(found, **{kind: value})
    return found
