"""The models of an inventory: rigs with their engines, models and instances.

They are frozen. `plan.py` derives from them what exactly must be on a host.
"""

from llamaherd.inventory.schema.base import Declared, Secret
from llamaherd.inventory.schema.machine import (
    Card,
    Clocks,
    Connect,
    ContainerToolkit,
    Cpu,
    Driver,
    Gpus,
    Host,
    Repository,
    Wake,
    Wsl,
)
from llamaherd.inventory.schema.rig import HUB, LOCAL, Bandwidth, Fleet, Rig, Sharing, Store
from llamaherd.inventory.schema.serving import (
    DRAIN_SECONDS,
    MOST_LIMITS,
    Backend,
    CacheTypes,
    Draft,
    Expect,
    Gate,
    Idle,
    Instance,
    PowerLimits,
    Quality,
    Sampling,
    Task,
    Tune,
)
from llamaherd.inventory.schema.software import UPSTREAM, Engine, Model, Source, Version

__all__ = [
    "DRAIN_SECONDS",
    "HUB",
    "LOCAL",
    "MOST_LIMITS",
    "UPSTREAM",
    "Backend",
    "Bandwidth",
    "CacheTypes",
    "Card",
    "Clocks",
    "Connect",
    "ContainerToolkit",
    "Cpu",
    "Declared",
    "Draft",
    "Driver",
    "Engine",
    "Expect",
    "Fleet",
    "Gate",
    "Gpus",
    "Host",
    "Idle",
    "Instance",
    "Model",
    "PowerLimits",
    "Quality",
    "Repository",
    "Rig",
    "Sampling",
    "Secret",
    "Sharing",
    "Source",
    "Store",
    "Task",
    "Tune",
    "Version",
    "Wake",
    "Wsl",
]
