"""Servers that were measured, beside what is planned for them now."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu_rigs_cases import CASES, MODELS, Case
from benchmarks.gpu_servers import ANSWER, free_port
from llamaherd.gguf.header import Header
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.inventory.schema import Rig
from llamaherd.memory.facts import rig_facts
from llamaherd.memory.instances import placement
from llamaherd.memory.overhead import scratch_memory
from llamaherd.memory.placement import pad
from llamaherd.plan import InstancePlan, ModelFile, ModelPlan
from llamaherd.reference.cards import CARDS
from llamaherd.scaffold import plain_name
from roles.serve.plan import plan_instance
from tests.support.gguf_files import write

MIB = 1 << 20
PROMPT = 3000
"""Tokens that are read in every slot, unless it is said, three times over, each time others."""


def planned(case: Case, path: Path, header: Header, cards: Sequence[Sequence[str]]) -> InstancePlan:
    """The plan of a case's server, on GPUs of these names, sizes and capabilities."""
    model = ModelPlan(name="model", folder=str(path.parent), files=(ModelFile(name=path.name, sha256="0" * 64),))
    rig = rig_of(case, path, cards)
    return plan_instance(rig, rig_facts(rig, {"model": header}), "case", {}, {}, {"model": model})


def rig_of(case: Case, path: Path, cards: Sequence[Sequence[str]]) -> Rig:
    """An inventory with one server, on GPUs of these names, sizes and capabilities."""
    known = {
        f"card{index}": {
            "model": next((model for model in CARDS if model in name.split()), plain_name(name)),
            "memory": f"{size}MiB",
            "architecture": capability.replace(".", ""),
        }
        for index, (name, size, capability) in enumerate(cards)
    }
    even = {"tensor_split": [1] * case.cards} if known and case.cards > 1 else {}
    keys = {**even, "threads": 8, "extra_args": ["-lv", "4"] if case.engine == "llama.cpp" else [], **case.keys}
    instance = {"engine": "engine", "model": "model", "port": free_port(), "on": list(known), **keys}
    ref = "b11434" if case.engine == "llama.cpp" else "67268c8fd"
    return Rig.model_validate(
        {
            "rig": "bench",
            "connect": "local",
            "host": {"os": "ubuntu-24.04", "cpu": {"cores": 64}, "ram": "512GiB"},
            **({"gpus": {"cuda": "13.0", "cards": known}} if known else {}),
            "engines": {"engine": {"kind": case.engine, "ref": ref}},
            "models": {"model": {"file": str(path), "sha256": "0" * 64}},
            "instances": {"case": instance},
        }
    )


@dataclass(frozen=True)
class Row:
    """One server as it was measured, and as it is planned now, in MiB; the RAM is that of a server just started.

    `planned` is for so many tokens in its cache as when it was measured, `full` for all that there is room for.
    """

    name: str
    case: Case
    taken: tuple[int, ...]
    planned: tuple[float, ...]
    full: tuple[float, ...]
    ram: int
    planned_ram: float

    @property
    def off(self) -> tuple[float, ...]:
        """What is planned too much on each GPU, as part of what was taken; less than 0 for too little."""
        return tuple(mine / real - 1 for mine, real in zip(self.planned, self.taken, strict=True))

    def markdown(self) -> str:
        """A line of the table."""
        plan = " + ".join(f"{each:,.0f}" for each in self.planned)
        taken = " + ".join(f"{each:,}" for each in self.taken)
        off = ", ".join(f"{each:+.1%}" for each in self.off)
        engine = "ik_llama.cpp: " if self.case.engine == "ik_llama.cpp" else ""
        return f"| {engine}{self.case} | {plan} | {taken} | {off} | {self.planned_ram:,.0f} | {self.ram:,} |"


def again(results: Path) -> list[Row]:
    """What was measured before, beside what is planned now."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    headers: dict[str, Header] = {}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            case = Case(**row["server"]) if "server" in row else CASES[row["case"]]
            if case.model not in headers:
                headers[case.model] = join_headers(read_headers(written(Path(folder), case.model)))
            header = headers[case.model]
            plan = planned(case, Path("/model.gguf"), header, row["cards"])
            *cards, ram = [each.total / MIB for each in plan.memory.holds] if plan.memory else [0.0]
            still = _still_to_come(case, header, row["cards"], row.get("prompt", PROMPT)) / MIB
            there = tuple(card - still for card in cards)
            resident = row["ram"][0]["VmRSS"]
            found.append(Row(row["case"], case, tuple(row["taken"]), there, tuple(cards), resident, ram))
    return found


def _still_to_come(case: Case, header: Header, cards: Sequence[Sequence[str]], prompt: int) -> int:
    """Bytes of scratch memory that come when the cache is full, after a prompt of so many tokens in every slot."""
    rig = rig_of(case, Path("/model.gguf"), cards)
    placed = placement(rig, rig.instances["case"], header)
    slots = rig.instances["case"].parallel
    used = min(prompt, placed.context // slots - 100) + ANSWER
    cells = pad(used * slots if placed.does.slots_share_cells else used)
    return scratch_memory(header, placed, placed.cells) - scratch_memory(header, placed, cells)


def written(folder: Path, name: str) -> Path:
    """A model's file in the folder, a header and a hole, which is written unless it is there."""
    path = folder / f"{re.sub('[^A-Za-z0-9]+', '-', name)}.gguf"
    if not path.exists():
        write(MODELS[name], path)
    return path
