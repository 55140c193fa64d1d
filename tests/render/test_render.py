"""Every text that goes to a host, against the golden files beside this: units, compose projects and scripts.

After a wanted change, `REWRITE_GOLDEN=1 .venv/bin/pytest tests/render` writes them anew; read their diff like code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from llamaherd.bench.arms.alone import alone
from llamaherd.bench.arms.units import Arm, arm_unit, arms_script, run_unit
from llamaherd.bench.holding import limits_script
from llamaherd.bench.meter import meter as metering
from llamaherd.gateway.ask import ask_script as gateway_ask
from llamaherd.gguf.header import Header
from llamaherd.history.release import KEPT, read_script
from llamaherd.host.driver import PackageState
from llamaherd.host.protocol import question_of
from llamaherd.host.serving import ContainerState, UnitState
from llamaherd.host.state import HostState
from llamaherd.host.turn import unlock_script
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.layout import RELEASES
from llamaherd.lock import Lock, LockedLocal
from llamaherd.pipeline import engine_estimate as asking
from llamaherd.pipeline.diff import MOST
from llamaherd.pipeline.drift_tell import tell_script
from llamaherd.pipeline.server_keys import ask_script as keys_script
from llamaherd.plan import (
    RAM,
    BuildPlan,
    Estimate,
    FromNeighbour,
    GatePlan,
    GatewayFigures,
    Grows,
    Holds,
    InstancePlan,
    Plan,
    PowerPlan,
    TextFile,
    ToolkitPlan,
)
from llamaherd.plan.loaded import instances_of
from llamaherd.prune import ask as prune
from llamaherd.prune.unused import Thing
from llamaherd.render import render
from llamaherd.role.changes import Change, DeferredScript, GuardedScript, RunScript, Say
from llamaherd.role.repositories import nvidia_repository, repository_changes
from llamaherd.role.service import ServiceState
from llamaherd.role.way_in import guarded
from llamaherd.status.ask import look_script as status_look
from llamaherd.store import hashes
from llamaherd.store.ask import look_script, prune_script
from llamaherd.store.holdings import Removal
from llamaherd.text.quoting import base64_lines
from llamaherd.text.quoting import systemd_argument as unit_quote
from llamaherd.wsl.state import ScriptState, TextState, WslState
from roles.base.changes import base_changes, package_changes
from roles.chat_page.changes import changes_with as chat_changes
from roles.chat_page.changes import chat_leftovers
from roles.chat_page.files import KEY as CHAT_KEY
from roles.chat_page.state import ChatState
from roles.chat_page.state import inspect as chat_inspect
from roles.chat_page.verify import question as chat_question
from roles.container_runtime.changes import docker_changes
from roles.container_runtime.changes import toolkit_changes as container_steps
from roles.cuda_toolkit.changes import toolkit_changes
from roles.engines.changes import build_changes
from roles.gateway.changes import changes_with as gateway_changes
from roles.gateway.changes import gateway_leftovers
from roles.gateway.config import configuration, maps, spec_of
from roles.gateway.plan import unit_spec
from roles.gateway.state import GatewayState, RunningState
from roles.gateway.verify import question as gateway_question
from roles.models.changes import ModelSource, begin_changes, fetch_job, model_changes, to_fetch
from roles.models.lending import share
from roles.monitoring.changes import changes_with as watcher_changes
from roles.monitoring.changes import exporter_changes
from roles.monitoring.changes import leftovers as monitoring_leftovers
from roles.monitoring.plan import unit_spec as unit_of
from roles.monitoring.state import MonitoringState
from roles.monitoring.verify import question as monitoring_question
from roles.nvidia_driver.changes import driver_changes, load_changes, reboot
from roles.nvidia_driver.going_back import undo_files
from roles.nvidia_driver.plan import version_hold
from roles.power.changes import power_changes, power_leftovers
from roles.power.state import PowerState
from roles.power.state import UnitState as PowerUnitState
from roles.serve.beside import beside, beside_files, moved
from roles.serve.changes import project_changes, unit_changes
from roles.serve.gated import gated
from roles.serve.images import image_changes
from roles.serve.keys import KeysState, stray_keys
from roles.serve.ports import handover_changes
from roles.serve.removal import Going, removal_changes
from roles.serve.trial import container_trial
from roles.virtual_address.changes import address_changes, address_leftovers
from roles.virtual_address.state import AddressState
from roles.virtual_address.state import inspect as address_inspect
from roles.virtual_address.verify import question as address_question
from roles.wsl.changes import wsl_changes
from tests.bench.grouped import watched
from tests.support import ours as verify
from tests.support.gateway import as_written, chatting_plan, gateway_files, gateway_of, gateway_plans, keys_of
from tests.support.monitoring import household
from tests.support.ours import inspect_script, parse_state, tasks
from tests.support.prometheus import monitored, watcher_of
from tests.support.rigs import DIGEST, ROOT, converged, cpu_rig, gpu_rig, hub_lock, planned, wsl_rig
from tests.support.shell import expands
from tests.support.virtual_address import shared_by, sharing_plans

GOLDEN = Path(__file__).parent / "golden"
CPU = planned(cpu_rig())
GPU = planned(gpu_rig())
_SWAPPING = {"engine": "main", "on": ["new"], "context": 8192, "port": 8010, "group": "card", "api_key": {"env": "K"}}
GROUP = next(
    each
    for each in planned(
        gpu_rig(),
        {
            "instances/one": _SWAPPING | {"model": "35b", "draft": {"mtp": 2}},
            "instances/two": _SWAPPING | {"model": "gemma", "mmap": False},
        },
    ).instances
    if each.members
)
KEYED = planned(cpu_rig(), {"instances/drafter/api_key": {"env": "K"}})
KEYLESS = planned(cpu_rig(), {"instances/chat/api_key": None})
LAN = planned(cpu_rig(), {"instances/chat/listen": "0.0.0.0"})
IK_CPU = planned(cpu_rig(), {"engines/main/kind": "ik_llama.cpp", "instances/chat/draft": {"mtp": 1}})
URL = planned(cpu_rig(), {"engines/main/source/archive": "https://mirror.lan/llama.tar.gz"})
VLLM = planned(
    gpu_rig(),
    {
        "engines/v": {"kind": "vllm", "image": f"vllm/vllm-openai@sha256:{DIGEST}"},
        "instances/v": {
            "engine": "v",
            "model": "35b",
            "on": ["new"],
            "context": 8192,
            "port": 8009,
            "backend": "compose",
            "api_key": {"env": "K"},
            "cpus": "0-7",
            "mlock": True,
            "environment": {"NCCL_DEBUG": "IN$FO"},
        },
    },
)
PULLED = planned(
    cpu_rig(),
    {
        "engines/ready": {"kind": "llama.cpp", "image": f"ghcr.io/ggml-org/llama.cpp@sha256:{DIGEST}"},
        "instances/drafter/engine": "ready",
        "instances/drafter/api_key": {"env": "K"},
        "instances/drafter/environment": {"GGML_A": "b c"},
    },
)
BOUND = planned(
    cpu_rig(), {"instances/chat/cpus": "0-1", "instances/chat/mlock": True, "instances/chat/environment": {"A": "b %c"}}
)
WATCHER = "0123456789abcdef"
NEIGHBOUR = FromNeighbour(
    name="six",
    connect=Connect(host="six.lan"),
    address="six.lan",
    port=8970,
    store="/var/lib/llamaherd/models",
)
HELD = planned(
    gpu_rig(),
    {
        "gpus/cards/old/power_limit": "280W",
        "gpus/cards/old/fans": "70%",
        "gpus/cards/new/power_limit": "450W",
        "gpus/cards/new/clocks": {"max": "2400MHz"},
    },
)
GATEWAY, SECURE = gateway_plans()
SHARING = sharing_plans()
CHATTING = chatting_plan()
WATCHING = household()
WSL = planned(wsl_rig())
WSL_NAT = planned(
    gpu_rig(),
    {
        "host/wsl": {"windows_profile": "/mnt/c/Users/tom b"},
        "gpus/cards/new/power_limit": "450W",
        "instances/small/listen": "0.0.0.0",
    },
)
ONE = planned(
    gpu_rig(),
    {
        "gpus/cards": {"new": {"model": "RTX 5090", "pci": "21:00.0"}, "old": {"model": "RTX 3090", "pci": "01:00.0"}},
        "instances/reasoner/split": "none",
    },
)
NO_UUIDS = planned(gpu_rig(), {"gpus/cards": {"new": {"model": "RTX 5090"}, "old": {"model": "RTX 3090"}}})


REMOVALS = (
    Removal(f"unsloth/old/{'ab' * 20}"),
    Removal(f"unsloth/new/{'cd' * 20}", files=("a Q8_0.gguf",), keep=("a Q4_K_M.gguf",)),
    Removal(f".incoming/{'1' * 64}"),
)
UNUSED = (
    Thing("build", "llama.cpp-000000000000", 7, ()),
    Thing("image", "llamaherd/engine:llama.cpp-000000000000-abcdef", 7, ()),
    Thing("preset", "card-0123456789ab.ini", 7, ()),
    Thing("source", "ab" * 32, 7, ()),
    Thing("work", "llama.cpp-111111111111", 7, ()),
    Thing("packages", "apt", 7, ()),
)


DRIVER = planned(gpu_rig(), {"gpus/driver": {"branch": 580}})
STAYING = planned(gpu_rig(), {"gpus/driver": {"branch": 580, "reboot": False}})
SIGNED = planned(gpu_rig(), {"gpus/driver": {"branch": 580, "from": "distribution"}})


def instance(plan: Plan, name: str) -> InstancePlan:
    return next(instance for instance in plan.instances if instance.name == name)


def build(plan: Plan, engine: str) -> BuildPlan:
    return next(build for build in plan.builds if build.engine == engine)


def unheld() -> HostState:
    """As planned, but that the unit which holds GPUs never ran."""
    seen = parse_state(converged(HELD, {}))
    PowerState.within(seen).unit = None
    return seen


def chat(wanted: Plan) -> list[Change]:
    """What makes the page on a virgin host."""
    assert wanted.chat
    key = TextFile(path=CHAT_KEY, text="a key", mode="0400", owner=wanted.chat.number)
    return chat_changes(wanted.chat, HostState(), [key])


def gateway(how: str = "") -> str:
    """The script that makes a virgin host a gateway; or one whose configuration, or whose users, are others'."""
    wanted = gateway_of(GATEWAY)
    keys = keys_of(wanted)
    seen = HostState()
    if how:
        spec, port = spec_of(configuration(wanted, keys).text).split("/")
        unit = ServiceState("active", "enabled", False, unit_spec(wanted))
        read = RunningState("other" if how == "reload" else spec, int(port), maps_are_read=False)
        seen = HostState(parts={GatewayState: GatewayState(unit, read)})
        seen.files = {file.path: as_written(file) for file in gateway_files(wanted, keys)}
    return script(gateway_changes(wanted, seen, keys))


