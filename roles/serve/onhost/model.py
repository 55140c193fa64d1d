"""The inputs and results of serve's verbs as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from llamaherd.layout import KEPT, PROJECTS, REFUSED, UNITS, candidate_service, probation_of
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.servers import ContainerState, Holder, NeededGpu, ServingState, UnitState

Kind = Literal["unit", "container"]
ProofQuestion = Mapping[str, object]
"""What the proof of a server sends and expects: see `proof_prompt` and `proof_facts` in roles/serve."""

Access = Literal["absent", "closed", "silent"]
"""Why a server's user cannot read a file: it is absent, access is denied, or the disk does not respond."""


@dataclass(frozen=True)
class Server:
    """One server: its names, its places, and what proves it."""

    name: str
    """Of its instance."""
    service: str
    """Of its unit or container."""
    kind: Kind
    user: str
    """The account of its unit."""
    spec: str
    tried: str
    """The identity of one attempt: the spec, what its responses must be like, and its gate."""
    key_file: str
    """Empty where it has no key."""
    port: int
    start_seconds: int
    drain_seconds: int
    inputs: tuple[str, ...]
    """What `started record` takes: the key's file or `-`, and the folders of its models."""
    question: ProofQuestion = field(repr=False)
    prompts: bool = True
    """Whether a prompt probes it during its probation. A group would have to swap models for one."""
    response_seconds: int = 120
    """How long a busy server may take to respond to a probe."""

    @property
    def unit(self) -> str:
        """Return the name of its unit."""
        return f"{self.service}.service"

    @property
    def unit_file(self) -> str:
        """Return where its unit is."""
        return str(UNITS / self.unit)

    @property
    def project_file(self) -> str:
        """Return where its Compose file is."""
        return str(PROJECTS / self.name / "compose.yaml")

    @property
    def kept(self) -> str:
        """Return the folder of the versions that can be restored."""
        return str(KEPT / self.service)

    @property
    def refused(self) -> str:
        """Return the file that records an attempt that was rolled back."""
        return str(REFUSED / self.service)

    @property
    def candidate(self) -> str:
        """Return the name of a second server that runs side by side with it."""
        return candidate_service(self.name)

    @property
    def probation_unit(self) -> str:
        """Return the name of the unit that watches it after a switch."""
        return f"{probation_of(self.name)}.service"

    def file_of(self, kind: str) -> str:
        """Return the file that defines it as a unit or as a container."""
        return self.unit_file if kind == "unit" else self.project_file


@dataclass(frozen=True)
class ArgumentCheck:
    """A built engine that reads a server's arguments before anything is stopped."""

    program: str
    arguments: tuple[str, ...]
    user: str
    """The account, or the number, that the server runs as."""


@dataclass(frozen=True)
class ContainerCheck:
    """A new Compose file that Docker reads before anything is stopped."""

    text: str
    image: str
    pulled: bool
    reads_arguments: bool
    user: str
    folders: tuple[str, ...]
    key_file: str
    environment: Mapping[str, str]
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class CandidateInput:
    """A second server of the new version at a port of its own, while the running one still serves."""

    port: int
    files: tuple[WrittenFile, ...]
    question: ProofQuestion = field(repr=False)
    ram: int
    gpus: tuple[NeededGpu, ...]
    listen: str
    for_others: bool
    rule: str
    """Of nftables: leads new connections of the declared port to the candidate's."""
    group: str
    """Of the server itself, whose connections are not led."""


@dataclass(frozen=True)
class ReplacedServer:
    """A server that is not declared any more. It serves until the servers that replace it do."""

    name: str
    service: str
    takes_port: bool
    """Whether the new server has its port."""

    @property
    def kept(self) -> str:
        """Return the folder of the versions that can be restored."""
        return str(KEPT / self.service)

    @property
    def mark(self) -> str:
        """Return the file that records that it was stopped for a new server and has to come back if that one fails."""
        return f"{self.kept}/aside"

    @property
    def project_file(self) -> str:
        """Return where its Compose file is."""
        return str(PROJECTS / self.name / "compose.yaml")


@dataclass(frozen=True)
class Room:
    """Bytes that must be free while other servers run."""

    ram: int
    gpus: tuple[NeededGpu, ...]


