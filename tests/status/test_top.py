"""Rows of server processes from what a host reports, and their text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.fleet.top import GpuRow, RigTop, rig_top, top_lines
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.onhost.status import CardStatus, GpuUse, HostStatus, ProcessUse, TopStatus
from tests.status.made import AT
from tests.status.test_judged import DUO, FINE

NAMES = [each.name for each in DUO.instances]
SERVICES = [each.service for each in DUO.instances]
FIRST = SERVICES[0]
CARDS = tuple(
    CardStatus(f"GPU-{number}", gpu.at, 20000.0, 32000.0, 310.0, 600.0, 60.0, 99.0, gpu.model)
    for number, gpu in enumerate(DUO.cards)
)
SERVER = replace(FINE, wrote=(80, 2000), context=(12_288, 65_536))
FOUND = TopStatus(
    clock=100.0,
    host=HostStatus(dict.fromkeys(SERVICES, SERVER), CARDS),
    processes={FIRST: ProcessUse(400, 3 << 30, 50.0)},
    apps=(
        GpuUse("GPU-0", 400, 20480.0, "llama-server", FIRST),
        GpuUse("GPU-0", 401, 1024.0, "a worker", FIRST),
        GpuUse("GPU-0", 77, 512.0, "python3"),
    ),
)
BEFORE = replace(FOUND, clock=98.0, processes={FIRST: ProcessUse(400, 3 << 30, 47.0)})


def plain(text: str, _colour: str) -> str:
    return text


def test_a_server_has_its_figures_and_its_gpu() -> None:
    row = rig_top(DUO, FOUND, BEFORE).processes[0]
    assert (row.name, row.state, row.streams, row.slots, row.context) == (NAMES[0], "serves", 1, 2, (12_288, 65_536))
    assert row.gpus == (GpuRow(DUO.cards[0].name, 21504 << 20, 310.0, 99.0),)
    assert (row.memory, row.cpu, row.tokens_per_second) == (3 << 30, 150.0, 40.0)


def test_other_programs_on_a_gpu_are_shown() -> None:
    row = rig_top(DUO, FOUND, None).processes[-1]
    assert (row.name, row.state) == ("python3 (pid 77)", None)
    assert row.gpus[0].memory == 512 << 20


@pytest.mark.parametrize(
    "before",
    [
        None,
        replace(BEFORE, processes={FIRST: ProcessUse(399)}),
        replace(BEFORE, clock=200.0),
        TopStatus(1.0, FOUND.host),
    ],
)
def test_the_processor_is_unknown_after_a_restart_and_at_first(before: TopStatus | None) -> None:
    assert rig_top(DUO, FOUND, before).processes[0].cpu is None


def test_a_server_that_is_down_has_no_figures_and_the_rig_is_not_ok() -> None:
    down = replace(FINE, active="failed", health="", context=(1, 2))
    host = replace(FOUND.host, servers={**FOUND.host.servers, FIRST: down})
    found = rig_top(DUO, TopStatus(1.0, host), None)
    row = found.processes[0]
    assert (row.state, row.streams, row.context, row.gpus) == ("down", None, None, ())
    assert not found.ok
    assert not RigTop("six", away="it is off").ok


@pytest.mark.parametrize(
    "found",
    [
        replace(FOUND, apps=(GpuUse("GPU-0", 1, -1.0, "x"),)),
        replace(FOUND, apps=(GpuUse("GPU-0", 1, float("nan"), "x"),)),
        replace(FOUND, apps=FOUND.apps * 200),
        replace(FOUND, host=HostStatus(dict.fromkeys(SERVICES, replace(SERVER, context=(-1, 2))))),
    ],
)
def test_impossible_figures_are_refused(found: TopStatus) -> None:
    with pytest.raises(UnexpectedLineError):
        rig_top(DUO, found, None)


@pytest.mark.parametrize("width", [80, 100, None])
def test_no_line_is_wider_than_the_terminal(width: int | None) -> None:
    rigs = [rig_top(DUO, FOUND, BEFORE), RigTop("six", away="nothing listens for SSH at six.lan; " + "start it " * 20)]
    lines = list(top_lines(rigs, AT, width, plain))
    assert width is None or max(map(len, lines)) <= width
    assert lines[0].startswith(f"{len(SERVICES)} streams, {40 * len(SERVICES)} t/s, 310 W of GPUs, 2026-")
    assert any("six: nothing listens" in line for line in lines)
    row = next(line for line in lines if line.startswith("duo"))
    assert NAMES[0] in row
    assert "21.0 GiB" in row
    assert all("…" not in line for line in lines)
    if width is None:
        assert row.split()[3:10] == ["40.0", "1", "of", "2", "12K", "of", "64K"]
        assert row.split()[-4:] == ["150", "%", "3.0", "GiB"]