def power(plan: Plan) -> PowerPlan:
    """How the GPUs of a plan are held."""
    assert plan.power
    return plan.power


def undo_text(plan: Plan, number: int) -> str:
    """What judges a driver at the next boot, and its unit."""
    assert plan.driver
    return undo_files(plan.driver)[number].text


def driver_file(plan: Plan, part: str) -> str:
    """What apt is told of the driver."""
    assert plan.driver
    return next(file.text for file in plan.driver.files if part in file.path)


def other_driver() -> HostState:
    """As planned, but that the driver and its tools are of another branch, and the next kernel has no headers."""
    seen = parse_state(converged(DRIVER, {}))
    seen.nvidia.packages |= {
        name: PackageState("570.211.01-1", "nvidia") for name in ("libnvidia-compute-570", "libcuda1")
    }
    seen.machine.next_kernel = "6.8.0-90-generic"
    return seen


def not_loaded() -> HostState:
    """As planned, but that nothing has loaded the driver yet."""
    seen = parse_state(converged(DRIVER, {}))
    seen.nvidia.loaded = None
    return seen


def toolkit(plan: Plan) -> ToolkitPlan:
    """The CUDA toolkit of a plan."""
    assert plan.toolkit
    return plan.toolkit


def cards_order(plan: Plan) -> str:
    """When Docker starts, with GPUs for containers."""
    assert plan.runtime
    assert plan.runtime.toolkit
    return plan.runtime.toolkit.order.text