@dataclass(frozen=True)
class SwitchInput:
    """Input of the switch of one server to the plan."""

    server: Server
    restart: bool
    """Whether it starts anew. Otherwise it is started where it does not run."""
    run: str = ""
    """The invocation or container that was inspected: another run may have started a newer one meanwhile."""
    moves: bool = False
    """Whether anything of it is there by the other backend, as a container or as a unit."""
    files: tuple[WrittenFile, ...] = ()
    """To write."""
    unchanged: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of files that are not written, by path."""
    foreign: tuple[str, ...] = ()
    """Drop-ins of its unit that are not declared."""
    hangs: str = ""
    """Why it cannot end by itself."""
    paused: bool = False
    arguments: tuple[ArgumentCheck, ...] = ()
    container: ContainerCheck | None = None
    needs_gpus: tuple[NeededGpu, ...] = ()
    needs_ram: int = 0
    leaving: tuple[str, ...] = ()
    """Services that are stopped before it starts: what they hold counts as free."""
    any_speed: bool = False
    """Whether it may be slower than its model was here before."""
    holds: str = ""
    """What it holds of each place, as the file `holds` has it."""
    reads: str = ""
    """The folders of its models, as the file `loaded` has them."""
    gpus: tuple[str, ...] = ()
    one_gpu: bool = False
    candidate: CandidateInput | None = None
    replaced: tuple[ReplacedServer, ...] = ()
    replaced_room: Room | None = None
    """What must be free for it side by side with those that it replaces; None where that is not certain."""


@dataclass(frozen=True)
class ExchangeInput:
    """Servers that take something from each other: all of them change, or none."""

    names: str
    members: tuple[SwitchInput, ...]
    replaced: tuple[ReplacedServer, ...]
    ports: tuple[int, ...]


@dataclass(frozen=True)
class RemovalInput:
    """A server that is stopped and removed. Models and builds stay."""

    name: str
    service: str
    user: str
    unit: bool
    container: bool
    key: bool
    """Whether its key and its kept versions go as well."""
    drain_seconds: int


@dataclass(frozen=True)
class ImageInput:
    """The image of a build, and the base that it is made on."""

    tag: str
    base: str
    base_packages: tuple[str, ...]
    build: str
    dockerfile: str
    record: str
    """The file that keeps which image this is."""


@dataclass(frozen=True)
class CutOffInput:
    """An exchange of servers that was cut off, and is ended now."""

    names: str


@dataclass(frozen=True)
class KeyRemovalInput:
    """A key that no server reads any more."""

    name: str


@dataclass(frozen=True)
class RefusalInput:
    """An attempt that was measured and is not accepted."""

    service: str
    tried: str
    why: str


@dataclass(frozen=True)
class PlannedUnit:
    """A server that is planned as a unit."""

    service: str
    inputs: tuple[str, ...]
    """What its start records: the key's file or `-`, and the folders of its models."""
    variables: tuple[str, ...] = field(repr=False)
    """What its process must have of variables, NAME=VALUE."""
    strange_variables: str
    """A pattern of other names that it must not have; empty where any name is allowed."""
    health_path: str
    program: str
    user: str
    drop_ins: tuple[str, ...]
    """Names of folders of drop-ins for other units as well."""


@dataclass(frozen=True)
class PlannedContainer:
    """A server that is planned as a container. The first fields are those of a unit."""

    service: str
    inputs: tuple[str, ...]
    variables: tuple[str, ...] = field(repr=False)
    strange_variables: str
    health_path: str
    image: str
    image_record: str
    """The file that keeps which image this was made as; empty where it was pulled."""
    one_process: bool
    """Whether nothing of it works when its process does not."""
    gpus: tuple[str, ...]
    """Those that its processes must be found on."""
    one_gpu: bool


@dataclass(frozen=True)
class PlannedImage:
    """An image that is built on the host, and the file that contains its id."""

    tag: str
    record: str


@dataclass(frozen=True)
class InspectServersInput:
    """What to inspect of servers."""

    units: tuple[PlannedUnit, ...] = ()
    containers: tuple[PlannedContainer, ...] = ()
    images: tuple[PlannedImage, ...] = ()
    ports: tuple[int, ...] = ()
    reads: tuple[str, ...] = ()
    """Programs that servers run."""
    stores: tuple[str, ...] = ()
    """Folders of models."""
    limits: tuple[str, ...] = ()
    """Fields of a container's HostConfig, as `RestartPolicy.Name`."""


