"""Docker, its Compose and GPUs for containers: the plan, what there may be of them, and what follows from both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.state import HostState
from llamaherd.plan import ContainerToolkitPlan, Plan
from roles.container_runtime import (
    DOCKER_PACKAGES,
    PACKAGES,
    DockerState,
    docker_changes,
    inspection_input,
    merge,
    pins,
    runtime_refusals,
    toolkit_changes,
)
from roles.container_runtime.onhost import InspectInput, InstallInput, UnitFound
from tests.support.drifts import Drift, lost
from tests.support.ours import parse_state, refusals, show_plan
from tests.support.recording import input_of
from tests.support.rigs import GONE, converged, cpu_rig, gpu_rig, planned

CPU = planned(cpu_rig())
PLAN = planned(gpu_rig())
DECLARED = planned(gpu_rig(), {"gpus/container_toolkit": {"version": "1.19.1"}})
MAY = planned(gpu_rig(), {"gpus/container_toolkit": {"restart_docker": True}})


def toolkit_of(plan: Plan) -> ContainerToolkitPlan:
    assert plan.runtime
    assert plan.runtime.toolkit
    return plan.runtime.toolkit


def seen_of(plan: Plan) -> HostState:
    return parse_state(converged(plan, {"chat": "key"}))


def devices(plan: Plan, name: str = "boxed") -> tuple[list[str], str]:
    """What a container asks for, and which of it a server takes."""
    (instance,) = (each for each in plan.instances if each.name == name)
    server = yaml.safe_load(instance.file.text)["services"]["server"]
    (device,) = server["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("cdi", ["gpu"])
    return device["device_ids"], server["environment"].get("CUDA_VISIBLE_DEVICES", "")


# --- the plan --------------------------------------------------------------------------------------------------------


def test_a_rig_without_containers_needs_no_docker() -> None:
    plan = planned(gpu_rig(), {f"instances/{name}": GONE for name in ("small", "boxed")})
    assert plan.runtime is None
    assert inspection_input(plan) is None


def test_what_a_container_on_the_cpu_needs() -> None:
    assert CPU.runtime
    assert (CPU.runtime.docker, CPU.runtime.compose, CPU.runtime.toolkit) == ((25, 0), (2, 21), None)
    assert inspection_input(CPU) == InspectInput(DOCKER_PACKAGES)


def test_what_a_container_on_a_card_needs() -> None:
    assert PLAN.runtime
    assert PLAN.runtime.docker == (26, 1)
    assert toolkit_of(PLAN).repository in PLAN.repositories
    assert toolkit_of(PLAN).devices == ("nvidia.com/gpu=GPU-5090",)


@pytest.mark.parametrize(
    ("changes", "asked", "visible"),
    [
        ({}, ["nvidia.com/gpu=GPU-5090"], "GPU-5090"),
        (
            {"instances/boxed/on": ["old", "new"]},
            ["nvidia.com/gpu=GPU-3090", "nvidia.com/gpu=GPU-5090"],
            "GPU-3090,GPU-5090",
        ),
        ({"gpus/cards/new": {"model": "RTX 5090", "index": 1}}, ["nvidia.com/gpu=1"], "0"),
        ({"gpus/cards/new": {"model": "RTX 5090"}}, ["nvidia.com/gpu=all"], ""),
        ({"host/wsl": {}}, ["nvidia.com/gpu=all"], "GPU-5090"),
        ({"host/wsl": {}, "gpus/cards/new": {"model": "RTX 5090", "index": 1}}, ["nvidia.com/gpu=all"], "1"),
    ],
    ids=["by UUID", "two", "by number", "the only one", "under WSL", "under WSL by number"],
)
def test_what_containers_ask_for(changes: dict[str, Any], asked: list[str], visible: str) -> None:
    plan = planned(gpu_rig(), changes)
    assert devices(plan) == (asked, visible)
    assert set(asked) <= set(toolkit_of(plan).devices)


def test_a_plan_shows_it() -> None:
    assert "  docker     25.0 or newer with Compose 2.21 or newer, or else docker.io docker-cli" in show_plan(CPU)
    assert "             GPUs by NVIDIA's container toolkit 1.19.1\n" in show_plan(DECLARED)
    assert "             GPUs by NVIDIA's container toolkit, the newest and then kept\n" in show_plan(PLAN)


# --- Docker and Compose ----------------------------------------------------------------------------------------------


def docker_is(**values: Any) -> Drift:
    """Docker is otherwise."""
    return lambda seen: seen.with_parts(replace(DockerState.of(seen), **values))


def unit_is(name: str, **values: Any) -> Drift:
    """One of Docker's units is otherwise than up and free to be started, as Docker's own is."""

    def drift(seen: HostState) -> HostState:
        unit = UnitFound(load="loaded", active="active", enabled="enabled", needs=())
        docker = DockerState.of(seen)
        return seen.with_parts(replace(docker, units={**docker.units, name: replace(unit, **values)}))

    return drift


ENGINES: dict[str, tuple[Drift, list[str]]] = {
    "as planned": (docker_is(), []),
    "Docker's own packages": (docker_is(origin="docker-ce", version=(29, 0, 1)), []),
    "somebody's binaries": (docker_is(origin=""), []),
    "no Compose beside the distribution's": (docker_is(compose=()), ["installing docker-compose"]),
    "an old Compose beside the distribution's": (docker_is(compose=(2, 20, 3)), ["installing docker-compose"]),
    "no Compose beside Docker's own": (
        docker_is(origin="docker-ce", compose=()),
        ["installing docker-compose-plugin"],
    ),
    "not running": (unit_is("docker.service", active="inactive"), ["starting Docker"]),
    "not at boot": (unit_is("docker.service", enabled="disabled"), ["starting Docker"]),
}


@pytest.mark.parametrize("case", ENGINES)
def test_what_is_there_is_used_and_what_is_missing_installed(case: str) -> None:
    drift, said = ENGINES[case]
    seen = seen_of(CPU)
    seen = drift(seen)
    assert [step.says for step in docker_changes(CPU, seen)] == said
    assert runtime_refusals(CPU, seen) == []


def test_a_virgin_host_gets_the_distributions() -> None:
    (step,) = docker_changes(CPU, HostState())
    assert input_of(step, InstallInput).packages == ("docker.io", "docker-cli", "docker-compose")
    assert runtime_refusals(CPU, HostState()) == []


REFUSED: dict[str, tuple[Drift, str, str]] = {
    "a snap": (docker_is(origin="snap"), "is a snap", "`snap remove docker`"),
    "podman": (docker_is(origin="podman-docker", version=()), "is podman-docker", "`apt-get remove podman-docker`"),
    "too old": (
        docker_is(version=(24, 0, 9)),
        "is 24.0.9, and 25.0 or newer is needed",
        "`apt-get install docker.io docker-cli docker-compose`, if that brings 25.0 or newer",
    ),
    "too old, by another": (
        docker_is(version=(20, 10, 24), origin="docker-ce"),
        "is 20.10.24, and 25.0",
        "install Docker 25.0 or newer, from where it came from",
    ),
    "of no version": (docker_is(version=(), origin="docker-ce"), "is of an unknown version", "25.0 or newer"),
    "binaries without Compose": (docker_is(origin="", compose=()), "no Compose of 2.21", "its Compose plugin"),
}


SERVICE = "docker\tunit\tdocker.service\tloaded\tactive\tenabled\tdocker.socket sysinit.target containerd.service"
SERVICE_MASKED = "docker\tunit\tdocker.service\tmasked\tinactive\tmasked\t "
SOCKET_MASKED = "docker\tunit\tdocker.socket\tmasked\tinactive\tmasked\t "


@pytest.mark.parametrize(
    ("units", "masked", "way_out"),
    [
        ([SERVICE], "", ""),
        ([SERVICE, "docker\tunit\tdocker.socket\tnot-found\tinactive\t\t "], "", ""),
        ([SERVICE_MASKED], "docker.service is masked", "`systemctl unmask docker.service`, then"),
        (
            [SERVICE_MASKED, SOCKET_MASKED],
            "docker.service and docker.socket are masked",
            "`systemctl unmask docker.service docker.socket`, then",
        ),
        ([SERVICE.replace("active", "inactive"), SOCKET_MASKED], "docker.socket is masked", "unmask docker.socket`"),
        # While it runs without one, it needs none; what is up and masked does not come again.
        ([SERVICE, SOCKET_MASKED], "", ""),
        ([SERVICE, SOCKET_MASKED.replace("inactive", "active")], "docker.socket is masked", "unmask docker.socket`"),
        ([SERVICE.replace("docker.socket ", ""), SOCKET_MASKED.replace("inactive", "active")], "", ""),
        (
            [
                SERVICE.replace("active", "failed"),
                "docker\tunit\tcontainerd.service\tmasked\tinactive\tmasked-runtime\t ",
            ],
            "containerd.service is masked",
            "`systemctl unmask --runtime containerd.service`, then",
        ),
    ],
)
def test_what_somebody_masked_stops_the_run_where_docker_needs_it(units: list[str], masked: str, way_out: str) -> None:
    seen = seen_of(CPU)
    seen = docker_is(units=DockerState.of(parse_state(units)).units)(seen)
    found = [(problem.message, problem.help or "") for problem in refusals(CPU, seen, {})]
    assert [(message.startswith(masked), way_out in help_) for message, help_ in found] == [(True, True)] * bool(masked)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_ours_to_replace_stops_the_run(case: str) -> None:
    drift, message, way_out = REFUSED[case]
    seen = seen_of(CPU)
    seen = drift(seen)
    (problem,) = refusals(CPU, seen, {})
    assert message in problem.message
    assert way_out in problem.help


def test_cards_need_a_newer_docker() -> None:
    seen = seen_of(PLAN)
    seen = docker_is(version=(25, 0, 5))(seen)
    assert "is 25.0.5, and 26.1 or newer is needed" in str(runtime_refusals(PLAN, seen)[0])


# --- GPUs -----------------------------------------------------------------------------------------------------------

INSTALLS, WIRES = "installing NVIDIA's container toolkit", "giving GPUs to containers"
ADDS = "making https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) known to apt"
HALF = dict.fromkeys(PACKAGES[:2], "1.20.0-1") | dict.fromkeys(PACKAGES[2:], "1.19.1-1")


def settings_are(text: bytes | None) -> Drift:
    """Docker's settings are these."""
    return docker_is(settings=text)