def in_wsl(profile: str = "/mnt/c/Users/tom", *, systemd: bool = True) -> HostState:
    """A distribution as Windows' own user set it up: a file of the user's, and an old script of ours."""
    seen = WslState(
        "6.6.87.2-microsoft-standard-WSL2",
        profiles={profile: True},
        files={f"{profile}/.wslconfig": TextState(0, b"# mine\r\n[wsl2]\r\nmemory=8GB\r\n")},
        scripts={f"{profile}/llamaherd/gpu-power.ps1": ScriptState("0" * 64, "")},
    )
    return HostState(systemd=systemd, wsl=seen)


def windows_scripts() -> dict[str, str]:
    """What Windows is to run, with both ways in from the LAN; there, lines end in CR and LF."""
    assert WSL.wsl
    assert WSL_NAT.wsl
    texts = {PurePosixPath(each.path).name: each.text for each in WSL_NAT.wsl.scripts}
    texts["mirrored.ps1"] = next(each.text for each in WSL.wsl.scripts if each.path.endswith("port-proxy.ps1"))
    return {name: text.replace("\r\n", "\n") for name, text in texts.items()}


def script(steps: Sequence[Change], of: int = -1) -> str:
    """The text of one step."""
    how = steps[of].how
    assert isinstance(how, RunScript | GuardedScript)
    return how.script


def hub(_plan: Plan, wanted: Sequence[str], _say: Say) -> list[ModelSource]:
    """A hub that wants a token."""
    return [ModelSource("hub", {sha256: f"https://hub.lan/{sha256}" for sha256 in wanted}, "hf_token")]


def fetch_id() -> str:
    """What the fetch is called that the GPU rig wants."""
    return str(fetch_job(GPU, to_fetch(GPU, HostState()), [])["id"])


def made(steps: Sequence[Change]) -> str:
    """The text of a first step that is put together when its turn comes."""
    how = steps[0].how
    assert isinstance(how, DeferredScript)
    return how.make(print).script


def ask_memory(*names: str) -> str:
    """The script that asks what these instances of the rig with GPUs take."""
    header = Header(architecture="llama")
    lock = Lock(
        models=tuple(model.model_copy(update={"header": header}) for model in hub_lock().models),
        files=(LockedLocal(sha256="a5" * 32, size=10**9, data_offset=10**6, header=header),),
    )
    asked = [asking.question_to_engine(Rig.model_validate(gpu_rig()), GPU, instance(GPU, name), lock) for name in names]
    return asking.script(GPU, [each for each in asked if isinstance(each, asking.Question)], {})


def loading(plan: Plan) -> HostState:
    """As planned, but that the instances are still loading."""
    seen = parse_state(converged(plan, {"chat": "key"}))
    seen.units = {name: UnitState("activating", u.enabled, False, u.run, u.spec) for name, u in seen.units.items()}
    return seen


def hanging(plan: Plan) -> HostState:
    """As planned, but that a server hangs, and somebody has written a drop-in."""
    seen = parse_state(converged(plan, {"chat": "key"}))
    seen.serving["llama-chat"].hangs = "its process is stopped (SIGSTOP)"
    seen.serving["llama-chat"].foreign.append("/etc/systemd/system/llama-chat.service.d/it's mine.conf")
    return seen


GOING = (Going("old", unit=True, container=False, port=True, serves=True), Going("boxed", unit=False, container=True))
"""Servers that are not declared any more, and go on until what is new serves."""

