"""Memory as computed beside memory as llama.cpp says it: writes hollow models, asks the engine, prints a table.

    .venv/bin/python -m benchmarks.memory LLAMA_FIT_PARAMS LLAMA_SERVER [FILE]
    .venv/bin/python -m benchmarks.memory FILE

Both are programs of a build of llama.cpp without a GPU. FILE keeps what they print, and the models' headers:
tests/data/memory_engine.json is one. FILE alone prints the table again. Disk: some MB. RAM: 10 GB for a moment,
as a server really allocates its cache. Time: 5 minutes on two cores.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.memory_shapes import models, served
from llamaherd.gguf.header import Header
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.memory import Memory, Placement, estimate
from llamaherd.pipeline.engine_estimate import MIB, parse_figures, parse_server_log, tool_arguments, without_draft
from tests.support.gguf_files import Model, write

WIDE = ["35B-A3B Q4_K", "122B-A10B Q6_K", "Gemma 3 270M", "Gemma 3 12B", "Llama 3.1 8B"]
CONFIGURATIONS: list[dict[str, Any]] = [
    {"context": 4096},
    {"context": 4096, "parallel": 4, "type_k": "q8_0", "type_v": "q8_0"},
    {"context": 32768, "parallel": 2, "ubatch": 2048},
    {"context": 32768, "type_k": "q4_0", "type_v": "q4_0", "batch": 512, "ubatch": 128},
    {"context": 65536, "type_k": "q8_0", "type_v": "q8_0"},
    {"context": 131072, "parallel": 3},
    {"context": 131072, "parallel": 4, "type_k": "q4_0", "type_v": "q4_0"},
    {"context": 262144, "type_k": "q8_0", "type_v": "q8_0", "batch": 512},
    {"context": 262144, "parallel": 2, "type_k": "q4_0", "type_v": "q4_0"},
    {"context": 8192, "flash_attention": False},
]
FEW_CONFIGURATIONS: list[dict[str, Any]] = [
    {"context": 32768, "parallel": 2},
    {"context": 131072, "type_k": "q8_0", "type_v": "q8_0"},
]
DRAFTING: list[dict[str, Any]] = [
    {"context": 4096, "mtp": 1},
    {"context": 32768, "mtp": 2, "type_k": "q8_0", "type_v": "q8_0"},
    {"context": 32768, "mtp": 3, "parallel": 4},
    {"context": 65536, "mtp": 3, "type_k": "q4_0", "type_v": "q4_0", "batch": 512},
    {"context": 131072, "mtp": 2, "parallel": 2, "type_k": "q8_0", "type_v": "q8_0"},
    {"context": 32768, "parallel": 2},
]
NO_CARDS = {"devices": 0}
SECONDS = 300

_BUFFER = re.compile(r"\w+: +\S+ +\w+ buffer size = +\d+\.\d+ MiB")


def main() -> None:
    """Measure, print the table, and keep the figures if asked to."""
    if len(sys.argv) == 2:
        print(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
        return
    fit_params, server, *files = sys.argv[1:]
    captured: dict[str, Any] = {"engine": _version(fit_params), "models": {}, "fit_params": [], "server": []}
    with tempfile.TemporaryDirectory() as folder:
        for name, path, header in _written(models(), Path(folder)):
            captured["models"][name] = header.model_dump(mode="json", exclude_defaults=True)
            for configuration in CONFIGURATIONS if name in WIDE else FEW_CONFIGURATIONS:
                row = _asked(fit_params, path, {**NO_CARDS, **configuration})
                captured["fit_params"].append({"model": name, **row})
        for name, path, header in _written(served(), Path(folder)):
            captured["models"][name] = header.model_dump(mode="json", exclude_defaults=True)
            for configuration in DRAFTING:
                row = _served(server, path, {**NO_CARDS, **configuration})
                captured["server"].append({"model": name, **row})
    print(table(captured))
    for file in files:
        Path(file).write_text(json.dumps(captured, indent=1) + "\n", encoding="utf-8")


def table(captured: Mapping[str, Any]) -> str:
    """The engine's figures and ours as Markdown, in MiB. Kept are weights and context."""
    lines = [
        "| model | context | KV | slots | batch | draft | kept: engine | ours | error | compute: engine | ours |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in ("fit_params", "server"):
        for row in captured[kind]:
            header = Header.model_validate(captured["models"][row["model"]])
            placement = Placement(**row["placement"])
            if kind == "fit_params":
                engine, ours = parse_figures(row["printed"]), estimate(header, without_draft(placement))
                compute = f"{_mib(engine.everywhere.compute)} | {_mib(ours.everywhere.compute)}"
            else:
                engine, ours = parse_server_log("\n".join(row["printed"]), 0), estimate(header, placement)
                computed = ours.everywhere
                model, draft = computing(row["printed"])
                compute = f"{model:,.0f} + {draft:,.0f} | {_mib(computed.compute)} + {_mib(computed.draft.compute)}"
            held = kept(engine)
            cells = (
                row["model"],
                f"{placement.context:,}",
                placement.type_k if placement.flash_attention else f"{placement.type_k}, no FA",
                placement.parallel,
                placement.tokens,
                placement.mtp or "",
                f"{held / MIB:,.0f}",
                f"{kept(ours) / MIB:,.0f}",
                f"{100 * (kept(ours) / held - 1):+.2f} %",
                compute,
            )
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def kept(memory: Memory) -> int:
    """Bytes of all that stays: everything but compute."""
    use = memory.everywhere
    return use.total - use.compute - use.draft.compute


def computing(lines: list[str]) -> tuple[float, float]:
    """MiB that a server's contexts compute in: the model's and the draft's. A draft's buffers are made twice."""
    sizes = [float(line.split()[-2]) for line in lines if "compute buffer size" in line]
    return sizes[0], sizes[1] if len(sizes) > 1 else 0.0


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f}"


