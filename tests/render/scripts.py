"""Every script that is compared, by the name of its golden file."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.bench.arms.units import Arm, arms_script
from llamaherd.bench.holding import limits_script
from llamaherd.bench.meter import meter as metering
from llamaherd.host.program import Program, bootstrap
from llamaherd.host.totals import show_limit
from llamaherd.pipeline.drift_tell import tell_script
from llamaherd.pipeline.python_first import install_script
from llamaherd.plan.loaded import instances_of
from llamaherd.render import render
from tests.render.pieces import (
    instance,
    taking,
)
from tests.render.plans import (
    CPU,
    GPU,
    GROUP,
    KEYED,
)
from tests.render.scripts_beside import BESIDE
from tests.support import ours as verify
from tests.support.ours import inspect_script

SCRIPTS: dict[str, Callable[[], str]] = {
    "inspect_gpu": lambda: inspect_script(GPU),
    "verify_gpu": lambda: verify.question(GPU),
    "wait_healthy": lambda: render("serve/wait-healthy.sh"),
    "wait_loaded": lambda: render("serve/wait-loaded.sh"),
    "started": lambda: render("serve/started.sh", root=""),
    "gpu_gate": lambda: render("serve/gpu-gate.sh"),
    "gpu_check": lambda: render("serve/gpu-check.sh"),
    "step_room": lambda: render("serve/room.sh.j2"),
    "bench_meter_of_a_unit": lambda: metering.script(instance(KEYED, "chat"), 300),
    "bench_meter_of_a_groups_instance": lambda: metering.script(instances_of(GROUP)[1], 300),
    "bench_meter_of_a_container": lambda: metering.script(instance(KEYED, "drafter"), 7200),
    "bench_alone": lambda: render("bench/alone.sh.j2", who="tom on desk", yours="it is yours"),
    "install_python": install_script,
    "host_program": lambda: bootstrap(Program("0123456789abcdef", {}), keep=True),
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
    "tell_drift": lambda: tell_script("llamaherd_diff_seconds 7\n"),
    **BESIDE,
}
"""A golden file refers to texts that stand before its own, so a variant stands after the plain case."""