UNITS: dict[str, InstancePlan] = {
    "systemd_cpu": instance(KEYLESS, "chat"),
    "systemd_cpu_with_key": instance(CPU, "chat"),
    "systemd_cpu_in_the_lan": instance(LAN, "chat"),
    "systemd_cpu_ik": instance(IK_CPU, "chat"),
    "systemd_cuda_two_cards": instance(GPU, "reasoner"),
    "systemd_cuda_ik_mtp": instance(GPU, "worker"),
    "systemd_cuda_wsl": instance(WSL_NAT, "worker"),
    "systemd_cuda_on_one_of_two": instance(ONE, "reasoner"),
    "systemd_cpu_bound_to_cores": instance(BOUND, "chat"),
}
PROJECTS: dict[str, InstancePlan] = {
    "compose_cpu_mtp": instance(CPU, "drafter"),
    "compose_cpu_with_key": instance(KEYED, "drafter"),
    "compose_cuda": instance(GPU, "boxed"),
    "compose_image_by_digest": instance(GPU, "small"),
    "compose_vllm": instance(VLLM, "v"),
}
RUNS: dict[str, Plan] = {
    "cpu": CPU,
    "driver": DRIVER,
    "power": HELD,
    "wsl": WSL,
    "gateway": GATEWAY,
    "virtual_address": SHARING["box"],
    "chat": CHATTING,
    "monitoring": WATCHING["box"],
}
"""What a run does there, in its order."""
SCRIPTS: dict[str, Callable[[], str]] = {
    "build_llama_cpp_cpu": lambda: build(CPU, "main").script,
    "build_llama_cpp_cuda_git": lambda: build(GPU, "main").script,
    "build_ik_cuda_overlay_url": lambda: build(GPU, "ik").script,
    "build_ik_cpu": lambda: build(IK_CPU, "main").script,
    "build_llama_cpp_url": lambda: build(URL, "main").script,
    "observe_cpu": lambda: inspect_script(CPU),
    "observe_gpu": lambda: inspect_script(GPU),
    "verify_cpu": lambda: verify.question(CPU),
    "verify_gpu": lambda: verify.question(GPU),
    "ask_memory_gpu": lambda: ask_memory("reasoner", "boxed"),
    "wait_healthy": lambda: render("serve/wait-healthy.sh"),
    "wait_loaded": lambda: render("serve/wait-loaded.sh"),
    "started": lambda: render("serve/started.sh", root=""),
    "gpu_gate": lambda: render("serve/gpu-gate.sh"),
    "gpu_check": lambda: render("serve/gpu-check.sh"),
    "step_accounts": lambda: script(base_changes(CPU, HostState()), 0),
    "step_shared_files": lambda: script(base_changes(CPU, HostState()), 1),
    "step_packages": lambda: script(package_changes(CPU, HostState())),
    "step_admit_source": lambda: script(build_changes(build(CPU, "main"), HostState()), 1),
    "step_build": lambda: script(build_changes(build(CPU, "main"), HostState())),
    "step_vouch": lambda: script(
        build_changes(build(CPU, "main"), HostState(builds={build(CPU, "main").id: "intact"}))
    ),
    "step_open": lambda: script(base_changes(CPU, HostState(closed=["/mnt/a b/model.gguf"])), 1),
    # Packed plans differ with the library that packs them.
    "step_release": lambda: render(
        "history/write.sh.j2", releases=RELEASES, release=base64_lines("{}"), plan=base64_lines("packed"), most=KEPT
    ),
    "step_room": lambda: render("serve/room.sh.j2"),
    "step_gpu_room": lambda: render(
        "serve/gpu-room.sh.j2", name="llama-coder", needs='[{"name": "big", "at": "0", "need": 7}]', going=()
    ),
    "step_ram_room": lambda: render("serve/ram-room.sh.j2", name="llama-coder", ram=7 << 30, kind="container"),
    "step_container_trial": lambda: container_trial(instance(PULLED, "drafter")),
    "step_container_trial_of_vllm": lambda: container_trial(instance(VLLM, "v")),
    "bench_meter_of_a_unit": lambda: metering.script(instance(KEYED, "chat"), 300),
    "bench_meter_of_a_groups_instance": lambda: metering.script(instances_of(GROUP)[1], 300),
    "bench_meter_of_a_container": lambda: metering.script(instance(KEYED, "drafter"), 7200),
    "status_look_cpu": lambda: status_look(CPU),
    "status_look_gpus": lambda: status_look(GPU),
    "status_look_gateway": lambda: status_look(GATEWAY),
    "bench_alone": lambda: render("bench/alone.sh.j2", who="tom on desk", yours="it is yours"),
    "host_turn": lambda: render("host/turn.sh.j2", rig="duo", who="tom on desk", wait=60, yours="it is yours"),
    "host_unlock": unlock_script,
    "host_disarm_undo": lambda: guarded(":", "", name="docker", undone="Docker is as it was").disarm,
    "ask_keys": lambda: keys_script(["chat", "small-group"]),
    "ask_releases": lambda: read_script(newest=3, number=7),
    "ask_texts": lambda: read_script(newest=1, texts=True),
    "step_unit_that_hangs": lambda: script(unit_changes(instance(CPU, "chat"), hanging(CPU), "key")),
    "step_image": lambda: script(image_changes(CPU.images[0], HostState())),
    "step_fetch_begun": lambda: made(begin_changes(GPU, HostState(), hub, WATCHER)),
    "step_fetch_joined": lambda: script(begin_changes(GPU, HostState(fetch=fetch_id()), hub, WATCHER)),
    "step_fetch_awaited": lambda: made(model_changes(GPU, HostState(), hub, WATCHER)[1:]),
    "step_repository": lambda: script(
        repository_changes(nvidia_repository(Rig.model_validate(gpu_rig())), HostState())
    ),
    "observe_driver": lambda: inspect_script(DRIVER),
    "verify_driver": lambda: verify.question(DRIVER),
    "step_components": lambda: script(driver_changes(SIGNED, HostState()), 0),
    "step_driver": lambda: script(driver_changes(DRIVER, other_driver())),
    "step_driver_distribution": lambda: script(driver_changes(SIGNED, HostState())),
    "step_load_driver": lambda: script(load_changes(DRIVER, not_loaded())),
    "step_reboot": lambda: reboot("580.95.05", "6.8.0-88-generic", kept=True).ask,
    "step_back": lambda: reboot("580.95.05", "6.8.0-88-generic", kept=True).back,
    "step_after_reboot": lambda: reboot("580.95.05", "6.8.0-88-generic", kept=True).after,
    "driver_undo": lambda: undo_text(DRIVER, 0),
    "driver_undo_without_reboot": lambda: undo_text(STAYING, 0),
    "step_share": lambda: share(NEIGHBOUR, ["1" * 64, "2" * 64], "0123456789ab", "token"),
    "store_look": lambda: look_script("/var/lib/llamaherd/models"),
    "store_prune": lambda: prune_script("/var/lib/llamaherd/models", REMOVALS),
    "prune_look": lambda: prune.look_script(3),
    "prune_remove": lambda: prune.remove_script(UNUSED, 3),
    "store_hash": lambda: hashes.hash_script(GPU),
    "step_models_admitted": lambda: script(model_changes(GPU, HostState(), hub, WATCHER)),
    "step_unit": lambda: script(unit_changes(instance(CPU, "chat"), HostState(), "key")),
    "step_unit_that_loads": lambda: script(unit_changes(instance(CPU, "chat"), loading(CPU), "key")),
    "step_project": lambda: script(project_changes(instance(CPU, "drafter"), HostState(), None)),
    "step_unit_from_a_container": lambda: script(
        unit_changes(instance(CPU, "chat"), HostState(projects={"chat"}), None)
    ),
    "arms": lambda: arms_script(
        (Arm("A", "cpu/chat", instance(CPU, "chat")), Arm("B", "cpu/chat with batch=1024", instance(CPU, "chat"))),
        [instance(CPU, "chat")],
        1200,
        "tom on desk",
    ),
    "arms_on_cards": lambda: arms_script(
        [Arm("A", "gpu/reasoner", taking(instance(GPU, "reasoner")))],
        [instance(GPU, "reasoner"), instance(CPU, "chat")],
        1200,
        "tom on desk",
    ),
    "arms_of_a_search_that_judges": lambda: arms_script(
        [Arm("C", "cpu/chat", instance(CPU, "chat"))],
        [instance(CPU, "chat")],
        1200,
        "tom on desk",
        others=True,
        text="What is read.\n",
    ),
    "arms_beside": lambda: arms_script(
        [Arm("A", "gpu/reasoner", taking(instance(GPU, "reasoner")))], (), 1200, "tom's"
    ),
    "limits": lambda: limits_script(["GPU-3090", "GPU-5090"], 600),
    "limits_within": lambda: limits_script(["GPU-3090"], 600, within=True),
    "step_unit_beside": lambda: script(
        unit_changes(instance(CPU, "chat"), HostState(), None, beside=beside(CPU, instance(CPU, "chat")))
    ),
    "step_project_beside": lambda: script(
        project_changes(instance(CPU, "drafter"), HostState(), None, beside=beside(CPU, instance(CPU, "drafter")))
    ),
    "step_unit_in_place_of_others": lambda: script(unit_changes(instance(CPU, "chat"), HostState(), None, going=GOING)),
    "step_project_in_place_of_others": lambda: script(
        project_changes(instance(CPU, "drafter"), HostState(), None, going=GOING[1:])
    ),
    "step_unit_on_cards_in_place_of_others": lambda: script(
        unit_changes(instance(GPU, "reasoner"), HostState(), None, going=GOING)
    ),
    "step_project_from_a_unit": lambda: script(
        project_changes(
            instance(CPU, "drafter"), HostState(units={"llama-drafter": UnitState("", "", False, "", "")}), None
        )
    ),
    "step_unit_on_cards": lambda: script(unit_changes(instance(GPU, "reasoner"), HostState(), None)),
    "step_project_on_a_card": lambda: script(project_changes(instance(GPU, "boxed"), HostState(), None)),
    "step_remove_unit": lambda: script(
        removal_changes(CPU, HostState(units={"llama-old": UnitState("", "", False, "", "")}))
    ),
    "step_remove_key": lambda: script(stray_keys(CPU, HostState(parts={KeysState: KeysState({"old"})}), ())),
    "step_stop_instance": lambda: script(handover_changes(CPU, swapped())),
    "receive": lambda: render(
        "deploy/receive.sh.j2",
        path="/var/lib/llamaherd/incoming/" + "1" * 64,
        size=4096,
        settled=[("/var/lib/llamaherd/models/local/1111111111111111", "a model.gguf")],
        standing=150,
    ),
    "step_toolkit": lambda: script(toolkit_changes(GPU, HostState())),
    "step_docker": lambda: script(docker_changes(CPU, HostState())),
    "step_container_toolkit": lambda: script(container_steps(GPU, HostState()), -2),
    "step_docker_cards": lambda: script(container_steps(GPU, HostState())),
    "tell_drift": lambda: tell_script("llamaherd_diff_seconds 7\n"),
    "observe_gateway": lambda: inspect_script(GATEWAY),
    "verify_gateway": lambda: gateway_question(GATEWAY),
    "observe_chat": lambda: chat_inspect(CHATTING),
    "verify_chat": lambda: chat_question(CHATTING),
    "step_chat": lambda: script(chat(CHATTING)),
    "step_remove_chat": lambda: script(chat_leftovers(GPU, HostState(parts={ChatState: ChatState(there=True)}))),
    "ask_gateway": lambda: gateway_ask("drain", "box.chat", "60"),
    "ask_gateway_to_take_back": lambda: gateway_ask("ready", "box.chat", ours=True),
    "ask_gateway_to_renew": lambda: gateway_ask("renew", "box.chat"),
    "step_gateway": gateway,
    "step_gateway_reload": lambda: gateway("reload"),
    "step_gateway_users": lambda: gateway("users"),
    "step_remove_gateway": lambda: script(
        gateway_leftovers(GPU, HostState(parts={GatewayState: GatewayState(ServiceState("active", "", False, ""))}))
    ),
    "observe_virtual_address": lambda: address_inspect(SHARING["box"]),
    "verify_virtual_address": lambda: address_question(SHARING["box"]),
    "virtual_address": lambda: shared_by(SHARING["box"]).program.text,
    "step_virtual_address": lambda: script(address_changes(SHARING["box"], HostState())),
    "step_remove_virtual_address": lambda: script(
        address_leftovers(GPU, HostState(parts={AddressState: AddressState(ServiceState("active", "", False, ""))}))
    ),
    "observe_monitoring": lambda: inspect_script(WATCHING["box"]),
    "verify_monitoring": lambda: monitoring_question(WATCHING["box"]),
    "step_exporter": lambda: script(exporter_changes(WATCHING["duo"], HostState())),
    "step_monitoring": lambda: script(watcher_changes(watcher_of(WATCHING["box"]), HostState(), {"box.chat": "a key"})),
    "step_monitoring_reload": lambda: script(
        watcher_changes(watcher_of(WATCHING["box"]), watching("another"), {"box.chat": "a key"})
    ),
    "step_remove_monitoring": lambda: script(list(monitoring_leftovers(WATCHING["porch"], watching("")))),
    "observe_power": lambda: inspect_script(HELD),
    "verify_power": lambda: verify.question(HELD),
    "gpu_power": lambda: power(HELD).program.text,
    "step_power": lambda: script(power_changes(HELD, unheld())),
    "step_remove_power": lambda: script(
        power_leftovers(GPU, HostState(parts={PowerState: PowerState(PowerUnitState("active", "enabled", False))}))
    ),
    "observe_wsl": lambda: inspect_script(WSL),
    "step_wsl_files": lambda: script(wsl_changes(WSL, in_wsl())),
    "step_wsl_restart": lambda: script(wsl_changes(WSL, in_wsl(systemd=False))),
    "step_refuse": lambda: refused_for("writing code -5.4% (-6.3% to -4.6%, 5 blocks), and -3.0% may be lost"),
    "step_remove_project": lambda: script(removal_changes(CPU, HostState(projects={"old"}))),
}


