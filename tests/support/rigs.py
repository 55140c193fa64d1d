"""Rigs to test with, as their YAML gives them, and hosts that look as a plan wants them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from llamaherd.host.program import fetcher_hash
from llamaherd.inventory import wsl_files
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.wsl_files import merge_wslconfig
from llamaherd.layout import FIGURES_TIMER, GATEWAY_USER, OURS
from llamaherd.lock import Lock, LockedFile, LockedModel
from llamaherd.plan import ChatPlan, DriverPlan, GatewayPlan, GpuPower, InstancePlan, MonitoringPlan, Plan, WslPlan
from llamaherd.role.changes import unit_spec
from roles import ROLES
from roles.chat_page import KEY_FILE as CHAT_KEY
from roles.chat_page import ROOT_FILE as CHAT_ROOT
from roles.container_runtime import PACKAGES as TOOLKIT_PACKAGES
from roles.container_runtime import merge as merge_settings
from roles.container_runtime import pins
from roles.gateway.config import GatewayKeys, configuration, maps, reader, spec_of, waker
from roles.monitoring import key_places
from roles.monitoring.plan import key_files
from roles.nvidia_driver.changes import version_hold
from roles.serve.state import declared_limits
from tests.support.ours import plan

Declared = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
SHA = "ab" * 32
OTHER_SHA = "ba" * 32
COMMIT = "cd" * 20
OTHER_COMMIT = "dc" * 20
DIGEST = "ef" * 32
KEY = "sk-canary-3f1d9c"

WRITTEN = 1795249315.422238143
"""When the files of a host that is as planned were written, and when its servers started after that."""
STARTED = WRITTEN + 7
RUN = "8f" * 16

KERNEL = "6.8.0-88-generic"
"""The kernel that runs on it, and that boots next."""

PROFILE = "/mnt/c/Users/tom"
"""The folder of the Windows user, where WSL is around a host."""

GONE = object()
"""Given to `changed` in place of a value: the key is left out."""


def cpu_rig() -> Declared:
    """A machine without a GPU: one instance under systemd with a key, one in compose that drafts."""
    return {
        "rig": "box",
        "connect": {"host": "127.0.0.1", "port": 2201, "user": "owner"},
        "host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "4GB"},
        "engines": {
            "main": {
                "kind": "llama.cpp",
                "source": {
                    "archive": "/srv/llama.tar.gz",
                    "sha256": SHA,
                    "folder": "llama.cpp",
                    "version": {"number": 11434},
                },
            },
        },
        "models": {
            "gemma": {"file": "/srv/gemma.gguf", "sha256": "a5" * 32},
            "moe": {"file": "/srv/moe.gguf", "sha256": "04" * 32},
        },
        "instances": {
            "chat": {
                "engine": "main",
                "model": "gemma",
                "context": 8192,
                "kv": "q8_0",
                "port": 8080,
                "api_key": {"env": "CHAT_KEY"},
            },
            "drafter": {
                "engine": "main",
                "model": "moe",
                "context": 4096,
                "draft": {"mtp": 2},
                "port": 8081,
                "backend": "compose",
            },
        },
    }


def gpu_rig() -> Declared:
    """Two GPUs of two generations, both engines and an image, models from a hub and from a file."""
    return {
        "rig": "duo",
        "connect": {"host": "duo.lan", "user": "tom"},
        "host": {"os": "ubuntu-24.04", "cpu": {"cores": 12}, "ram": "192GB"},
        "gpus": {
            "cuda": "13.0",
            "cards": {
                "new": {"model": "RTX 5090", "uuid": "GPU-5090"},
                "old": {"model": "RTX 3090", "uuid": "GPU-3090"},
            },
        },
        "engines": {
            "main": {"kind": "llama.cpp", "source": {"git": "https://git.lan/llama.cpp", "commit": COMMIT}},
            "ik": {
                "kind": "ik_llama.cpp",
                "flags": "67268c8fd",
                "source": {
                    "archive": "https://mirror.lan/ik.tar.gz",
                    "sha256": SHA,
                    "folder": "ik",
                    "overlay": {"common/build-info.cpp": 'int N = 1;\nchar const *C = "it\'s";\n'},
                },
                "options": {"GGML_AVX512": True, "GGML_LTO": False, "EXTRA": "a b"},
            },
            "image": {"kind": "llama.cpp", "image": f"ghcr.io/ggml-org/llama.cpp@sha256:{DIGEST}"},
        },
        "models": {
            "35b": {"hf": "unsloth/Qwen3.6-35B-A3B-MTP-GGUF", "files": "UD-Q4_K_XL/*"},
            "gemma": {"file": "/srv/gemma.gguf", "sha256": "a5" * 32},
        },
        "instances": {
            "reasoner": {
                "engine": "main",
                "model": "35b",
                "on": ["new", "old"],
                "context": 262144,
                "draft": {"mtp": 3},
                "port": 8001,
            },
            "worker": {
                "engine": "ik",
                "model": "35b",
                "on": ["old"],
                "context": 204800,
                "kv": {"k": "q8_0", "v": "q4_0"},
                "draft": {"mtp": 2},
                "port": 8002,
                "extra_args": ["--no-mmap"],
            },
            "small": {"engine": "image", "model": "gemma", "context": 4096, "port": 8003, "backend": "compose"},
            "boxed": {
                "engine": "main",
                "model": "gemma",
                "on": ["new"],
                "context": 4096,
                "port": 8004,
                "backend": "compose",
            },
        },
    }


def wsl_rig() -> Declared:
    """The machine without a GPU, as a distribution under WSL 2 whose first server the LAN is to reach."""
    return changed(
        cpu_rig(),
        {
            "host/wsl": {"memory": "64GB", "swap": "16GB", "networking": "mirrored"},
            "host/ram": "64GB",
            "instances/chat/listen": "0.0.0.0",
        },
    )


def hub_lock() -> Lock:
    """What the hub's model of `gpu_rig` stands for: two shards."""
    shards = tuple(
        LockedFile(path=f"UD-Q4_K_XL/35b-0000{n}-of-00002.gguf", size=n * 10**10, sha256=f"{n}" * 64) for n in (1, 2)
    )
    return Lock(
        models=(
            LockedModel(
                repo="unsloth/Qwen3.6-35B-A3B-MTP-GGUF",
                revision="main",
                files="UD-Q4_K_XL/*",
                commit=OTHER_COMMIT,
                endpoint="https://hub.lan",
                shards=shards,
            ),
        )
    )


