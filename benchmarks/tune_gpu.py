"""What a search comes to on a machine with GPUs, without systemd: servers are processes of this program.

    .venv/bin/python -m benchmarks.tune_gpu --server BUILD/bin/llama-server --folder /dev/shm/models \\
        --results rows.jsonl [NAME...]

A case is an instance as somebody has declared it; the model has its shape and is filled with noise, so a draft is
never accepted. It needs the extra `tune`. docs/measurements/tune.md has what was found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.gpu_energy import counted
from benchmarks.gpu_servers import ServerError, free_port, running, smi, written
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.inventory.schema import Rig
from llamaherd.measure.client.http_client import Failure, Patience, StreamedResponse, Target, request_json, timings_of
from llamaherd.measure.client.requests import RequestSpec
from llamaherd.measure.results.result import Start
from llamaherd.measure.trials.trial import NotStartedError, Variant, VariantName
from llamaherd.measure.tune.candidate import Candidate, Cost, Objective, Outcome, Precision, Purpose, with_keys
from llamaherd.measure.tune.evaluation import Evaluation
from llamaherd.measure.tune.journal import Head, SearchJournal, keys_of
from llamaherd.measure.tune.optuna_model import parzen
from llamaherd.measure.tune.result import result_json, search_result
from llamaherd.measure.tune.search import HEAD, SearchedInstance, space_of
from llamaherd.measure.tune.show import print_result
from llamaherd.measure.tune.tuning import Tuning
from llamaherd.memory.facts import rig_facts
from llamaherd.plan import ModelFile, ModelPlan
from llamaherd.scaffold import plain_name
from roles.serve.plan import plan_instance

_PATIENCE = Patience(first=300, silence=300, total=300)
_LETTERS = 4


@dataclass(frozen=True)
class Case:
    """An instance to be tuned, on a GPU of which something else holds `reserved`; for what, and for so many seconds."""

    model: str
    keys: Mapping[str, Any]
    reserved: str | None = None
    budget: float = 190
    purpose: Purpose = "turn"


CASES: Mapping[str, Case] = {
    "defaults": Case("35B-A3B Q3_K", {"context": 32_768}, budget=260),
    "recipe": Case(
        "35B-A3B Q3_K", {"context": 32_768, "kv": "q4_0", "batch": 512, "ubatch": 512, "draft": {"mtp": 3}}, budget=260
    ),
    # As if the GPU had 12 GiB.
    "small": Case("35B-A3B Q3_K", {"context": 32_768, "experts_on_cpu": "100%"}, "68GiB", 300),
    "frugal": Case("35B-A3B Q3_K", {"context": 32_768, "draft": {"mtp": 3}}, budget=260, purpose="efficiency"),
    # Nothing to be found: they are there to be measured by benchmarks/boots.py.
    "dense": Case("70B Q4_K", {"context": 32_768}),
    "half-dense": Case("half of 70B Q4_K", {"context": 32_768}),
    "fifth-dense": Case("fifth of 70B Q4_K", {"context": 32_768}),
    "quick": Case("small", {"context": 4096, "draft": {"mtp": 2}}, budget=20),
}


def main() -> int:
    """Tune the cases that are named, or all but the last four."""
    parser = argparse.ArgumentParser(description="Search on a machine with GPUs.")
    parser.add_argument("names", nargs="*", default=[*CASES][:-4])
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    print("; ".join(smi("gpu", "name,memory.total,driver_version")[0]), flush=True)
    for name in asked.names:
        said = tuned(name, CASES[name], asked.server, asked.folder)
        if asked.results:
            with asked.results.open("a") as stream:
                stream.write(json.dumps({"case": name, **said}) + "\n")
    return 0


def tuned(name: str, case: Case, server: Path, folder: Path) -> dict[str, Any]:
    """Search one case; what was found, as machines read it."""
    path = written(folder, case.model)
    known = SearchedInstance(rig_of(case, path), "case", {"model": join_headers(read_headers(path))})
    space, start = space_of(known, judged=False)
    servers = Servers(server, folder / f"{name}.log", known, path)
    aim = Objective(purpose=case.purpose)

    def drafts(candidate: Candidate) -> bool:
        return candidate[HEAD] is not None

    gauge = counted if aim.of_energy else None
    evaluation = Evaluation(servers, servers.variant, aim, known.instance.context, drafts, gauge=gauge)
    head = Head(
        llamaherd="0",
        rig="bench",
        instance="case",
        began=_stamp(),
        identity="0" * 16,
        aim=aim,
        declared=keys_of(start),
    )
    with tempfile.TemporaryDirectory() as results, SearchJournal.begin(Path(results), head) as journal:
        Tuning(evaluation, journal, space, start, case.budget, Lines(aim), _stamp, parzen).run()
        print(f"{name}: {case}", flush=True)
        end = search_result(journal.search, start)
        print_result(end, "case", Console(width=200))
        trials = [each.model_dump(mode="json", exclude_defaults=True) for each in journal.search.trials]
        return {**result_json(end), "trials": trials}


@dataclass
class Servers:
    """Candidates as processes of this one, one at a time, on a GPU of this number."""

    program: Path
    log: Path
    known: SearchedInstance
    path: Path
    gpu: int = 0
    _placed: Variant | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def variant(self, candidate: Candidate, _load_seconds: int | None) -> Variant:
        """A candidate as it is planned."""
        instance = with_keys(self.known.instance, candidate)
        rig = self.known.rig.model_copy(update={"instances": {"case": instance}})
        model = ModelPlan(
            name="model", folder=str(self.path.parent), files=(ModelFile(name=self.path.name, sha256="0" * 64),)
        )
        return Variant(
            "C", "case", plan_instance(rig, rig_facts(rig, self.known.headers), "case", {}, {}, {"model": model})
        )

    def place(self, variant: Variant) -> None:
        """Put a candidate in the place of the one before."""
        self._placed = variant

    def start(self, _name: VariantName) -> Start:
        """Start it. Raises NotStartedError."""
        assert self._placed
        began = time.monotonic()
        environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(self.gpu)}
        try:
            self._stack.enter_context(running(self.program, self._placed.instance, self.log, environment))
        except ServerError as error:
            raise NotStartedError("case", str(error)) from None
        return Start(ready_seconds=round(time.monotonic() - began, 2))

    def stop(self) -> None:
        """Stop whichever runs."""
        self._stack.close()

    def request(self, wanted: RequestSpec) -> StreamedResponse | Failure:
        """One answer by llama.cpp's own API: what noise writes are tokens, and no text that a chat could have."""
        assert self._placed
        target = Target(f"http://127.0.0.1:{self._placed.instance.endpoint.port}", None)
        prompt = [(place * 7 + (wanted.salt or 0) * 31) % 997 + 100 for place in range(self.count(wanted.text))]
        body = {"prompt": prompt, "n_predict": wanted.tokens, "ignore_eos": True, "cache_prompt": False}
        found = request_json(target, "/completion", body, _PATIENCE)
        if isinstance(found, Failure):
            return found
        told = found.value["timings"] if isinstance(found.value, dict) else {}
        timings = timings_of(told)
        return StreamedResponse(
            connect_ms=0.1,
            first_token_ms=timings.prompt_ms or found.total_ms,
            last_token_ms=found.total_ms,
            total_ms=found.total_ms,
            pieces=(),
            text="",
            finish="length",
            timings=timings,
            usage=None,
        )

    def count(self, text: str) -> int:
        """Tokens that stand for a text."""
        return max(16, len(text) // _LETTERS)

    def clock(self) -> float:
        """Seconds."""
        return time.monotonic()


class Lines:
    """A line for each candidate."""

    def __init__(self, aim: Objective) -> None:
        self._aim, self._head = aim, ""

    def began(self, number: int, seconds_left: float) -> None:
        """Its number, and the time that is left."""
        self._head = f"{number:>3} {seconds_left:>4.0f} s"

    def ended(self, candidate: Candidate, outcome: Outcome, _best: float | None, _cost: Cost | None) -> None:
        """What came of it."""
        came = f"{outcome.why}: {outcome.says}" if outcome.score is None else self._aim.shown(outcome.score)
        print(f"{self._head}  {came:<14}  {candidate}", flush=True)

    def judging(self, precision: Precision) -> None:
        """Nothing is declared that is to be judged."""

    def confirming(self, count: int, number: int) -> None:
        """A round of the end begins."""
        print(f"round {number}, of {count}", flush=True)

    def deepening(self, candidate: Candidate, depth: int) -> None:
        """Do nothing: the full depth is not measured here."""

    def limiting(self, watts: int, number: int) -> None:
        """Do nothing: power limits are not measured here."""


def rig_of(case: Case, path: Path) -> Rig:
    """An inventory with this machine, its first GPU, and one server."""
    name, memory, capability = smi("gpu", "name,memory.total,compute_cap")[0]
    card = {"model": plain_name(name), "memory": f"{memory}MiB", "architecture": capability.replace(".", "")}
    if case.reserved:
        card["reserved"] = case.reserved
    cores = int(subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout)
    return Rig.model_validate(
        {
            "rig": "bench",
            "connect": "local",
            "host": {
                "os": "ubuntu-24.04",
                "cpu": {"cores": cores},
                "ram": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            },
            "gpus": {"cuda": "13.0", "cards": {"card": card}},
            "engines": {"llama": {"kind": "llama.cpp", "ref": "b11434"}},
            "models": {"model": {"file": str(path), "sha256": "0" * 64}},
            "instances": {
                "case": {"engine": "llama", "model": "model", "on": ["card"], "port": free_port(), **case.keys}
            },
        }
    )


def _stamp() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


if __name__ == "__main__":
    sys.exit(main())