def watched_gateway() -> str:
    """What HAProxy reads on a rig that another one watches."""
    figures = GatewayFigures(listen="0.0.0.0", port=8405, asker="192.0.2.1")
    watched = gateway_of(GATEWAY).model_copy(update={"figures": figures})
    return configuration(watched, keys_of(watched)).text


def watching(read: str) -> HostState:
    """A host where all runs that watches, and has read this."""
    units = {PurePosixPath(unit.path).name: unit for unit in monitored(WATCHING["box"]).units}
    seen = {name: ServiceState("active", "enabled", False, unit_of(unit)) for name, unit in units.items()}
    return HostState(parts={MonitoringState: MonitoringState(seen, read)})


def refused_for(why: str) -> str:
    """What a host is told of a server that its gate has kept out."""
    chat = instance(CPU, "chat")
    state = HostState(units={chat.service: UnitState("active", "enabled", False, "run", "was")})
    gate = gated(chat.model_copy(update={"gate": GatePlan(decode=0.03, seconds=1200)}), state, None)
    assert gate
    return gate.refused(why)


def swapped() -> HostState:
    """A host where `drafter` has the port that `chat` is to have."""
    return HostState(
        containers={"llama-drafter": ContainerState("running", "healthy", "", "", instance(CPU, "chat").endpoint.port)}
    )


