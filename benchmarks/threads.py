"""How fast a server writes with so many threads, alone and beside others: experts on the CPU, the rest on a GPU.

    .venv/bin/python -m benchmarks.threads --llama BUILD/bin --ik BUILD/bin --folder /dev/shm/models \\
        --results rows.jsonl [SERIES...]

A series is a grid of threads on some of the processors, which `taskset` names: a small host is played on a large one.
docs/serve.md has what was found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu_rigs_cases import MODELS, Case
from benchmarks.gpu_rigs_rows import planned
from benchmarks.gpu_servers import ServerError, complete, running, smi
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.host.responses import decoded_per_second
from tests.support.gguf_files import write

MODEL = "35B-A3B, 64 experts"
PROMPT, ANSWER, SLOW = 400, 40, 8.0
"""Tokens read and written; below so many tokens a second one answer is enough."""


@dataclass(frozen=True)
class Series:
    """A grid: threads to try, on which processors, with which keys; how many servers at once; the GPU they have."""

    threads: tuple[int, ...]
    cores: str = ""
    keys: Mapping[str, Any] = field(default_factory=lambda: {"experts_on_cpu": "100%"})
    servers: int = 1
    card: int | None = 0
    engine: str = "llama.cpp"


_QUARTER = {"experts_on_cpu": "25%"}
SERIES: Mapping[str, Series] = {
    "all": Series((8, 16, 24, 32, 40, 48, 52, 56, 58, 59, 60, 61, 62, 63, 64)),
    "all-32": Series((24, 32, 16, 28, 31, 20, 30, 26, 26, 30, 20, 31, 28, 16, 32, 24), cores="0-31"),
    "quarter-32": Series((24, 32, 16, 28, 31, 20), cores="0-31", keys=_QUARTER),
    "quarter": Series((4, 8, 16, 24, 32, 48, 56, 60, 62, 63, 64), keys=_QUARTER),
    "cards": Series((1, 2, 4, 8, 16, 32, 48, 60, 63, 64), keys={}),
    "two": Series((8, 16, 24, 30, 31, 32, 48, 62), servers=2),
    "three": Series((10, 20, 21, 62), servers=3),
    "ik": Series((16, 32, 48, 56, 60, 62, 63, 64), engine="ik_llama.cpp"),
    "of-16": Series((8, 10, 12, 13, 14, 15, 16), cores="0-15", card=0),
    "of-8": Series((4, 5, 6, 7, 8), cores="16-23", card=1),
    "of-4": Series((1, 2, 3, 4), cores="24-27", card=2),
    "of-2": Series((1, 2), cores="28-29", card=3),
    "none-of-8": Series((4, 6, 7, 8), cores="32-39", keys={}, card=None),
    "none-of-2": Series((1, 2), cores="40-41", keys={}, card=None),
    "none-of-16": Series((8, 12, 14, 15, 16), cores="48-63", keys={}, card=None),
}
SMALL = [name for name in SERIES if "of-" in name]
"""Series that have processors of their own, and are measured beside each other."""


def main() -> int:
    """Measure the series that were named, or all. Returns 1 if a server failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=Path, required=True, help="folder of llama.cpp's programs")
    parser.add_argument("--ik", type=Path, help="folder of ik_llama.cpp's programs")
    parser.add_argument("--folder", type=Path, required=True, help="where the model and logs are kept")
    parser.add_argument("--results", type=Path, required=True, help="file to which every row is added")
    parser.add_argument("series", nargs="*")
    asked = parser.parse_args()
    programs = {"llama.cpp": asked.llama, "ik_llama.cpp": asked.ik}
    model = asked.folder / "threads.gguf"
    if not model.exists():
        write(MODELS[MODEL], model, noise=True)
    cards = [tuple(row) for row in smi("gpu", "name,memory.total,compute_cap")]

    def measure(name: str) -> bool:
        series = SERIES[name]
        try:
            for row in rates(series, programs[series.engine] / "llama-server", model, cards, asked.folder / name):
                with asked.results.open("a") as stream:
                    stream.write(json.dumps({"series": name, **row}) + "\n")
                print(name, row, flush=True)
        except (ServerError, ValueError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            return False
        return True

    names = asked.series or list(SERIES)
    fine = [measure(name) for name in names if name not in SMALL]
    with ThreadPoolExecutor(len(SMALL)) as pool:
        fine += pool.map(measure, [name for name in names if name in SMALL])
    return 0 if all(fine) else 1


def rates(
    series: Series, server: Path, model: Path, cards: list[tuple[str, ...]], log: Path
) -> Iterator[dict[str, Any]]:
    """Tokens per second, read and written, of each server, for each number of threads. Raises ServerError."""
    header = join_headers(read_headers(model))
    visible = "" if series.card is None else str(series.card)
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": visible}
    on = [] if series.card is None else cards[:1]
    for threads in series.threads:
        with ExitStack() as stack:
            ports = []
            for number in range(series.servers):
                case = Case(series.engine, MODEL, len(on), {"context": 4096, **series.keys, "threads": threads})
                plan = planned(case, model, header, on)
                at = log.with_suffix(f".{number}.log")
                stack.enter_context(running(server, plan, at, environment, series.cores))
                ports.append(plan.endpoint.port)
            with ThreadPoolExecutor(len(ports)) as pool:
                found = list(pool.map(_rates, ports))
        yield {"threads": threads, "read": [each[0] for each in found], "written": [each[1] for each in found]}


def _rates(port: int) -> tuple[list[float], list[float]]:
    url = f"http://127.0.0.1:{port}/completion"
    read, wrote = [], []
    for start in range(3):
        timings = complete(url, [(start * 50 + place) % 200 for place in range(PROMPT)], 12 if not start else ANSWER)
        read.append(round(timings["prompt_per_second"], 1))
        wrote.append(round(decoded_per_second(timings) or 0, 2))
        if wrote[-1] < SLOW:
            break
    return read, wrote


if __name__ == "__main__":
    sys.exit(main())
