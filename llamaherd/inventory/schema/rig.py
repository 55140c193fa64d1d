"""A rig: its machine with GPUs and driver, its model store, and the fleet of all rigs."""

from __future__ import annotations

import posixpath
import re
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, field_validator, model_validator

from llamaherd.diagnostics.spelling import nearest_name, one_slip
from llamaherd.inventory.schema.base import Declared, LocalPath, Megahertz, Name, Percent, Port, Size, Watts, wrong
from llamaherd.inventory.schema.serving import Instance
from llamaherd.inventory.schema.software import Engine, Model
from llamaherd.layout import DEFAULT_STORE
from llamaherd.reference.cards import CARDS, OTHER_SIZES, USUAL_MULTIPROCESSORS, known_as
from llamaherd.text.numbers import parse_data_rate, parse_duration, parse_hours
from llamaherd.text.quoting import SSH_REFUSED, Line, Plain

OperatingSystem = Literal["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"]

MOST_PROCESSORS = 8192
"""The most CPUs of Linux (NR_CPUS of x86-64)."""

# What the OpenSSH client itself refuses in both, as they end up in commands (valid_hostname and valid_ruser of ssh.c).
_HOST = r"^[^\s\-'`\"$\\;&<>|(){},][^\s'`\"$\\;&<>|(){},]*$"
_USER = r"^[^\s\-'`\";&<>|(){}]([^\s'`\";&<>|(){}]*[^\s'`\";&<>|(){}\\])?$"
_WslName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*$")]


def _host_alone(host: str) -> str:
    """Refuse a host with a scheme, a user or a port, and invalid addresses."""
    if re.fullmatch(r"[0-9a-fA-F.:]+/[0-9]{1,3}", host):
        raise wrong(f"`{host}` is a network", "write the address of the host in it, such as `host: 192.168.1.20`")
    bare = re.sub(r"^\w+://|/.*$", "", host)
    user, _, rest = bare.rpartition("@")
    name, _, port = rest.rpartition(":") if re.fullmatch(r"[^:]+:\d+|\[.+\]:\d+", rest) else (rest, "", "")
    name = name.strip("[]")
    if name and name != host and not host.startswith("@"):
        keys = [f"host: {name}", *([f"user: {user}"] if user else []), *([f"port: {port}"] if port else [])]
        raise wrong(f"`{host}` is more than a host", f"write `{', '.join(keys)}`")
    if re.fullmatch(r"[0-9.]+", host):
        if address := _address(host):
            return address
        raise wrong(f"`{host}` is not an IP address", "write four numbers up to 255, such as `host: 192.168.1.20`")
    if ".." in host:
        raise wrong(f"`{host}` has two dots in a row", f"write `host: {re.sub(r'[.]+', '.', host)}`")
    return host


def _address(text: str) -> str | None:
    """Return an IP address in its usual form; None if it is invalid."""
    with suppress(ValueError):
        return str(ip_address(text))
    return None


class Connect(Declared):
    """How the controller reaches a rig. `connect: local` is the machine on which herd runs."""

    host: Annotated[Line, StringConstraints(pattern=_HOST, max_length=253), AfterValidator(_host_alone)]
    """Name or address of the host, or a `Host` of `~/.ssh/config`."""
    port: Port | None = None
    """Port of the SSH server. Default: `Port` of `~/.ssh/config`, else 22."""
    user: Annotated[Line, StringConstraints(pattern=_USER, max_length=256)] | None = None
    """The SSH user: root, or a user with `sudo` without a password."""
    key: LocalPath | None = None
    """Private SSH key, without a passphrase."""
    known_hosts: LocalPath | None = None
    """File with the host's key; no other is accepted."""

    @model_validator(mode="after")
    def _user_alone(self) -> Connect:
        """Refuse a user that contains the host; `tom@corp.example`, a user of a domain, is valid."""
        name, _, host = (self.user or "").rpartition("@")
        if name and ("." not in host or host in (self.host, _address(host))):
            raise wrong(f"`{self.user}` is more than a user", f"did you mean `user: {name}`?", at="user")
        return self

    @field_validator("key")
    @classmethod
    def _private(cls, path: Path | None) -> Path | None:
        if path and path.suffix == ".pub":
            raise wrong(f"`{path.name}` is a public key", f"write the private one, `{path.stem}`, without `.pub`")
        return path

    @field_validator("key", "known_hosts")
    @classmethod
    def _path_for_ssh(cls, path: Path | None) -> Path | None:
        if path and SSH_REFUSED.search(str(path)):
            raise ValueError(f"`{path}` has a double quote, a backslash or `${{`, which ssh reads otherwise; rename it")
        return path