def taking(planned: InstancePlan) -> InstancePlan:
    """An instance of which it is certain what it takes."""
    held = [(card.name, 20 << 30) for card in planned.server.cards] + [(RAM, 9 << 30)]
    holds = tuple(
        Holds(where=where, size=24 << 30, weights=size, kv=0, state=0, compute=0, draft=0) for where, size in held
    )
    memory = Estimate(source="arithmetic", holds=holds, doubts=(), grows=Grows(), resident=7 << 30)
    return planned.model_copy(update={"memory": memory})


def beside_text(plan: Plan, name: str, file: int) -> str:
    """A file of what is tried beside an instance."""
    planned = instance(plan, name)
    return beside_files(planned, moved(planned.server, 61000))[file].text


@cache
def texts() -> dict[str, str]:
    """Every case by the name of its golden file."""
    return {
        **{f"{case}.service": planned.file.text for case, planned in UNITS.items()},
        "texts.sh": question_of("host/texts.sh.j2", files=["/etc/one", "/etc/o'ne two"], most=MOST),
        **{f"{case}.yaml": planned.file.text for case, planned in PROJECTS.items()},
        **{f"wsl_{case}": text for case, text in windows_scripts().items()},
        "driver_wanted.pref": driver_file(DRIVER, "wanted"),
        "driver_wanted_distribution.pref": driver_file(SIGNED, "wanted"),
        "driver_held_distribution.conf": driver_file(SIGNED, "52llamaherd"),
        "driver_undo.service": undo_text(DRIVER, 1),
        "driver_kept.pref": version_hold("580.95.05").text,
        "cuda_preferences": toolkit(GPU).preferences.text,
        "docker_cards.conf": cards_order(GPU),
        "arm_run.service": run_unit(
            Arm("C", "cpu/chat", instance(CPU, "chat")),
            (("/opt/it/compares", "--one", "a b"), ("/opt/it/compares", "--other")),
            900,
        ).text,
        "beside_unit.service": beside_text(CPU, "chat", 0),
        "arm.service": arm_unit(Arm("B", "cpu/chat with batch=1024", instance(CPU, "chat")), 2100).text,
        "arm_of_a_group.service": arm_unit(Arm("A", "cpu/one", alone(GROUP, GROUP.members[0].name, 60_901)), 2100).text,
        "beside_container.service": beside_text(CPU, "drafter", 0),
        "beside_container.yaml": beside_text(CPU, "drafter", 1),
        "chat_compose.yaml": CHATTING.chat.file.text if CHATTING.chat else "",
        "group.service": GROUP.file.text,
        "group.ini": GROUP.preset.text if GROUP.preset else "",
        "gateway.service": gateway_of(GATEWAY).unit.text,
        "gateway_talk.program": gateway_of(GATEWAY).talk.text,
        "gateway.cfg": configuration(gateway_of(GATEWAY), keys_of(gateway_of(GATEWAY))).text,
        "gateway_tls.cfg": configuration(gateway_of(SECURE), keys_of(gateway_of(SECURE), pem="a key")).text,
        **{
            f"gateway_{PurePosixPath(file.path).name}": file.text
            for file in maps(gateway_of(GATEWAY), keys_of(gateway_of(GATEWAY)))
        },
        **{
            PurePosixPath(unit.path).name.removeprefix("llamaherd-"): unit.text
            for unit in monitored(WATCHING["box"]).units
        },
        "gateway_watched.cfg": watched_gateway(),
        "address.service": shared_by(SHARING["box"]).unit.text,
        "keepalived.conf": shared_by(SHARING["porch"]).config.text,
        "exporter_for_another.service": monitored(WATCHING["duo"]).units[0].text,
        **{
            f"figures{PurePosixPath(file.path).suffix or '.program'}": file.text
            for file in monitored(WATCHING["duo"]).brought[1:]
        },
        **{PurePosixPath(file.path).name: file.text for file in watcher_of(WATCHING["box"]).files},
        **{f"group_{PurePosixPath(file.path).name}": file.text for file in watcher_of(watched()).files[:2]},
        "look.service": render("monitoring/look.service.j2", herd="/opt/a b/herd", inventory="/home/tom/50% of it"),
        "look.timer": render("monitoring/look.timer.j2", at="03:30"),
        "gpu_power.service": power(HELD).unit.text,
        "gpu_fans.program": power(HELD).fans.text,
        "gpu_power.table": power(HELD).table.text,
        **{f"run_{case}.txt": "\n".join([*tasks(plan), ""]) for case, plan in RUNS.items()},
        **{f"{case}.sh": make() for case, make in SCRIPTS.items()},
    }


