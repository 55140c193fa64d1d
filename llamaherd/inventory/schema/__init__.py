"""The inventory as its owner declares it: rigs with their engines, models and instances.

Everything here is intent, frozen once read. What exactly must be on a host follows from it in `plan.py`.
"""

from llamaherd.inventory.schema.base import Declared, Secret
from llamaherd.inventory.schema.gpus import Card, Clocks, ContainerToolkit, Driver, Gpus, Repository
from llamaherd.inventory.schema.machine import Connect, Cpu, Host, Wsl
from llamaherd.inventory.schema.rig import LOCAL, Fleet, Rig
from llamaherd.inventory.schema.serving import (
    DRAIN_SECONDS,
    Backend,
    CacheTypes,
    Draft,
    Expect,
    Instance,
    Sampling,
)
from llamaherd.inventory.schema.software import UPSTREAM, Engine, Model, Source, Version
from llamaherd.inventory.schema.store import HUB, Bandwidth, Sharing, Store
from llamaherd.inventory.schema.tuning import MOST_LIMITS, Gate, PowerLimits, Quality, Tune

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
    "Tune",
    "Version",
    "Wsl",
]