@dataclass(frozen=True)
class UsedPort:
    """A port that no server of ours has by systemd or Docker, and the process that holds it."""

    port: int
    unit: str
    """The unit of ours whose control group the process is in; empty where it is in none."""
    holder: Holder


@dataclass(frozen=True)
class InspectedServers:
    """The state of servers. Absent ones have no entry."""

    units: Mapping[str, UnitState] = field(default_factory=dict)
    containers: Mapping[str, ContainerState] = field(default_factory=dict)
    serving: Mapping[str, ServingState] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    off_gpus: tuple[str, ...] = ()
    """Containers that are healthy and not on their GPUs."""
    closed: tuple[str, ...] = ()
    """Files and folders that a server would read, and may not."""
    projects: tuple[str, ...] = ()
    """Folders of Compose files."""
    keys: tuple[str, ...] = ()
    """Names of the files of keys."""
    ports: tuple[UsedPort, ...] = ()
    cut_off: str = ""
    """The servers of a run that was cut off while it changed them together."""


@dataclass(frozen=True)
class Probed:
    """A running server: its process, and the URL at which it responds to a request for its health."""

    service: str
    pid: str
    url: str


@dataclass
class ServerStates:
    """What an inspection of units, or of containers, collects."""

    units: dict[str, UnitState] = field(default_factory=dict)
    containers: dict[str, ContainerState] = field(default_factory=dict)
    serving: dict[str, ServingState] = field(default_factory=dict)
    probed: list[Probed] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)
    """Those that are ours."""
    images: list[str] = field(default_factory=list)
    off_gpus: list[str] = field(default_factory=list)
    docker: bool = False
    """Whether Docker responds."""


@dataclass(frozen=True)
class ChatRequest:
    """A chat with one model of a server."""

    name: str
    """The instance."""
    url: str
    body: str
    """Empty for a server that completes no prompts."""
    props_url: str
    """The URL at which a server that swaps reports its loaded model; empty for other servers."""
    question: ProofQuestion = field(default_factory=dict, repr=False)
    """What is declared of the server, for its probes. It contains no key."""


@dataclass(frozen=True)
class Requests:
    """The requests to a server. An empty URL means no request."""

    health_url: str
    keyless_url: str
    """The page that the server must not return without a key."""
    models_url: str
    props_url: str
    chats: tuple[ChatRequest, ...]
    chat_seconds: int
    key_file: str
    """The file of its key; empty if it has none."""


@dataclass(frozen=True)
class PlannedServer:
    """A planned server, and what to verify."""

    name: str
    service: str
    unit: bool
    """Whether it is a unit; otherwise it is a container."""
    user: str
    file: str
    """Its unit or its Compose file."""
    port: int
    reads: tuple[str, ...]
    """Files that its user must be able to read."""
    program: str
    """The program that its user must be able to run; empty if the program is in an image."""
    owned: tuple[str, ...]
    """Files and folders to return the owners of, with all their contents."""
    variables: tuple[str, ...] = field(repr=False)
    """Variables that its process must have, as NAME=VALUE."""
    strange_variables: str
    """A regular expression for names of variables that it must not have in addition; empty if all are allowed."""
    has_gpus: bool
    swaps: bool
    """Whether each of its models runs in its own process."""
    requests: Requests


@dataclass(frozen=True)
class VerifyServersInput:
    """What to verify."""

    servers: tuple[PlannedServer, ...] = ()
    images: tuple[PlannedImage, ...] = ()
    limits: tuple[str, ...] = ()
    """Fields of a container's HostConfig, as `RestartPolicy.Name`."""