@pytest.mark.parametrize("case", texts())
def test_golden(case: str) -> None:
    file = GOLDEN / case
    if os.environ.get("REWRITE_GOLDEN"):
        file.write_text(texts()[case], encoding="utf-8")
    assert texts()[case] == file.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert {file.name for file in GOLDEN.iterdir() if file.is_file()} == set(texts())


def test_every_template_is_rendered_here() -> None:
    """The longest piece that a template does not fill in stands in one of the texts."""
    everything = "\n".join(texts().values())
    for file in sorted((ROOT / "templates").rglob("*")):
        if file.is_dir() or file.parent.name in ("scaffold", "report") or file.name.endswith(".html.j2"):
            continue  # what `herd init` writes and asks, and pages for a browser, have tests of their own
        pieces = re.split(r"\{\{.*?\}\}|\{%.*?%\}|\n", file.read_text(encoding="utf-8"))
        assert max(pieces, key=len).strip() in everything, f"{file.name} is rendered by no case"


def test_a_name_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("host/install-packages.sh.j2")


@pytest.mark.parametrize("case", [case for case in texts() if case.endswith(".sh")])
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_scripts_parse(case: str, shell: str) -> None:
    # As they are sent: a text in braces, which must not close them early.
    text = f"{{\n{texts()[case]}\n}} </dev/null\n"
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


HOSTILE = "a $(id) `id` \"b\" 'c' ; d"


def test_no_text_of_others_is_read_by_a_shell() -> None:
    """A hub names its files, and an owner folders and arguments: a shell finds them quoted wherever they stand."""
    declared = gpu_rig()
    declared["models"]["gemma"]["file"] = f"/srv/{HOSTILE}.gguf"
    declared["engines"]["ik"]["source"]["folder"] = HOSTILE
    # A URL holds no blank.
    declared["engines"]["ik"]["source"]["archive"] = f"https://mirror.lan/{HOSTILE.replace(' ', '')}.tar.gz"
    declared["engines"]["ik"]["source"]["overlay"] = {HOSTILE: HOSTILE}
    declared["engines"]["ik"]["options"] = {"A": HOSTILE}
    declared["instances"]["worker"]["extra_args"] = [HOSTILE]
    plan = planned(declared)
    model = next(model for model in plan.models if model.url)
    files = tuple(file.model_copy(update={"name": f"{HOSTILE}{n}.gguf"}) for n, file in enumerate(model.files))
    hostile = model.model_copy(update={"files": files, "name": HOSTILE})
    hostile_wsl = planned(wsl_rig(), {"host/wsl/windows_profile": f"/mnt/c/Users/{HOSTILE}"})
    named = plan.model_copy(update={"models": (*(m for m in plan.models if not m.url), hostile)})
    texts = {
        "build": build(plan, "ik").script,
        "observe": inspect_script(plan),
        "verify": verify.question(plan),
        "fetch": made(begin_changes(named, HostState(), hub, WATCHER)),
        "wait": made(model_changes(named, HostState(), hub, WATCHER)[1:]),
        "admit": script(model_changes(named, HostState(), hub, WATCHER)),
        "share": share(NEIGHBOUR.model_copy(update={"address": HOSTILE, "store": HOSTILE}), ["1" * 64], "0", "token"),
        "unit": script(unit_changes(instance(plan, "worker"), HostState(), None)),
        "observe under WSL": inspect_script(hostile_wsl),
        "files of Windows": script(wsl_changes(hostile_wsl, in_wsl(f"/mnt/c/Users/{HOSTILE}"))),
    }
    ran = [name for name, text in texts.items() if expands(text, "$(id)")]
    assert ran == []


