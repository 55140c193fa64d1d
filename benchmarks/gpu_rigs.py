"""What servers take of every GPU and of the RAM, beside what a plan says: both engines, one GPU and several.

    .venv/bin/python -m benchmarks.gpu_rigs --llama BUILD/bin --ik BUILD/bin --folder /dev/shm/models \\
        --results rows.jsonl [NAME...]

Models are headers with holes, which take the memory that real ones take. Servers run side by side as far as the GPUs
have room; each gets the arguments of a plan, reads three prompts in every slot and answers. A row is written as soon as
it is known. docs/gpus.md has the tables; `--again ROWS` prints them with today's plans. `--drawn SEED` takes servers
that are drawn by chance, as many as `--count`, instead of those that are listed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
import traceback
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_rigs_cases import CASES, FILLED, Case
from benchmarks.gpu_rigs_drawn import drawn
from benchmarks.gpu_rigs_rows import PROMPT, again, planned, written
from benchmarks.gpu_servers import ServerError, complete, running, smi
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.plan import InstancePlan
from llamaherd.plan.instance import longest_input, planned_task, task_path

MIB = 1 << 20
ROOM, SPARE = 76_000, 1500
"""MiB of a GPU that servers beside each other may be planned to take, and that are left for each of them."""

_WHERE = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$")


@dataclass(frozen=True)
class Bench:
    """Where the engines' programs and the models lie, and which GPUs there are: name, MiB, compute capability."""

    programs: Mapping[str, Path]
    folder: Path
    cards: tuple[tuple[str, str, str], ...]
    prompt: int

    def measure(self, name: str, case: Case, chosen: Sequence[int], planned: InstancePlan) -> dict[str, Any]:
        """A row of one case on the chosen GPUs, or on the CPU. Raises ServerError."""
        log = self.folder / f"{name}.log"
        visible = ",".join(map(str, chosen))
        environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": visible}
        with running(self.programs[case.engine] / "llama-server", planned, log, environment) as process:
            ram = [resident(process.pid)]
            for start in range(3):
                if planned_task(planned) == "chat":
                    _read(planned, int(case.keys.get("parallel", 1)), self.prompt, start)
                else:
                    fill_batch(planned)
                ram.append(resident(process.pid))
            taken = _taken(process.pid) if chosen else Counter[int]()
        return {
            "case": name,
            "server": vars(case),
            "prompt": self.prompt,
            "cards": [self.cards[card] for card in chosen],
            "arguments": planned.server.arguments[2:],
            "taken": [taken[card] for card in chosen],
            "ram": ram,
            "log": _said(log.read_text(errors="replace")),
        }


