"""Rigs whose texts are compared, by what is otherwise about each."""

from __future__ import annotations

from llamaherd.inventory.schema import Connect
from llamaherd.plan import (
    FromPeer,
)
from llamaherd.store.holdings import Removal
from llamaherd.store.unused import HostItem
from tests.support.gateway import chatting_plan, gateway_plans, waking_plan
from tests.support.monitoring import household
from tests.support.releases import gpu_release, planned_release
from tests.support.rigs import DIGEST, cpu_rig, gpu_rig, planned, wsl_rig
from tests.support.virtual_address import sharing_plans

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
RELEASE = planned_release(gpu_release())
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
IDLE = planned(cpu_rig(), {"instances/chat/idle": {"unload": "15m"}})
SUSPENDING = planned(
    cpu_rig(),
    {"suspend": {"after": "30m"}, "wake": {"mac": "3c:7c:3f:12:ab:cd"}, "instances/chat/idle": {"unload": "15m"}},
)
WATCHER = "0123456789abcdef"
NEIGHBOUR = FromPeer(
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
WAKING = waking_plan()
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
    HostItem("build", "llama.cpp-000000000000", 7, ()),
    HostItem("image", "llamaherd/engine:llama.cpp-000000000000-abcdef", 7, ()),
    HostItem("preset", "card-0123456789ab.ini", 7, ()),
    HostItem("source", "ab" * 32, 7, ()),
    HostItem("work", "llama.cpp-111111111111", 7, ()),
    HostItem("packages", "apt", 7, ()),
)


DRIVER = planned(gpu_rig(), {"gpus/driver": {"branch": 580}})
SIGNED = planned(gpu_rig(), {"gpus/driver": {"branch": 580, "from": "distribution"}})
