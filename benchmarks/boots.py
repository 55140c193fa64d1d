"""One server, started several times, each time measured by `herd bench`, on a machine with GPUs and without systemd.

    .venv/bin/python -m benchmarks.boots --server BUILD/bin/llama-server --folder /dev/shm/models [--boots 3] [CASE...]

A case is one of benchmarks/tune_gpu.py. Servers are processes of this program, so `herd bench --url` measures them: its
results and verdicts are those of any server. The model has its shape and is filled with noise.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu_servers import running, written
from benchmarks.pairs import HERD
from benchmarks.tune_gpu import CASES, Servers, rig_of
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.measure.tune.search import SearchedInstance, space_of


def main() -> int:
    """Measure each case after each of its starts. Returns the worst exit code of `herd bench`."""
    parser = argparse.ArgumentParser(description="Measure a server again after each of its starts.")
    parser.add_argument("names", nargs="*", default=["recipe"])
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--boots", type=int, default=3)
    parser.add_argument("--time", default="60s", help="how long each measurement may take")
    parser.add_argument("--pairs", type=int, help="measure each start again and again, by benchmarks/pairs.py")
    parser.add_argument("--gpu", type=int, default=0)
    asked = parser.parse_args()
    codes = [
        measured(asked.server, asked.folder, name, asked.time, asked.pairs, asked.gpu)
        for name in asked.names
        for _ in range(asked.boots)
    ]
    return max(codes)


def measured(server: Path, folder: Path, name: str, seconds: str, pairs: int | None, gpu: int = 0) -> int:
    """Start the server of a case, and measure it. Returns the exit code. Raises ServerError."""
    path = written(folder, CASES[name].model)
    known = SearchedInstance(rig_of(CASES[name], path), "case", {"model": join_headers(read_headers(path))})
    _, declared = space_of(known, judged=False)
    log = folder / f"boots-{name}-{gpu}.log"
    planned = Servers(server, log, known, path).variant(declared, None).instance
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(gpu)}
    with running(server, planned, log, environment):
        url = f"http://127.0.0.1:{planned.endpoint.port}/v1"
        asking = [*HERD, "bench", "--url", url, "--name", name, "--time", seconds]
        if pairs:
            program = [sys.executable, "-m", "benchmarks.pairs"]
            kept = folder / f"pairs-{name}-{gpu}"
            asking = [*program, "--url", url, "--pairs", str(pairs), "--time", seconds, "--folder", str(kept)]
        return subprocess.run(asking, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