CARDS: dict[str, tuple[Drift, list[str]]] = {
    "as planned": (docker_is(), []),
    "no toolkit": (docker_is(toolkit={}), [INSTALLS]),
    "two versions": (docker_is(toolkit=HALF), [INSTALLS]),
    "one package is missing": (docker_is(toolkit=dict(list(HALF.items())[:2])), [INSTALLS]),
    "nothing keeps the version": (lost(pins("", "").path), [""]),
    "the key is gone": (lost(toolkit_of(PLAN).repository.keyring), [ADDS]),
    "no settings": (settings_are(None), [WIRES]),
    "settings of another": (settings_are(b'{"log-driver": "journald"}'), [WIRES]),
    "the daemon lacks the runtime": (docker_is(runtimes=frozenset({"runc"})), [WIRES]),
    "the daemon lacks CDI": (docker_is(cdi=False, running=[]), [WIRES]),
    "Docker does not wait for cards": (lost(toolkit_of(PLAN).order.path), [WIRES]),
    "cards are not described": (docker_is(devices=set()), [WIRES]),
    "another card is described": (docker_is(devices={"nvidia.com/gpu=GPU-1"}), [WIRES]),
    "nothing describes cards": (docker_is(refresh={}), [WIRES]),
    "nothing describes cards at boot": (
        docker_is(refresh={"nvidia-cdi-refresh.path": "enabled", "nvidia-cdi-refresh.service": "disabled"}),
        [WIRES],
    ),
}


