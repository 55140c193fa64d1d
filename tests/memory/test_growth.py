"""What comes to a server's RAM while it works: as it was measured, as it is shown, and what keeps it in bounds."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.gpu_rigs_cases import CASES, MODELS
from benchmarks.gpu_rigs_rows import PROMPT
from benchmarks.gpu_servers import ANSWER
from llamaherd.checks.context import RigContext
from llamaherd.checks.placement import check_memory
from llamaherd.diagnostics.findings import Finding
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.facts import rig_facts
from llamaherd.memory.instances import placement
from llamaherd.memory.overhead import Growth, checkpoint_bytes, ram_growth, saved_prompt_bytes
from llamaherd.memory.placement import CACHE_RAM, Placement
from tests.support.headers import gemma3, header, qwen_35b

MIB = 1 << 20
MEASURED = Path(__file__).parents[1] / "data" / "gpu_rigs_h100.jsonl"
ROWS = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
"""Servers on H100s that read three prompts in every slot, each time others: RAM at the start and after each."""


def as_measured(case: str) -> tuple[Header, Placement]:
    keys = CASES[case].keys
    kv = str(keys.get("kv", "f16"))
    return header(MODELS[CASES[case].model]), Placement(
        engine="ik_llama.cpp" if "ik-" in case else "llama.cpp",
        context=int(keys["context"]),
        parallel=int(keys.get("parallel", 1)),
        type_k=kv,
        type_v=kv,
        mtp=int(keys.get("draft", {}).get("mtp", 0)),
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["case"]))
def test_servers_grew_by_a_saved_prompt_and_its_checkpoints(row: dict[str, Any]) -> None:
    """Of a model with attention alone, by the prompt; of others, by a whole number of checkpoints besides."""
    model, placed = as_measured(row["case"])
    taken = row["ram"][-1]["RssAnon"] - row["ram"][-2]["RssAnon"]
    tokens = min(PROMPT, placed.context // placed.parallel - 100) + ANSWER
    prompts = placed.parallel * saved_prompt_bytes(model, placed, tokens) / MIB
    each = checkpoint_bytes(model, placed, tokens) / MIB
    count = round((taken - prompts) / each) if each else 0
    assert count in range(2 * placed.parallel, 4 * placed.parallel + 1) if each else count == 0
    assert prompts + count * each == pytest.approx(taken, rel=0.025, abs=8)


def test_windows_states_and_attention_have_checkpoints_of_their_own() -> None:
    attention = MODELS["Llama 8B"]
    assert ram_growth(header(attention), Placement(context=32768, parallel=4)) == Growth(CACHE_RAM, 0)
    window, state = Placement(context=32768, parallel=2), Placement(context=262144)
    rows = 15 * 256 * 2 * 2  # a head of 256, keys and values in 16 bits, in those of 18 layers that see a window
    assert ram_growth(gemma3(), window).checkpoints == 2 * 32 * rows * 512
    assert ram_growth(gemma3(), Placement(context=32768, swa_full=True)).checkpoints == 0
    assert ram_growth(gemma3(), Placement(engine="ik_llama.cpp", context=32768)).checkpoints == 0
    each = checkpoint_bytes(qwen_35b(mtp=False), state, 1000)
    assert ram_growth(qwen_35b(mtp=False), state).checkpoints == 32 * each
    assert checkpoint_bytes(qwen_35b(mtp=False), state, 200_000) == each


def test_a_draft_keeps_its_whole_cache_with_every_checkpoint() -> None:
    """A head's context has attention alone, of which nothing can be left out."""
    plain, drafting = Placement(context=65536), Placement(context=65536, mtp=2)
    for tokens in (1000, 60_000):
        more = checkpoint_bytes(qwen_35b(), drafting, tokens) - checkpoint_bytes(qwen_35b(), plain, tokens)
        assert more == tokens * 2 * 256 * 2 * 2
    other = checkpoint_bytes(qwen_35b(), plain, 1000, drafting=header(MODELS["Llama 8B"]))
    assert other - checkpoint_bytes(qwen_35b(), plain, 1000) == 1000 * 32 * 8 * 128 * 2 * 2


def test_the_fork_keeps_one_prompt_however_large() -> None:
    model = header(MODELS["Llama 8B"])
    placed = Placement(engine="ik_llama.cpp", context=262144, cache_ram=MIB)
    assert ram_growth(model, placed).prompts == 262144 * 32 * 8 * 128 * 2 * 2
    assert ram_growth(model, Placement(engine="ik_llama.cpp", context=262144, cache_ram=0)).prompts == 0
    assert ram_growth(model, Placement(context=262144, cache_ram=MIB)).prompts == MIB


