"""Compose files: what is hardened, mounted and published, and who could reach it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from llamaherd.plan import (
    InstancePlan,
    Plan,
)
from tests.render.pieces import (
    instance,
)
from tests.render.plans import (
    CPU,
    GPU,
    KEYED,
    KEYLESS,
    NO_UUIDS,
    VLLM,
)
from tests.render.texts import PROJECTS
from tests.support.rigs import cpu_rig, planned


def service(plan: InstancePlan) -> dict[str, Any]:
    project: dict[str, Any] = yaml.safe_load(plan.file.text)
    (only,) = project["services"].values()
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("case", PROJECTS)
def test_a_project_is_hardened(case: str) -> None:
    plan = PROJECTS[case]
    server = service(plan)
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]
    assert server["user"] == f"{plan.server.user}:{plan.server.user}"
    assert all(volume["read_only"] for volume in server["volumes"])
    assert server["pids_limit"] >= 2048
    assert str(plan.endpoint.port) in server["healthcheck"]["test"][-1]
    assert server["labels"] == {"llamaherd.spec": plan.spec, "llamaherd.port": str(plan.endpoint.port)}
    assert server["command"] == list(plan.server.arguments)
    assert server["image"] == plan.server.image
    assert "privileged" not in server


def test_a_key_is_mounted_and_never_written_into_a_project() -> None:
    targets = {volume["target"] for volume in service(instance(KEYED, "drafter"))["volumes"]}
    assert "/etc/llamaherd/keys/drafter" in targets


def test_a_project_has_the_cards_that_it_names() -> None:
    (device,) = service(instance(GPU, "boxed"))["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "cdi", "device_ids": ["nvidia.com/gpu=GPU-5090"], "capabilities": ["gpu"]}
    assert "deploy" not in service(instance(CPU, "drafter"))


def test_cards_without_a_uuid_name_no_device() -> None:
    (device,) = service(instance(NO_UUIDS, "boxed"))["deploy"]["resources"]["reservations"]["devices"]
    assert None not in device.get("device_ids", [])
    assert "CUDA_VISIBLE_DEVICES=None" not in instance(NO_UUIDS, "reasoner").file.text


@pytest.mark.parametrize(
    ("listen", "published"),
    [("0.0.0.0", "0.0.0.0"), ("::", "::"), ("10.0.0.5", "10.0.0.5")],
)
def test_where_a_project_is_published(listen: str, published: str) -> None:
    plan = instance(planned(cpu_rig(), {"instances/drafter/listen": listen}), "drafter")
    (port,) = service(plan)["ports"]
    assert (port["host_ip"], port["published"], port["target"]) == (
        published,
        str(plan.endpoint.port),
        plan.endpoint.port,
    )
    assert "network_mode" not in service(plan)


@pytest.mark.parametrize(
    ("listen", "host", "asked"),
    [("::1", "::1", "[::1]"), ("localhost", "127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2", "127.0.0.2")],
)
def test_a_project_that_stays_on_loopback_has_no_network_that_others_could_reach(
    listen: str, host: str, asked: str
) -> None:
    server = service(instance(planned(cpu_rig(), {"instances/drafter/listen": listen}), "drafter"))
    assert server["network_mode"] == "host"
    assert "ports" not in server
    command = server["command"]
    assert command[command.index("--host") + 1] == host
    assert server["healthcheck"]["test"][-1] == f"http://{asked}:8081/health"


def environment_of(plan: Plan) -> set[str]:
    unit = instance(plan, "chat").file.text
    return {line.removeprefix("Environment=") for line in unit.splitlines() if line.startswith("Environment=")}


def test_pages_of_others_may_read_only_what_has_a_key() -> None:
    assert "LLAMA_ARG_CORS_ORIGINS=localhost" in environment_of(KEYLESS)
    assert "LLAMA_ARG_CORS_ORIGINS=localhost" not in environment_of(CPU)
    own = {"instances/chat/api_key": None, "instances/chat/environment": {"LLAMA_ARG_CORS_ORIGINS": "https://chat.lan"}}
    assert "LLAMA_ARG_CORS_ORIGINS=https://chat.lan" in environment_of(planned(cpu_rig(), own))


def test_ik_llama_cpp_has_a_thread_for_many_connections_unless_told_otherwise() -> None:
    ik = {"engines/main/kind": "ik_llama.cpp", "instances/chat/draft": {"mtp": 1}}
    assert "LLAMA_ARG_THREADS_HTTP=1024" in environment_of(planned(cpu_rig(), ik))
    told = planned(cpu_rig(), {**ik, "instances/chat/extra_args": ["--threads-http", "8"]})
    assert not any(each.startswith("LLAMA_ARG_THREADS_HTTP") for each in environment_of(told))


def test_the_workers_of_vllm_listen_on_all_addresses_and_stay_in_a_network_of_their_own() -> None:
    server = service(instance(VLLM, "v"))
    assert "network_mode" not in server
    (port,) = server["ports"]
    assert port["host_ip"] == "127.0.0.1"


@pytest.mark.parametrize(("listen", "asked"), [("127.0.0.1", "127.0.0.1"), ("10.0.0.5", "10.0.0.5"), ("::1", "[::1]")])
def test_health_is_asked_where_the_server_listens(listen: str, asked: str) -> None:
    unit = instance(planned(cpu_rig(), {"instances/chat/listen": listen}), "chat").file.text
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStartPost=")]
    assert (asked in line) or (asked == "127.0.0.1" and line.endswith(" 8080"))