def _written(shapes: Mapping[str, Model], folder: Path) -> Iterator[tuple[str, Path, Header]]:
    """Each model as a hollow file, and its header as it is read from there."""
    for name, model in shapes.items():
        (path,) = write(model, folder / "model.gguf")
        yield name, path, join_headers(read_headers(path))
        path.unlink()


def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return "llama.cpp " + (said.stdout + said.stderr).splitlines()[0].strip()


def _asked(program: str, path: Path, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """What the tool prints. Weights that a CPU build repacks are not counted by it, so that it must not."""
    command = [*tool_arguments(Placement(**configuration), str(path)), "--no-repack"]
    said = subprocess.run([program, *command], capture_output=True, text=True, check=True)
    shown = ["llama-fit-params", *("model.gguf" if word == str(path) else word for word in command)]
    return {"placement": dict(configuration), "command": " ".join(shown), "printed": said.stdout.strip()}


def _served(program: str, path: Path, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """What a server logs of its buffers until it listens."""
    placement = Placement(**configuration)
    flags = list(tool_arguments(placement, str(path)))
    del flags[flags.index("-fitp") : flags.index("-fitp") + 2]
    draft = ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(placement.mtp)] if placement.mtp else []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*flags, *draft, "--no-repack", "--no-warmup", "-lv", "4"]
    log = path.with_name("server.log")
    with log.open("w", encoding="utf-8") as stream:
        running = subprocess.Popen([program, *command, "--port", str(port)], stdout=stream, stderr=subprocess.STDOUT)
    try:
        lines = _until_listening(running, log)
    finally:
        running.kill()
        running.wait()
    shown = ["llama-server", *("model.gguf" if word == str(path) else word for word in command)]
    return {"placement": dict(configuration), "command": " ".join(shown), "printed": lines}


def _until_listening(running: subprocess.Popen[bytes], log: Path) -> list[str]:
    """The lines on buffers. Raises RuntimeError if the server ends or never listens."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and running.poll() is None:
        said = log.read_text(encoding="utf-8", errors="replace")
        if "listening on" in said:
            return _BUFFER.findall(said)
        time.sleep(0.2)
    raise RuntimeError(f"the server did not start, or ended with {running.poll()}")


if __name__ == "__main__":
    main()
