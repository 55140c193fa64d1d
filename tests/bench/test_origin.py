"""Where a measurement comes from, by the plan and by what its host and its server tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamaherd.inventory.schema import Connect
from llamaherd.measure.bench.job import Job
from llamaherd.measure.bench.measurement import instance_provenance, with_links
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.client.requests import ServerFacts, count_tokens, server_facts
from llamaherd.measure.meter.meter import host_snapshot
from llamaherd.measure.meter.usage import Window, usage_of
from llamaherd.measure.results.result import Provenance
from llamaherd.plan.plan import instances_of
from tests.bench.grouped import CARD, GROUPED
from tests.bench.meter_lines import NEW, OLD, figures, gpu, readings, seen
from tests.bench.site import Site, page
from tests.bench.test_meter_look import ON_OLD, PLAN

FACTS = ServerFacts(8192, 2, "b11434-abc")


def found(**more: Any) -> Provenance:
    told = readings(gpu(101, celsius="40"), gpu(101, NEW), figures(101), seen(102, **more))
    there = host_snapshot(told)
    assert there
    return instance_provenance(
        Job(Connect(host="box"), PLAN, ON_OLD, Path(), 60.0, "a test"), told, there, (OLD,), FACTS
    )


def test_all_that_a_speed_depends_on() -> None:
    made = found()
    build = next(each for each in PLAN.builds if each.id == ON_OLD.build)
    assert (made.engine.kind, made.engine.build, made.engine.version) == (build.kind, build.id, "b11434-abc")
    assert "GGML_CUDA=ON" in made.engine.options
    assert made.engine.cuda == build.cuda
    assert made.driver == "580.159.04"
    (card,) = made.gpus
    assert (card.uuid, card.power_limit_watts, card.power_default_watts, card.idle_celsius) == (OLD, 350, 350, 40)
    assert made.server.spec == ON_OLD.spec
    assert made.server.arguments == ON_OLD.server.arguments
    assert (made.server.context, made.server.slots) == (8192, 2)
    assert (made.host.name, made.host.cpu, made.host.threads, made.host.swapped_bytes) == ("duo", "Ryzen", 32, None)
    model = next(each for each in PLAN.models if each.folder == ON_OLD.model_folder)
    assert [(file.name, file.sha256) for file in made.files if file.part == "weights"] == [
        (file.name, file.sha256) for file in model.files if file.name != model.mmproj
    ]
    assert ON_OLD.name not in made.around.instances
    assert made.around.load == 0.1


def test_one_of_a_group_is_told_apart_from_its_others() -> None:
    """What the group's server is by itself is not what was measured, and neither are those that were not loaded."""
    one, two = instances_of(CARD)
    job = Job(Connect(host="box"), GROUPED, two, Path(), 60.0, "a test", group=CARD)
    told = readings(figures(101), seen(102))
    there = host_snapshot(told)
    assert there
    made = instance_provenance(job, told, there, (), FACTS)
    assert (made.model, made.server.group, made.server.spec) == ("moe", "card", CARD.spec)
    assert made.server.arguments == CARD.members[1].arguments
    assert made.around.instances == ("chat", "drafter")
    assert {file.name for file in made.files}.isdisjoint(
        file.name for each in GROUPED.models if each.folder == one.model_folder for file in each.files
    )


def test_who_else_was_there_is_kept() -> None:
    apps = [[OLD, 77, 7 << 30, "llama-server", "llama-chat.service"], [OLD, 99, 1 << 30, "Xorg", ""]]
    made = found(apps=apps, others=[["ffmpeg", "a.service", 1.2]])
    assert made.around.processes == ("Xorg", "ffmpeg of a.service")


def test_a_link_is_that_under_load() -> None:
    told = readings(gpu(101, generation="1"), gpu(102), gpu(103))
    made = with_links(found(), usage_of(told, Window(100.5, 103), (OLD,)), (OLD,))
    assert (made.gpus[0].pcie_generation, made.gpus[0].pcie_lanes) == (4, 16)


PROPS = {"build_info": "b1-x", "total_slots": 4, "default_generation_settings": {"n_ctx": 4096}}


def test_what_a_server_tells_of_itself() -> None:
    with Site({"/props": page(PROPS), "/tokenize": page({"tokens": [1, 2, 3]})}) as site:
        target = Target(site.url, "a-key")
        assert server_facts(target, "/props") == ServerFacts(4096, 4, "b1-x")
        assert count_tokens(target, "a-model", "some text") == 3
        assert [headers["authorization"] for _, headers, _ in site.asked] == ["Bearer a-key"] * 2


def test_vllm_counts_tokens_in_its_own_way() -> None:
    with Site({"/tokenize": page({"count": 12, "max_model_len": 4096})}) as site:
        assert count_tokens(Target(site.url), "a-model", "some text") == 12


@pytest.mark.parametrize("said", [[1], {"default_generation_settings": 3, "total_slots": "many"}, {"build_info": 7}])
def test_nonsense_is_nothing(said: Any) -> None:
    with Site({"/props": page(said), "/tokenize": page(said)}) as site:
        assert server_facts(Target(site.url), "/props") == ServerFacts()
        assert count_tokens(Target(site.url), "a-model", "some text") is None
    assert server_facts(Target("http://127.0.0.1:9"), None) == ServerFacts()
