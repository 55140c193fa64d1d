"""The inventory as its owner declares it: rigs with their engines, models and instances.

Everything here is intent, frozen once read. What exactly must be on a host follows from it in `plan.py`.
"""

from llamaherd.fleet.base import Declared, Secret
from llamaherd.fleet.gpus import Card, Clocks, ContainerToolkit, Driver, Gpus, Repository
from llamaherd.fleet.machine import Connect, Cpu, Host, Wsl
from llamaherd.fleet.rig import LOCAL, Fleet, Rig
from llamaherd.fleet.serving import Backend, CacheTypes, Draft, Expect, Instance, Sampling
from llamaherd.fleet.software import UPSTREAM, Engine, Model, Source, Version
from llamaherd.fleet.store import HUB, Bandwidth, Sharing, Store

__all__ = [
    "HUB",
    "LOCAL",
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
    "Gpus",
    "Host",
    "Instance",
    "Model",
    "Repository",
    "Rig",
    "Sampling",
    "Secret",
    "Sharing",
    "Source",
    "Store",
    "Version",
    "Wsl",
]
