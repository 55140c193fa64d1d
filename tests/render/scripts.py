"""Every script that is compared, by the name of its golden file."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.bench.arms.units import Arm, arms_script
from llamaherd.bench.holding import limits_script
from llamaherd.bench.meter import meter as metering
from llamaherd.history.release import KEPT, read_script
from llamaherd.host.program import Program, bootstrap
from llamaherd.host.state import HostState
from llamaherd.host.totals import show_limit
from llamaherd.host.turn import unlock_script
from llamaherd.inventory.schema import Rig
from llamaherd.layout import RELEASES
from llamaherd.pipeline.drift_tell import tell_script
from llamaherd.pipeline.server_keys import ask_script as keys_script
from llamaherd.plan.loaded import instances_of
from llamaherd.prune import ask as prune
from llamaherd.render import render
from llamaherd.role.repositories import nvidia_repository, repository_changes
from llamaherd.role.way_in import guarded
from llamaherd.status.ask import look_script as status_look
from llamaherd.store import hashes
from llamaherd.store.ask import look_script, prune_script
from llamaherd.text.quoting import base64_lines
from roles.base.changes import base_changes, package_changes
from roles.container_runtime.changes import docker_changes
from roles.container_runtime.changes import toolkit_changes as container_steps
from roles.engines.changes import build_changes
from roles.models.changes import begin_changes, model_changes
from roles.models.lending import share
from tests.render.pieces import (
    ask_memory,
    build,
    fetch_id,
    hub,
    instance,
    made,
    script,
    taking,
)
from tests.render.plans import (
    CPU,
    DRIVER,
    GATEWAY,
    GPU,
    GROUP,
    IK_CPU,
    KEYED,
    NEIGHBOUR,
    REMOVALS,
    UNUSED,
    URL,
    WATCHER,
)
from tests.render.scripts_beside import BESIDE
from tests.support import ours as verify
from tests.support.ours import inspect_script
from tests.support.rigs import gpu_rig

SCRIPTS: dict[str, Callable[[], str]] = {
    "observe_gpu": lambda: inspect_script(GPU),
    "verify_gpu": lambda: verify.question(GPU),
    "build_llama_cpp_cpu": lambda: build(CPU, "main").script,
    "build_llama_cpp_cuda_git": lambda: build(GPU, "main").script,
    "build_ik_cuda_overlay_url": lambda: build(GPU, "ik").script,
    "build_ik_cpu": lambda: build(IK_CPU, "main").script,
    "build_llama_cpp_url": lambda: build(URL, "main").script,
    "observe_cpu": lambda: inspect_script(CPU),
    "verify_cpu": lambda: verify.question(CPU),
    "ask_memory_gpu": lambda: ask_memory("reasoner", "boxed"),
    "wait_healthy": lambda: render("serve/wait-healthy.sh"),
    "wait_loaded": lambda: render("serve/wait-loaded.sh"),
    "started": lambda: render("serve/started.sh", root=""),
    "gpu_gate": lambda: render("serve/gpu-gate.sh"),
    "gpu_check": lambda: render("serve/gpu-check.sh"),
    "step_accounts": lambda: script(base_changes(CPU, HostState()), 0),
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
    "bench_meter_of_a_unit": lambda: metering.script(instance(KEYED, "chat"), 300),
    "bench_meter_of_a_groups_instance": lambda: metering.script(instances_of(GROUP)[1], 300),
    "bench_meter_of_a_container": lambda: metering.script(instance(KEYED, "drafter"), 7200),
    "status_look_cpu": lambda: status_look(CPU),
    "status_look_gpus": lambda: status_look(GPU),
    "status_look_gateway": lambda: status_look(GATEWAY),
    "bench_alone": lambda: render("bench/alone.sh.j2", who="tom on desk", yours="it is yours"),
    "host_turn": lambda: render("host/turn.sh.j2", rig="duo", who="tom on desk", wait=60, yours="it is yours"),
    "host_unlock": unlock_script,
    "host_program": lambda: bootstrap(Program("0123456789abcdef", b"a zip file")),
    "host_disarm_undo": lambda: guarded(":", "", name="docker", undone="Docker is as it was").disarm,
    "ask_keys": lambda: keys_script(["chat", "small-group"]),
    "ask_releases": lambda: read_script(newest=3, number=7),
    "ask_texts": lambda: read_script(newest=1, texts=True),
    "step_fetch_begun": lambda: made(begin_changes(GPU, HostState(), hub, WATCHER)),
    "step_fetch_joined": lambda: script(begin_changes(GPU, HostState(fetch=fetch_id()), hub, WATCHER)),
    "step_fetch_awaited": lambda: made(model_changes(GPU, HostState(), hub, WATCHER)[1:]),
    "step_repository": lambda: script(
        repository_changes(nvidia_repository(Rig.model_validate(gpu_rig())), HostState())
    ),
    "observe_driver": lambda: inspect_script(DRIVER),
    "verify_driver": lambda: verify.question(DRIVER),
    "step_share": lambda: share(NEIGHBOUR, ["1" * 64, "2" * 64], "0123456789ab", "token"),
    "store_look": lambda: look_script("/var/lib/llamaherd/models"),
    "store_prune": lambda: prune_script("/var/lib/llamaherd/models", REMOVALS),
    "prune_look": lambda: prune.look_script(3),
    "prune_remove": lambda: prune.remove_script(UNUSED, 3),
    "store_hash": lambda: hashes.hash_script(GPU),
    "step_models_admitted": lambda: script(model_changes(GPU, HostState(), hub, WATCHER)),
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
    "receive": lambda: render(
        "deploy/receive.sh.j2",
        path="/var/lib/llamaherd/incoming/" + "1" * 64,
        size=4096,
        settled=[("/var/lib/llamaherd/models/local/1111111111111111", "a model.gguf")],
        standing=150,
        total=86400,
        limit=show_limit(86400),
    ),
    "step_docker": lambda: script(docker_changes(CPU, HostState())),
    "step_container_toolkit": lambda: script(container_steps(GPU, HostState()), -2),
    "step_docker_cards": lambda: script(container_steps(GPU, HostState())),
    "tell_drift": lambda: tell_script("llamaherd_diff_seconds 7\n"),
    **BESIDE,
}
"""A golden file refers to texts that stand before its own, so a variant stands after the plain case."""