class Cpu(Declared):
    """The processor. Engines use physical cores as threads: SMT siblings only slow them down."""

    cores: Annotated[int, Field(ge=1, le=MOST_PROCESSORS)]
    """Physical cores, without SMT siblings."""
    performance: Annotated[int, Field(ge=1, le=MOST_PROCESSORS)] | None = None
    """The number of performance cores, if there are two kinds."""
    amx: bool = False
    """Whether it has AMX (`amx_int8` in /proc/cpuinfo): llama.cpp without a GPU then stores most matrices twice."""


class Wsl(Declared):
    """Settings of a host under WSL 2: those of Windows' `.wslconfig`, and those that keep WSL running."""

    memory: Size | None = None
    """Memory of the virtual machine. Default: half of the host's."""
    swap: Literal[0] | Size | None = None
    """Swap of the virtual machine; 0 for none."""
    processors: Annotated[int, Field(ge=1, le=MOST_PROCESSORS)] | None = None
    """Logical processors of the virtual machine."""
    networking: Literal["nat", "mirrored", "virtioproxy", "none"] | None = None
    """`mirrored` makes servers reachable from Windows and the LAN as if Windows ran them."""
    keep_alive: bool = True
    """Never shut down when idle. Otherwise WSL ends with its last terminal, servers included."""
    windows_profile: Line | None = None
    """The Windows user's folder in WSL, such as `/mnt/c/Users/tom`, if it is not detected."""
    settings: dict[_WslName, dict[_WslName, Plain]] = Field(default_factory=dict)
    """More keys of `.wslconfig`, by section."""


class Host(Declared):
    """The hardware and system of a host."""

    os: OperatingSystem
    """Distribution and release. If the host has another one, the run stops before it changes anything."""
    cpu: Cpu
    """Its processor."""
    ram: Size
    """Memory of the host; under WSL that of the virtual machine."""
    wsl: Wsl | None = None
    """Set for a host under WSL 2."""


def _mac(text: str) -> str:
    """Return the address of one network card, in lower case with colons. Refuse addresses of groups, and zeros."""
    digits = re.sub("[:-]", "", text).lower()
    if not re.fullmatch("[0-9a-f]{12}", digits) or not re.fullmatch(r"..([:-]?)..(\1..){4}", text):
        help_ = (
            "write six pairs of hexadecimal digits, such as `mac: 3c:7c:3f:12:ab:cd`; `ip link` on the host shows it"
        )
        raise wrong(f"`{text}` is not a MAC address", help_)
    if int(digits[:2], 16) & 1 or not int(digits, 16):
        raise wrong(f"`{text}` is not the address of one network card", "`ip link` on the host shows its address")
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


class Wake(Declared):
    """How the gateway wakes the host: by a wake-on-LAN packet."""

    mac: Annotated[Line, StringConstraints(max_length=40), AfterValidator(_mac)]
    """The address of its network card, such as `3c:7c:3f:12:ab:cd`."""


SuspendTime = Annotated[int, BeforeValidator(parse_duration, json_schema_input_type=str), Field(ge=300, le=48 * 3600)]


class Suspend(Declared):
    """When the host sleeps."""

    after: SuspendTime
    """The time without a request, a login session or a run, `5m` to `48h`."""


