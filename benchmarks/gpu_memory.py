"""What a server really takes of a GPU, as `nvidia-smi` sees it, beside what a plan says that it will take.

    .venv/bin/python -m benchmarks.gpu_memory --server BUILD/bin/llama-server --folder /dev/shm/models [NAME...]

Models in the shapes of real ones are written into the folder, full size and filled with noise (up to 60 GB), unless
they are there. Each server gets the arguments that a plan has for it, reads a prompt and answers in every slot, with
drafts where it has any; the most that `nvidia-smi` shows for its process counts. llama-fit-params, beside the server,
is asked too. A row is printed as soon as it is known; docs/gpus.md has the table. With `--cpu`, GPUs are left alone
and the resident memory of the process is compared with the plan's figure for the RAM: a trial of this program.

    .venv/bin/python -m benchmarks.gpu_memory --again tests/data/gpu_memory_h200.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.gpu_memory_cases import CASES, MODELS, Case
from benchmarks.gpu_servers import ANSWER, ServerError, complete, free_port, running, smi, written
from llamaherd.gguf.header import Header
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.inventory.schema import Rig
from llamaherd.memory.facts import rig_facts
from llamaherd.memory.instances import placement
from llamaherd.memory.placement import Placement
from llamaherd.pipeline import engine_estimate
from llamaherd.plan import Holds, InstancePlan, ModelFile, ModelPlan
from llamaherd.plan.devices import place_memory
from llamaherd.scaffold import plain_name
from roles.serve.plan import plan_instance
from tests.support.gguf_files import write

MIB = 1024**2
NEAR = (0.03, 300)
"""A plan is right within this part of what is taken, or within so many MiB."""

PARTS = [part for part in Holds.model_fields if part not in ("where", "size")]
"""What a plan's figure is made of."""


@dataclass(frozen=True)
class Row:
    """What was found for one case, in MiB. `engine` is llama-fit-params' figure with the draft by arithmetic.

    `card` is its name, its MiB and its compute capability; nothing where the RAM was compared.
    """

    case: str
    card: list[str]
    what: str
    planned: dict[str, float]
    total: float
    engine: float
    logged: dict[str, float]
    taken: float
    whole_card: float
    drafted: int
    memory: dict[str, int]

    @property
    def off(self) -> float:
        """By how much the plan says too much; less than 0 for too little."""
        return self.total - self.taken

    @property
    def near(self) -> bool:
        """Whether the plan is near enough."""
        part, least = NEAR
        return abs(self.off) <= max(part * self.taken, least)

    def markdown(self) -> str:
        """A line of the table."""
        figures = [*self.planned.values(), self.total, self.engine, self.taken]
        cells = [self.what, *(f"{figure:,.0f}" for figure in figures)]
        return f"| {' | '.join(cells)} | {self.off:+,.0f} | {self.off / self.taken:+.1%} |"


def main() -> int:
    """Measure the cases that were named, or all. Returns 1 if a plan was too far off or a server failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, help="llama-server, with llama-fit-params beside it")
    parser.add_argument("--folder", type=Path, help="where models and logs are kept")
    parser.add_argument("--cpu", action="store_true", help="compare the RAM of servers that have no card")
    parser.add_argument("--results", type=Path, help="file to which every row is added as a line of JSON")
    parser.add_argument("--again", type=Path, help="such a file: print its table with what is planned now, and stop")
    parser.add_argument("case", nargs="*", help=f"of {', '.join(CASES)}; all of them by default")
    asked = parser.parse_args()
    if asked.again:
        return _print_again(asked.again)
    if asked.server is None or asked.folder is None:
        parser.error("--server and --folder are needed")
    if unknown := set(asked.case) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    names = asked.case or list(CASES)
    bench = Bench(asked.server.absolute(), asked.folder, asked.cpu)
    print(bench.about(), flush=True)
    _print_head()
    fine = True
    for name in names:
        try:
            row = bench.measure(name)
        except (ServerError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            fine = False
            continue
        print(row.markdown(), flush=True)
        fine = fine and row.near
        if asked.results:
            with asked.results.open("a") as stream:
                stream.write(json.dumps(vars(row)) + "\n")
    return 0 if fine else 1


def _print_head() -> None:
    print(f"| server | {' | '.join(PARTS)} | plan | engine | taken | plan - taken | |")
    print(f"| --- |{' ---: |' * (len(PARTS) + 5)}", flush=True)


def _print_again(results: Path) -> int:
    """The table of what was measured before, with today's plans. Returns 1 if one is too far off."""
    _print_head()
    rows = again(results)
    print("\n".join(row.markdown() for row in rows))
    return 0 if all(row.near for row in rows) else 1


