"""What is made of the driver's list of processes, and of the devices that they hold open."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.host.protocol import answer, question_of, texts
from llamaherd.inventory.schema import Rig
from llamaherd.plan import RAM, Estimate, GpuRef, Holds, InstancePlan
from roles.serve.verify.gpus import on_gpus
from tests.support import ours as verify
from tests.support.gpu_host import FIRST_NAMESPACE, NEW, OLD, gpu_host
from tests.support.rigs import gpu_rig, planned, served

GPU = planned(gpu_rig())
WSL = "6.6.87.2-microsoft-standard-WSL2"
CONTAINER = "pid:[4026532493]"


def holds(where: str, mib: int) -> Holds:
    return Holds(where=where, size=24 << 30, weights=mib << 20, kv=0, state=0, compute=0, draft=0)


PLANNED = next(each for each in GPU.instances if each.name == "reasoner").model_copy(
    update={"memory": Estimate(source="arithmetic", holds=(holds("new", 20000), holds("old", 10000), holds(RAM, 99)))}
)
ANSWERS = {
    ("gpus", ""): "00000000:21:00.0, GPU-5090\n00000000:01:00.0, GPU-3090\n00000000:41:00.0, GPU-else",
    ("gpu processes", ""): "77, GPU-5090, 20500\n8, GPU-5090, 300\n77, GPU-3090, 10001\n9, GPU-else, 5",
    ("gpu minors", ""): "/proc/driver/nvidia/gpus/0000:01:00.0/information:Device Minor: \t 1\n"
    "/proc/driver/nvidia/gpus/0000:21:00.0/information:Device Minor: \t 0",
    ("namespace", ""): FIRST_NAMESPACE,
    ("kernel", ""): "6.8.0-88-generic",
    ("on cards", "reasoner"): "pid=77\ndevice=/dev/nvidia0\ndevice=/dev/nvidia-uvm\ndevice=/dev/nvidiactl",
}


def judged(changes: dict[tuple[str, str], str] | None = None, plan: InstancePlan = PLANNED) -> tuple[bool, str]:
    return on_gpus(plan, ANSWERS | (changes or {}))


def placed(*at: str, one: bool = False) -> InstancePlan:
    cards = tuple(GpuRef(name=f"c{number}", at=each) for number, each in enumerate(at))
    assert PLANNED.server.gpus
    return served(
        PLANNED.model_copy(update={"memory": None}),
        gpus=PLANNED.server.gpus.model_copy(update={"at": cards, "any_one": one}),
    )


def test_a_server_on_its_cards_passes_with_what_it_holds() -> None:
    assert judged() == (
        True,
        "on new with 20,500 MiB, planned are 20,000; old with 10,001 MiB, planned are 10,000",
    )


@pytest.mark.parametrize(
    ("mib", "note"),
    [(21900, ""), (22100, ", which is 10% more"), (30000, ", which is 50% more"), (10000, ", which is 50% less")],
)
def test_holding_much_more_or_less_than_planned_is_noted_and_no_failure(mib: int, note: str) -> None:
    apps = {("gpu processes", ""): f"77, GPU-5090, {mib}\n77, GPU-3090, 10001"}
    assert judged(apps) == (
        True,
        f"on new with {mib:,} MiB, planned are 20,000{note}; old with 10,001 MiB, planned are 10,000",
    )


@pytest.mark.parametrize(
    ("apps", "found"),
    [
        ("", "it is on no GPU and serves from the CPU: its log says why CUDA did not start"),
        ("8, GPU-5090, 300", "it is on no GPU and serves from the CPU: its log says why CUDA did not start"),
        ("77, GPU-5090, 20000", "on new with 20,000 MiB, planned are 20,000; not on old"),
        ("77, GPU-else, 20000", "on GPU-else, which is not its; not on new and old"),
        (
            "77, GPU-5090, 20000\n77, GPU-3090, [N/A]\n77, GPU-else, 1",
            "on new with 20,000 MiB, planned are 20,000; old; on GPU-else, which is not its",
        ),
    ],
)
def test_a_server_that_is_elsewhere_fails(apps: str, found: str) -> None:
    assert judged({("gpu processes", ""): apps}) == (False, found)


@pytest.mark.parametrize("memory", ["[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[Unknown Error]"])
def test_memory_that_is_not_told_is_not_made_up(memory: str) -> None:
    apps = f"77, GPU-5090, {memory}\n[N/A], GPU-3090, [N/A]\n77, GPU-3090, 10000"
    assert judged({("gpu processes", ""): apps}) == (True, "on new; old with 10,000 MiB, planned are 10,000")


def test_the_processes_of_a_container_count_together() -> None:
    pids = {("on cards", "reasoner"): "pid=77\npid=78"}
    apps = {("gpu processes", ""): "77, GPU-5090, 15000\n78, GPU-5090, 5000\n78, GPU-3090, 10000"}
    assert judged(pids | apps) == (
        True,
        "on new with 20,000 MiB, planned are 20,000; old with 10,000 MiB, planned are 10,000",
    )


@pytest.mark.parametrize(
    ("at", "one", "ok"),
    [
        (("00000000:21:00.0", "00000000:01:00.0"), False, True),
        (("0", "1"), False, True),
        (("any", "any"), False, True),
        (("0", "2"), False, False),
        (("1", "7"), False, False),
        (("any", "any", "any"), False, False),
        (("0", "1", "2"), True, True),
    ],
)
def test_each_way_of_naming_cards(at: tuple[str, ...], one: bool, ok: bool) -> None:
    assert judged(plan=placed(*at, one=one))[0] is ok


@pytest.mark.parametrize(
    "changes",
    [
        {("namespace", ""): CONTAINER},
        {("gpu processes", ""): "[Insufficient Permissions]"},
        {("gpu processes", ""): "Failed to initialize NVML: Unknown Error"},
    ],
    ids=["in a container", "no permission", "no answer"],
)
def test_where_the_list_does_not_tell_open_devices_do(changes: dict[tuple[str, str], str]) -> None:
    words = "by its open devices: the driver's list does not tell here"
    assert judged(changes) == (False, f"on new; not on old ({words})")
    assert judged(changes, placed("GPU-5090")) == (True, f"on c0 ({words})")
    looked = {("on cards", "reasoner"): "pid=77\ndevice=/dev/nvidia0\ndevice=/dev/nvidiactl"}
    assert judged(changes | looked, placed("GPU-5090"))[1].startswith("it is on no GPU")
    untold = {("gpu minors", ""): ""}
    assert judged(changes | untold) == (False, "it cannot be told: the driver shows no processes here, and no devices")


def test_under_wsl_one_device_stands_for_all_cards() -> None:
    wsl = {("kernel", ""): WSL, ("gpu processes", ""): "77, GPU-else, [N/A]"}
    held = {("on cards", "reasoner"): "pid=77\ndevice=/dev/dxg"}
    assert judged(wsl | held) == (True, "on new; old (by its open device, which is one for all GPUs under WSL)")
    assert judged(wsl)[1].startswith("it is on no GPU")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({("on cards", "reasoner"): ""}, "no process runs"),
        ({("gpus", ""): ""}, "nvidia-smi said nothing"),
        ({("gpus", ""): "\nNo devices were found\n"}, "No devices were found"),
        ({("gpus", ""): "timeout: failed to run command 'nvidia-smi'"}, "timeout: failed to run command 'nvidia-smi'"),
    ],
)
def test_what_could_not_be_asked_is_said(changes: dict[tuple[str, str], str], found: str) -> None:
    assert judged(changes) == (False, found)


@given(st.dictionaries(st.sampled_from(sorted(ANSWERS)), st.text(alphabet="7GPU-5090/dev:nvia,[]= \n\t")))
def test_any_answer_is_judged_and_never_an_exception(changes: dict[tuple[str, str], str]) -> None:
    assert judged(changes)[1]


def test_only_instances_on_cards_are_asked_for_them() -> None:
    report = verify.judge(Rig.model_validate(gpu_rig()), GPU, ANSWERS)
    asked = {each.name: [check.ok for check in each.checks if check.name == "on GPUs"] for each in report.instances}
    assert asked == {"boxed": [False], "reasoner": [True], "small": [], "worker": [False]}


def test_the_question_is_answered_as_the_judge_reads_it(tmp_path: Path) -> None:
    """The script's part about GPUs, by /bin/sh; systemctl and docker are stand-ins here too."""
    host = gpu_host(tmp_path, OLD | {"apps": [(77, 10000), (8, 1)]}, NEW | {"apps": [(77, 20000)]})
    host.driver({"0000:01:00.0": 0, "0000:21:00.0": 1})
    host.process(77, "nvidiactl", "nvidia-uvm", "nvidia0")
    for name, prints in (("systemctl", "77"), ("docker", "0")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho {prints}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    script = question_of("serve/verify-gpus.sh.j2", plan=GPU)
    answers = texts(answer(host.shell(script).split("\n")))
    assert answers[("on cards", "boxed")] == ""
    assert (
        answers[("on cards", "worker")] == "pid=77\ndevice=/dev/nvidia-uvm\ndevice=/dev/nvidia0\ndevice=/dev/nvidiactl"
    )
    assert on_gpus(PLANNED, dict(answers) | {("kernel", ""): "6.8"}) == (
        True,
        "on new with 20,000 MiB, planned are 20,000; old with 10,000 MiB, planned are 10,000",
    )
    others = dict(answers) | {("namespace", ""): CONTAINER, ("kernel", ""): "6.8"}
    assert on_gpus(placed("0"), others)[0]