def _as_text(value: Any) -> Any:
    """Read numbers as text: YAML reads `branch: 580` and `cuda: 13.0` as numbers."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


# Of the characters of URLs (RFC 3986), those that neither apt, curl nor a shell gives a meaning of its own.
_KEY = r"^(https?://|file:///)?[A-Za-z0-9._~%-][A-Za-z0-9._~:/?@!&()*+,;=%-]*$"
_REPOSITORY = r"^(https?://[A-Za-z0-9._~:@\[\]%-]+(/[A-Za-z0-9._~:/?@!&()*+,;=%-]*)?|file:///[A-Za-z0-9._~:/@+,=%-]+)$"


def _instead_of(model: str) -> str:
    """Return the suggestion for an unknown GPU name."""
    if re.match(r"\d+ ?x ", model, re.IGNORECASE):
        return f"declare each GPU by itself, by names of your own: `one: {{model: {model.partition(' ')[2]}}}`"
    if re.search(r"\b(rx|radeon|arc|amd|intel|instinct|mi\d{2,3}x?|gfx\d+)\b", model, re.IGNORECASE):
        return "leave it out: only NVIDIA's GPUs are driven here"
    if (sized := re.fullmatch(r"(.+?)[ -]*([0-9]{1,3}) ?G(?:i?B)?", model, re.IGNORECASE)) and (
        known := known_as(sized[1])
    ):
        sizes = (CARDS[known].memory_mib, *OTHER_SIZES.get(known, ()))
        size = next((each for each in sizes if round(each / 1024) == int(sized[2])), None)
        if size is not None:
            return f"did you mean `model: {known}{f', memory: {size}MiB' if size != sizes[0] else ''}`?"
    # A number is never a typing mistake: GPUs with other numbers are other GPUs.
    numbers = re.findall(r"\d+", model)
    close = nearest_name(model, (known for known in CARDS if re.findall(r"\d+", known) == numbers))
    if close := close or one_slip(model, CARDS) or _swapped_digits(model):
        return f"did you mean `model: {close}`?"
    query = "nvidia-smi --query-gpu=name,compute_cap,memory.total --format=csv"
    return f'correct the name, or add both, such as `architecture: "86", memory: 24576MiB`: `{query}` shows them'


def _swapped_digits(model: str) -> str | None:
    """Return the one GPU whose name has the same digits in another order, as `RTX 3090` for `RTX 3900`."""
    found = [
        known
        for known in CARDS
        if re.sub(r"\d", "", known).lower() == re.sub(r"\d", "", model).lower()
        and sorted(re.findall(r"\d", known)) == sorted(re.findall(r"\d", model))
    ]
    return found[0] if len(found) == 1 else None


class Clocks(Declared):
    """The range to which a GPU's clock is locked."""

    min: Megahertz = 210
    """Lowest clock of the graphics unit."""
    max: Megahertz
    """Highest clock of the graphics unit."""


class Card(Declared):
    """A GPU. `uuid`, `pci` or `index` identifies it among several."""

    model: Annotated[Line, StringConstraints(min_length=1, max_length=100)]
    """Its name, such as `RTX 3090`."""
    uuid: Annotated[str, StringConstraints(pattern=r"^GPU-[0-9A-Za-z-]+$")] | None = None
    """Its UUID from `nvidia-smi -L`, which is independent of its slot."""
    pci: (
        Annotated[str, StringConstraints(pattern=r"^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$")] | None
    ) = None
    """Its PCI address, such as `0000:01:00.0`, which identifies the slot."""
    index: Annotated[int, Field(ge=0, le=31)] | None = None
    """Its number in the order of PCI addresses, from 0."""
    architecture: Annotated[str, StringConstraints(pattern=r"^[0-9]{2,3}[af]?$")] | None = None
    """Compute capability without the dot, if it does not follow from `model`."""
    memory: Size | None = None
    """Its memory as shown by `nvidia-smi`, if it does not follow from `model`."""
    reserved: Size | None = None
    """Memory that other programs use, such as a desktop; servers get the rest."""
    power_limit: Watts | None = None
    """Its power limit."""
    clocks: Clocks | None = None
    """The range of its clock. Laptop GPUs often support this, but no power limit."""
    fans: Percent | None = None
    """Fixed speed of all its fans. Default: controlled by the GPU."""

    @field_validator("model")
    @classmethod
    def _as_known_here(cls, value: str) -> str:
        return known_as(value) or value

    @model_validator(mode="after")
    def _known(self) -> Card:
        if self.architecture is None and self.model not in CARDS:
            raise wrong(f"`{self.model}` is not a known GPU", _instead_of(self.model), at="model")
        ways = [way for way in ("uuid", "pci", "index") if getattr(self, way) is not None]
        if len(ways) > 1:
            shown = " and ".join(f"`{way}`" for way in ways)
            raise wrong(f"{shown} both identify the GPU", f"leave out `{ways[1]}`", at=ways[1])
        return self

    @property
    def cuda_architecture(self) -> str:
        """Return the value for CMAKE_CUDA_ARCHITECTURES, such as `86`."""
        return self.architecture or CARDS[self.model].architecture

    @property
    def multiprocessors(self) -> int:
        """Return the number of its multiprocessors, or that of a similar GPU."""
        known = CARDS.get(self.model) or CARDS.get(self.model.split()[0])  # `H100 80GB HBM3`
        return known.multiprocessors if known else USUAL_MULTIPROCESSORS

    @property
    def memory_bytes(self) -> int | None:
        """Return its total memory in bytes, including the driver's share; None if unknown."""
        if self.memory or self.model not in CARDS:
            return self.memory
        return CARDS[self.model].memory_mib << 20