@pytest.mark.parametrize("case", CARDS)
def test_a_drift_is_mended(case: str) -> None:
    drift, said = CARDS[case]
    seen = seen_of(PLAN)
    seen = drift(seen)
    assert [step.says for step in toolkit_changes(PLAN, seen)] == said
    assert runtime_refusals(PLAN, seen) == []


def test_a_virgin_host_gets_all_of_it() -> None:
    assert [step.says for step in toolkit_changes(PLAN, HostState())] == [ADDS, INSTALLS, WIRES]


def test_the_declared_version_is_brought_and_another_is_not_kept() -> None:
    assert toolkit_changes(DECLARED, seen_of(DECLARED)) == []
    assert toolkit_changes(DECLARED, seen_of(PLAN))[0].says == f"{INSTALLS} 1.19.1"
    # What was declared once and is not any more stays as it is.
    assert DockerState.of(seen_of(DECLARED)).toolkit[PACKAGES[0]] == "1.19.1-1"
    assert toolkit_changes(PLAN, seen_of(DECLARED)) == []


@pytest.mark.parametrize(
    ("plan", "docker", "stops"),
    [
        (PLAN, {}, False),
        (PLAN, {"cdi": False}, True),
        (PLAN, {"cdi": False, "running": []}, False),
        (PLAN, {"cdi": False, "live_restore": True}, False),
        (PLAN, {"cdi": False, "responds": False}, False),
        (PLAN, {"runtimes": frozenset()}, False),
        (MAY, {"cdi": False}, False),
    ],
    ids=["as planned", "containers", "none", "they go on", "it does not run", "a reload does", "allowed"],
)
def test_docker_is_not_restarted_under_containers_unasked(plan: Plan, docker: dict[str, Any], stops: bool) -> None:
    seen = seen_of(plan)
    seen = docker_is(**docker)(seen)
    said = "\n".join(map(str, runtime_refusals(plan, seen)))
    assert ("these run: llama-boxed, llama-small" in said) == stops
    assert ("`restart_docker: true`" in said) == stops


