"""Every text that goes to a host, by the name of its golden file."""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePosixPath

from llamaherd.measure.trials.trial import Variant, program_unit, standalone_server, variant_unit
from llamaherd.plan import (
    InstancePlan,
    Plan,
)
from llamaherd.render import render
from roles.gateway.config import configuration, maps, reader, waker
from roles.nvidia_driver.changes import undo_file, version_hold
from roles.wake import wake_files
from tests.bench.grouped import watched
from tests.render.pieces import (
    beside_text,
    cards_order,
    driver_file,
    instance,
    power,
    toolkit,
    watched_gateway,
    windows_scripts,
)
from tests.render.plans import (
    BOUND,
    CHATTING,
    CPU,
    DRIVER,
    GATEWAY,
    GPU,
    GROUP,
    HELD,
    IDLE,
    IK_CPU,
    KEYED,
    KEYLESS,
    LAN,
    ONE,
    SECURE,
    SHARING,
    SIGNED,
    SUSPENDING,
    VLLM,
    WAKING,
    WATCHING,
    WSL,
    WSL_NAT,
)
from tests.render.scripts import SCRIPTS
from tests.render.verbs import INSPECTIONS, VERBS, document
from tests.render.verbs_of_drivers import DRIVERS
from tests.render.verbs_of_measurements import documents
from tests.render.verbs_of_queries import QUERIES
from tests.render.verbs_of_services import SERVICES, outline
from tests.support.gateway import gateway_of, keys_of
from tests.support.ours import tasks
from tests.support.prometheus import monitored, watcher_of
from tests.support.virtual_address import shared_by

GOLDEN = Path(__file__).parent / "golden"
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
    "systemd_cpu_idle": instance(IDLE, "chat"),
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
    "wake": WAKING,
    "suspend": SUSPENDING,
    "chat": CHATTING,
    "monitoring": WATCHING["box"],
}
"""What a run does there, in its order."""


@cache
def texts() -> dict[str, str]:
    """Every case by the name of its golden file."""
    return {
        **{f"{case}.service": planned.file.text for case, planned in UNITS.items()},
        **{f"{case}.yaml": planned.file.text for case, planned in PROJECTS.items()},
        **{f"wsl_{case}": text for case, text in windows_scripts().items()},
        "driver_wanted.pref": driver_file(DRIVER, "wanted"),
        "driver_wanted_distribution.pref": driver_file(SIGNED, "wanted"),
        "driver_held_distribution.conf": driver_file(SIGNED, "52llamaherd"),
        "driver_undo.service": undo_file().text,
        "driver_kept.pref": version_hold("580.95.05").text,
        "cuda_preferences": toolkit(GPU).preferences.text,
        "docker_cards.conf": cards_order(GPU),
        "arm_run.service": program_unit(
            Variant("C", "cpu/chat", instance(CPU, "chat")),
            (("/opt/it/compares", "--one", "a b"), ("/opt/it/compares", "--other")),
            900,
        ).text,
        "beside_unit.service": beside_text(CPU, "chat", 0),
        "arm.service": variant_unit(Variant("B", "cpu/chat with batch=1024", instance(CPU, "chat")), 2100).text,
        "arm_of_a_group.service": variant_unit(
            Variant("A", "cpu/one", standalone_server(GROUP, GROUP.members[0].name, 60_901)), 2100
        ).text,
        "beside_container.service": beside_text(CPU, "drafter", 0),
        "beside_container.yaml": beside_text(CPU, "drafter", 1),
        "chat_compose.yaml": CHATTING.chat.file.text if CHATTING.chat else "",
        "group.service": GROUP.file.text,
        "group.ini": GROUP.preset.text if GROUP.preset else "",
        "gateway.service": gateway_of(GATEWAY).unit.text,
        "gateway_read_model.lua": reader().text,
        "gateway_talk.program": gateway_of(GATEWAY).talk.text,
        "gateway.cfg": configuration(gateway_of(GATEWAY), keys_of(gateway_of(GATEWAY))).text,
        **{
            PurePosixPath(file.path).name.removeprefix("llamaherd-"): file.text
            for file in (SUSPENDING.suspend.files[1:] if SUSPENDING.suspend else ())
        },
        "gateway_wakes.cfg": configuration(gateway_of(WAKING), keys_of(gateway_of(WAKING))).text,
        **{
            {"wake": "wake.program"}.get(name, name): file.text
            for file in (*waker(gateway_of(WAKING)), *wake_files(gateway_of(WAKING))[:-1])
            for name in [PurePosixPath(file.path).name.removeprefix("llamaherd-")]
        },
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
        "look.service": render("monitoring/drift.service.j2", herd="/opt/a b/herd", inventory="/home/tom/50% of it"),
        "look.timer": render("monitoring/drift.timer.j2", at="03:30"),
        "gpu_power.service": power(HELD).unit.text,
        "gpu_power.table": power(HELD).table.text,
        **{f"run_{case}.txt": "\n".join([*tasks(plan), ""]) for case, plan in RUNS.items()},
        **{f"{case}.sh": make() for case, make in SCRIPTS.items()},
        **{f"{case}.json": document(make()) for case, make in VERBS.items()},
        **documents(),
        **{f"{case}.json": make() for case, make in {**INSPECTIONS, **QUERIES}.items()},
        **{f"{case}.json": outline(make()) for case, make in {**SERVICES, **DRIVERS}.items()},
    }
