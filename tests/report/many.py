"""Results as a fleet gets them over a year: made by lot, with runs that could be, for tests of the report."""

from __future__ import annotations

import random
from collections.abc import Iterator

from llamaherd.measure.results.result import (
    Cell,
    Condition,
    Engine,
    Gpu,
    GpuTelemetry,
    Host,
    Kind,
    ModelFile,
    Peak,
    Provenance,
    Result,
    Run,
    Server,
    Start,
    SuiteRef,
    Telemetry,
)
from llamaherd.measure.results.store import with_id

SUITE = SuiteRef(name="llamaherd", sha256="a" * 64)
SPEEDS: dict[Kind, tuple[float, float]] = {
    "code": (120.0, 0.85),
    "prose": (86.0, 0.5),
    "copy-edit": (131.0, 0.92),
    "extract": (108.0, 0.75),
    "reasoning": (90.0, 0.55),
}
"""Tokens a second of a kind of text, and the share of drafts that is accepted."""

_GIB = 1 << 30


def many(number: int, *, instances: int = 20, deep: bool = True) -> Iterator[Result]:
    """So many results of so many instances of four rigs; each one's first result is its oldest."""
    for at in range(number):
        yield one(at, at % instances, at // instances, deep=deep)


def one(seed: int, instance: int, week: int, *, deep: bool = True) -> Result:
    """A result of an instance in a week: five kinds, prefill, and with `deep` curves over context, streams, power."""
    lot = random.Random(seed)
    speed = (0.5 + instance / 10) * (1 + lot.gauss(0, 0.01))
    began = f"2026-{1 + week % 12:02}-{1 + week // 12 + instance % 20:02}T10:{seed % 60:02}:00Z"
    cells = [_cell(lot, speed, Condition(kind=kind, generated=256, cache="cold"), 5) for kind in SPEEDS]
    cells.append(_prompt(lot, speed, Condition(kind="long", prompt=2048, cache="cold")))
    if deep:
        cells += [_cell(lot, speed, Condition(kind="long", depth=1 << at, generated=128), 1) for at in range(12, 18)]
        cells += [_prompt(lot, speed, Condition(kind="long", depth=1 << at, prompt=1024)) for at in range(12, 18)]
        cells += [_at_once(lot, speed, 1 << at) for at in range(4)]
        cells += [_limited(lot, speed, watts) for watts in (200.0, 240.0, 280.0, 320.0)]
    return with_id(
        Result(
            llamaherd="0.1.0",
            rig=("attic", "duo", "six", "wsl")[instance % 4],
            instance=f"server-{instance}",
            began=began,
            ended=began,
            suite=SUITE,
            provenance=_provenance(week),
            starts=(Start(process=str(seed)),),
            peaks=(Peak(gpu=0, held_bytes=20 * _GIB, planned_bytes=19 * _GIB), Peak(held_bytes=_GIB)),
            cells=tuple(cells),
        )
    )


def _provenance(week: int) -> Provenance:
    return Provenance(
        host=Host(cpu="AMD Ryzen 9 5950X", os="debian-13"),
        gpus=(Gpu(name="RTX 3090", power_limit_watts=280.0),) * 2,
        driver="580.95",
        engine=Engine(kind="llama.cpp", version=f"b{11434 + week // 6}"),
        model="Qwen3.6 35B-A3B",
        files=(ModelFile(name="a.gguf", quant="UD-Q3_K_XL"),),
        server=Server(context=262_144, slots=1),
    )


def _cell(lot: random.Random, speed: float, condition: Condition, runs: int) -> Cell:
    """Runs whose speed goes with what was accepted; a step takes as long in all of them."""
    tokens, accepted = SPEEDS.get(condition.kind, (100.0, 0.7))
    slower = 1 + condition.depth / 200_000
    made = [_run(lot, tokens * speed / slower, accepted, condition.generated) for _ in range(runs)]
    watts = 430.0 + condition.depth / 3000
    seconds = sum((run.total_ms or 0.0) for run in made) / 1000
    return Cell(condition=condition, runs=tuple(made), telemetry=_telemetry(watts, seconds))


def _run(lot: random.Random, speed: float, share: float, n: int) -> Run:
    drafted = 3 * n // 4
    accepted = min(drafted, max(0, round(drafted * (share + lot.gauss(0, 0.03)))))
    steps = n - 1 - accepted
    typical = n - 1 - round(drafted * share)
    took = 1000 * (n - 1) / speed * steps / typical * (1 + lot.gauss(0, 0.002))
    first = 60.0 * (1 + lot.gauss(0, 0.02))
    return Run(
        predicted_n=n,
        predicted_ms=took,
        draft_n=drafted,
        draft_n_accepted=accepted,
        first_token_ms=first,
        total_ms=took + first,
    )


def _prompt(lot: random.Random, speed: float, condition: Condition) -> Cell:
    n = condition.prompt or 0
    rate = 2400.0 * speed / (1 + condition.depth / 150_000)
    took = [1000 * n / rate * (1 + lot.gauss(0, 0.01)) for _ in range(3)]
    runs = tuple(Run(prompt_n=n, cache_n=0, prompt_ms=each, first_token_ms=each + 9) for each in took)
    return Cell(condition=condition, runs=runs, telemetry=_telemetry(540.0, sum(took) / 1000))


def _at_once(lot: random.Random, speed: float, streams: int) -> Cell:
    condition = Condition(kind="prose", generated=128, concurrency=streams)
    cell = _cell(lot, speed / streams**0.4, condition, 3 * streams)
    runs: list[Run] = []
    for stream in range(streams):
        at = 0.0
        for run in cell.runs[3 * stream : 3 * stream + 3]:
            runs.append(run.model_copy(update={"at": at}))
            at += (run.total_ms or 0.0) / 1000
    return cell.model_copy(update={"runs": tuple(runs)})


def _limited(lot: random.Random, speed: float, watts: float) -> Cell:
    condition = Condition(kind="code", generated=128, power_limit_watts=watts)
    return _cell(lot, speed * (watts / 320) ** 0.3, condition, 3)


def _telemetry(watts: float, seconds: float) -> Telemetry:
    half = [
        GpuTelemetry(gpu=at, counted_joules=watts * seconds / 2, watts=watts / 2, peak_watts=watts / 2 + 20)
        for at in (0, 1)
    ]
    return Telemetry(seconds=seconds, gpus=tuple(half))
