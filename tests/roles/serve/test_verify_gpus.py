"""What is made of the driver's list of processes, and of the devices that they hold open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.inventory.schema import Rig
from llamaherd.plan import RAM, Estimate, GpuRef, Holds, InstancePlan
from roles.serve.onhost.model import GpuProcesses, GpusFound, VerifiedServers
from roles.serve.verify.process import judge_gpus
from tests.support import ours as verify
from tests.support.gpu_host import FIRST_NAMESPACE
from tests.support.rigs import gpu_rig, planned, served

GPU = planned(gpu_rig())
WSL = "6.6.87.2-microsoft-standard-WSL2"
CONTAINER = "pid:[4026532493]"


def holds(where: str, mib: int) -> Holds:
    return Holds(where=where, size=24 << 30, weights=mib << 20, kv=0, state=0, compute=0, draft=0)


PLANNED = next(each for each in GPU.instances if each.name == "reasoner").model_copy(
    update={"memory": Estimate(source="arithmetic", holds=(holds("new", 20000), holds("old", 10000), holds(RAM, 99)))}
)
DRIVER = GpusFound(
    listed="00000000:21:00.0, GPU-5090\n00000000:01:00.0, GPU-3090\n00000000:41:00.0, GPU-else",
    processes="77, GPU-5090, 20500\n8, GPU-5090, 300\n77, GPU-3090, 10001\n9, GPU-else, 5",
    minors={"0000:01:00.0": 1, "0000:21:00.0": 0},
    namespace=FIRST_NAMESPACE,
    kernel="6.8.0-88-generic",
)
OWN = GpuProcesses(("77",), ("/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidiactl"))


def judged(plan: InstancePlan = PLANNED, own: GpuProcesses = OWN, **changes: Any) -> tuple[bool, str]:
    return judge_gpus(plan, own, replace(DRIVER, **changes))


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
    assert judged(processes=f"77, GPU-5090, {mib}\n77, GPU-3090, 10001") == (
        True,
        f"on new with {mib:,} MiB, planned are 20,000{note}; old with 10,001 MiB, planned are 10,000",
    )


@pytest.mark.parametrize(
    ("apps", "found"),
    [
        ("", "it is on no GPU and serves from the CPU: see its log for why CUDA did not start"),
        ("8, GPU-5090, 300", "it is on no GPU and serves from the CPU: see its log for why CUDA did not start"),
        ("77, GPU-5090, 20000", "on new with 20,000 MiB, planned are 20,000; not on old"),
        ("77, GPU-else, 20000", "on GPU-else, which is not its; not on new and old"),
        (
            "77, GPU-5090, 20000\n77, GPU-3090, [N/A]\n77, GPU-else, 1",
            "on new with 20,000 MiB, planned are 20,000; old; on GPU-else, which is not its",
        ),
    ],
)
def test_a_server_that_is_elsewhere_fails(apps: str, found: str) -> None:
    assert judged(processes=apps) == (False, found)


@pytest.mark.parametrize("memory", ["[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[Unknown Error]"])
def test_memory_that_is_not_told_is_not_made_up(memory: str) -> None:
    apps = f"77, GPU-5090, {memory}\n[N/A], GPU-3090, [N/A]\n77, GPU-3090, 10000"
    assert judged(processes=apps) == (True, "on new; old with 10,000 MiB, planned are 10,000")


def test_the_processes_of_a_container_count_together() -> None:
    apps = "77, GPU-5090, 15000\n78, GPU-5090, 5000\n78, GPU-3090, 10000"
    assert judged(own=GpuProcesses(("77", "78")), processes=apps) == (
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
    assert judged(placed(*at, one=one))[0] is ok


@pytest.mark.parametrize(
    "changes",
    [
        {"namespace": CONTAINER},
        {"processes": "[Insufficient Permissions]"},
        {"processes": "Failed to initialize NVML: Unknown Error"},
    ],
    ids=["in a container", "no permission", "no answer"],
)
def test_where_the_list_does_not_tell_open_devices_do(changes: dict[str, Any]) -> None:
    words = "by its open devices: the driver lists no processes here"
    assert judged(**changes) == (False, f"on new; not on old ({words})")
    assert judged(placed("GPU-5090"), **changes) == (True, f"on c0 ({words})")
    looked = GpuProcesses(("77",), ("/dev/nvidia0", "/dev/nvidiactl"))
    assert judged(placed("GPU-5090"), looked, **changes)[1].startswith("it is on no GPU")
    hidden = "unknown: the driver shows no processes here, and no devices"
    assert judged(minors={}, **changes) == (False, hidden)


def test_under_wsl_one_device_stands_for_all_cards() -> None:
    wsl: dict[str, Any] = {"kernel": WSL, "processes": "77, GPU-else, [N/A]"}
    held = GpuProcesses(("77",), ("/dev/dxg",))
    assert judged(own=held, **wsl) == (True, "on new; old (by its open device, which is one for all GPUs under WSL)")
    assert judged(**wsl)[1].startswith("it is on no GPU")


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("", "nvidia-smi printed nothing"),
        ("\nNo devices were found\n", "No devices were found"),
        ("env: 'nvidia-smi': No such file or directory", "env: 'nvidia-smi': No such file or directory"),
    ],
)
def test_what_could_not_be_queried_is_reported(listed: str, found: str) -> None:
    assert judged(listed=listed) == (False, found)


def test_a_server_without_a_process() -> None:
    assert judged(own=GpuProcesses()) == (False, "no process runs")


TEXT = st.text(alphabet="7GPU-5090/dev:nvia,[]= \n\t")


@given(
    st.builds(GpusFound, TEXT, TEXT, st.dictionaries(TEXT, st.integers()), TEXT, TEXT),
    st.builds(GpuProcesses, st.tuples(TEXT), st.tuples(TEXT)),
)
def test_any_result_is_judged_and_never_an_exception(driver: GpusFound, own: GpuProcesses) -> None:
    assert judge_gpus(PLANNED, own, driver)[1]
    assert judge_gpus(PLANNED, OWN, replace(driver, listed=DRIVER.listed))[1]


def test_only_instances_on_cards_are_asked_for_them() -> None:
    report = verify.judge(Rig.model_validate(gpu_rig()), GPU, {}, found=VerifiedServers(gpus=DRIVER))
    asked = {each.name: [check.ok for check in each.checks if check.name == "on GPUs"] for each in report.instances}
    assert asked == {"boxed": [False], "reasoner": [False], "small": [], "worker": [False]}