def resident(pid: int) -> dict[str, int]:
    """MiB of RAM of a process by what is mapped: files by their names, the rest by kind."""
    found: Counter[str] = Counter()
    where = ""
    for line in Path(f"/proc/{pid}/smaps").read_text(errors="replace").splitlines():
        if mapped := _WHERE.match(line):
            where = Path(mapped[1]).name or "anonymous"
        elif line.startswith("Rss:"):
            found[where] += int(line.split()[1])
    status = dict(re.findall(r"^(VmRSS|VmHWM|Rss\w+):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M))
    found.update({kind: int(size) for kind, size in status.items()})
    return {name: size // 1024 for name, size in found.most_common(24) if size >= 1024}


def _read(server: InstancePlan, slots: int, prompt: int, start: int) -> None:
    length = min(prompt, server.context // slots - 100)
    url = f"http://127.0.0.1:{server.endpoint.port}/completion"
    with ThreadPoolExecutor(slots) as pool:
        prompts = [[(7 * start + slot + place) % 200 for place in range(length)] for slot in range(slots)]
        for answer in [pool.submit(complete, url, prompt, cache=True) for prompt in prompts]:
            answer.result()


def fill_batch(server: InstancePlan) -> None:
    """Send every slot of a server of embeddings or rerank an input that is as long as it takes. Raises ServerError."""
    task, slots = planned_task(server), server.endpoint.streams
    tokens = min(longest_input(server), server.context // slots) - 8
    texts = [chr(ord("a") + slot % 26) * tokens for slot in range(slots)]
    body = {"query": "a", "documents": texts} if task == "rerank" else {"input": texts}
    url = server.endpoint.url(task_path(server.endpoint, task))
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer.read()
    except OSError as error:
        raise ServerError(f"the server did not answer: {error}") from error


def _taken(pid: int) -> Counter[int]:
    """MiB that a process has of each GPU, by index."""
    index = {uuid: int(number) for number, uuid in smi("gpu", "index,uuid")}
    taken: Counter[int] = Counter()
    for uuid, process, size in smi("compute-apps", "gpu_uuid,pid,used_memory"):
        if int(process) == pid:
            taken[index[uuid]] += int(size)
    return taken


def _said(log: str) -> list[str]:
    """What an engine logs of buffers."""
    wanted = re.compile(r"buffer size|NCCL|nccl|graph splits|checkpoint|state size|KV self|pipeline|llm_load_tensors:")
    return [line[:180] for line in log.splitlines() if wanted.search(line)][:120]


def _chosen(asked: argparse.Namespace, bench: Bench) -> dict[str, Case]:
    """The servers to measure, by name."""
    if asked.drawn is not None:
        return {name: case for kind in bench.programs for name, case in drawn(kind, asked.drawn, asked.count).items()}
    usual = [name for name, case in CASES.items() if case.engine in bench.programs and name not in FILLED]
    return {name: CASES[name] for name in asked.case or usual}


class Cards:
    """Room on each GPU, taken by planned servers and given back."""

    def __init__(self, count: int) -> None:
        self.left = [ROOM] * count
        self.changed = threading.Condition()

    @contextmanager
    def taken(self, needs: Sequence[int]) -> Iterator[list[int]]:
        """As many GPUs as there are needs, with room for each, in ascending order; waits for them."""
        with self.changed:
            self.changed.wait_for(lambda: self._chosen(needs) is not None)
            chosen = self._chosen(needs) or []
            for card, need in zip(chosen, needs, strict=True):
                self.left[card] -= need
        try:
            yield chosen
        finally:
            with self.changed:
                for card, need in zip(chosen, needs, strict=True):
                    self.left[card] += need
                self.changed.notify_all()

    def _chosen(self, needs: Sequence[int]) -> list[int] | None:
        emptiest = sorted(range(len(self.left)), key=lambda card: -self.left[card])
        chosen = sorted(emptiest[: len(needs)])
        return chosen if all(self.left[card] >= need for card, need in zip(chosen, needs, strict=True)) else None


def arguments() -> argparse.Namespace:
    """What was asked on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=Path, help="folder of llama.cpp's programs")
    parser.add_argument("--ik", type=Path, help="folder of ik_llama.cpp's programs")
    parser.add_argument("--folder", type=Path, help="where models and logs are kept")
    parser.add_argument("--results", type=Path, help="file to which every row is added")
    parser.add_argument("--again", type=Path, help="such a file: print its table with what is planned now, and stop")
    parser.add_argument("--prompt", type=int, default=PROMPT, help="tokens that are read in every slot")
    parser.add_argument("--drawn", type=int, metavar="SEED", help="measure servers that are drawn by chance")
    parser.add_argument("--count", type=int, default=60, help="how many are drawn of each engine")
    parser.add_argument("--cpu", action="store_true", help="measure on the CPU, RAM alone")
    parser.add_argument("--lanes", type=int, default=6, help="servers beside each other")
    parser.add_argument("case", nargs="*")
    asked = parser.parse_args()
    if asked.again is None and (asked.folder is None or asked.results is None):
        parser.error("--folder and --results are needed")
    return asked


def main() -> int:
    """Measure the cases that were named, or all. Returns 1 if a server failed."""
    asked = arguments()
    if asked.again:
        print("\n".join(row.markdown() for row in again(asked.again)))
        return 0
    asked.folder.mkdir(parents=True, exist_ok=True)
    programs = {"llama.cpp": asked.llama, "ik_llama.cpp": asked.ik}
    gpus = [] if asked.cpu else smi("gpu", "name,memory.total,compute_cap")
    found = tuple((name, size, capability) for name, size, capability in gpus)
    bench = Bench({kind: path for kind, path in programs.items() if path}, asked.folder, found, asked.prompt)
    cases = _chosen(asked, bench)
    paths = {model: written(asked.folder, model) for model in dict.fromkeys(case.model for case in cases.values())}
    headers = {model: join_headers(read_headers(path)) for model, path in paths.items()}
    cards, lock = Cards(len(found)), threading.Lock()

    def measure(name: str) -> bool:
        case = cases[name]
        try:
            server = planned(case, paths[case.model], headers[case.model], found[: case.cards])
            holds = server.memory.holds[:-1] if server.memory else ()
            if max((each.total for each in holds), default=0) > (ROOM - SPARE) * MIB:
                print(f"{name}: left out, it needs more than {ROOM - SPARE} MiB of a GPU", flush=True)
                return True
            with cards.taken([each.total // MIB + SPARE for each in holds]) as chosen:
                row = bench.measure(name, case, chosen, server)
        except (ServerError, ValueError, OSError):
            print(f"{name}: {traceback.format_exc(limit=1)}", file=sys.stderr, flush=True)
            return False
        row["plan"] = [each.total / MIB for each in server.memory.holds] if server.memory else []
        with lock, asked.results.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(name, row["taken"], [round(each) for each in row["plan"]], row["ram"][-1].get("VmRSS"), flush=True)
        return True

    with ThreadPoolExecutor(asked.lanes) as pool:
        return 0 if all(list(pool.map(measure, cases))) else 1


if __name__ == "__main__":
    sys.exit(main())
