"""What a plan holds: plain, frozen values that compare and print themselves."""

from llamaherd.plan.base import Planned, TextFile, digest
from llamaherd.plan.chat import PAGE_ASKS, ChatPlan
from llamaherd.plan.endpoint import Endpoint
from llamaherd.plan.engines import BuildPlan, ImagePlan
from llamaherd.plan.gateway import GatewayFigures, GatewayModel, GatewayPlan, GatewayServer, GatewayUser
from llamaherd.plan.instance import GatePlan, InstancePlan
from llamaherd.plan.machine import (
    ContainerToolkitPlan,
    DriverPlan,
    GpuPlan,
    GpuPower,
    GpuRef,
    PowerPlan,
    RepositoryPlan,
    RuntimePlan,
    ToolkitPlan,
    WslPlan,
)
from llamaherd.plan.member import MemberPlan
from llamaherd.plan.memory import RAM, Estimate, Grows, Holds
from llamaherd.plan.models import (
    BandwidthRule,
    FromFolder,
    FromHub,
    FromNeighbour,
    ModelFile,
    ModelOrigin,
    ModelPlan,
    StorePlan,
)
from llamaherd.plan.monitoring import (
    AlertKey,
    ExporterPlan,
    FiguresPlan,
    LimitedGpu,
    MonitoredHost,
    MonitoredServer,
    MonitoringPlan,
    WatcherPlan,
)
from llamaherd.plan.plan import Only, Plan
from llamaherd.plan.reading import DivergencePlan, Reading
from llamaherd.plan.server import Health, KeyFile, ServerGpus, ServerLimits, ServerSpec, Stop
from llamaherd.plan.virtual_address import VirtualAddressPlan

__all__ = [
    "PAGE_ASKS",
    "RAM",
    "AlertKey",
    "BandwidthRule",
    "BuildPlan",
    "ChatPlan",
    "ContainerToolkitPlan",
    "DivergencePlan",
    "DriverPlan",
    "Endpoint",
    "Estimate",
    "ExporterPlan",
    "FiguresPlan",
    "FromFolder",
    "FromHub",
    "FromNeighbour",
    "GatePlan",
    "GatewayFigures",
    "GatewayModel",
    "GatewayPlan",
    "GatewayServer",
    "GatewayUser",
    "GpuPlan",
    "GpuPower",
    "GpuRef",
    "Grows",
    "Health",
    "Holds",
    "ImagePlan",
    "InstancePlan",
    "KeyFile",
    "LimitedGpu",
    "MemberPlan",
    "ModelFile",
    "ModelOrigin",
    "ModelPlan",
    "MonitoredHost",
    "MonitoredServer",
    "MonitoringPlan",
    "Only",
    "Plan",
    "Planned",
    "PowerPlan",
    "Reading",
    "RepositoryPlan",
    "RuntimePlan",
    "ServerGpus",
    "ServerLimits",
    "ServerSpec",
    "Stop",
    "StorePlan",
    "TextFile",
    "ToolkitPlan",
    "VirtualAddressPlan",
    "WatcherPlan",
    "WslPlan",
    "digest",
]
