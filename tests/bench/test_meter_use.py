"""What a window took: energy by counter and by power, clocks, memory; and what is doubtful about it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.measure.meter.readings import Readings
from llamaherd.measure.meter.usage import Window, slowdown_reasons, unmeasured_sentences, usage_of
from tests.bench.meter_lines import FIELDS, NEW, OLD, SERVER, count, figures, gpu, line, readings, seen

WHOLE = Window(101, 111)
TIMES = [101 + number / 5 for number in range(51)]


def steady(watts: float = 300, counted: float = 300, wrap: int = 10**9) -> Readings:
    """Ten seconds at 5 Hz of one GPU at one power, which its counter and that of the processor saw."""
    lines: list[str] = []
    for at in TIMES:
        spent, package = round((at - 90) * 1e3 * counted), round((at - 100) * 100e6) % wrap
        lines += gpu(at, watts=str(watts)), count(at, {OLD: spent}, {"intel-rapl:0": package})
    return readings(lines, rapl={"intel-rapl:0": wrap})


def test_energy_is_counted_and_integrated() -> None:
    used = usage_of(steady(), WHOLE)
    (old,) = used.gpus
    assert [old.counted, old.integrated, used.joules] == pytest.approx([3000, 3000, 3000])
    assert [used.watts, old.peak_watts] == pytest.approx([300, 300])
    assert used.doubts == ()


@pytest.mark.parametrize(("counted", "doubted"), [(290, False), (310, False), (284, True), (317, True)])
def test_counter_and_power_that_differ_are_told(counted: float, doubted: bool) -> None:
    """By more than 5 %. The counter is what is taken."""
    used = usage_of(steady(300, counted), WHOLE)
    assert used.joules == pytest.approx(counted * 10)
    told = [f"GPU {OLD} counted {counted * 10:.0f} J, and its power over that time makes 3000 J"]
    assert list(used.doubts) == (told if doubted else [])


@given(st.integers(25_000_000, 10**9))
def test_the_processors_counter_wraps(wrap: int) -> None:
    """100 W, read five times a second: its range lasts for longer than that, however small."""
    assert usage_of(steady(wrap=wrap), WHOLE).host.joules == pytest.approx(1000)


@given(st.floats(101, 111), st.floats(101, 111))
def test_windows_of_both_ways_add_up(one: float, two: float) -> None:
    told, (begin, end) = steady(), sorted((one, two))
    parts = [usage_of(told, window).gpus[0] for window in (Window(101, begin), Window(begin, end), Window(end, 111))]
    for name in ("counted", "integrated"):
        assert sum(getattr(part, name) for part in parts) == pytest.approx(3000, rel=1e-6)


def test_what_is_taken_beyond_rest() -> None:
    """A machine at 20 W for five seconds, then at 300 W for five."""
    told = readings([gpu(at, watts="20" if at < 106 else "300") for at in TIMES])
    idle, busy = usage_of(told, Window(101, 105)), usage_of(told, Window(107, 111))
    assert busy.joules == pytest.approx(1200)
    assert busy.net_joules(idle) == pytest.approx(1120)
    assert busy.net_joules(usage_of(readings(), Window(101, 105))) is None


def test_gpus_are_summed_or_not_known() -> None:
    told = readings([each for at in TIMES for each in (gpu(at), gpu(at, NEW, watts="[N/A]", mean_watts="20"))])
    assert usage_of(told, WHOLE).joules == pytest.approx(3200)
    assert usage_of(told, WHOLE, [OLD]).joules == pytest.approx(3000)
    assert usage_of(told, WHOLE, [OLD, "GPU-gone"]).joules is None
    silent = readings([each for at in TIMES for each in (gpu(at), gpu(at, NEW, watts="[N/A]", mean_watts="[N/A]"))])
    assert usage_of(silent, WHOLE).joules is None
    assert usage_of(silent, WHOLE).gpus[0].joules == pytest.approx(3000)
    assert usage_of(readings(), WHOLE).joules is None


def test_a_mean_over_a_second_is_doubted_in_short_windows() -> None:
    times = [101 + number / 5 for number in range(101)]
    told = readings([gpu(at, watts="[N/A]") for at in times])
    assert usage_of(told, Window(101, 104)).doubts == (
        f"the power of GPU {OLD} is a mean over a second, and this took only 3.0 s",
    )
    assert usage_of(told, Window(101, 112)).doubts == ()


def test_a_gap_leaves_nothing_known() -> None:
    times = [101, 102, 103, 105.5, 106]
    told = readings(*(gpu(at) for at in times))
    used = usage_of(told, Window(101, 106))
    assert (used.gpus[0].counted, used.gpus[0].integrated, used.watts) == (None, None, None)
    assert used.doubts == (f"GPU {OLD} was not read for more than 2 s: what it took is not known",)
    assert usage_of(told, Window(101, 103)).gpus[0].integrated == pytest.approx(600)


@pytest.mark.parametrize(("begin", "end", "known"), [(101, 121, True), (101.4, 120.6, True), (103, 121, False)])
def test_a_counter_goes_on_between_readings(begin: float, end: float, known: bool) -> None:
    """It is read at both ends of what is measured. Where a window ends elsewhere, nobody knows when it was spent."""
    told = readings(*(count(at, {OLD: round(300e3 * (at - 90))}) for at in (101, 106, 121)))
    (old,) = usage_of(told, Window(begin, end), [OLD]).gpus
    assert old.counted == (pytest.approx(300 * (end - begin)) if known else None)


def test_temperature_clocks_and_memory() -> None:
    warming = [
        (101, "60", "1900", "100"),
        (102, "71", "1700", "300"),
        (103, "69", "1500", "200"),
        (104, "80", "9", "9"),
    ]
    told = readings([gpu(at, celsius=c, sm_mhz=mhz, memory_mib=mib) for at, c, mhz, mib in warming], gpu(105))
    (old,) = usage_of(told, Window(101, 103.5)).gpus
    assert (old.celsius_begin, old.celsius_end, old.celsius_most) == (60, 69, 71)
    assert (old.sm_mhz, old.memory_bytes, old.generation, old.lanes) == (1700, 300 << 20, 4, 16)


def test_the_slowest_and_the_warmest_gpu_count() -> None:
    told = readings(gpu(101), gpu(101, NEW, celsius="75", sm_mhz="1500"), gpu(102), gpu(102, NEW, sm_mhz="1500"))
    used = usage_of(told, Window(101, 102))
    assert (used.celsius, used.sm_mhz) == (75, 1500)


def test_reasons_for_lower_clocks_are_shares() -> None:
    masks = ["0x4", "0x24", "0x1", "0x0000000000000088"]
    told = readings([gpu(101 + number, reasons=mask) for number, mask in enumerate(masks)])
    used = usage_of(told, Window(101, 104))
    assert used.gpus[0].slowed == {"power cap": 0.5, "hardware": 0.25, "heat": 0.25, "power brake": 0.25}
    assert list(used.doubts) == [
        f"GPU {OLD} was slowed in 25% of readings: {reason}" for reason in ("hardware", "heat", "power brake")
    ]


@given(st.integers(0, 2**16))
def test_only_bits_that_slow_are_reasons(mask: int) -> None:
    assert bool(slowdown_reasons(mask)) == bool(mask & 0xEC)
    assert ("heat" in slowdown_reasons(mask)) == bool(mask & 0x60)


def test_the_server_and_others_beside_it() -> None:
    first = SERVER | {"cpu": 10_000_000}
    last = SERVER | {"cpu": 14_000_000, "rss": 700, "anon": 800, "most": 1000}
    told = readings(figures(101, cpu=0, own=0, server=first), figures(103, cpu=6_000_000, own=10_000, server=last))
    host = usage_of(told, Window(101, 103)).host
    assert [host.processors, host.others, host.meter] == pytest.approx([2, 0.995, 0.005])
    assert (host.resident_bytes, host.anonymous_bytes, host.peak_bytes, host.faults) == (900, 800, 1000, 0)
    assert (host.group_peak_bytes, host.celsius, host.mhz, host.joules) == (4000, 55.5, 4200, None)


def test_a_window_between_two_readings_is_known_all_the_same() -> None:
    """A short answer: what was computed is shared out evenly, and memory is that of the readings around."""
    last = SERVER | {"cpu": 4_000_000, "rss": 950, "faults": 13}
    told = readings(figures(101), figures(103, cpu=6_000_000, server=last))
    host = usage_of(told, Window(101.5, 102)).host
    assert (host.processors, host.others, host.resident_bytes, host.faults) == (2, 1, 950, 2)
    assert usage_of(told, Window(102, 103.5)).host.processors is None


@pytest.mark.parametrize(
    ("last", "doubts"),
    [
        ({}, []),
        ({"faults": 9, "read": 900_000}, []),
        ({"faults": 9, "read": 5_000_000}, ["the server waited for the disk: 6 major page faults, 5 MB"]),
        ({"swap": 50_000_000}, ["50 MB of the server lay in swap"]),
    ],
)
def test_what_speaks_against_the_host(last: dict[str, int], doubts: list[str]) -> None:
    told = readings(figures(101), figures(102, server=SERVER | last))
    assert list(usage_of(told, Window(101, 102)).doubts) == doubts


def test_a_server_that_ended_and_others_that_compute() -> None:
    assert usage_of(readings(figures(101), figures(102, server={})), Window(101, 102)).doubts == (
        "the server ended meanwhile",
    )
    busy = readings(figures(101), figures(102, cpu=700_000))
    assert usage_of(busy, Window(101, 102)).doubts == ("other programs used 0.7 processors",)


def test_values_are_frozen() -> None:
    used = usage_of(steady(), WHOLE)
    for value, name in ((used, "gpus"), (used.gpus[0], "watts"), (used.host, "joules")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)


HOST = "no energy of the processor and its memory: "


@pytest.mark.parametrize(
    ("more", "lines", "sentences"),
    [
        ({}, [gpu(101), figures(101), seen(102)], []),
        ({"no_smi": "there is no nvidia-smi"}, [], ["nothing of GPUs: there is no nvidia-smi"]),
        ({"no_counter": {OLD: "Not Supported"}}, [], [f"no energy counter on GPU {OLD}: Not Supported"]),
        ({"no_nvml": "Driver Not Loaded"}, [], ["no energy counters of GPUs: Driver Not Loaded"]),
        ({"no_rapl": "absent", "virtual": "kvm"}, [], [HOST + "no RAPL in here (kvm)"]),
        ({"no_rapl": "absent"}, [], [HOST + "RAPL: absent"]),
        ({}, [gpu(101, watts="[N/A]", mean_watts="[N/A]")], [f"no power of GPU {OLD}: it reports none"]),
        ({}, [gpu(101, sm_mhz="[N/A]")], [f"no clock of GPU {OLD}: it reports none"]),
        (
            {"virtual": "wsl"},
            [seen(102, apps=None)],
            ["not the other processes on the GPUs: under WSL the driver does not report them"],
        ),
        (
            {},
            [seen(102, in_flight=None)],
            ["not whether other clients use the server: it does not report its requests"],
        ),
        ({}, [line("gone", 102)], ["nothing of GPUs from some moment on: the source of their readings has ended"]),
        ({}, [figures(101, celsius=None)], ["no temperature of the processor: the kernel has no sensor of it"]),
        ({}, [figures(101, mhz=None)], ["no clock of the processor: the kernel does not control it"]),
        (
            {},
            [figures(101, server={"rss": 1})],
            ["no peak memory of the server's control group: this kernel does not record it"],
        ),
        (
            {"fields": tuple(name for name in FIELDS if name != "reasons")},
            [],
            ["no reasons for lower clocks of GPUs: this driver does not report it"],
        ),
    ],
)
def test_what_cannot_be_measured_is_named(more: dict[str, object], lines: list[str], sentences: list[str]) -> None:
    assert list(unmeasured_sentences(readings(lines, **more))) == sentences
