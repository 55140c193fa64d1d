"""Each way out of a GPU that is too full: put into the inventory, neither the GPUs nor the RAM are too small."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.checks import placement as checked
from llamaherd.checks.context import RigContext
from llamaherd.checks.models import check_training_context
from llamaherd.diagnostics.findings import Finding
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.facts import rig_facts
from tests.support import gguf_files
from tests.support.headers import gemma3, header, qwen_35b, qwen_122b
from tests.support.sample import drawn

CARDS = {name: {"model": "RTX 3090", "index": number} for number, name in enumerate(("one", "two"))}
NONE_LEFT = "no single change makes it fit"


@cache
def headers() -> Mapping[str, Header]:
    return {
        "moe": qwen_122b("IQ3_S"),
        "mid": qwen_35b("Q4_K", "Q6_K"),
        "dense": header(gguf_files.llama_70b()),
        "little": header(gguf_files.llama()),
        "tiny": gemma3(),
    }


def declared(ram: str, cards: int, model: str, **keys: Any) -> dict[str, Any]:
    instance = {"engine": "main", "model": model, "context": 32768, "port": 8080, "on": list(CARDS)[:cards]}
    return {
        "rig": "box",
        "connect": {"host": "box.lan"},
        "host": {"os": "ubuntu-24.04", "cpu": {"cores": 16}, "ram": ram},
        "gpus": {"driver": {"branch": 580}, "cuda": "13.0", "cards": dict(list(CARDS.items())[:cards])},
        "engines": {
            "main": {"kind": "llama.cpp", "ref": "b11434"},
            "ik": {"kind": "ik_llama.cpp", "ref": "main", "flags": "67268c8fd"},
        },
        "models": {name: {"hf": f"a/{name}-GGUF", "quant": "Q4_K"} for name in headers()},
        "instances": {"chat": instance | keys},
    }


def found(folder: Path, rig: Mapping[str, Any]) -> list[Finding]:
    file = folder / "rig.yaml"
    file.write_text(yaml.safe_dump(rig, sort_keys=False), encoding="utf-8")
    document = read_yaml(file)
    subject = RigContext(rig_facts(Rig.model_validate(document.data), headers()), document)
    return [*checked.check_memory(subject), *check_training_context(subject)]


def ways(findings: list[Finding]) -> list[str]:
    """What is offered for `chat`."""
    full = [each for each in findings if each.code == "LH150" and each.message.startswith("`chat`")]
    return [
        way for each in full if NONE_LEFT not in (each.help or "") for way in re.findall("`(.*?)`", each.help or "")
    ]


def with_way(rig: dict[str, Any], way: str) -> dict[str, Any]:
    """The rig with a way out in it, as whoever reads it writes it."""
    chat = dict(rig["instances"]["chat"])
    words = list(chat.get("extra_args", []))
    if way == "no draft":
        del chat["draft"]
    elif way == "the draft's KV in q8_0":
        chat["extra_args"] = [*words, "--cache-type-k-draft", "q8_0", "--cache-type-v-draft", "q8_0"]
    elif way.startswith("--"):
        name, number = way.split()
        words[words.index(name) + 1] = number
        chat["extra_args"] = words
    else:
        chat |= yaml.safe_load(way)
    return rig | {"instances": rig["instances"] | {"chat": chat}}


SHAPES: list[dict[str, Any]] = [
    {},
    {"context": 262144, "parallel": 4, "kv": "f16"},
    {"context": 100_000_000},
    {"context": 131072, "engine": "ik"},
]


def rigs() -> Iterator[tuple[str, int, str, dict[str, Any]]]:
    yield from product(("16GB", "32GB", "64GB", "128GB"), (1, 2), ("moe", "dense"), SHAPES)
    for ram, cards in product(("16GB", "64GB"), (1, 2)):
        yield ram, cards, "little", {"context": 100_000_000}
        yield ram, cards, "mid", {"context": 131072, "draft": {"mtp": 3}, "ubatch": 2048}
        yield ram, cards, "dense", {"context": 65536, "draft": {"model": "little"}}
        yield ram, cards, "little", {"context": 4_000_000, "draft": {"model": "tiny"}}
        yield ram, cards, "mid", {"extra_args": ["--n-cpu-moe", "2", "--ctx-size", "524288"]}
        yield ram, cards, "moe", {"experts_on_cpu": 20}


@pytest.mark.parametrize(
    ("ram", "cards", "model", "keys"), drawn(rigs()), ids=lambda each: str(each) if not isinstance(each, dict) else None
)
def test_what_is_offered_holds(
    ram: str, cards: int, model: str, keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked, "MOST_WAYS", 99)
    rig = declared(ram, cards, model, **keys)
    for way in ways(found(tmp_path, rig)):
        after = found(tmp_path, with_way(rig, way))
        wrong = {each.code for each in after if each.severity == "error" or way.startswith("context")}
        assert not wrong & {"LH150", "LH151", "LH171"}, way


def chat(findings: list[Finding]) -> str:
    (full,) = [each for each in findings if each.code == "LH150" and each.message.startswith("`chat`")]
    return full.help or ""


def test_what_the_ram_cannot_take_is_not_offered(tmp_path: Path) -> None:
    """122B on one GPU: 32 GB do not take what must leave it, 48 GB do, unless another server has them."""
    assert chat(found(tmp_path, declared("32GB", 1, "moe"))).startswith(NONE_LEFT)
    rig = declared("48GB", 1, "moe")
    assert "experts_on_cpu" in chat(found(tmp_path, rig))
    beside = {"engine": "main", "model": "mid", "context": 8192, "port": 8081}
    assert chat(found(tmp_path, rig | {"instances": rig["instances"] | {"other": beside}})).startswith(NONE_LEFT)


@pytest.mark.parametrize("slots", [1, 4])
def test_no_context_is_offered_that_the_model_was_not_trained_for(slots: int, tmp_path: Path) -> None:
    rig = declared("128GB", 2, "little", context=100_000_000, parallel=slots, kv="q4_0")
    (size,) = [int(way.removeprefix("context: ")) for way in ways(found(tmp_path, rig)) if way.startswith("context")]
    assert size == 131072 * slots


@pytest.mark.parametrize("held", [0, 512])
def test_what_is_left_to_the_system_may_be_less_where_it_is_already(held: int, tmp_path: Path) -> None:
    """RAM that is a warning today does not stop a change that takes no more of it."""
    rig = declared("64GB", 1, "little", context=262144)
    spec = Rig.model_validate(rig)
    ram = sum(each.ram for each in rig_facts(spec, headers()).sized.values()) + (held << 20)
    tight = rig | {"host": rig["host"] | {"ram": ram}}
    findings = found(tmp_path, tight)
    assert [each.severity for each in findings if each.code == "LH151"] == ["warning"]
    assert "context" in chat(findings)
    assert "gpu_layers" not in chat(findings)
