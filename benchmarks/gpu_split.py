"""Prints what llama.cpp takes on two GPUs beside our arithmetic: `python -m benchmarks.gpu_split BIN FOLDER`.

BIN holds llama-fit-params and llama-server, built for two GPUs that are there; FOLDER takes files of a header and a
hole. Figures are in MiB, a GPU each with `+` between; docs/gpus.md has those of two H100s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from llamaherd.gguf.header import Header
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.memory.estimate import estimate
from llamaherd.memory.overhead import cuda_on_gpus
from llamaherd.memory.placement import Placement
from llamaherd.pipeline.engine_estimate import parse_figures, tool_arguments, without_draft
from llamaherd.reference.cards import CARDS
from tests.support import gguf_files as shapes

MIB = 1 << 20
PORT = 9999
MODELS = {
    "35B-A3B Q4_K": shapes.qwen(tokens=shapes.QWEN_TOKENS, merges=shapes.QWEN_MERGES),
    "122B-A10B Q6_K": shapes.qwen(
        shapes.QWEN_122B, experts="Q6_K", tokens=shapes.QWEN_TOKENS, merges=shapes.QWEN_MERGES
    ),
    "Llama 8B Q4_K": shapes.llama(tokens=128_256),
}
EVEN = Placement(devices=2, tensor_split=(1, 1), context=32_768)
LONG = Placement(devices=2, tensor_split=(1, 1), context=262_144, type_k="q8_0", type_v="q8_0")
ASKED = [
    ("122B-A10B Q6_K", LONG),
    ("122B-A10B Q6_K", Placement(devices=2, tensor_split=(0.9, 1), context=262_144, type_k="q8_0", type_v="q8_0")),
    ("35B-A3B Q4_K", LONG),
    ("35B-A3B Q4_K", EVEN),
    ("35B-A3B Q4_K", Placement(devices=2, tensor_split=(1, 1), context=32_768, ubatch=2048)),
    ("35B-A3B Q4_K", Placement(devices=2, tensor_split=(1, 1), context=32_768, parallel=4)),
    ("Llama 8B Q4_K", Placement(devices=2, tensor_split=(1, 1), context=65_536)),
]
SERVED = [EVEN, LONG, Placement(devices=2, tensor_split=(1, 1), context=32_768, mtp=2)]


def main(programs: Path, folder: Path) -> None:
    """Both tables: what the tool says, and what servers really take."""
    files = {name: shapes.write(model, folder / f"{name.split()[0]}.gguf")[0] for name, model in MODELS.items()}
    headers = {name: join_headers(read_headers(path)) for name, path in files.items()}
    print("| model | context, KV | split, ubatch, slots | compute: engine | ours | weights, context: engine | ours |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for name, placed in ASKED:
        told = parse_figures(_output([str(programs / "llama-fit-params"), *tool_arguments(placed, str(files[name]))]))
        ours = estimate(headers[name], without_draft(placed))
        cells = [_each(use.compute for use in memory.devices) for memory in (told, ours)]
        cells += [_each(use.weights + use.context for use in memory.devices) for memory in (told, ours)]
        split = "/".join(f"{part:g}" for part in placed.tensor_split or ())
        what = f"{placed.context:,} {placed.type_k} | {split}, {placed.ubatch}, {placed.parallel}"
        print(f"| {name} | {what} | {' | '.join(cells)} |", flush=True)
    name = "35B-A3B Q4_K"
    print(f"\n| server of {name} | plan | nvidia-smi |\n| --- | ---: | ---: |")
    for placed in SERVED:
        print(_served(programs / "llama-server", files[name], headers[name], placed), flush=True)


def _served(server: Path, file: Path, header: Header, placed: Placement) -> str:
    draft = ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(placed.mtp)] if placed.mtp else []
    said = ["-c", str(placed.context), "-ctk", placed.type_k, "-ctv", placed.type_v, "-ts", "1,1", *draft]
    with _running([str(server), "-m", str(file), "-np", "1", "-ngl", "all", "-fa", "on", *said]) as process:
        body = {"prompt": [number % 200 for number in range(6000)], "n_predict": 32}
        _ask("/completion", json.dumps(body).encode())
        taken = _taken(process.pid)
    cuda = cuda_on_gpus((CARDS["H100"].multiprocessors,) * placed.devices, header, placed, drafts=bool(placed.mtp))
    plan = _each(use.total + own for use, own in zip(estimate(header, placed).devices, cuda, strict=True))
    what = f"context {placed.context:,}, {placed.type_k}" + (f", draft mtp {placed.mtp}" if placed.mtp else "")
    return f"| {what} | {plan} | {' + '.join(f'{each:,}' for each in taken)} |"


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers. Raises RuntimeError if it does not within five minutes."""
    with subprocess.Popen([*command, "--port", str(PORT)], stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(300):
                if process.poll() is None and _ask("/health"):
                    break
                time.sleep(1)
            else:
                raise RuntimeError("the server does not answer")
            yield process
        finally:
            process.terminate()


def _ask(path: str, body: bytes | None = None) -> bool:
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _taken(process: int) -> list[int]:
    """What the process holds of each GPU, in MiB."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    rows = (line.split(", ") for line in _output(query).splitlines())
    return [int(used) for pid, used in rows if int(pid) == process]


def _output(command: list[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout


def _each(sizes: Iterable[int]) -> str:
    return " + ".join(f"{size / MIB:,.0f}" for size in sizes)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
