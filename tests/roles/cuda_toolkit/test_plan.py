"""The CUDA toolkit of a plan, what keeps drivers out, and what is done where it is missing, there, or another."""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from typing import Any

import pytest

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.files import PutFilesInput
from llamaherd.plan import Plan
from llamaherd.reference.packages import NEVER_INSTALLED
from llamaherd.role.apt import nvidia_repository
from llamaherd.text.numbers import show_size
from roles.cuda_toolkit import DRIVER, TOOLKIT_BYTES, ToolkitState, inspection_input, toolkit_changes, toolkit_refusals
from tests.support.ours import parse_state, refusals, show_plan
from tests.support.recording import input_of
from tests.support.rigs import changed, converged, cpu_rig, gpu_rig, planned
from tests.support.states import host_with, with_file

PLAN = planned(gpu_rig())
OWN_DRIVER = planned(gpu_rig(), {"gpus/driver": {"branch": 580}})
OLD_ADA = {"gpus/cuda": "12.3", "gpus/cards/new/model": "RTX 4090"}
ON_NONE: dict[str, Any] = {f"instances/{name}/on": [] for name in ("reasoner", "worker")}

# --- the plan --------------------------------------------------------------------------------------------------------


def test_exactly_one_toolkit_is_planned() -> None:
    assert PLAN.toolkit
    assert (PLAN.toolkit.package, PLAN.toolkit.nvcc) == ("cuda-toolkit-13-0", "/usr/local/cuda-13.0/bin/nvcc")
    assert PLAN.toolkit.repository in PLAN.repositories


@pytest.mark.parametrize(
    "plan",
    [
        planned(cpu_rig()),
        planned(gpu_rig(), ON_NONE),
        planned(gpu_rig(), {"engines/main/options": {"GGML_CUDA": False}}),
    ],
    ids=["no card", "built for the CPU", "one of two"],
)
def test_only_where_something_is_built_with_it(plan: Plan) -> None:
    built = {build.engine for build in plan.builds if build.options.get("GGML_CUDA") == "ON"}
    assert (plan.toolkit is not None) == bool(built)
    assert (inspection_input(plan) is not None) == bool(built)


def test_under_wsl_it_comes_from_a_repository_without_drivers() -> None:
    plan = planned(gpu_rig(), {"host/wsl": {}})
    assert plan.toolkit
    assert plan.toolkit.repository.url.endswith("/repos/wsl-ubuntu/x86_64")
    assert "libcuda1" in plan.toolkit.preferences.text


def test_the_compiler_that_fits_is_installed_and_used() -> None:
    plan = planned(gpu_rig(), OLD_ADA)
    assert plan.toolkit
    assert plan.toolkit.compiler == "/usr/bin/g++-12"
    assert {build.options["CMAKE_CUDA_HOST_COMPILER"] for build in plan.builds} == {"/usr/bin/g++-12"}
    assert "g++-12" in plan.packages


@pytest.mark.parametrize(
    ("changes", "compilers"),
    [
        ({}, {None}),
        ({"gpus/cuda": "12.8", "host/os": "debian-13"}, {None}),
        ({"gpus/cuda": "13.9"}, {None}),
        (OLD_ADA | {"engines/main/options": {"CMAKE_CUDA_HOST_COMPILER": "g++-11"}}, {"g++-11", "/usr/bin/g++-12"}),
        (
            OLD_ADA | {"engines/ik/options": {"CMAKE_CUDA_FLAGS": "-allow-unsupported-compiler"}},
            {None, "/usr/bin/g++-12"},
        ),
    ],
)
def test_nobody_else_is_told_a_compiler(changes: dict[str, Any], compilers: set[str | None]) -> None:
    plan = planned(gpu_rig(), changes)
    assert {build.options.get("CMAKE_CUDA_HOST_COMPILER") for build in plan.builds} == compilers


def test_a_plan_shows_it() -> None:
    assert "  cuda       13.0: cuda-toolkit-13-0, unless /usr/local/cuda-13.0/bin/nvcc is there\n" in show_plan(PLAN)
    assert "             with g++-12 for the host's part\n" in show_plan(planned(gpu_rig(), OLD_ADA))


# --- what keeps drivers out ------------------------------------------------------------------------------------------

# Names in NVIDIA's repositories for Ubuntu and Debian, as its installation guides give them.
DRIVERS = [
    *("nvidia-driver-580-open", "nvidia-open", "nvidia-open-580", "nvidia-dkms-open", "nvidia-dkms-580-open"),
    *("nvidia-kernel-open-dkms", "nvidia-kernel-common-580", "nvidia-utils-580", "nvidia-driver-cuda"),
    *("nvidia-persistenced", "nvidia-modprobe", "nvidia-settings", "nvidia-firmware-580", "nvidia-driver-pinning-580"),
    *("libnvidia-compute-580", "libnvidia-cfg1", "libnvidia-common-580", "libnvidia-gl-580", "libnvidia-ml1"),
    *("libcuda1", "libnvcuvid1", "libgl1-nvidia-glvnd-glx", "xserver-xorg-video-nvidia-580"),
]
OTHERS = [
    *("cuda-toolkit-13-0", "cuda-nvcc-13-0", "cuda-cudart-dev-13-0", "libcublas-13-0", "libcusparse-dev-13-0"),
    *("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container1", "libnvidia-container-tools"),
    *("nsight-compute-2025.3.1", "libcudnn9-cuda-13", "libnccl2", "libcufile-13-0", "libcurand-13-0"),
]
META = ["cuda", "cuda-13-0", "cuda-runtime-13-0", "cuda-drivers", "cuda-drivers-580", "cuda-compat-13-0"]


