"""What the engines on the box say of memory, beside our arithmetic and beside what a server really holds."""

import re
from pathlib import Path

import pytest

from llamaherd.gguf.shards import join_headers, read_header
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock, LockedLocal
from llamaherd.pipeline.engine_estimate import EngineEstimates, query_engines
from llamaherd.pipeline.fleet_files import load_fleet
from llamaherd.plan import Estimate, Holds, Plan
from tests.box.bench import Bench
from tests.support import gguf_files
from tests.support.gguf_files import QWEN_MERGES, QWEN_TOKENS, qwen
from tests.support.ours import plan

MIB = 1 << 20
CLOSE = 1.5 * MIB
"""The tool rounds down to MiB."""
HEALTH = "http://127.0.0.1:8080/health"
LEFT = "ls -A /var/lib/llamaherd; find /var/lib/llamaherd -name '*.gguf' -printf '%p %T@ %C@\\n' | sort"


def locked(rig: Rig) -> Lock:
    """The headers of the rig's files, of which none is hashed: one of them is large, and a hole."""
    files = []
    for model in rig.models.values():
        assert model.file
        header = read_header(model.file)
        files.append(
            LockedLocal(
                sha256=str(model.sha256),
                size=model.file.stat().st_size,
                data_offset=header.data_offset,
                header=join_headers((header,)),
            )
        )
    return Lock(files=tuple(files))


def asked(bench: Bench) -> tuple[Plan, EngineEstimates]:
    """The plan of the rig as its file declares it now, and what the engines say of it."""
    rig = load_fleet(bench.inventory).rigs["box"]
    lock = locked(rig)
    planned = plan(rig, lock)
    return planned, query_engines(rig, planned, lock, Remote(rig.connect))


def ram(estimate: Estimate | str | None) -> Holds:
    """What the RAM holds; on this host there is nothing else."""
    assert isinstance(estimate, Estimate), estimate
    (holds,) = estimate.holds
    return holds


def agree(engine: Holds, ours: Holds) -> None:
    """Both say the same of weights, cache and state."""
    assert engine.weights == pytest.approx(ours.weights, abs=CLOSE)
    assert engine.kv + engine.state == pytest.approx(ours.kv + ours.state, abs=CLOSE)
    assert engine.draft == ours.draft


def test_engine_and_arithmetic_agree(converged: Bench) -> None:
    planned, said = asked(converged)
    ours = {instance.name: instance.memory for instance in planned.instances}
    assert set(said) == set(ours) == {"chat", "drafter", "ik-chat"}
    agree(ram(said["chat"]), ram(ours["chat"]))
    agree(ram(said["drafter"]), ram(ours["drafter"]))
    assert ram(said["drafter"]).draft > 0
    assert said["ik-chat"] == "ik_llama.cpp has no llama-fit-params"


def test_a_server_really_holds_that_much(converged: Bench) -> None:
    """One that has just started: what it saves of prompts while it works is no part of that figure."""
    _, said = asked(converged)
    converged.sh("systemctl restart llama-chat && curl -sf --retry 60 --retry-delay 1 --retry-all-errors " + HEALTH)
    status = converged.sh("cat /proc/$(systemctl show -P MainPID llama-chat)/status")
    held = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert held, status
    estimate = ram(said["chat"])
    assert estimate.total - 96 * MIB < int(held[1]) * 1024 < estimate.total + 64 * MIB


def test_a_model_that_is_not_there_is_sized_by_its_header(bench: Bench, tmp_path: Path) -> None:
    """A 35B, which this host could not even store, with a head to draft with and the whole vocabulary."""
    (path,) = gguf_files.write(qwen(tokens=QWEN_TOKENS, merges=QWEN_MERGES), tmp_path / "35b.gguf")
    rig = bench.rig()
    rig["host"]["ram"] = "64GB"
    rig["models"]["35b"] = {"file": str(path), "sha256": "35" * 32}
    rig["instances"]["large"] = {
        "engine": "main",
        "model": "35b",
        "context": 32768,
        "kv": "q8_0",
        "draft": {"mtp": 2},
        "port": 8089,
    }
    bench.declare(rig)
    left, running = bench.sh(LEFT), bench.running()
    planned, said = asked(bench)
    ours = ram(next(each.memory for each in planned.instances if each.name == "large"))
    agree(ram(said["large"]), ours)
    assert ours.weights > 19_000 * MIB
    assert bench.sh(LEFT) == left
    bench.unchanged(running)


def test_an_engine_that_is_not_built_cannot_be_asked(bench: Bench) -> None:
    rig = bench.rig()
    rig["engines"]["main"]["options"] |= {"GGML_CPU_REPACK": False}
    bench.declare(rig)
    _, said = asked(bench)
    assert said["chat"] == said["drafter"] == "engine `main` is not built on box yet: run `herd up box`"