@pytest.mark.parametrize(
    ("script", "expanded"),
    [
        ("echo $(id)", True),
        ('echo "$(id)"', True),
        ("echo '$(id)'", False),
        ("""echo "'$(id)'" """, True),
        ("""echo "$(cat '$(id)')" '"' '$(id)'""", False),
        ("cat <<'END'\n$(id)\nEND\necho", False),
        ("cat <<'END' || exit\nx\nEND\necho $(id)", True),
        ("echo # $(id)\n", False),
    ],
)
def test_how_a_shell_reads(script: str, expanded: bool) -> None:
    assert expands(script, "$(id)") is expanded


def exec_start(unit: str) -> str:
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    return line.removeprefix("ExecStart=")


def systemd_split(line: str) -> list[str]:
    """ExecStart= as systemd reads it: C escapes in words and quotes, then `%%`, then `$$` (systemd.service(5))."""
    escapes = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "s": " "}
    words: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(line)
    for character in characters:
        if character == "\\":
            word = (word or "") + escapes[next(characters)]
        elif quote:
            if character == quote:
                quote = ""
            else:
                word = (word or "") + character
        elif character in "\"'" and word is None:
            quote, word = character, ""
        elif character in " \t\n\r":
            if word is not None:
                words.append(word)
            word = None
        else:
            assert character not in "\"'", "a quote inside a word is part of it; nothing here writes such"
            word = (word or "") + character
    assert not quote
    words += [word] if word is not None else []
    for each in words:
        rest = each.replace("%%", "").replace("$$", "")
        assert "%" not in rest, each
        assert "$" not in rest, each
    return [each.replace("%%", "%").replace("$$", "$") for each in words]


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
@example(["", ";", "a b", "'", '"', "\\", "$HOME", "${A}", "%n", "a\nb", "a\rb", "\t", "\\n", "#", "-"])
def test_systemd_reads_the_arguments_that_were_meant(arguments: list[str]) -> None:
    line = " ".join(["/bin/true", *map(unit_quote, arguments)])
    # A line of a unit file ends at either of these, and a word that is a bare semicolon starts another command.
    assert not set("\n\r") & set(line)
    assert ";" not in line.split()
    assert systemd_split(line) == ["/bin/true", *arguments]


@pytest.mark.parametrize("case", UNITS)
def test_a_unit_runs_the_planned_arguments(case: str) -> None:
    unit = UNITS[case]
    assert systemd_split(exec_start(unit.file.text)) == [unit.server.program, *unit.server.arguments]


analyze = shutil.which("systemd-analyze")
needs_analyze = pytest.mark.skipif(analyze is None, reason="systemd-analyze is not installed")
run = partial(subprocess.run, capture_output=True, text=True, check=False)


@needs_analyze
@pytest.mark.parametrize("case", UNITS)
def test_systemd_finds_nothing_wrong(case: str, tmp_path: Path) -> None:
    unit = UNITS[case]
    text = unit.file.text.replace(str(unit.server.program), "/bin/true")
    for program in ("wait-healthy", "gpu-gate", "gpu-check"):
        text = text.replace(f"/opt/llamaherd/libexec/{program}", "/bin/true")
    file = tmp_path / PurePosixPath(unit.file.path).name
    file.write_text(text, encoding="utf-8")
    done = run([str(analyze), "verify", "--man=no", "--recursive-errors=no", str(file)])
    said = [line for line in done.stderr.splitlines() if unit.service in line]
    assert (done.returncode, said) == (0, [])


@needs_analyze
@pytest.mark.parametrize("case", UNITS)
def test_a_unit_is_hardened(case: str, tmp_path: Path) -> None:
    unit = UNITS[case]
    file = tmp_path / PurePosixPath(unit.file.path).name
    file.write_text(unit.file.text, encoding="utf-8")
    threshold = "20" if "_cpu" in case and "lan" not in case else "30"
    done = run([str(analyze), "security", "--offline=yes", f"--threshold={threshold}", str(file)])
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


@needs_analyze
def test_the_unit_that_holds_cards_is_right_and_hardened(tmp_path: Path) -> None:
    file = tmp_path / "llamaherd-gpu-power.service"
    program = tmp_path / "gpu-power"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file.write_text(power(HELD).unit.text.replace(power(HELD).program.path, str(program)), encoding="utf-8")
    done = run([str(analyze), "verify", "--man=no", "--recursive-errors=no", str(file)])
    assert (done.returncode, [line for line in done.stderr.splitlines() if "gpu-power" in line]) == (0, [])
    # It has to be root with CAP_SYS_ADMIN, which is most of what is left.
    done = run([str(analyze), "security", "--offline=yes", "--threshold=40", str(file)])
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


@needs_analyze
@pytest.mark.parametrize("rig", ["box", "duo"])
def test_the_units_that_watch_are_right_and_hardened(tmp_path: Path, rig: str) -> None:
    for unit in monitored(WATCHING[rig]).brought:
        name = PurePosixPath(unit.path).name
        if name.endswith((".service", ".timer")):
            text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.text, flags=re.MULTILINE)
            (tmp_path / name).write_text(text, encoding="utf-8")
    for file in sorted(tmp_path.iterdir()):
        done = run([str(analyze), "verify", "--man=no", "--recursive-errors=no", str(file)])
        assert (done.returncode, [line for line in done.stderr.splitlines() if file.name in line]) == (0, [])
        if file.suffix == ".service":  # what writes figures has to be root with GPUs
            threshold = "45" if "figures" in file.name else "25"
            done = run([str(analyze), "security", "--offline=yes", f"--threshold={threshold}", str(file)])
            assert done.returncode == 0, done.stdout[-200:] + done.stderr


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
