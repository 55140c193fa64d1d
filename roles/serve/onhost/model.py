"""The inputs of serve's verbs: what a plan has decided, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from llamaherd.layout import KEPT, PROJECTS, REFUSED, UNITS, beside_of, probation_of
from llamaherd.onhost.files import WrittenFile

Kind = Literal["unit", "container"]
Question = Mapping[str, object]
"""What the proof of a server sends and expects: see `asked` and `proof` in roles/serve."""


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
    question: Question = field(repr=False)
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
        return beside_of(self.name)

    @property
    def probation_unit(self) -> str:
        """Return the name of the unit that watches it after a switch."""
        return f"{probation_of(self.name)}.service"

    def file_of(self, kind: str) -> str:
        """Return the file that defines it as a unit or as a container."""
        return self.unit_file if kind == "unit" else self.project_file


@dataclass(frozen=True)
class GpuNeed:
    """Bytes that must be free on a GPU, which `at` identifies: an index, a PCI address or a UUID."""

    name: str
    at: str
    need: int


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
    question: Question = field(repr=False)
    ram: int
    gpus: tuple[GpuNeed, ...]
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
    """Bytes that must be free beside other servers."""

    ram: int
    gpus: tuple[GpuNeed, ...]


@dataclass(frozen=True)
class SwitchInput:
    """What makes one server run as planned."""

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
    needs_gpus: tuple[GpuNeed, ...] = ()
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
