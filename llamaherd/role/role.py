"""`Role`: one thing that must be true on a host, as a value. Each verb is a loop over roles.

A role is a folder: `roles/<name>/` of ours, or of a fleet. Only this value of it is known to the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import JsonValue
from typing_extensions import TypedDict

from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.lock import Lock
from llamaherd.memory.facts import RigFacts
from llamaherd.onhost.verification import Probe
from llamaherd.plan import (
    BuildPlan,
    ChatPlan,
    DriverPlan,
    Estimate,
    GatewayPlan,
    GpuPlan,
    GpuPower,
    ImagePlan,
    InstancePlan,
    ModelPlan,
    MonitoringPlan,
    Plan,
    PowerPlan,
    RepositoryPlan,
    RuntimePlan,
    StorePlan,
    TextFile,
    ToolkitPlan,
    VirtualAddressPlan,
    WslPlan,
)
from llamaherd.role.changes import Change, SendFile
from llamaherd.role.preflight import DiskNeed, PreflightRow, Refusal
from llamaherd.role.reach import Reach
from llamaherd.role.report import Check, Installed, InstanceReport


class PlanFields(TypedDict, total=False):
    """Fields of a plan, each of which one role of ours fills."""

    builds: tuple[BuildPlan, ...]
    store: StorePlan
    models: tuple[ModelPlan, ...]
    images: tuple[ImagePlan, ...]
    instances: tuple[InstancePlan, ...]
    has_cards: bool
    cards: tuple[GpuPlan, ...]
    driver: DriverPlan | None
    toolkit: ToolkitPlan | None
    runtime: RuntimePlan | None
    power: PowerPlan | None
    windows_power: tuple[GpuPower, ...]
    wsl: WslPlan | None
    of_fleet: bool
    gateway: GatewayPlan | None
    virtual_address: VirtualAddressPlan | None
    chat: ChatPlan | None
    monitoring: MonitoringPlan | None


@dataclass(frozen=True)
class Planning:
    """The input of a role's plan: the rig with its pins, the lock, the fleet, and the plans of the roles before it."""

    rig: Rig
    facts: RigFacts
    """The facts of the rig without its pins, which change none of them."""
    lock: Lock
    rigs: Mapping[str, Rig]
    planned: PlanFields
    fleet: FleetFile | None = None
    """What `fleet.yaml` says, if there is one."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Tokens a second that were measured of servers, by `RIG.INSTANCE`: what the role's `measured` has found."""


@dataclass(frozen=True)
class PlanPart:
    """What one role adds to the plan. Packages, files and repositories of all roles are put together.

    `own` is a value of a fleet's role, in JSON: it is kept in `Plan.parts` under the role's name.
    """

    packages: frozenset[str] = frozenset()
    files: tuple[TextFile, ...] = ()
    repositories: tuple[RepositoryPlan, ...] = ()
    fields: PlanFields = field(default_factory=PlanFields)
    own: JsonValue = None


@dataclass(frozen=True)
class Run:
    """What a role may know of the run that it is part of, beside the host's state."""

    connect: Connect
    failed: bool = False
    """Whether something has failed on this host in this run, so that not all before this is there."""
    executing: bool = True
    """Whether changes are carried out, and not only worked out."""
    retry: bool = False
    """Whether to try again what was tried and taken back."""
    leftovers: Sequence[Change] = ()
    """What takes away that which roles once did here, and which is not declared any more."""


@dataclass(frozen=True)
class Task:
    """One line of a run: what it is about, and the changes that follow from the host's state at its turn.

    `notes` is what people are told then, which is no change. What fails in one that is `alone` keeps nothing else from
    being done; in one that `goes_on`, it does not even keep its own later changes.
    """

    name: str
    changes: Callable[[HostState, Run], Sequence[Change]]
    notes: Callable[[HostState, Run], Sequence[str]] | None = None
    alone: bool = False
    goes_on: bool = False


Found = TypeVar("Found")


@dataclass(frozen=True)
class Judging:
    """The input of `judge`: rig, plan, what the host returned, and which servers respond from here, by name."""

    rig: Rig
    plan: Plan
    answers: ProbeOutputs
    """What probes and scripts printed."""
    reached: Mapping[str, Reach]
    parts: Mapping[type[Any], Any] = field(default_factory=dict)
    """The results of roles' verbs, by type."""

    def found(self, kind: type[Found]) -> Found | None:
        """Return the result of the verb with this type; None if the verb did not run."""
        value = self.parts.get(kind)
        return value if isinstance(value, kind) else None


@dataclass(frozen=True)
class Verified:
    """What one role's part of verification found."""

    checks: tuple[Check, ...] = ()
    installed: tuple[Installed, ...] = ()
    instances: tuple[InstanceReport, ...] = ()


def _nothing(*_: object) -> tuple[()]:
    return ()


def _no_text(_: Plan) -> str:
    return ""


def _not(*_: object) -> bool:
    return False


