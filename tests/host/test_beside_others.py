"""Models that engines cut by what GPUs have free, beside servers that hold some of it; servers without a GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from box import tiny_moe
from llamaherd.checks.context import RigContext
from llamaherd.checks.placement import check_shared_gpus
from llamaherd.diagnostics.findings import Finding
from llamaherd.gguf.header import Header
from llamaherd.gguf.shards import join_headers, read_header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.estimate import estimate
from llamaherd.memory.facts import rig_facts
from llamaherd.memory.instances import placement
from llamaherd.memory.overhead import in_ram
from llamaherd.memory.placement import Placement, places_of
from tests.support import gguf_files
from tests.support.headers import header, qwen_35b

MIB = 1 << 20
OTHER = {"engine": "main", "model": "m", "context": 4096, "gpu_layers": 4, "on": ["two"], "port": 8081}


def declared(other: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    instances = {"chat": {"engine": "main", "model": "m", "context": 8192, "on": ["one", "two"], "port": 8080} | keys}
    return {
        "rig": "two",
        "connect": {"host": "two.lan"},
        "host": {"os": "ubuntu-24.04", "cpu": {"cores": 16}, "ram": "192GB"},
        "gpus": {
            "cuda": "13.0",
            "cards": {"one": {"model": "RTX 3090", "index": 0}, "two": {"model": "RTX 3060", "index": 1}},
        },
        "engines": {"main": {"kind": "llama.cpp", "ref": "b11434"}, "ik": {"kind": "ik_llama.cpp", "ref": "main"}},
        "models": {"m": {"hf": "a/m-GGUF", "quant": "Q4_K"}},
        "instances": instances | ({"other": OTHER | other} if other is not None else {}),
    }


def found(tmp_path: Path, rig: dict[str, Any], headers: dict[str, Header] | None = None) -> list[Finding]:
    file = tmp_path / "rig.yaml"
    file.write_text(yaml.safe_dump(rig, sort_keys=False), encoding="utf-8")
    document = read_yaml(file)
    return list(check_shared_gpus(RigContext(rig_facts(Rig.model_validate(document.data), headers or {}), document)))


@pytest.mark.parametrize("engine", ["main", "ik"])
@pytest.mark.parametrize("known", [True, False])
def test_cards_that_others_hold_are_named_with_parts_that_are_accepted(
    engine: str, known: bool, tmp_path: Path
) -> None:
    headers = {"m": qwen_35b()} if known else {}
    (finding,) = found(tmp_path, declared({}, engine=engine), headers)
    assert (finding.code, finding.severity) == ("LH242", "warning")
    assert "`other`" in finding.message
    parts = re.search(r"`(tensor_split: .*?)`", finding.help)
    assert parts
    assert found(tmp_path, declared({}, engine=engine, **yaml.safe_load(parts[1])), headers) == []


def test_the_parts_are_those_of_the_plan(tmp_path: Path) -> None:
    header_ = qwen_35b()
    (finding,) = found(tmp_path, declared({}), {"m": header_})
    parts = yaml.safe_load(finding.help.split("`")[1])
    plain, split = Rig.model_validate(declared({})), Rig.model_validate(declared({}, **parts))
    places = [places_of(header_, placement(rig, rig.instances["chat"], header_)) for rig in (plain, split)]
    assert places[0] == places[1]
    assert set(places[0]) == {0, 1}


@pytest.mark.parametrize(
    ("other", "keys"),
    [
        (None, {}),
        ({}, {"on": ["one"]}),
        ({}, {"split": "none"}),
        ({}, {"extra_args": ["-ts", "2,1"]}),
        ({}, {"environment": {"LLAMA_ARG_SPLIT_MODE": "none"}}),
        ({"on": []} | {"gpu_layers": None}, {}),
        ({"on": ["one", "two"], "tensor_split": [2, 1]}, {}),
    ],
)
def test_what_is_cut_by_hand_or_stands_alone_is_passed_over(
    other: dict[str, Any] | None, keys: dict[str, Any], tmp_path: Path
) -> None:
    assert [one.place for one in found(tmp_path, declared(other, **keys))] == []


def tiny(folder: Path) -> Header:
    tiny_moe.write(folder / "tiny.gguf")
    return join_headers((read_header(folder / "tiny.gguf"),))


def gemma(tokens: int, merges: int = 1) -> Header:
    return header(replace(gguf_files.gemma3(tokens=tokens), merges=merges))


@pytest.mark.parametrize(
    ("vocabulary", "context", "slots", "besides"),
    [(262_144, 8192, 1, 68), (262_144, 32768, 4, 72), (248_320, 8192, 1, 102), (0, 4096, 1, 30), (0, 16384, 4, 31)],
)
def test_a_server_without_a_card_holds_as_much_as_was_measured(
    vocabulary: int, context: int, slots: int, besides: int, tmp_path: Path
) -> None:
    """MiB besides weights, cache and buffers, just loaded: docs/gpus.md. No plan is too small, nor 64 MiB too large."""
    model = gemma(vocabulary) if vocabulary else tiny(tmp_path)
    placed = Placement(context=context, parallel=slots, devices=0)
    assert estimate(model, placed).host.total > 0
    assert 0 <= in_ram(model, placed) / MIB - besides < 64