def test_many_containers_are_not_all_named() -> None:
    seen = seen_of(PLAN)
    seen = docker_is(cdi=False, running=[f"c{number}" for number in range(7)])(seen)
    (problem,) = runtime_refusals(PLAN, seen)
    assert problem.message.endswith("c0, c1, c2, c3, c4 and others")


def test_settings_that_cannot_be_read_stop_the_run() -> None:
    seen = seen_of(PLAN)
    seen = settings_are(b'{"a": 1,\n  "b": }')(seen)
    (problem,) = refusals(PLAN, seen, {})
    assert problem.message == "/etc/docker/daemon.json is no JSON: line 2, column 8: expecting value"


@pytest.mark.parametrize(("version", "told"), [((26, 1, 5), True), ((28, 3, 0), False), ((29, 1, 0), False)])
def test_cdi_is_switched_on_where_docker_does_not_by_itself(version: tuple[int, ...], told: bool) -> None:
    seen = seen_of(PLAN)
    seen = docker_is(version=version)(seen)
    seen = settings_are(merge(None, cdi=told))(seen)
    assert toolkit_changes(PLAN, seen) == []
    seen = settings_are(merge(None, cdi=not told))(seen)
    assert bool(toolkit_changes(PLAN, seen)) == told


# --- what a host says ------------------------------------------------------------------------------------------------


def test_a_daemon_that_does_not_answer_is_known_by_its_programs() -> None:
    said = [
        "package\tdocker-ce\t5:29.1.3-1",
        "compose\tv2.40.3",
        "silent\t29.1.3",
        "unit\tdocker.service\tloaded\tfailed\tenabled\t",
    ]
    seen = parse_state(f"docker\t{line}" for line in said)
    assert (DockerState.of(seen).version, DockerState.of(seen).compose, DockerState.of(seen).responds) == (
        (29, 1, 3),
        (2, 40, 3),
        False,
    )
    assert not DockerState.of(seen).active


def test_packages_tell_whose_docker_is_and_its_compose() -> None:
    """As dpkg-query prints them on Ubuntu, Debian, and with Docker's own repository."""
    for compose, version in (
        ("docker-compose-v2\t2.40.3+ds1-0ubuntu1~24.04.1", (2, 40, 3)),
        ("docker-compose\t2.26.1-4", (2, 26, 1)),
        ("docker-compose-plugin\t5.0.2-1~debian.13~trixie", (5, 0, 2)),
    ):
        seen = parse_state(f"docker\tpackage\t{line}" for line in ("docker.io\t28.2.2", compose))
        assert (DockerState.of(seen).origin, DockerState.of(seen).compose) == ("docker.io", version)
    assert DockerState.of(parse_state(["docker\tsnap", "docker\tpackage\tdocker.io\t28.2.2"])).origin == "snap"


@pytest.mark.parametrize(
    "lines",
    [
        ["docker\tinfo\t{}".format('{"ServerVersion": "' + "9" * 4301 + '.1"}')],
        ["docker\tsilent\t1", "docker\tsettings\t600\tno base64"],
    ],
)
def test_a_result_that_cannot_be_is_refused(lines: list[str]) -> None:
    with pytest.raises(UnexpectedLineError, match=r"container_runtime\.inspect: "):
        parse_state(lines)
