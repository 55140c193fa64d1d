"""What is known of a measurement in its end alone: what it took, peaks of memory, links of GPUs, what was not told."""

from __future__ import annotations

from llamaherd.bench.meter.readings import Readings
from llamaherd.bench.meter.taken import peaks, telemetry
from llamaherd.bench.meter.unmeasured import unmeasured
from llamaherd.bench.meter.use import Use
from llamaherd.bench.origin import with_links
from llamaherd.bench.results.result import Result
from llamaherd.bench.results.telemetry import Telemetry
from llamaherd.bench.session import Session
from llamaherd.plan import InstancePlan


def with_all(
    result: Result,
    session: Session,
    whole: Use | None,
    rest: Telemetry | None,
    instance: InstancePlan,
    readings: Readings,
    uuids: tuple[str, ...],
) -> Result:
    """The result with that, and without conditions that nothing was measured of."""
    cells = [
        cell.model_copy(update={"telemetry": session.telemetry_of(number)}) for number, cell in enumerate(result.cells)
    ]
    update: dict[str, object] = {
        "cells": tuple(cell for cell in cells if cell.runs),
        "rest": rest,
        "unmeasured": tuple(_numbered(each, uuids) for each in unmeasured(readings)),
    }
    if whole:
        update |= {
            "work": telemetry(whole, uuids),
            "peaks": tuple(peaks(whole, uuids, instance.memory)),
            "provenance": with_links(result.provenance, whole, uuids),
        }
    return result.model_copy(update=update)


def _numbered(sentence: str, uuids: tuple[str, ...]) -> str:
    for number, uuid in enumerate(uuids):
        sentence = sentence.replace(uuid, str(number))
    return sentence
