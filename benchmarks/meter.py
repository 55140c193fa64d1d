"""What watching a host costs and tells, on a machine that has nothing of ours: a real GPU's, for one.

    python benchmarks/meter.py program > meter.pyz
    python benchmarks/meter.py document [UNIT] > meter.json
    (cat meter.json; sleep 5; echo mark idle; sleep 10; echo mark begin; sleep 20; echo mark end; sleep 1; echo look;
     sleep 1) | python3 -I meter.pyz > lines        # there; UNIT is a service to watch, if any
    python benchmarks/meter.py read lines

Between two marks it says what was used; beside that, how evenly GPUs were read, and by whom.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from llamaherd.host.program import packed_program, parse_event, request
from llamaherd.measure.meter.meter import host_snapshot
from llamaherd.measure.meter.readings import Readings, parse_readings
from llamaherd.measure.meter.usage import Window, unmeasured_sentences, usage_of
from llamaherd.onhost.gauges import MeterInput

GIVEN = MeterInput(
    service="llama-none",
    backend="systemd",
    loaded="",
    every=0.2,
    lasts=600.0,
    silence=60.0,
    most=64 << 20,
    port=8080,
    metrics=("http://127.0.0.1:8080/metrics",),
    key="",
)


def show(readings: Readings) -> None:
    """All that was told, in short."""
    why = readings.hello.why_smi if readings.hello else "nothing was told"
    print(f"GPUs are read by {f'nvidia-smi: {why}' if why else 'NVML'}")
    for uuid, samples in readings.gpus.items():
        gaps = [two.at - one.at for one, two in pairwise(samples)] or [0.0]
        print(f"{uuid}: {len(samples)} lines, {median(gaps):.3f} s apart, {max(gaps):.3f} s at most")
        print(f"  {readings.facts.get(uuid)}\n  {samples[-1]}")
    gaps = [two.t - one.t for one, two in pairwise(readings.counters)] or [0.0]
    print(f"counters: {len(gaps) + 1} readings, {median(gaps):.3f} s apart, {max(gaps):.3f} s at most")
    print(f"look: {host_snapshot(readings)}")
    for sentence in (*unmeasured_sentences(readings), *readings.complaints):
        print(f"not measured: {sentence}")
    marks = [(each.mark, each.t) for each in readings.counters if each.mark]
    windows = [Window(begin, end) for (_, begin), (_, end) in pairwise(marks)]
    for (name, _), window in zip(marks, windows, strict=False):
        used = usage_of(readings, window)
        net = used.net_joules(usage_of(readings, windows[0]))
        print(f"\n{name}, {window.seconds:.1f} s: {used.joules} J, {used.watts} W, {net} J beyond the first window")
        print(f"  {used.host}")
        for gpu in used.gpus:
            print(f"  {gpu}")
        for doubt in used.doubts:
            print(f"  doubtful: {doubt}")


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    match arguments:
        case ["read", path]:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            show(parse_readings(line for line in lines if parse_event(line) is None))
        case ["program"]:
            sys.stdout.buffer.write(packed_program().data)
        case ["document", *units]:
            given = replace(GIVEN, service=units[0]) if units else GIVEN
            sys.stdout.buffer.write(request("llamaherd.meter.watch", given) + b"\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