def again(results: Path) -> list[Row]:
    """What was measured before, beside what is planned now."""
    rows = [Row(**json.loads(line)) for line in results.read_text().splitlines()]
    headers: dict[str, Header] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hollow.gguf")
        for model in dict.fromkeys(CASES[row.case].model for row in rows):
            write(MODELS[model], path)
            headers[model] = join_headers(read_headers(path))
    return [replace(row, **_planned_now(CASES[row.case], headers, row.card)) for row in rows]


def _planned_now(case: Case, headers: Mapping[str, Header], card: list[str]) -> dict[str, Any]:
    path = Path("/model.gguf")
    return _expected(_planned(_rig(case, path, card), path, headers[case.model]))


@dataclass(frozen=True)
class Bench:
    """Where servers are started: the program, the folder of models and logs, and whether GPUs are left alone."""

    server: Path
    folder: Path
    cpu: bool

    def about(self) -> str:
        """The GPU, the driver and the engine, or the processor."""
        told = subprocess.run([self.server, "--version"], capture_output=True, text=True, check=True)
        engine = next(line for line in (told.stdout + told.stderr).splitlines() if line.startswith("version"))
        card = f"CPU {platform.machine()}" if self.cpu else "; ".join(smi("gpu", "name,memory.total,driver_version")[0])
        return f"llama.cpp {engine}; {card}\n"

    def measure(self, name: str) -> Row:
        """One case. Raises ServerError, or ValueError where llama-fit-params gives no figure."""
        case = CASES[name]
        path = written(self.folder, case.model)
        header = join_headers(read_headers(path))
        card = [] if self.cpu else smi("gpu", "name,memory.total,compute_cap")[0]
        rig = _rig(case, path, card)
        planned = _planned(rig, path, header)
        placed = placement(rig, rig.instances["case"], header)
        engine = self._asked(path, header, placed)
        idle = 0.0 if self.cpu else _whole_gpu()
        log = self.folder / f"{name}.log"
        with running(self.server, planned, log, self._environment()) as process:
            taken, whole, drafted = self._serve(process, planned, case.prompt, rig.instances["case"].parallel)
            memory = _resident(process.pid)
        sizes = engine_estimate.parse_server_log(log.read_text(errors="replace"), placed.devices)
        logged = sizes.host if self.cpu else sizes.devices[0]
        return Row(
            case=name,
            what=str(case),
            card=card,
            **_expected(planned),
            engine=engine / MIB,
            logged={part: getattr(logged, part) / MIB for part in ("weights", "kv", "state")},
            taken=taken,
            whole_card=whole - idle,
            drafted=drafted,
            memory=memory,
        )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "" if self.cpu else "0"}

    def _asked(self, path: Path, header: Header, placed: Placement) -> int:
        """Bytes by llama-fit-params, with what a draft adds by arithmetic."""
        tool = self.server.with_name("llama-fit-params")
        said = subprocess.run(
            [tool, *engine_estimate.tool_arguments(placed, str(path))],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            env=self._environment(),
        )
        memory = engine_estimate.with_draft_memory(engine_estimate.parse_figures(said.stdout), header, placed)
        use, *_ = (*memory.devices, memory.host)
        return place_memory("", 0, use, 0).total

    def _serve(
        self, process: subprocess.Popen[bytes], planned: InstancePlan, prompt: int, slots: int
    ) -> tuple[float, float, int]:
        """The most that the process and that the whole GPU took, in MiB, and how many tokens were drafted."""
        readings = [self._taken(process.pid)]
        length = min(prompt, planned.context // slots - 2 * ANSWER)
        url = f"http://127.0.0.1:{planned.endpoint.port}/completion"
        with ThreadPoolExecutor(slots) as pool:
            answers = [
                pool.submit(complete, url, [(slot + place) % 200 for place in range(length)]) for slot in range(slots)
            ]
            while not all(answer.done() for answer in answers):
                readings.append(self._taken(process.pid))
                time.sleep(0.1)
            drafted = sum(int(answer.result().get("draft_n", 0)) for answer in answers)
        if planned.mtp and not drafted:
            raise ServerError("nothing was drafted")
        readings.append(self._taken(process.pid))
        return max(own for own, _ in readings), max(whole for _, whole in readings), drafted

    def _taken(self, pid: int) -> tuple[float, float]:
        """MiB of one process, and of the whole GPU; of the RAM alone, where GPUs are left alone."""
        if self.cpu:
            resident = _resident(pid)["VmRSS"]
            return resident, resident
        own = [float(size) for process, size in smi("compute-apps", "pid,used_memory") if int(process) == pid]
        if not own:
            raise ServerError("nvidia-smi does not list the server's process")
        return sum(own), _whole_gpu()


def _rig(case: Case, path: Path, card: list[str]) -> Rig:
    """An inventory with this machine, the GPU if there is one, and one server."""
    keys, gpus = dict(case.keys), None
    if card:
        name, memory, capability = card
        known = {"model": plain_name(name), "memory": f"{memory}MiB", "architecture": capability.replace(".", "")}
        gpus, keys["on"] = {"cuda": "13.0", "cards": {"card": known}}, ["card"]
    else:
        keys.pop("experts_on_cpu", None)
    instance = {"engine": "llama", "model": "model", "port": free_port(), "extra_args": ["-lv", "4"], **keys}
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Rig.model_validate(
        {
            "rig": "bench",
            "connect": "local",
            "host": {"os": "ubuntu-24.04", "cpu": {"cores": len(os.sched_getaffinity(0))}, "ram": ram},
            "gpus": gpus,
            "engines": {"llama": {"kind": "llama.cpp", "ref": "b11434"}},
            "models": {"model": {"file": str(path), "sha256": "0" * 64}},
            "instances": {"case": instance},
        }
    )


def _planned(rig: Rig, path: Path, header: Header) -> InstancePlan:
    model = ModelPlan(name="model", folder=str(path.parent), files=(ModelFile(name=path.name, sha256="0" * 64),))
    return plan_instance(rig, rig_facts(rig, {"model": header}), "case", {}, {}, {"model": model})


def _expected(planned: InstancePlan) -> dict[str, Any]:
    """What the plan has for the first GPU, or for the RAM where there is none: in all, and by part, in MiB."""
    if planned.memory is None:
        raise ValueError("the plan has no estimate")
    first = planned.memory.holds[0]
    return {"planned": {part: getattr(first, part) / MIB for part in PARTS}, "total": first.total / MIB}


def _whole_gpu() -> float:
    return float(smi("gpu", "memory.used")[0][0])


def _resident(pid: int) -> dict[str, int]:
    """MiB of RAM that a process has, by kind, from the kernel's own words."""
    text = Path(f"/proc/{pid}/status").read_text()
    return {kind: int(size) // 1024 for kind, size in re.findall(r"^(VmRSS|Rss\w+):\s+(\d+) kB", text, re.MULTILINE)}


if __name__ == "__main__":
    sys.exit(main())