@pytest.mark.parametrize("name", [*DRIVERS, *META])
def test_what_is_a_drivers_is_known_for_it(name: str) -> None:
    assert [each for each in (*NEVER_INSTALLED, *DRIVER) if fnmatch.fnmatchcase(name, each)]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_a_toolkits_is_not(name: str) -> None:
    assert [each for each in (*NEVER_INSTALLED, *DRIVER) if fnmatch.fnmatchcase(name, each)] == []


def test_a_driver_of_nvidias_repository_may_come_from_there() -> None:
    assert PLAN.toolkit
    assert OWN_DRIVER.toolkit
    assert "cuda-drivers*" in OWN_DRIVER.toolkit.preferences.text
    assert "libcuda1" not in OWN_DRIVER.toolkit.preferences.text
    assert PLAN.toolkit.preferences.text.count("Pin-Priority: -1") == 2


# --- what is done ----------------------------------------------------------------------------------------------------


def seen_of(plan: Plan) -> HostState:
    return parse_state(converged(plan, {}))


def says(plan: Plan, seen: HostState) -> list[str]:
    return [step.says for step in toolkit_changes(plan, seen)]


INSTALLS = "installing cuda-toolkit-13-0"
ADDS = "making https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64 known to apt"


def test_a_virgin_host_keeps_drivers_out_before_it_knows_the_repository() -> None:
    assert says(PLAN, HostState()) == ["", ADDS, INSTALLS]
    given = input_of(toolkit_changes(PLAN, HostState())[0], PutFilesInput)
    assert [each.path for each in given.files] == ["/etc/apt/preferences.d/llamaherd-cuda"]


def test_a_host_that_is_as_planned_is_left_alone() -> None:
    assert says(PLAN, seen_of(PLAN)) == []


def test_a_toolkit_that_somebody_else_brought_is_used() -> None:
    assert says(PLAN, HostState.of(ToolkitState("13.0"))) == []


@pytest.mark.parametrize("toolkit", [None, ""], ids=["gone", "does not run"])
def test_a_toolkit_that_does_not_run_is_installed(toolkit: str | None) -> None:
    seen = seen_of(PLAN)
    seen = seen.with_parts(ToolkitState(toolkit))
    assert says(PLAN, seen) == [INSTALLS]


def test_what_keeps_drivers_out_is_mended_where_nvidias_packages_can_come() -> None:
    seen = seen_of(PLAN)
    assert PLAN.toolkit
    seen = with_file(seen, PLAN.toolkit.preferences.path, None)
    assert says(PLAN, seen) == [""]
    repositories = {"nvidia": "/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list"}
    by_another = host_with(repositories=repositories).with_parts(ToolkitState("13.0"))
    assert says(PLAN, by_another) == [""]


def test_a_key_that_is_gone_is_fetched_again() -> None:
    seen = seen_of(PLAN)
    assert PLAN.toolkit
    seen = with_file(seen, PLAN.toolkit.repository.keyring, None)
    assert says(PLAN, seen) == [ADDS]


def test_another_toolkit_at_its_place_stops_the_run() -> None:
    seen = seen_of(PLAN)
    seen = seen.with_parts(ToolkitState("12.8"))
    (problem,) = toolkit_refusals(PLAN, seen)
    assert problem in refusals(PLAN, seen, {})
    assert str(problem) == (
        "/usr/local/cuda-13.0/bin/nvcc is of CUDA 12.8, but the inventory declares 13.0\n"
        '  help: write `cuda: "12.8"`, or move /usr/local/cuda-13.0 away'
    )


@pytest.mark.parametrize(
    ("room", "message"),
    [
        ("5000000000\t/dev/root\t0", "/usr/local has 5.0 GB free, and up to 9.0 GB are needed"),
        ("9000000000\t/dev/root\t0", None),
        # A run that was killed has brought most of it.
        ("2000000000\t/dev/root\t7000000000", None),
        ("2000000000\t/dev/root\t6000000000", "/usr/local has 2.0 GB free, and up to 3.0 GB are needed"),
        ("0\t/dev/root\t12000000000", None),
        # One disk for all: what is built, what is fetched and the toolkit go there.
        ("1000000000000\toverlay\t0", None),
    ],
)
def test_a_disk_without_room_for_it_stops_the_run(room: str, message: str | None) -> None:
    seen = parse_state([*converged(PLAN, {}), f"room\t/usr/local\t{room}"])
    seen = seen.with_parts(replace(ToolkitState.of(seen), version=None))
    assert [problem.message for problem in refusals(PLAN, seen, {})] == ([message] if message else [])


def test_one_disk_is_asked_for_all_that_goes_there() -> None:
    lines = [line for line in converged(PLAN, {}) if not line.startswith(("toolkit\t13", "build\t"))]
    lines.append(f"room\t/usr/local\t{10**12}\toverlay\t0")
    seen = parse_state(line.replace(str(10**12), str(10**10)) for line in lines)
    (problem,) = [each for each in refusals(PLAN, seen, {}) if "needed" in each.message]
    builds = sum(build.disk for build in PLAN.builds)
    assert problem.message.endswith(f"has 10.0 GB free, and up to {show_size(builds + TOOLKIT_BYTES)} are needed")


@pytest.mark.parametrize("architecture", [None, "121", "121a", "121f"])
def test_a_spark_gets_the_packages_of_its_machine(architecture: str | None) -> None:
    """However its architecture is written: it is no PC."""
    card = {"model": "GB10", "uuid": "GPU-1"} | ({"architecture": architecture} if architecture else {})
    declared = changed(gpu_rig(), {"gpus/cards/new": card})
    assert nvidia_repository(Rig.model_validate(declared)).url.endswith("/ubuntu2404/sbsa")
    assert nvidia_repository(Rig.model_validate(gpu_rig())).url.endswith("/ubuntu2404/x86_64")
