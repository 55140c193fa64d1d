"""The model that a new rig starts with: the largest known one that fits the host, by its header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Connect
from llamaherd.inventory.schema.keys import EXAMPLES
from llamaherd.inventory.yaml_file import parse_yaml
from llamaherd.onhost.hardware import FoundHost
from llamaherd.pipeline.fleet_files import load_fleet
from llamaherd.resources import ROOT
from llamaherd.scaffold import (
    LARGE,
    SMALL,
    Proposal,
    fits_rig,
    fleet_files,
    parse_rig,
    propose_model,
    rig_yaml,
    write_files,
    written_gpus,
)
from tests.support.found_hosts import found_host
from tests.support.headers import gemma3, qwen_35b

Q4, Q3 = LARGE
DUO = Connect(host="duo.lan", user="tom")


def headers() -> dict[str, Header]:
    """Headers of the real shapes; the small model is a smaller one here."""
    return {Q4.on_hub: qwen_35b("Q4_K", "Q5_K"), Q3.on_hub: qwen_35b("Q3_K"), SMALL.on_hub: gemma3()}


class Hub:
    """Returns headers, and remembers which were read."""

    def __init__(self, known: Mapping[str, Header]) -> None:
        self.known, self.read = known, list[str]()

    def header(self, model: str) -> Header:
        self.read.append(model)
        if model not in self.known:
            raise UserError(f"the hub has no {model}", "check the network")
        return self.known[model]


def text_of(found: FoundHost, proposal: Proposal) -> str:
    return rig_yaml(found, "duo", DUO, (), proposal)


def proposed(found: FoundHost, hub: Hub, said: list[str] | None = None) -> Proposal:
    report = [] if said is None else said
    return propose_model(found, lambda each: parse_rig(text_of(found, each)), hub.header, report.append)


def with_memory(mib: int) -> FoundHost:
    """The laptop with another GPU memory."""
    laptop = found_host("laptop")
    return replace(laptop, cards=(replace(laptop.cards[0], memory_mib=mib),))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("duo", Q4), ("wsl", Q4), ("h100", Q4), ("cpu-box", replace(SMALL, on_gpu=False)), ("no-driver", SMALL)],
)
def test_the_largest_that_fits(name: str, expected: Proposal) -> None:
    assert proposed(found_host(name), Hub(headers())) == expected


@pytest.mark.parametrize(
    ("mib", "expected", "read"),
    [
        (32_000, Q4, [Q4]),
        (22_100, Q3, [Q4, Q3]),
        (17_100, SMALL, [Q3, SMALL]),
        (8_192, SMALL, [SMALL]),
        (256, replace(SMALL, on_gpu=False), [SMALL]),
    ],
)
def test_the_next_one_where_it_does_not_fit(mib: int, expected: Proposal, read: list[Proposal]) -> None:
    hub = Hub(headers())
    assert proposed(with_memory(mib), hub) == expected
    assert hub.read == [each.on_hub for each in read]


def test_a_disk_that_is_too_small_for_the_model_and_the_build() -> None:
    assert proposed(replace(found_host("duo"), free=40 * 10**9), Hub(headers())) == Q3
    assert proposed(replace(found_host("duo"), free=30 * 10**9), Hub(headers())) == SMALL


def test_without_a_hub_it_is_the_small_one_and_why_is_reported() -> None:
    said: list[str] = []
    assert proposed(found_host("duo"), Hub({}), said) == SMALL
    assert said[-1] == f"proposing the small model {SMALL.on_hub}: the hub has no {Q4.on_hub}"


def test_no_hub_is_queried_for_a_host_without_gpus() -> None:
    hub = Hub({})
    proposed(found_host("cpu-box"), hub)
    assert hub.read == []


@pytest.mark.parametrize("name", ["duo", "wsl", "laptop", "cpu-box", "no-driver", "h100"])
def test_the_file_is_short_right_and_fits(tmp_path: Path, name: str) -> None:
    """At most 12 lines, besides comments: what is between a host and the first response."""
    found, known = found_host(name), headers()
    proposal = proposed(found, Hub(known))
    text = text_of(found, proposal)
    assert len([line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]) <= 12
    write_files(tmp_path, fleet_files({"duo": text}))
    rig = load_fleet(tmp_path).rigs["duo"]
    assert rig == parse_rig(text)
    assert bool(rig.instances["chat"].on) == (proposal.on_gpu and bool(written_gpus(found)))
    assert fits_rig(rig, known[proposal.on_hub], found.free)


def test_only_models_of_our_own_examples_are_proposed() -> None:
    """Repositories and quants that the documentation and the examples use: none is made up here."""
    known = set()
    for file in (ROOT / "inventory" / "examples").glob("*.yaml"):
        models = parse_yaml(file, file.read_text(encoding="utf-8")).data["models"]
        known |= {(each.get("hf"), each.get("quant")) for each in models.values()}
    assert {(each.hf, each.quant) for each in LARGE} <= known
    assert f"{{small: {{hf: {SMALL.hf}, quant: {SMALL.quant}}}}}" == EXAMPLES["Rig.models"]