@dataclass(frozen=True)
class Inspection(Generic[Found]):
    """How a role inspects a host: a verb of the program there, and what becomes of its result."""

    verb: str
    """As `models.inspect`."""
    given: Callable[[Plan], object]
    """Returns the verb's input; None where there is nothing to inspect."""
    found: type[Found]
    """The frozen dataclass that the verb returns."""
    take: Callable[[HostState, Found], None]
    """Adds it to the host's state."""


@dataclass(frozen=True)
class Verification(Generic[Found]):
    """How a role verifies a host if probes are not enough: a verb of the program on the host."""

    verb: str
    """As `serve.verification.verify`."""
    given: Callable[[Plan], object]
    """Returns the verb's input; None where there is nothing to verify."""
    found: type[Found]
    """The frozen dataclass that the verb returns: `Judging.found` has it."""
    healthy: Callable[[Found], Iterable[str]] = _nothing
    """Returns the names of servers that respond on their own host. `herd verify` tries them from here, too."""


@dataclass(frozen=True)
class Role:
    """One thing that must be true on a host. What a role does not say, it does not have."""

    name: str
    """Its folder's; people see it before each of its tasks."""
    summary: str
    """What is true afterwards, in one sentence."""
    for_instances: bool = False
    """Whether instances need it, so that it takes part in a run that is for some of them alone."""
    ground: bool = False
    """Whether all others stand on it, so that its refusals count in a run that is for others alone."""
    measured: Callable[[Path, Mapping[str, Rig], FleetFile], Mapping[str, float]] = lambda *_: {}
    """What it needs to know of measurements: tokens a second, by `RIG.INSTANCE`. They lie beside the inventory, whose
    folder it is given, with all rigs and the fleet's file, before anything is planned."""
    plan: Callable[[Planning], PlanPart] = lambda _: PlanPart()
    """Its part of the desired state. Raises NotLockedError."""
    brings: Callable[[Plan], Iterable[TextFile]] = _nothing
    """Files that lie on the host for it: they are inspected, and verified. Those in its PlanPart are among base's."""
    files: Callable[[Plan], Iterable[str]] = _nothing
    """Further files that it wants to know of, by path."""
    texts: Callable[[Plan], Iterable[TextFile]] = _nothing
    """Of those, the ones whose text is planned and holds no secret: a diff shows how it differs, as for `brings`."""
    folder: Path | None = None
    """Where it is, if it is a fleet's own: its `onhost.py` becomes a part of the program on hosts."""
    inspection: Inspection[Any] | None = None
    """How it inspects its part of the host's state."""
    inspect: Callable[[Plan], str] = _no_text
    """A shell script that inspects the host, for a fleet's role; empty if nothing is inspected. It prints lines, by
    `say KIND FIELD…`, and runs at the same time as the inspections of other roles."""
    waits: bool = False
    """Has no effect, as all scripts run at the same time. Roles of fleets set it for earlier versions."""
    parse: Callable[[HostState, str, Sequence[str]], bool] = _not
    """Adds one such line, KIND and fields, to the state. Returns False, or raises ValueError, for a line that no script
    can have printed."""
    refusals: Callable[[Plan, HostState], Iterable[Refusal]] = _nothing
    """Why the host cannot become as planned."""
    keep: Callable[[Path, Plan, HostState], str] = lambda *_: ""
    """Keeps in the inventory's folder what the host's state contains and checks need before they connect; returns a
    sentence where that changed a file. It must not trust the host: strictly parsed, bounded, and for this rig alone."""
    facts: Callable[[Plan, HostState], Iterable[PreflightRow]] = _nothing
    """Its rows of preflight's table."""
    needs: Callable[[Plan, HostState, Mapping[str, int]], Iterable[DiskNeed]] = _nothing
    """What it needs of disks; the mapping has bytes of the controller's files, by sha256."""
    sends: Callable[[Plan, HostState], Iterable[SendFile]] = _nothing
    """Files of the controller's that it would send."""
    unsettled: Callable[[Plan, HostState], bool] = _not
    """Whether the host was seen in the middle of something that another run does, and must be looked at again."""
    leftovers: Callable[[Plan, HostState], Iterable[Change]] = _nothing
    """What takes away that which it did here once, where its tasks are none any more. Base carries it out."""
    tasks: Callable[[Plan], Iterable[Task]] = _nothing
    """What it does, in this order."""
    probes: Callable[[Plan], Iterable[Probe]] = _nothing
    """Programs that print, by other means than its inspection, whether it is true."""
    verification: Verification[Any] | None = None
    """A verb that verifies the host, after all probes."""
    verify: Callable[[Plan], str] = _no_text
    """A shell script that verifies the host, after all verbs: it prints `section WHAT OF-WHAT`, then lines."""
    judge: Callable[[Judging], Verified] = lambda _: Verified()
    """What follows from the answers."""
    section: Literal["machine", "cards", "driver"] = "machine"
    """Where its checks stand in the report."""
    describe: Callable[[Plan, Mapping[str, Estimate | str]], Iterable[str]] = _nothing
    """Its lines of `herd plan`; the mapping has what engines said of instances' memory, by name."""

    @property
    def thing(self) -> str:
        """What it is about: one thing may be made true in several turns, the first word of whose names it is."""
        return self.name.partition(" ")[0]