@dataclass(frozen=True)
class UnitFound:
    """A unit, as systemd has loaded it."""

    active: str
    enabled: str
    result: str
    file: str
    drop_ins: tuple[str, ...]
    needs_reload: bool
    pid: str
    shared: Mapping[str, str] = field(default_factory=dict)
    """Drop-ins that apply to other units as well, and those of their keys that set the program or its user."""


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host in a container."""

    source: str
    writable: bool


@dataclass(frozen=True)
class ContainerFound:
    """A container, as Docker has created it."""

    status: str
    health: str
    restart: str
    spec: str
    pid: str
    image: str
    """The id of the image that it runs."""
    config_files: str
    """The files that Compose created it from."""
    user: str
    limits: Mapping[str, str] = field(default_factory=dict)
    """The limits that are set, by Docker's names."""
    mounts: tuple[Mount, ...] = ()
    privileged: bool = False
    read_only: bool = False
    network: str = ""
    pid_mode: str = ""
    ipc_mode: str = ""
    added: tuple[str, ...] = ()
    """Capabilities."""
    dropped: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    """Security options."""


@dataclass(frozen=True)
class ImageFound:
    """The image that a tag names, and the id of the image that was built. An absent image has an empty id."""

    id: str
    size: int
    made: str


@dataclass(frozen=True)
class ProcessFound:
    """A running process: its binary, and what it was started with."""

    sha256: str
    spec: str
    uid: str
    account: str
    """The number of the account that it should run as; empty if there is no such account."""
    stopped: bool
    argv: tuple[str, ...]
    variables: tuple[str, ...] = ()
    """Names of variables that differ from the declared ones or are not allowed."""


@dataclass(frozen=True)
class OwnedFile:
    """A file or a folder: permission bits and owner."""

    path: str
    kind: str
    """`file`, `folder`, `link` or `other`."""
    mode: int
    owner: str


@dataclass(frozen=True)
class ProbeResult:
    """How a probe of a server ended, and what it found."""

    name: str
    outcome: Literal["passed", "failed", "note"]
    """`note`: it was not tried, or its result depends on the model."""
    detail: str = ""


@dataclass(frozen=True)
class Responses:
    """The output of curl for each request: the body, curl's errors, and the status on the last line."""

    health: str = ""
    keyless: str = ""
    models: str = ""
    props: Mapping[str, str] = field(default_factory=dict)
    """By instance."""
    chats: Mapping[str, str] = field(default_factory=dict)
    probes: Mapping[str, tuple[ProbeResult, ...]] = field(default_factory=dict)
    """By instance."""


@dataclass(frozen=True)
class GpuProcesses:
    """The processes of a server, and the devices of GPUs that they hold open."""

    pids: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerFound:
    """A server."""

    file_sha256: str = ""
    unit: UnitFound | None = None
    container: ContainerFound | None = None
    process: ProcessFound | None = None
    holder: str = ""
    """The process that listens at its port, if the server has no process."""
    access: Mapping[str, Access] = field(default_factory=dict)
    """Files that its user cannot read."""
    runs_program: bool = True
    """Whether its user may run its program."""
    owned: tuple[OwnedFile, ...] = ()
    responses: Responses = field(default_factory=Responses)
    on_gpus: GpuProcesses = field(default_factory=GpuProcesses)
    pause_left: float | None = None
    """The seconds that are left of its pause; None if it is not paused."""


@dataclass(frozen=True)
class Listening:
    """A program that listens for other hosts; `pid` is 0 if the process is hidden. `unit` may name a container."""

    port: int
    pid: int
    program: str
    unit: str


@dataclass(frozen=True)
class GpusFound:
    """The output of nvidia-smi, the number of each GPU's device by its address, and the PID namespace of this host."""

    listed: str = ""
    processes: str = ""
    minors: Mapping[str, int] = field(default_factory=dict)
    namespace: str = ""
    kernel: str = ""


@dataclass(frozen=True)
class VerifiedServers:
    """All servers of a host. Absent ones have no unit and no container."""

    servers: Mapping[str, ServerFound] = field(default_factory=dict)
    images: Mapping[str, ImageFound] = field(default_factory=dict)
    docker_enabled: str = ""
    listening: tuple[Listening, ...] | None = None
    """None if GPUs were not inspected."""
    published: tuple[str, ...] = ()
    """Each container that runs and its ports, as `docker ps` prints them."""
    gpus: GpusFound = field(default_factory=GpusFound)
    unknown: tuple[str, ...] = ()
    """`systemd` or `Docker`, where it did not respond: what is missing of it is unknown, not absent."""
