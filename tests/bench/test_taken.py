"""What a result keeps of what the meter has told."""

from __future__ import annotations

import pytest

from llamaherd.measure.meter.usage import (
    GpuUsage,
    HostUsage,
    Usage,
    Window,
    combined_telemetry,
    memory_peaks,
    usage_telemetry,
)
from llamaherd.measure.results.result import GpuTelemetry, Peak, Slowed, Telemetry
from llamaherd.measure.results.store import parse_result, redact_result, result_bytes, with_id
from llamaherd.plan import RAM, Estimate, Holds
from tests.bench.made import result

A, B = "GPU-00000000-0000-0000-0000-00000000000a", "GPU-00000000-0000-0000-0000-00000000000b"


def gpu(uuid: str, joules: float, memory: int = 0) -> GpuUsage:
    return GpuUsage(
        uuid, "a GPU", joules, 1.01 * joules, 100.0, 120.0, 40.0, 50.0, 55.0, 1500.0, {"heat": 0.5}, memory, 4, 16
    )


def test_gpus_are_kept_by_their_numbers() -> None:
    used = Usage(Window(10.0, 14.0), (gpu(A, 300.0), gpu(B, 500.0)), HostUsage(joules=40.0), (f"GPU {B} was slowed",))
    kept = usage_telemetry(used, (B, A))
    assert [(each.gpu, each.joules) for each in kept.gpus] == [(1, 300.0), (0, 500.0)]
    assert (kept.seconds, kept.joules, kept.watts, kept.processor_joules) == (4.0, 800.0, 200.0, 40.0)
    assert kept.doubts == ("GPU 0 was slowed",)


def test_several_times_are_put_together() -> None:
    one = Telemetry(seconds=1.0, gpus=(GpuTelemetry(gpu=0, counted_joules=100.0, watts=100.0, celsius_most=50.0),))
    two = Telemetry(
        seconds=3.0,
        gpus=(
            GpuTelemetry(
                gpu=0, counted_joules=600.0, watts=200.0, celsius_most=60.0, slowed=(Slowed(reason="heat", share=0.4),)
            ),
        ),
    )
    whole = combined_telemetry([one, two])
    assert whole
    assert (whole.seconds, whole.joules, whole.watts) == (4.0, 700.0, 175.0)
    (found,) = whole.gpus
    assert (found.watts, found.celsius_most, found.slowed) == (175.0, 60.0, (Slowed(reason="heat", share=0.3),))
    assert combined_telemetry([]) is None


def test_energy_of_which_a_part_is_not_known_is_not_known() -> None:
    parts = [Telemetry(seconds=1.0, gpus=(GpuTelemetry(gpu=0, counted_joules=joules),)) for joules in (5.0, None)]
    whole = combined_telemetry(parts)
    assert whole
    assert whole.joules is None


def test_memory_beside_the_plan() -> None:
    used = Usage(Window(0.0, 1.0), (gpu(A, 1.0, 7 << 30), gpu(B, 1.0, 5 << 30)), HostUsage(resident_bytes=3 << 30))
    held = [Holds(where=where, size=8 << 30, weights=size, kv=0, state=0, compute=0, draft=0) for where, size in
            ((RAM, 2 << 30), ("first", 6 << 30), ("second", 4 << 30))]  # fmt: skip
    planned = Estimate(source="arithmetic", holds=tuple(held))
    assert list(memory_peaks(used, (A, B), planned)) == [
        Peak(gpu=0, held_bytes=7 << 30, planned_bytes=6 << 30),
        Peak(gpu=1, held_bytes=5 << 30, planned_bytes=4 << 30),
        Peak(held_bytes=3 << 30, planned_bytes=2 << 30),
    ]


def test_it_comes_back_from_a_document_and_nobody_is_told_a_uuid() -> None:
    one = Telemetry(seconds=1.0, gpus=(GpuTelemetry(gpu=0, watts=99.5),), doubts=(f"GPU {A} did not tell",))
    made = result(rest=one, work=one, peaks=(Peak(held_bytes=1),), unmeasured=(f"no clock of GPU {A}",))
    made = made.model_copy(update={"cells": (made.cells[0].model_copy(update={"telemetry": one}),)})
    read = parse_result(result_bytes(with_id(made)), "a")
    assert read == with_id(made)
    assert A not in result_bytes(redact_result(read)).decode()


@pytest.mark.parametrize("name", ["rest", "work", "peaks", "unmeasured"])
def test_what_is_not_there_is_not_written(name: str) -> None:
    assert f'"{name}"' not in result_bytes(with_id(result())).decode()