class Repository(Declared):
    """An apt repository instead of the default one, for example a mirror in the LAN."""

    url: Annotated[str, StringConstraints(pattern=_REPOSITORY)]
    """The URL of its `InRelease`: a flat repository, like NVIDIA's. `file:///` is a folder of the host."""
    key: Annotated[str, StringConstraints(pattern=_KEY)]
    """The key that signs it: a URL, or a path relative to `url`."""
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{40}$")]
    """All 40 digits of that key's fingerprint: any other key is refused."""


class Driver(Declared):
    """NVIDIA's driver."""

    branch: Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int), Field(pattern=r"^[0-9]{3}$")]
    """Its branch, such as 580."""
    version: Annotated[str, StringConstraints(pattern=r"^[0-9]{3}(\.[0-9]+)+$")] | None = None
    """A version of the branch, such as `580.95.05`. Default: the newest at the first installation, then kept."""
    from_: Annotated[Literal["nvidia", "distribution"], Field(alias="from")] = "nvidia"
    """The source of its packages: NVIDIA's repository, or the distribution. They are never mixed."""
    modules: Literal["open", "proprietary"] | None = None
    """The kernel modules. Default: open, unless a GPU or the branch is too old for them."""
    reboot: bool = True
    """Whether a run may reboot the host once, if a driver requires it."""

    @model_validator(mode="after")
    def _of_that_branch(self) -> Driver:
        if self.version and not self.version.startswith(f"{self.branch}."):
            message = f"version {self.version} is not of branch {self.branch}"
            raise wrong(message, f"write `branch: {self.version[:3]}`, or leave `version` out", at="version")
        return self


class ContainerToolkit(Declared):
    """NVIDIA's container toolkit, which makes GPUs available to containers."""

    version: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] | None = None
    """A version, such as `1.20.0`. Default: the newest at the first installation, then kept."""
    repository: Repository | None = None
    """The repository of its packages. Default: NVIDIA's."""
    restart_docker: bool = False
    """Whether a run may restart Docker for it while containers run, which stops them."""


class Gpus(Declared):
    """The GPUs of a rig, their driver, and the CUDA toolkit for building engines."""

    driver: Driver | None = None
    """Set to let llamaherd install the driver. Under WSL, Windows provides it."""
    cuda: Annotated[
        str, BeforeValidator(_as_text, json_schema_input_type=str | float), Field(pattern=r"^[0-9]+\.[0-9]+$")
    ]
    """Version of the CUDA toolkit, such as "13.0"."""
    repository: Repository | None = None
    """The repository of driver and toolkit. Default: NVIDIA's."""
    container_toolkit: ContainerToolkit = ContainerToolkit()
    """The container toolkit, for instances with GPUs that run in containers."""
    cards: dict[Name, Card]
    """The GPUs, by names that you choose."""


HUB = "hub"
"""The word in `from` for a model's hub; no rig can have this name."""
SHARE_PORT = 8970
"""The port on which a rig shares models."""


def _absolute(path: str) -> str:
    if ".." in path.split("/") or not path.startswith("/"):
        raise ValueError(f"`{path}` is not an absolute path of the host, such as {DEFAULT_STORE}")
    return "/" + posixpath.normpath(path).lstrip("/")


def _origin(value: Any) -> Any:
    """Parse `hub`, the name of a rig, or a folder of the host. Raise ValueError."""
    if isinstance(value, str) and re.fullmatch(r"/[^\x00-\x1f\x7f]*", value):
        return _absolute(value)
    if isinstance(value, str) and not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,39}", value):
        raise ValueError(f"`{value}` is neither `{HUB}`, nor the name of a rig, nor an absolute folder of the host")
    return value


# Units, Compose files and the shell are given this path: what one of them reads otherwise is left out.
StorePath = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9._+/-]*$", max_length=200), AfterValidator(_absolute)
]
StoreOrigin = Annotated[Line, BeforeValidator(_origin, json_schema_input_type=str)]
DataRate = Annotated[int, BeforeValidator(parse_data_rate, json_schema_input_type=str | int), Field(gt=0)]
Hours = Annotated[str, BeforeValidator(parse_hours, json_schema_input_type=str)]
Address = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:][A-Za-z0-9.:_-]*$")]


