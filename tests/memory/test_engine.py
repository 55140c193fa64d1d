"""The arithmetic against what llama.cpp itself says: figures captured by benchmarks/memory.py, in tests/data."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory import computing, kept
from llamaherd.gguf.header import Header
from llamaherd.memory import Placement, estimate
from llamaherd.pipeline.engine_estimate import MIB, parse_figures, parse_server_log, without_draft

CAPTURED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "memory_engine.json").read_text(encoding="utf-8")
)


@cache
def header(name: str) -> Header:
    return Header.model_validate(CAPTURED["models"][name])


def named(row: dict[str, Any]) -> str:
    said = ",".join(f"{key}={value}" for key, value in row["placement"].items() if key != "devices")
    return f"{row['model']}:{said}"


@pytest.mark.parametrize("row", CAPTURED["fit_params"], ids=named)
def test_as_the_engine_computes(row: dict[str, Any]) -> None:
    """The tool rounds each figure down to whole MiB."""
    placement = without_draft(Placement(**row["placement"]))
    engine, ours = parse_figures(row["printed"]).host, estimate(header(row["model"]), placement).host
    assert engine.weights <= ours.weights <= engine.weights + MIB + engine.weights // 1000
    assert engine.context <= ours.context < engine.context + MIB
    assert kept(estimate(header(row["model"]), placement)) == pytest.approx(
        kept(parse_figures(row["printed"])), rel=0.01
    )
    assert abs(ours.compute - engine.compute) <= max(25 * MIB, 0.03 * engine.compute)


@pytest.mark.parametrize("row", CAPTURED["server"], ids=named)
def test_as_a_server_allocates(row: dict[str, Any]) -> None:
    """With a draft too, which the tool cannot be asked for."""
    placement = Placement(**row["placement"])
    ours, engine = estimate(header(row["model"]), placement), parse_server_log("\n".join(row["printed"]), 0)
    assert kept(ours) == pytest.approx(kept(engine), rel=0.01)
    assert ours.host.kv + ours.host.draft.kv == pytest.approx(engine.host.kv, abs=MIB / 10)
    assert ours.host.state + ours.host.draft.state == pytest.approx(engine.host.state, abs=MIB / 10)
    model, draft = computing(row["printed"])
    assert abs(ours.host.compute / MIB - model) <= 12
    assert abs(ours.host.draft.compute / MIB - draft) <= 25


def test_what_the_figures_are_of() -> None:
    """Both shapes of rigs, Gemma 3, dense Llama; every cache type, context and number of slots; drafts."""
    placements = [Placement(**row["placement"]) for row in CAPTURED["fit_params"] + CAPTURED["server"]]
    assert len(placements) >= 30
    assert {"f16", "q8_0", "q4_0"} <= {each.type_k for each in placements}
    assert {4096, 32768, 131072, 262144} <= {each.context for each in placements}
    assert {1, 2, 3, 4} <= {each.parallel for each in placements}
    assert {0, 1, 2, 3} <= {each.mtp for each in placements}
    assert "11434" in CAPTURED["engine"]


# `llama-fit-params -fitp on -ngl 999 -np 1 -b 512 -ub 512 -fa on` of b11434 with one CUDA GPU (sm_90), for models
# without weights of these shapes and 151,936 tokens: MiB of weights, context and compute on the GPU and the host.
ON_A_CARD = [
    ("35B-A3B", "Q3_K", 32_768, "q4_0", (14966, 242, 381), (243, 0, 48)),
    ("35B-A3B", "Q3_K", 262_144, "q4_0", (14966, 1502, 824), (243, 0, 272)),
    ("35B-A3B", "Q3_K", 262_144, "q8_0", (14966, 2782, 824), (243, 0, 272)),
    ("35B-A3B", "Q4_K", 262_144, "q4_0", (19046, 1502, 824), (243, 0, 272)),
    ("122B-A10B", "Q6_K", 262_144, "q8_0", (95919, 3413, 910), (365, 0, 280)),
]


@pytest.mark.parametrize(("shape", "experts", "context", "cache", "card", "host"), ON_A_CARD)
def test_as_the_engine_computes_for_a_card(
    shape: str,
    experts: str,
    context: int,
    cache: str,
    card: tuple[int, int, int],
    host: tuple[int, int, int],
) -> None:
    base = header("35B-A3B Q4_K" if shape == "35B-A3B" else "122B-A10B Q6_K")
    placement = Placement(context=context, type_k=cache, type_v=cache, batch=512, ubatch=512)
    memory = estimate(with_tokens(base, 151_936, experts), without_draft(placement))
    for use, (weights, kept_, compute) in ((memory.devices[0], card), (memory.host, host)):
        assert use.weights // MIB == weights
        assert use.context // MIB == kept_
        assert abs(use.compute - compute * MIB) <= 40 * MIB


def with_tokens(base: Header, tokens: int, experts: str) -> Header:
    """The header with another number of tokens and another type of experts."""
    groups = [
        group.model_copy(update={"shape": (group.shape[0], tokens)})
        if group.name in ("token_embd.weight", "output.weight")
        else group.model_copy(update={"type": experts})
        if "_exps." in group.name
        else group
        for group in base.tensors
    ]
    return base.model_copy(update={"tensors": tuple(groups), "vocabulary": tokens})
