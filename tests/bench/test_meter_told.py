"""The meter's lines: what they say as values, and what cannot have been said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.measure.meter import readings as meter
from llamaherd.measure.meter.readings import LONGEST, GpuFacts, GpuSample, Readings, parse_line, parse_readings
from tests.bench.meter_lines import NEW, OLD, count, figures, gpu, hello, line, readings, seen


def test_a_gpu_is_what_nvidia_smi_says_of_it() -> None:
    found = readings(gpu(101), gpu(101, NEW, watts="[N/A]", sm_mhz="[Unknown Error]", reasons="[N/A]", limit="[N/A]"))
    assert found.gpus[OLD] == [GpuSample(101, 300, 299, 350, 60, 1800, 20480 << 20, 4, 16, 0)]
    assert found.gpus[NEW] == [GpuSample(101, None, 299, None, 60, None, 20480 << 20, 4, 16, None)]
    assert found.facts == {
        OLD: GpuFacts(
            OLD,
            "NVIDIA RTX, of 3090",
            "00000000:01:00.0",
            "580.159.04",
            "94.02.42.00.A9",
            350,
            2100,
            9751,
            None,
            24576 << 20,
        ),
        NEW: GpuFacts(
            NEW,
            "NVIDIA GeForce RTX 5090",
            "00000000:21:00.0",
            "580.159.04",
            None,
            None,
            3000,
            14001,
            True,
            32607 << 20,
        ),
    }


def test_a_field_that_the_driver_does_not_know_is_not_told() -> None:
    found = readings(line("gpu", 101, csv=f"{OLD}, 0x0000000000000024"), fields=("uuid", "reasons"))
    assert found.gpus[OLD] == [GpuSample(101, None, None, None, None, None, None, None, None, 0x24)]


def test_everything_is_kept_by_its_kind() -> None:
    found = readings(count(101, {OLD: 5}, mark="a"), figures(101), seen(102), line("bye", 103, why="nobody", own=9))
    kinds = (found.counters, found.figures, found.snapshots)
    assert [len(kind) for kind in kinds] == [1, 1, 1]
    assert found.counters[0].mark == "a"
    assert found.bye is not None
    assert found.hello is not None
    assert found.hello.server.process == "77@5"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Welcome home",
        "[]",
        '{"k":"hello"}',
        line("count", 101, mj={}, uj={}, more=1),
        line("count", 101, mj={"a": -1}, uj={}),
        line("count", 101, mj={"a": 1.5}, uj={}),
        line("count", float("nan"), mj={}, uj={}),
        line("count", 101, mj={str(number): 1 for number in range(65)}, uj={}),
        line("gpu", 101, csv="GPU-1, 2"),
        line("gpu", 101, csv="x" * 2000),
        line("said", 101, text="y" * LONGEST),
        line("other", 101),
        hello(),
        "[" * 100_000,
    ],
)
def test_what_cannot_have_been_said_is_not_believed(text: str) -> None:
    with pytest.raises(UnexpectedLineError):
        readings(text)


def test_the_first_line_comes_first_and_the_last_one_last() -> None:
    with pytest.raises(UnexpectedLineError):
        parse_readings([count(101)])
    with pytest.raises(UnexpectedLineError):
        readings(line("bye", 103, why="nobody", own=9), count(104))


def test_what_is_said_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "MOST_LINES", 3)
    with pytest.raises(UnexpectedLineError):
        readings(count(101), count(102), count(103))


def test_no_more_gpus_are_kept_than_there_can_be() -> None:
    found = readings([gpu(101, f"GPU-{number}") for number in range(16)])
    with pytest.raises(UnexpectedLineError):
        found.take(gpu(102, "GPU-16"))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=9))
def test_any_value_is_a_line_or_is_refused(value: object) -> None:
    for text in (json.dumps(value), json.dumps({"k": "count", "t": value, "mj": value, "uj": value})):
        with pytest.raises(UnexpectedLineError):
            parse_line(text)


@given(st.text(max_size=200))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(UnexpectedLineError):
        Readings().take(text)
