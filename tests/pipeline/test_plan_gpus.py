"""Which GPUs a server is told of, and where our programs look for it: for every way of naming GPUs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from llamaherd.layout import GPU_CHECK
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.plan import InstancePlan, Plan
from roles.serve.changes import server_changes
from roles.serve.onhost.switch import switch as run_switch
from tests.support.ours import inspect_text, parse_state
from tests.support.played_host import File, PlayedHost
from tests.support.recording import recording, switch_of
from tests.support.rigs import converged, cpu_rig, gpu_rig, planned

CARDS = "gpus/cards"
UUIDS = {"new": {"uuid": "GPU-5090"}, "old": {"uuid": "GPU-3090"}}
ADDRESSES = {"new": {"pci": "21:00.0"}, "old": {"pci": "0000:01:00.0"}}
NUMBERS = {"new": {"index": 1}, "old": {"index": 0}}
NAMES: dict[str, dict[str, dict[str, Any]]] = {"uuid": UUIDS, "pci": ADDRESSES, "index": NUMBERS}
GPU = planned(gpu_rig())


def named(ways: dict[str, dict[str, Any]], changes: dict[str, Any] | None = None) -> Plan:
    """The rig with two GPUs that are named so; `boxed` is in a container."""
    models = {"new": "RTX 5090", "old": "RTX 3090"}
    return planned(
        gpu_rig(), {CARDS: {name: {"model": models[name]} | way for name, way in ways.items()}} | (changes or {})
    )


def of(plan: Plan, name: str) -> InstancePlan:
    return next(each for each in plan.instances if each.name == name)


def environment(plan: InstancePlan) -> dict[str, str]:
    """What a server is told: from the text of its unit or project."""
    if plan.backend == "compose":
        told: dict[str, str] = yaml.safe_load(plan.file.text)["services"]["server"]["environment"]
        return told
    lines = [line.removeprefix("Environment=") for line in plan.file.text.splitlines() if "Environment=" in line]
    return dict(line.split("=", 1) for line in lines)


def reserved(plan: InstancePlan) -> dict[str, Any]:
    """What Docker is asked for."""
    project = yaml.safe_load(plan.file.text)["services"]["server"]
    (device,) = project["deploy"]["resources"]["reservations"]["devices"]
    assert isinstance(device, dict)
    return device


@pytest.mark.parametrize(
    ("way", "visible", "at"),
    [
        ("uuid", "GPU-5090,GPU-3090", ["GPU-5090", "GPU-3090"]),
        ("pci", "1,0", ["00000000:21:00.0", "00000000:01:00.0"]),
        ("index", "1,0", ["1", "0"]),
    ],
)
def test_a_unit_sees_its_cards_in_their_order_by_every_way_of_naming_them(
    way: str, visible: str, at: list[str]
) -> None:
    reasoner = of(named(NAMES[way]), "reasoner")
    told = environment(reasoner)
    assert (told["CUDA_DEVICE_ORDER"], told["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", visible)
    assert [(card.name, card.at) for card in reasoner.server.cards] == [("new", at[0]), ("old", at[1])]
    assert not reasoner.server.one_card
    assert f"gpu-gate 120 {' '.join(at)}\n" in reasoner.file.text
    assert f'gpu-check every "journalctl -u llama-reasoner" ${{MAINPID}} {" ".join(at)}\n' in reasoner.file.text


@pytest.mark.parametrize(
    ("way", "on", "ids", "visible"),
    [
        ("uuid", ["new"], ["GPU-5090"], "GPU-5090"),
        ("uuid", ["old", "new"], ["GPU-3090", "GPU-5090"], "GPU-3090,GPU-5090"),
        # Inside, numbers count the GPUs that the container was given.
        ("pci", ["new"], ["1"], "0"),
        ("pci", ["new", "old"], ["1", "0"], "1,0"),
        ("index", ["new"], ["1"], "0"),
        ("index", ["old", "new"], ["0", "1"], "0,1"),
    ],
)
def test_a_container_is_given_its_cards_and_counts_them_anew(
    way: str, on: list[str], ids: list[str], visible: str
) -> None:
    boxed = of(named(NAMES[way], {"instances/boxed/on": on}), "boxed")
    names = [f"nvidia.com/gpu={each}" for each in ids]
    assert reserved(boxed) == {"driver": "cdi", "device_ids": names, "capabilities": ["gpu"]}
    told = environment(boxed)
    assert (told["CUDA_DEVICE_ORDER"], told["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", visible)
    assert [card.name for card in boxed.server.cards] == on


def test_a_card_that_needs_no_telling_may_be_any() -> None:
    plan = named({"new": {}}, {f"instances/{name}/on": ["new"] for name in ("reasoner", "worker")})
    assert reserved(of(plan, "boxed")) == {
        "driver": "cdi",
        "device_ids": ["nvidia.com/gpu=all"],
        "capabilities": ["gpu"],
    }
    assert "CUDA_VISIBLE_DEVICES" not in environment(of(plan, "worker"))
    assert "gpu-gate 120 any\n" in of(plan, "worker").file.text


CHOSEN: dict[str, tuple[dict[str, Any], list[str], bool]] = {
    "layers on all": ({}, ["GPU-5090", "GPU-3090"], False),
    "no layer at all": ({"gpu_layers": 0}, ["GPU-5090", "GPU-3090"], False),
    "a part of nothing": ({"tensor_split": [1, 0]}, ["GPU-5090", "GPU-3090"], False),
    "one of them": ({"split": "none"}, ["GPU-5090", "GPU-3090"], True),
    "devices of its own": ({"extra_args": ["--device", "CUDA1"]}, ["any"], True),
    "devices of its own, short": ({"extra_args": ["-dev", "CUDA1"]}, ["any"], True),
    "no device": ({"extra_args": ["--device", "none"]}, [], False),
    "a list of its own": ({"environment": {"CUDA_VISIBLE_DEVICES": "1"}}, ["any"], True),
    "an empty list": ({"environment": {"CUDA_VISIBLE_DEVICES": ""}}, [], False),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_where_a_server_must_be_found(case: str) -> None:
    changes, at, one = CHOSEN[case]
    reasoner = of(
        planned(gpu_rig(), {f"instances/reasoner/{key}": value for key, value in changes.items()}), "reasoner"
    )
    assert ([card.at for card in reasoner.server.cards], reasoner.server.one_card) == (at, one)
    for program in ("gpu-gate", "gpu-check"):
        assert (program in reasoner.file.text) is bool(at)


def test_a_unit_has_time_to_wait_for_its_cards() -> None:
    """systemd ends each command of a start after TimeoutStartSec=, and a gate that it ends says nothing."""
    worker = of(planned(gpu_rig(), {"instances/worker/load_timeout": 30}), "worker")
    assert "gpu-gate 15 GPU-3090\n" in worker.file.text
    assert "TimeoutStartSec=30\n" in worker.file.text


def test_only_rigs_with_servers_on_cards_get_the_programs() -> None:
    programs = [file.path.rpartition("/")[2] for file in GPU.files]
    assert programs == ["wait-healthy", "started", "gpu-gate", "gpu-check"]
    without = [file.path.rpartition("/")[2] for file in planned(cpu_rig()).files]
    assert without == ["wait-healthy", "started"]
    asked = inspect_text(planned(cpu_rig()))
    assert not [program for program in ("gpu-gate", "gpu-check") if program in asked]


def test_a_container_that_came_up_without_its_card_is_made_anew() -> None:
    """Docker starts it at boot by itself, and it is as healthy on the CPU."""
    boxed = of(GPU, "boxed")
    lines = converged(GPU, {})
    assert server_changes(boxed, parse_state(lines), None) == []
    (step,) = server_changes(boxed, parse_state([*lines, "off-cards\tllama-boxed"]), None)
    given = switch_of(step)
    assert (given.restart, given.gpus, given.one_gpu) == (True, tuple(card.at for card in boxed.server.cards), False)
    host = recording(PlayedHost({}))
    host.ends = {f"{GPU_CHECK} ": Ended(0)}
    host.files[boxed.file.path] = File(boxed.file.text)
    run_switch(given, host, host)
    (checked,) = [words for words in host.done if words[0] == str(GPU_CHECK)]
    assert checked[1:3] == ["every", "docker logs llama-boxed 2>&1"]
    assert tuple(checked[4:]) == given.gpus
    assert host.index("docker", "--force-recreate") < host.done.index(checked)
    host = recording(PlayedHost({}))
    host.files[boxed.file.path] = File(boxed.file.text)
    host.ends = {f"{GPU_CHECK} ": Ended(1, "no process of it is on GPU-5090")}
    with pytest.raises(FailedError, match="llama-boxed is not on its GPUs"):
        run_switch(given, host, host)
    # Another container's trouble is none of its.
    assert server_changes(boxed, parse_state([*lines, "off-cards\tllama-small"]), None) == []


def test_the_cpu_has_no_cards_to_lose() -> None:
    plan = planned(cpu_rig())
    for steps in (
        server_changes(of(plan, "chat"), parse_state([]), "k"),
        server_changes(of(plan, "drafter"), parse_state([]), None),
    ):
        assert all((switch_of(step).gpus, switch_of(step).needs_gpus) == ((), ()) for step in steps)