def declared(ram: str, *instances: dict[str, Any], flags: str = "b11434") -> dict[str, Any]:
    return {
        "rig": "box",
        "connect": {"host": "box.lan"},
        "host": {"os": "debian-13", "cpu": {"cores": 8}, "ram": ram},
        "engines": {"main": {"kind": "llama.cpp", "ref": flags}, "ik": {"kind": "ik_llama.cpp", "ref": "main"}},
        "models": {"m": {"hf": "a/m-GGUF", "quant": "Q4_K"}},
        "instances": {
            f"chat{number}": {"engine": "main", "model": "m", "context": 8192, "port": 8080 + number} | keys
            for number, keys in enumerate(instances)
        },
    }


def found(tmp_path: Path, rig: dict[str, Any], model: Header | None = None) -> list[Finding]:
    file = tmp_path / "rig.yaml"
    file.write_text(yaml.safe_dump(rig, sort_keys=False), encoding="utf-8")
    document = read_yaml(file)
    return list(
        check_memory(RigContext(rig_facts(Rig.model_validate(document.data), {"m": model or gemma3()}), document))
    )


@pytest.mark.parametrize(
    ("keys", "limits"),
    [
        ({"extra_args": ["--cache-ram", "2048"]}, (2048 * MIB, 32)),
        ({"extra_args": "-cram 0 -ctxcp 4"}, (0, 4)),
        ({"extra_args": "-cram -1"}, (None, 32)),
        ({"environment": {"LLAMA_ARG_CACHE_RAM": "512", "LLAMA_ARG_CTX_CHECKPOINTS": "0"}}, (512 * MIB, 0)),
        ({"engine": "ik", "extra_args": "--ctx-checkpoints 3 -cram 100"}, (100 * MIB, 3)),
        ({}, (CACHE_RAM, 32)),
    ],
)
def test_limits_are_those_that_the_server_is_told(keys: dict[str, Any], limits: tuple[int | None, int]) -> None:
    rig = Rig.model_validate(declared("64GB", keys))
    placed = placement(rig, rig.instances["chat0"], gemma3())
    assert (placed.cache_ram, placed.checkpoints) == limits


def test_what_fits_today_and_not_tomorrow_is_said(tmp_path: Path) -> None:
    assert found(tmp_path, declared("64GB", {}, {})) == []
    (finding,) = found(tmp_path, declared("16GB", {}, {}))
    assert (finding.code, finding.severity) == ("LH240", "warning")
    assert "`chat0` and `chat1`" in finding.help


def test_servers_without_a_limit_are_said_however_much_there_is(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, declared("1000GB", {"extra_args": "--cache-ram -1"}, {}))
    assert "without a limit" in finding.message
    assert "of `chat0`," in finding.help


def test_what_does_not_even_fit_at_the_start_is_said_as_that(tmp_path: Path) -> None:
    assert [one.code for one in found(tmp_path, declared("4GB", {}), qwen_35b(mtp=False))] == ["LH151"]


@pytest.mark.parametrize(
    ("ram", "count", "model"),
    [
        ("9GB", 1, "gemma"),
        ("16GB", 3, "gemma"),
        ("4GB", 1, "gemma"),
        ("3GB", 2, "gemma"),
        ("30GB", 1, "qwen"),
        ("26GB", 1, "qwen"),
    ],
)
def test_the_way_out_keeps_servers_in_bounds(ram: str, count: int, model: str, tmp_path: Path) -> None:
    about = gemma3() if model == "gemma" else qwen_35b(mtp=False)
    rig = declared(ram, *[{} for _ in range(count)])
    (finding,) = found(tmp_path, rig, about)
    assert finding.code == "LH240"
    for name, instance in rig["instances"].items():
        if f"`{name}`" in finding.help:
            instance["extra_args"] = shlex.split(finding.help.split("`")[1])
    assert found(tmp_path, rig, about) == []


def test_a_limit_that_is_low_enough_is_left_alone(tmp_path: Path) -> None:
    low = {"extra_args": "--cache-ram 256 --ctx-checkpoints 1"}
    (finding,) = found(tmp_path, declared("8GB", {}, low))
    assert "`chat1`" not in finding.help