def changed(declared: Declared, changes: Mapping[str, Any]) -> Declared:
    """A copy with the values at these dotted paths, which may be new, or taken out by `GONE`."""
    copy: Declared = _sorted_copy(declared)
    for path, value in changes.items():
        *folders, last = path.split("/")
        inner = copy
        for folder in folders:
            inner = inner.setdefault(folder, {})
        if value is GONE:
            del inner[last]
        else:
            inner[last] = value
    return copy


def _sorted_copy(value: Any) -> Any:
    """Return a copy whose keys are sorted, so that equal rigs render equal texts."""
    if isinstance(value, dict):
        return {key: _sorted_copy(value[key]) for key in sorted(value, key=str)}
    return [_sorted_copy(each) for each in value] if isinstance(value, list) else value


def planned(declared: Declared, changes: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a rig with these changes; the hub's model is locked."""
    return plan(Rig.model_validate(changed(declared, changes or {})), hub_lock())


@cache
def box() -> Plan:
    """The plan of inventory/box.yaml as it stands in this repository."""
    file = ROOT / "inventory" / "box.yaml"
    declared = yaml.safe_load(file.read_text(encoding="utf-8"))
    return plan(Rig.model_validate(declared, context={"folder": file.parent}), Lock())


def converged(plan: Plan, keys: Mapping[str, str]) -> list[str]:
    """The lines that a host prints which is as planned; `keys` by instance. Shaped as a real host's answer is."""
    lines: list[tuple[str, ...]] = [("os", plan.os), ("arch", "x86_64"), ("systemd", "yes")]
    lines += [("free", "/var/lib/llamaherd", str(10**12), "overlay")]
    lines += [("store", plan.store.path, str(10**12), "overlay", "overlay", "rw")]
    lines += _machine(plan)
    lines += [("listens", f"{instance.endpoint.port:04X}") for instance in plan.instances]
    lines += [("package", package, "installed") for package in plan.packages]
    lines += [("user", user, "/usr/sbin/nologin", user) for user in plan.accounts]
    lines += [("folder", path, f"{mode:o}", owner or "owner") for path, (mode, owner) in OURS.items()]
    lines.append(("fetcher", fetcher_hash()))
    for text in (text for role in ROLES for text in role.brings(plan)):
        lines += _file(text.path, text.text, text.mode, "0 root")
    for instance in plan.instances:
        lines += _file(instance.file.path, instance.file.text, "0644", "0 root")
        if instance.key_file:
            owner = (
                f"995 {instance.server.user}" if instance.backend == "systemd" else f"{instance.server.user} UNKNOWN"
            )
            lines += _file(instance.key_file, f"{keys[instance.name]}\n", "0400", owner)
            lines.append(("key-file", instance.name))
    lines += [("build", build.id, "done") for build in plan.builds]
    lines += [("source", build.source.sha256) for build in plan.builds if build.source.sha256]
    for model in plan.models:
        for file in model.files:
            size = str(file.size or 253113024)
            lines.append(("verified", model.folder, size, f"{WRITTEN:.9f}", file.sha256, file.name))
            lines.append(("stored", model.folder, size, f"{WRITTEN:.10f}", file.name))
        lines.append(("kept", model.folder, str(sum(file.size or 253113024 for file in model.files))))
    lines += [_runs(instance) for instance in plan.instances]
    lines += [("serving", i.service, "argv", i.command_line) for i in plan.of("systemd")]
    lines += [("project", instance.name) for instance in plan.of("compose")]
    lines += [("image", image.tag) for image in plan.images]
    if plan.driver:
        lines += _driver(plan.driver)
    for each in plan.repositories:
        lines += _file(each.keyring, "a key", "0644", "0 root")
        lines += _file(each.sources.path, each.sources.text, each.sources.mode, "0 root")
    if plan.power:
        lines += [("power", "active", "enabled", "no"), *(_held(card) for card in plan.power.cards)]
        lines += [("card", line) for line in cards(plan)]
    if plan.gateway:
        lines += gateway_lines(plan.gateway, keys)
    if plan.suspend:
        lines.append(("suspend", "active"))
    if plan.gateway and plan.gateway.wakes:
        lines.append(("wake", "active"))
    if plan.virtual_address:
        lines.append(("virtual-address", "active", "enabled", "no", unit_spec(plan.virtual_address.unit)))
    if plan.chat:
        lines += chat_lines(plan.chat, keys)
    if plan.monitoring:
        lines += monitoring_lines(plan.monitoring, keys)
    if plan.toolkit:
        preferences = plan.toolkit.preferences
        lines += [("toolkit", plan.toolkit.version), *_file(preferences.path, preferences.text, "0644", "0 root")]
    for repository in plan.repositories:
        sources = repository.sources
        lines += [
            *_file(repository.keyring, "", "0644", "0 root"),
            *_file(sources.path, sources.text, "0644", "0 root"),
        ]
    if plan.runtime:
        lines += docker(plan)
    if plan.wsl:
        lines += _windows(plan.wsl)
    return ["\t".join(line) for line in lines]


def chat_lines(chat: ChatPlan, keys: Mapping[str, str]) -> list[tuple[str, ...]]:
    """A chat page as planned, by the key of its user."""
    lines = _file(CHAT_KEY, keys[chat.user], "0400", f"{chat.number} UNKNOWN")
    if chat.root:
        lines += _file(CHAT_ROOT, chat.root.read_text(encoding="ascii"), "0444", "0 root")
    lines += [("chat", "there"), ("chat", "container", "running", "healthy", chat.spec, str(chat.port))]
    return [*lines, ("listens", f"{chat.port:04X}")]


def gateway_lines(gateway: GatewayPlan, keys: Mapping[str, str]) -> list[tuple[str, ...]]:
    """A gateway as planned; `keys` has those of users by their names, and of servers by `RIG.INSTANCE`."""
    hashes = {user.name: hashlib.sha256(keys[user.name].encode()).hexdigest() for user in gateway.users}
    servers = {model.name: keys[model.servers[0].name] for model in gateway.models if model.key}
    told = GatewayKeys(hashes, servers)
    config = configuration(gateway, told)
    lines = [
        line
        for file in (config, reader(), *waker(gateway), *maps(gateway, told))
        for line in _file(file.path, file.text, "0600", _GATEWAYS)
    ]
    lines += [("gateway", "unit", "active", "enabled", "no", unit_spec(gateway.unit))]
    lines += [("gateway", "running", spec_of(config.text), "same"), ("listens", f"{gateway.port:04X}")]
    return lines


def monitoring_lines(made: MonitoringPlan, keys: Mapping[str, str]) -> list[tuple[str, ...]]:
    """What watches as planned; `keys` by the names of their files on the host."""
    lines: list[tuple[str, ...]] = [
        ("monitoring", "unit", unit.path.rpartition("/")[2], "active", "enabled", "no", unit_spec(unit))
        for unit in made.units
    ]
    if made.watcher:
        needed = {name: keys[name] for name, _, _ in key_places(made.watcher)}
        for file in (*made.watcher.files, *key_files(needed)):
            lines += _file(file.path, file.text, file.mode, f"993 {file.owner}")
        lines += [("monitoring", "read", made.watcher.spec), *(("listens", f"{port:04X}") for port in (9090, 9093))]
    if made.exporter:
        lines.append(("listens", f"{9100:04X}"))
    if made.exporter and made.exporter.figures:
        lines.append(("monitoring", "unit", FIGURES_TIMER, "active", "enabled", "no", ""))
    return lines


_GATEWAYS = f"994 {GATEWAY_USER}"


def _driver(driver: DriverPlan) -> list[tuple[str, ...]]:
    """The driver as planned: installed, kept and loaded, on a host that follows the newest kernel of its kind."""
    version = driver.version or f"{driver.branch}.95.05"
    kernels = ("linux-image-generic", f"{driver.prebuilt}-generic" if driver.prebuilt else "linux-headers-generic")
    packages = [*((name, f"{version}-1") for name in driver.packages), *((name, f"{KERNEL}.90") for name in kernels)]
    lines: list[tuple[str, ...]] = [("package", name, number, "installed") for name, number in packages]
    lines += [("origin", name, driver.source) for name, _ in packages]
    lines += [("loaded", version), ("uvm",), ("disk", KERNEL, version), ("library", version)]
    lines += [("persistence", "active", "enabled"), ("free", str(10**12))]
    lines += [("component", name) for name in ("main", *driver.components)]
    hold = version_hold(version)
    return [*(("nvidia", *line) for line in lines), *_file(hold.path, hold.text, "0644", "0 root")]


def _machine(plan: Plan) -> list[tuple[str, ...]]:
    """A PC whose kernel is the newest that it has, with the RAM and the GPUs that are declared."""
    said = [
        ("kernel", KERNEL, KERNEL),
        ("virtual", "none"),
        ("memory", str((plan.ram or 0) // 1024)),
        ("boot", str(10**9)),
    ]
    if plan.has_cards:
        said += [("bus", "40"), ("headers", KERNEL)]
        said += [
            ("card", f"0000:{number:02x}:00.0", "-", card.model, "nvidia")
            for number, card in enumerate(plan.cards, start=1)
        ]
    return [("machine", *line) for line in said]


def cards(plan: Plan) -> list[str]:
    """What nvidia-smi says of the GPUs that a plan holds, given by UUIDs: they are as planned, and idle."""
    assert plan.power
    return [
        f"{card.at}, 00000000:{number + 1:02X}:00.0, Enabled, {card.limit or 350}.00, 350.00, 100.00, 600.00, 210, "
        f"{card.fans or 30}, NVIDIA GeForce RTX 3090"
        for number, card in enumerate(plan.power.cards)
    ]


DOCKER_UNITS = [
    ("unit", name, "loaded", "active", "enabled", needs)
    for name, needs in (
        ("docker.service", "system.slice docker.socket sysinit.target containerd.service network-online.target"),
        ("docker.socket", "system.slice sysinit.target "),
        ("containerd.service", "system.slice sysinit.target "),
    )
]
"""Docker's units, and what each needs by `systemctl show` of Debian 13."""


def docker(plan: Plan) -> list[tuple[str, ...]]:
    """Docker as Debian 13 has it, and what gives GPUs to containers, where the plan has such."""
    assert plan.runtime
    toolkit = plan.runtime.toolkit
    lines: list[tuple[str, ...]] = [("package", "docker.io", "26.1.5+dfsg1-9+deb13u1")]
    lines += [("package", "docker-compose", "2.26.1-4"), *DOCKER_UNITS]
    info = {"ServerVersion": "26.1.5+dfsg1", "LiveRestoreEnabled": False, "Runtimes": {"runc": {}}, "CDISpecDirs": []}
    if toolkit is None:
        return [("docker", *line) for line in [*lines, ("info", json.dumps(info))]]
    version = f"{toolkit.version or '1.20.0'}-1"
    info |= {"Runtimes": {"nvidia": {}, "runc": {}}, "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}
    lines += [("info", json.dumps(info))]
    lines += [("running", instance.service) for instance in plan.of("compose")]
    lines += [("settings", "644", base64.b64encode(merge_settings(None, cdi=True) or b"").decode())]
    lines += [("toolkit", package, version, "installed") for package in TOOLKIT_PACKAGES]
    lines += [("refresh", f"nvidia-cdi-refresh.{kind}", "enabled") for kind in ("path", "service")]
    lines += [("device", device) for device in toolkit.devices]
    pinned = pins(plan.rig, version)
    return [*(("docker", *line) for line in lines), *_file(pinned.path, pinned.text, "0644", "0 root")]


def _windows(wsl: WslPlan) -> list[tuple[str, ...]]:
    """What WSL is as planned, restarted since, and all scripts run."""
    profile = wsl.profile or PROFILE
    lines = [("release", "6.6.87.2-microsoft-standard-WSL2"), ("profile", profile, "yes")]
    for path, text in (
        (f"{profile}/.wslconfig", merge_wslconfig(None, wsl.settings).text),
        (wsl_files.WSL_CONF, wsl_files.merge_wslconf(None)),
    ):
        lines.append(("file", path, f"{WRITTEN:.9f}", base64.b64encode(text).decode()))
    for script in wsl.scripts:
        sha256 = hashlib.sha256(script.text.encode()).hexdigest()
        # As PowerShell writes it.
        lines.append(("script", f"{profile}/{script.path}", sha256, sha256.upper()))
    lines.append(("machine", str(int(STARTED)), str(62 << 20), "32"))
    return [("wsl", *line) for line in lines]


def _held(card: GpuPower) -> tuple[str, ...]:
    return (
        "held",
        card.at,
        str(card.limit or "-"),
        ",".join(map(str, card.clocks or "-")),
        "on",
        str(card.fans or "-"),
    )


def _file(path: str, text: str, mode: str, owner: str) -> list[tuple[str, ...]]:
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return [("file", path, f"{mode.removeprefix('0')} {owner} {WRITTEN:.9f}"), ("sum", sha256, path)]


def _runs(instance: InstancePlan) -> tuple[str, ...]:
    if instance.backend == "systemd":
        now = ("active", "enabled", "no", RUN)
        return ("unit", instance.service, *now, instance.spec, str(instance.endpoint.port), "")
    limits = " ".join(f"{name}={value}" for name, value in declared_limits(instance.file.text).items())
    state = ("running", "healthy", RUN * 2, instance.spec, str(instance.endpoint.port), limits)
    return ("container", f"/{instance.service}", *state)


def served(instance: InstancePlan, **changes: object) -> InstancePlan:
    """An instance with a server that is not as planned in something."""
    return instance.model_copy(update={"server": instance.server.model_copy(update=changes)})


def reached(instance: InstancePlan, **changes: object) -> InstancePlan:
    """An instance that is reached in another way than planned."""
    return served(instance, endpoint=instance.endpoint.model_copy(update=changes))
