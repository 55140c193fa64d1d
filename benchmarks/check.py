"""What `herd check` takes for a large fleet: seconds in all, and where they go.

    .venv/bin/python benchmarks/check.py [RIGS] [ROUNDS]

It makes a folder of rigs (200) that differ in GPUs, models and instances, a tenth of which extend another one, with
`defaults.yaml` and a lock that holds the models' headers. Printed are the seconds of the whole command in a process of
its own, the median of so many rounds (5), and those of each phase in this process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from llamaherd import lock
from llamaherd.checks.context import RigCheck, RigContext
from llamaherd.checks.registry import CHECKS
from llamaherd.cli.common import FAILED
from llamaherd.gguf.header import Header, ParameterValue, TensorGroup
from llamaherd.inventory.schema import Model, Rig
from llamaherd.inventory.yaml_file import DEFAULTS, inherited, read_yaml
from llamaherd.memory.facts import rig_facts

T = TypeVar("T")

HERD = Path(sys.executable).parent / "herd"
CARDS = ("RTX 3090", "RTX 3090 Ti", "RTX 4090", "RTX 5090", "RTX 5090M")
COMMON = {
    "engines": {
        "main": {"kind": "llama.cpp", "ref": "b11434"},
        "ik": {"kind": "ik_llama.cpp", "ref": "cd" * 20, "flags": "67268c8fd"},
    },
    "instance_defaults": {"parallel": 1, "listen": "127.0.0.1"},
}


def declared(number: int) -> dict[str, Any]:
    """The n-th rig: one to six GPUs, three models, two to five instances."""
    own = {"rig": f"rig{number}", "connect": {"host": f"rig{number}.lan", "user": "tom"}}
    if number % 10 == 9:
        return {**own, "extends": f"rig{number - 1}", "instances": {"chat0": {"context": 4096 + number}}}
    count = 1 + number % 6
    cards = {
        f"card{n}": {"model": CARDS[(number + n) % len(CARDS)], "uuid": f"GPU-{number:04}-{n}"} for n in range(count)
    }
    instances = {
        f"chat{n}": {
            "engine": "ik" if n % 2 else "main",
            "model": ("35b", "122b", "small")[n % 3],
            "on": [f"card{n % count}"],
            "context": 8192 * (n + 1),
            "kv": {"k": "q8_0", "v": "q8_0"} if n % 2 else "q8_0",
            "port": 8000 + n,
            "sampling": {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0},
            "extra_args": ["--metrics"],
        }
        for n in range(2 + number % 4)
    }
    return {
        **own,
        "host": {"os": "ubuntu-24.04", "cpu": {"cores": 8 + number % 24}, "ram": f"{64 + number}GB"},
        "gpus": {"cuda": "13.0", "cards": cards},
        "models": {
            "35b": {"hf": "unsloth/Qwen3.6-35B-A3B-MTP-GGUF", "quant": "UD-Q4_K_XL"},
            "122b": {"hf": "unsloth/Qwen3.5-122B-A10B-GGUF", "files": f"UD-Q{3 + number % 4}_K_XL/*.gguf"},
            "small": {"hf": "bartowski/google_gemma-3-4b-it-GGUF", "quant": "Q4_K_M"},
        },
        "instances": instances,
    }


def header_that_fits() -> Header:
    """48 layers with 16 experts each, about 3 GB: the fleet is one that fits."""
    layers = "0-47"
    groups = [
        TensorGroup(name="token_embd.weight", type="Q4_K", shape=(2048, 151936)),
        TensorGroup(name="output.weight", type="Q6_K", shape=(2048, 151936)),
        *(
            TensorGroup(name=f"{name}.weight", type=kind, shape=shape, layers=layers)
            for name, kind, shape in (
                ("attn_norm", "F32", (2048,)),
                ("attn_q", "Q4_K", (2048, 4096)),
                ("attn_k", "Q4_K", (2048, 512)),
                ("attn_v", "Q6_K", (2048, 512)),
                ("attn_output", "Q4_K", (4096, 2048)),
                ("ffn_gate_inp", "F32", (2048, 16)),
                ("ffn_gate_exps", "Q4_K", (2048, 768, 16)),
                ("ffn_up_exps", "Q4_K", (2048, 768, 16)),
                ("ffn_down_exps", "Q6_K", (768, 2048, 16)),
            )
        ),
    ]
    parameters: dict[str, ParameterValue] = {
        "block_count": 48,
        "context_length": 262144,
        "embedding_length": 2048,
        "attention.head_count": 32,
        "attention.head_count_kv": 4,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "expert_count": 16,
        "expert_used_count": 8,
    }
    return Header(architecture="qwen3moe", vocabulary=151936, parameters=parameters, tensors=tuple(groups))


def locked(model: Model) -> lock.LockedModel:
    """The model as if the hub had been asked."""
    header = header_that_fits()
    shard = lock.LockedFile(path="model.gguf", size=sum(each.bytes for each in header.each), sha256="ab" * 32)
    return lock.LockedModel(
        repo=model.hf or "",
        revision=model.revision,
        files=model.files,
        commit="cd" * 20,
        endpoint="https://hub.lan",
        shards=(shard,),
        header=header,
    )


def make(folder: Path, count: int) -> lock.Lock:
    """Write so many rigs, their defaults and their lock."""
    (folder / DEFAULTS).write_text(yaml.safe_dump(COMMON, sort_keys=False))
    models: dict[tuple[str | None, str, str], Model] = {}
    for number in range(count):
        data = declared(number)
        (folder / f"{data['rig']}.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
        for value in data.get("models", {}).values():
            model = Model.model_validate(value)
            models[model.hf, model.revision, model.files] = model
    whole = lock.Lock(models=tuple(map(locked, models.values())))
    lock.write_lock(folder / "herd.lock", whole)
    return whole


def timed(what: str, work: Callable[[], T]) -> T:
    """The result of `work`; prints the seconds it took."""
    started = time.perf_counter()
    done = work()
    print(f"{what:20} {time.perf_counter() - started:6.2f} s")
    return done


def command(folder: Path) -> float:
    """Seconds of `herd check` as a user runs it."""
    started = time.perf_counter()
    ended = subprocess.run([HERD, "-i", folder, "check"], check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if ended.returncode not in (0, FAILED):
        sys.exit(ended.stderr)
    return seconds


def checked(check: RigCheck, subjects: list[RigContext]) -> int:
    """How much one check finds in all rigs."""
    return sum(1 for subject in subjects for _ in check(subject))


def phases(folder: Path, known: lock.Lock) -> None:
    """Print what each phase takes, one after the other over all rigs."""
    timed("lock", lambda: lock.read_lock_file(folder / "herd.lock"))
    documents = timed("YAML", lambda: [read_yaml(file) for file in sorted(folder.glob("rig*.yaml"))])
    defaults = read_yaml(folder / DEFAULTS)
    others = {str(document.data["rig"]): document for document in documents}
    whole = timed("inheritance", lambda: [inherited(document, others, defaults) for document in documents])
    rigs = timed(
        "models", lambda: [Rig.model_validate(document.data, context={"folder": folder}) for document in whole]
    )
    subjects = []
    for rig, document in zip(rigs, whole, strict=True):
        headers = {name: header for name, model in rig.models.items() if (header := known.header(model))}
        subjects.append(RigContext(rig_facts(rig, headers), document))
    for check in CHECKS:
        timed(f"{check}".split()[1], partial(checked, check, subjects))


def main() -> None:
    """Make the fleet, check it, and print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known = make(folder, count)
        seconds = [command(folder) for _ in range(rounds)]
        print(
            f"{count} rigs: {statistics.median(seconds):.2f} s, {min(seconds):.2f}-{max(seconds):.2f} in {rounds} runs"
        )
        phases(folder, known)


if __name__ == "__main__":
    main()
