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
    SuspendPlan,
    TextFile,
    ToolkitPlan,
    VirtualAddressPlan,
    WslPlan,
)
from llamaherd.role.changes import Change, SendFile
from llamaherd.role.preflight import DiskNeed, PreflightRow, Refusal
from llamaherd.role.reach import Reach
from llamaherd.role.report import Check, Installed, InstanceReport

Found = TypeVar("Found")


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
    suspend: SuspendPlan | None
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
    """The content of `fleet.yaml`, if it exists."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Tokens a second that were measured of servers, by `RIG.INSTANCE`: what the role's `measured` has found."""


@dataclass(frozen=True)
class PlanPart:
    """What one role adds to the plan. Packages, files and repositories of all roles are put together.

    `own` is a value that only the role itself needs, in JSON: it is kept in `Plan.parts` under the role's name.
    """

    packages: frozenset[str] = frozenset()
    files: tuple[TextFile, ...] = ()
    repositories: tuple[RepositoryPlan, ...] = ()
    fields: PlanFields = field(default_factory=PlanFields)
    own: JsonValue = None


@dataclass(frozen=True)
class Run:
    """The run that a role is part of."""

    connect: Connect
    failed: bool = False
    """Whether a change has failed on this host in this run, so that not all before this exists."""
    executing: bool = True
    """Whether changes are carried out, and not only worked out."""
    retry: bool = False
    """Whether to try refused changes again."""
    leftovers: Sequence[Change] = ()
    """Changes that remove earlier work of roles, which is not declared any more."""


@dataclass(frozen=True)
class Task:
    """One line of a run: its name, and the changes that follow from the host's state at its turn.

    `notes` returns sentences for the user. If one that is `alone` fails, other tasks continue; in one that `continues`,
    even its own later changes do.
    """

    name: str
    changes: Callable[[HostState, Run], Sequence[Change]]
    notes: Callable[[HostState, Run], Sequence[str]] | None = None
    alone: bool = False
    continues: bool = False


@dataclass(frozen=True)
class Judging:
    """The input of `judge`: rig, plan, what the host returned, and which servers respond from here, by name."""

    rig: Rig
    plan: Plan
    outputs: ProbeOutputs
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


def _only(found: object) -> tuple[object]:
    return (found,)


def _nothing(*_: object) -> tuple[()]:
    return ()


def no_parts(facts: Sequence[Sequence[str]]) -> tuple[()]:
    """Return no part of a host's state. Raise ValueError if there is a fact."""
    for fact in facts:
        raise ValueError("\t".join(fact))
    return ()


@dataclass(frozen=True)
class Inspection(Generic[Found]):
    """How a role inspects a host: a verb of the program there, and the parts of the host's state that it returns."""

    verb: str
    """As `models.inspect`."""
    given: Callable[[Plan], object]
    """Returns the verb's input; None where there is nothing to inspect."""
    found: type[Found]
    """The frozen dataclass that the verb returns."""
    parts: Callable[[Found], Iterable[Any]] = _only
    """Returns the parts of the host's state, of subclasses of `StatePart`. Without this function, the verb's result is
    such a part. Raises ValueError if the host cannot have returned the result."""


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
    """One thing that must be true on a host. All fields but the first two have defaults."""

    name: str
    """The name of its folder, which is shown before each of its tasks."""
    summary: str
    """What is true after its tasks, in one sentence."""
    for_instances: bool = False
    """Whether instances need it, so that it takes part in a run that is for some of them alone."""
    ground: bool = False
    """Whether all other roles depend on it, so that its refusals count in a run for other roles alone."""
    measured: Callable[[Path, Mapping[str, Rig], FleetFile], Mapping[str, float]] = lambda *_: {}
    """Reads measurements before planning: returns tokens a second, by `RIG.INSTANCE`, from the inventory's folder,
    all rigs and the fleet's file."""
    plan: Callable[[Planning], PlanPart] = lambda _: PlanPart()
    """Returns its part of the desired state. Raises NotLockedError."""
    brings: Callable[[Plan], Iterable[TextFile]] = _nothing
    """Returns files that the role writes to the host: they are inspected, and verified. Those in its PlanPart are
    among base's."""
    files: Callable[[Plan], Iterable[str]] = _nothing
    """Returns paths of further files to inspect."""
    texts: Callable[[Plan], Iterable[TextFile]] = _nothing
    """Returns those of them whose text is planned and contains no secret: a diff shows how it differs, as for
    `brings`."""
    folder: Path | None = None
    """Where it is, if it is a fleet's own: its `onhost.py` becomes a part of the program on hosts."""
    deploy: Path | None = None
    """The `deploy.py` of a fleet's own role that is plain pyinfra. Such a role has no tasks."""
    inspection: Inspection[Any] | None = None
    """How it inspects its part of the host's state."""
    inspect: Callable[[Plan], str] = lambda _: ""
    """Returns a shell script that inspects the host, for a fleet's role; empty if nothing is inspected. It prints
    lines, by `say KIND FIELD…`, and runs at the same time as the inspections of other roles."""
    waits: bool = False
    """Has no effect, as all scripts run at the same time. Roles of fleets set it for earlier versions."""
    parse: Callable[[Sequence[Sequence[str]]], Iterable[Any]] = no_parts
    """Returns the parts of the host's state from all lines of this script: of each line, KIND and the fields. Raises
    ValueError for a line that the script cannot have printed."""
    refusals: Callable[[Plan, HostState], Iterable[Refusal]] = _nothing
    """Returns why the plan cannot be applied to the host."""
    keep: Callable[[Path, Plan, HostState], str] = lambda *_: ""
    """Keeps in the inventory's folder what the host's state contains and checks need before they connect; returns a
    sentence where that changed a file. It must not trust the host: strictly parsed, bounded, and for this rig alone."""
    facts: Callable[[Plan, HostState], Iterable[PreflightRow]] = _nothing
    """Returns its rows of preflight's table."""
    needs: Callable[[Plan, HostState, Mapping[str, int]], Iterable[DiskNeed]] = _nothing
    """Returns its need of disk space; the mapping has bytes of the controller's files, by sha256."""
    sends: Callable[[Plan, HostState], Iterable[SendFile]] = _nothing
    """Returns files of the controller that it would send."""
    unsettled: Callable[[Plan, HostState], bool] = lambda *_: False
    """Returns whether the inspection came in the middle of another run's work, and must be repeated."""
    leftovers: Callable[[Plan, HostState], Iterable[Change]] = _nothing
    """Returns what removes its earlier work, if nothing is planned any more. Base carries it out."""
    tasks: Callable[[Plan], Iterable[Task]] = _nothing
    """Returns its tasks, in this order."""
    probes: Callable[[Plan], Iterable[Probe]] = _nothing
    """Returns programs that print, by other means than its inspection, whether it is true."""
    verification: Verification[Any] | None = None
    """A verb that verifies the host, after all probes."""
    verify: Callable[[Plan], str] = lambda _: ""
    """Returns a shell script that verifies the host, after all verbs: it prints `section WHAT OF-WHAT`, then lines."""
    judge: Callable[[Judging], Verified] = lambda _: Verified()
    """Returns the checks that follow from the results."""
    section: Literal["machine", "cards", "driver"] = "machine"
    """The part of the report that contains its checks."""
    describe: Callable[[Plan, Mapping[str, Estimate | str]], Iterable[str]] = _nothing
    """Returns its lines of `herd show`; the mapping has engines' estimates of instances' memory, by name."""

    @property
    def thing(self) -> str:
        """Return the first word of the name: several turns of one thing begin with the same word."""
        return self.name.partition(" ")[0]