class Bandwidth(Declared):
    """A limit for downloading models, perhaps for some hours."""

    limit: DataRate
    """The most bytes per second, of all connections together."""
    hours: Hours | None = None
    """The hours of the limit in the host's time, such as `07:00-23:00`. Default: always."""

    @property
    def span(self) -> tuple[str, str]:
        """Return the begin and end, as `HH:MM`; equal times mean always."""
        begin, _, end = (self.hours or "00:00-00:00").partition("-")
        return begin, end


class Sharing(Declared):
    """Where other rigs of the fleet reach this rig, to copy models from it."""

    address: Address | None = None
    """Name or address in the LAN. Default: what `connect` has as `host`."""
    port: Port = SHARE_PORT
    """The port, open only while another rig fetches."""


class Store(Declared):
    """The model store on the host, and the sources of models."""

    path: StorePath = str(DEFAULT_STORE)
    """The folder on the host."""
    mount: bool = False
    """Whether the folder is on a disk that is mounted: then servers start after it, and stop without it."""
    from_: Annotated[tuple[StoreOrigin, ...], Field(alias="from")] = (HUB,)
    """The sources of models, in order: `hub`, rigs of the fleet, folders of the host."""
    bandwidth: tuple[Bandwidth, ...] = ()
    """Limits for downloads: one limit, one with its hours, or several of these."""
    connections: Annotated[int, Field(ge=1, le=32)] = 8
    """Parallel connections."""
    share: Sharing = Sharing()
    """Where other rigs reach this rig, to copy models from it."""

    @field_validator("from_", mode="before", json_schema_input_type=StoreOrigin | list[StoreOrigin])
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("bandwidth", mode="before", json_schema_input_type=DataRate | Bandwidth | list[Bandwidth])
    @classmethod
    def _limit_alone(cls, value: Any) -> Any:
        if isinstance(value, str | int):
            return [{"limit": value}]
        return [value] if isinstance(value, dict) else value

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders of the host that may already contain models."""
        return tuple(origin for origin in self.from_ if origin.startswith("/"))

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Return the rigs that models may come from."""
        return tuple(origin for origin in self.from_ if origin != HUB and not origin.startswith("/"))


LOCAL = "@local"
"""The host of `connect: local`, and pyinfra's name for its own machine."""


class Rig(Declared):
    """A host as declared."""

    rig: Name
    """The name of the rig in commands."""
    connect: Connect
    """How to reach the host. `connect: local` is the machine on which `herd` runs."""
    host: Host
    """The hardware and system of the host."""
    gpus: Gpus | None = None
    """Its GPUs. Leave it out for a rig without GPUs."""
    wake: Wake | None = None
    """How the gateway wakes the host when it sleeps."""
    suspend: Suspend | None = None
    """When the host sleeps by itself."""
    engines: dict[Name, Engine]
    """The engines: built on the host, or images."""
    store: Store = Store()
    """The model store on the host, and the sources of models."""
    models: dict[Name, Model]
    """The models."""
    instances: dict[Name, Instance]
    """The server instances."""

    @property
    def address(self) -> str:
        """Return the address for other machines: that of its store, else that of `connect`."""
        return self.store.share.address or self.connect.host

    @property
    def used_models(self) -> set[str]:
        """Return the names of the models that instances use: served models, draft models, and those that a search
        tries."""
        drafts = {each.draft.model for each in self.instances.values() if each.draft and each.draft.model}
        tried = {name for each in self.instances.values() for name in each.tried_models}
        return {each.model for each in self.instances.values()} | drafts | tried

    @property
    def servers(self) -> dict[str, tuple[str, ...]]:
        """Return servers by name, each with its instances: a group is one server of the group's name."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self.instances:
            server = self.server_of(name)
            found[server] = (*found.get(server, ()), name)
        return found

    def server_of(self, instance: str) -> str:
        """Return the name of an instance's server."""
        return self.instances[instance].group or instance

    @field_validator("connect", mode="before", json_schema_input_type=Connect | str)
    @classmethod
    def _local(cls, value: Any) -> Any:
        return {"host": LOCAL} if value == "local" else value


class Fleet(Declared):
    """All rigs, by name."""

    rigs: dict[Name, Rig]
