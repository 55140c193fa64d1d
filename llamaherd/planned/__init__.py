"""What a plan holds: plain, frozen values that compare and print themselves."""

from llamaherd.planned.base import Planned, TextFile, digest
from llamaherd.planned.machine import CardPlace, CardPower, PowerPlan, RepositoryPlan, WslPlan
from llamaherd.planned.plan import (
    RAM,
    BandwidthRule,
    BuildPlan,
    Estimate,
    FromFolder,
    FromHub,
    FromNeighbour,
    Holds,
    ImagePlan,
    InstancePlan,
    ModelFile,
    ModelPlan,
    Origin,
    Plan,
    StorePlan,
)

__all__ = [
    "RAM",
    "BandwidthRule",
    "BuildPlan",
    "CardPlace",
    "CardPower",
    "Estimate",
    "FromFolder",
    "FromHub",
    "FromNeighbour",
    "Holds",
    "ImagePlan",
    "InstancePlan",
    "ModelFile",
    "ModelPlan",
    "Origin",
    "Plan",
    "Planned",
    "PowerPlan",
    "RepositoryPlan",
    "StorePlan",
    "TextFile",
    "WslPlan",
    "digest",
]
