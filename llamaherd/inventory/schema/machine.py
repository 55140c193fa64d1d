"""The machine of a rig: connection, processor, memory, WSL, its GPUs and their driver."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, field_validator, model_validator

from llamaherd.diagnostics.spelling import nearest_name
from llamaherd.inventory.schema.base import Declared, LocalPath, Megahertz, Name, Percent, Port, Size, Watts, wrong
from llamaherd.reference.cards import CARDS, OTHER_SIZES, USUAL_MULTIPROCESSORS, known_as
from llamaherd.text.characters import Line, Plain
from llamaherd.text.quoting import SSH_REFUSED

OperatingSystem = Literal["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"]

MOST_PROCESSORS = 8192
"""As many as Linux counts (NR_CPUS of x86-64)."""

# What the OpenSSH client itself refuses in both, as they end up in commands (valid_hostname and valid_ruser of ssh.c).
_HOST = r"^[^\s\-'`\"$\\;&<>|(){},][^\s'`\"$\\;&<>|(){},]*$"
_USER = r"^[^\s\-'`\";&<>|(){}]([^\s'`\";&<>|(){}]*[^\s'`\";&<>|(){}\\])?$"
_WslName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*$")]


def _host_alone(host: str) -> str:
    """Refuse what names more than a host: a URL, a user, a port; and numbers that are no address."""
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
        raise wrong(f"`{host}` is no IP address", "write four numbers up to 255, such as `host: 192.168.1.20`")
    return host


def _address(text: str) -> str | None:
    """An IP address as it is usually written; None for what is none."""
    with suppress(ValueError):
        return str(ip_address(text))
    return None


class Connect(Declared):
    """How the controller reaches a rig. `connect: local` is the machine that herd runs on."""

    host: Annotated[Line, StringConstraints(pattern=_HOST, max_length=253), AfterValidator(_host_alone)]
    """Name or address to log in at, or a `Host` of `~/.ssh/config`."""
    port: Port | None = None
    """Port of the SSH server; without it what the SSH client takes: 22, or the `Port` of `~/.ssh/config`."""
    user: Annotated[Line, StringConstraints(pattern=_USER, max_length=256)] | None = None
    """Who logs in: root, or a user with `sudo` without a password."""
    key: LocalPath | None = None
    """Private SSH key, without a passphrase."""
    known_hosts: LocalPath | None = None
    """File with the host's key; no other is accepted."""

    @model_validator(mode="after")
    def _user_alone(self) -> Connect:
        """Refuse a user with the host in it; a user of a domain, as in `tom@corp.example`, is one."""
        name, _, host = (self.user or "").rpartition("@")
        if name and ("." not in host or host in (self.host, _address(host))):
            raise wrong(f"`{self.user}` is more than a user", f"did you mean `user: {name}`?", at="user")
        return self

    @field_validator("key", "known_hosts")
    @classmethod
    def _path_for_ssh(cls, path: Path | None) -> Path | None:
        if path and SSH_REFUSED.search(str(path)):
            raise ValueError(f"`{path}` has a double quote, a backslash or `${{`, which ssh reads otherwise; rename it")
        return path


class Cpu(Declared):
    """Physical cores, which is what engines want as threads: SMT siblings only slow them down."""

    cores: Annotated[int, Field(ge=1, le=MOST_PROCESSORS)]
    """Physical cores, without SMT siblings."""
    performance: Annotated[int, Field(ge=1, le=MOST_PROCESSORS)] | None = None
    """How many of them are performance cores, where there are two kinds."""
    amx: bool = False
    """Whether it has AMX (`amx_int8` in /proc/cpuinfo): llama.cpp without a GPU then holds most matrices twice."""


class Wsl(Declared):
    """The host is a distribution under WSL 2: what `.wslconfig` of Windows shall say, and what WSL needs to stay up."""

    memory: Size | None = None
    """Memory of the virtual machine; WSL takes half of the host's otherwise."""
    swap: Literal[0] | Size | None = None
    """Swap of the virtual machine; 0 for none."""
    processors: Annotated[int, Field(ge=1, le=MOST_PROCESSORS)] | None = None
    """Logical processors of the virtual machine."""
    networking: Literal["nat", "mirrored", "virtioproxy", "none"] | None = None
    """`mirrored` makes servers reachable from Windows and the LAN as if Windows ran them."""
    keep_alive: bool = True
    """Never shut down when idle: WSL ends itself with its last terminal otherwise, servers included."""
    windows_profile: Line | None = None
    """The Windows user's folder as WSL sees it, such as `/mnt/c/Users/tom`, where it cannot be found out."""
    settings: dict[_WslName, dict[_WslName, Plain]] = Field(default_factory=dict)
    """Further keys of `.wslconfig`, by section."""


class Host(Declared):
    """What the machine is."""

    os: OperatingSystem
    """Distribution and release. Another one found on the host stops the run before anything is changed."""
    cpu: Cpu
    """Its processor."""
    ram: Size
    """Memory of the host; under WSL that of the virtual machine."""
    wsl: Wsl | None = None
    """Given where the host is a distribution under WSL 2."""


def _as_text(value: Any) -> Any:
    """`branch: 580` and `cuda: 13.0` are numbers to YAML and names to people."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


# Of the characters of URLs (RFC 3986), those that neither apt, curl nor a shell gives a meaning of its own.
_KEY = r"^(https?://|file:///)?[A-Za-z0-9._~%-][A-Za-z0-9._~:/?@!&()*+,;=%-]*$"
_REPOSITORY = r"^(https?://[A-Za-z0-9._~:@\[\]%-]+(/[A-Za-z0-9._~:/?@!&()*+,;=%-]*)?|file:///[A-Za-z0-9._~:/@+,=%-]+)$"


def _instead_of(model: str) -> str:
    """What to write for a GPU of a name that is not known."""
    if re.match(r"\d+ ?x ", model, re.IGNORECASE):
        return f"declare each GPU by itself, by names of your own: `one: {{model: {model.partition(' ')[2]}}}`"
    if re.search(r"\b(rx|radeon|arc|amd|intel|instinct)\b", model, re.IGNORECASE):
        return "leave it out: only NVIDIA's GPUs are driven here"
    if (sized := re.fullmatch(r"(.+?)[ -]*([0-9]{1,3}) ?G(?:i?B)?", model, re.IGNORECASE)) and (
        known := known_as(sized[1])
    ):
        sizes = (CARDS[known].memory_mib, *OTHER_SIZES.get(known, ()))
        size = next((each for each in sizes if round(each / 1024) == int(sized[2])), None)
        if size is not None:
            return f"did you mean `model: {known}{f', memory: {size}MiB' if size != sizes[0] else ''}`?"
    # What a GPU's number is, no slip tells: GPUs of other numbers are other GPUs.
    numbers = re.findall(r"\d+", model)
    if close := nearest_name(model, (known for known in CARDS if re.findall(r"\d+", known) == numbers)):
        return f"did you mean `model: {close}`?"
    asked = "nvidia-smi --query-gpu=name,compute_cap,memory.total --format=csv"
    return f'correct the name, or add both, such as `architecture: "86", memory: 24576MiB`: `{asked}` shows them'


class Clocks(Declared):
    """Between which clocks a GPU is held."""

    min: Megahertz = 210
    """Lowest clock of the graphics unit."""
    max: Megahertz
    """Highest clock of the graphics unit."""


class Card(Declared):
    """One GPU. Which it is of several, `uuid`, `pci` or `index` says."""

    model: Annotated[Line, StringConstraints(min_length=1, max_length=100)]
    """What it is called, such as `RTX 3090`."""
    uuid: Annotated[str, StringConstraints(pattern=r"^GPU-[0-9A-Za-z-]+$")] | None = None
    """From `nvidia-smi -L`; stays the same wherever the GPU is plugged in."""
    pci: (
        Annotated[str, StringConstraints(pattern=r"^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$")] | None
    ) = None
    """Its PCI address, such as `0000:01:00.0`: the slot rather than the GPU."""
    index: Annotated[int, Field(ge=0, le=31)] | None = None
    """The n-th GPU in the order of PCI addresses, from 0."""
    architecture: Annotated[str, StringConstraints(pattern=r"^[0-9]{2,3}[af]?$")] | None = None
    """Compute capability without the dot, where `model` does not tell."""
    memory: Size | None = None
    """Its memory as `nvidia-smi` shows it, where `model` does not tell."""
    reserved: Size | None = None
    """What something else holds of it, such as a desktop; servers get the rest."""
    power_limit: Watts | None = None
    """Power that it may draw."""
    clocks: Clocks | None = None
    """Between which clocks it is held; a laptop's GPU often takes these and no power limit."""
    fans: Percent | None = None
    """Fixed speed of all its fans; without it the GPU looks after them itself."""

    @field_validator("model")
    @classmethod
    def _as_known_here(cls, value: str) -> str:
        return known_as(value) or value

    @model_validator(mode="after")
    def _known(self) -> Card:
        if self.architecture is None and self.model not in CARDS:
            raise wrong(f"`{self.model}` is no GPU that is known here", _instead_of(self.model), at="model")
        ways = [way for way in ("uuid", "pci", "index") if getattr(self, way) is not None]
        if len(ways) > 1:
            shown = " and ".join(f"`{way}`" for way in ways)
            raise wrong(f"{shown} both say which GPU it is", f"leave out `{ways[1]}`", at=ways[1])
        return self

    @property
    def cuda_architecture(self) -> str:
        """The value for CMAKE_CUDA_ARCHITECTURES, such as `86`."""
        return self.architecture or CARDS[self.model].architecture

    @property
    def multiprocessors(self) -> int:
        """How many it has, or a GPU like it."""
        known = CARDS.get(self.model) or CARDS.get(self.model.split()[0])  # `H100 80GB HBM3`
        return known.multiprocessors if known else USUAL_MULTIPROCESSORS

    @property
    def memory_bytes(self) -> int | None:
        """All of its memory, in bytes, the driver's own share included; None where it is not known."""
        if self.memory or self.model not in CARDS:
            return self.memory
        return CARDS[self.model].memory_mib << 20


class Repository(Declared):
    """A repository of apt in place of the one that is usual: a mirror in the LAN, say."""

    url: Annotated[str, StringConstraints(pattern=_REPOSITORY)]
    """Where its `InRelease` lies: a flat repository, as NVIDIA's are. `file:///` is a folder of the host."""
    key: Annotated[str, StringConstraints(pattern=_KEY)]
    """The key that signs it: a URL, or a path that counts from `url`."""
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{40}$")]
    """All 40 digits of that key's fingerprint: any other key is refused."""


class Driver(Declared):
    """NVIDIA's driver."""

    branch: Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int), Field(pattern=r"^[0-9]{3}$")]
    """Its branch, such as 580."""
    version: Annotated[str, StringConstraints(pattern=r"^[0-9]{3}(\.[0-9]+)+$")] | None = None
    """One version of the branch, such as `580.95.05`; otherwise the newest when it is first installed, then kept."""
    from_: Annotated[Literal["nvidia", "distribution"], Field(alias="from")] = "nvidia"
    """Whose packages: NVIDIA's repository, or the distribution. They are never mixed."""
    modules: Literal["open", "proprietary"] | None = None
    """Which kernel modules; by default open ones, unless a GPU or the branch is too old for them."""
    reboot: bool = True
    """Whether the host may be rebooted, once in a run, when a driver can only be loaded so."""

    @model_validator(mode="after")
    def _of_that_branch(self) -> Driver:
        if self.version and not self.version.startswith(f"{self.branch}."):
            message = f"version {self.version} is not of branch {self.branch}"
            raise wrong(message, f"write `branch: {self.version[:3]}`, or leave `version` out", at="version")
        return self


class ContainerToolkit(Declared):
    """NVIDIA's container toolkit, which gives GPUs to containers."""

    version: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] | None = None
    """One version, such as `1.20.0`; the newest otherwise, and then kept."""
    repository: Repository | None = None
    """Where its packages come from, if not from NVIDIA's own repository."""
    restart_docker: bool = False
    """Whether Docker may be restarted for it while containers run, which stops them."""


class Gpus(Declared):
    """The GPUs of a rig, their driver, and the CUDA toolkit that engines are built with."""

    driver: Driver | None = None
    """Given where llamaherd shall bring the driver; under WSL it is Windows' own."""
    cuda: Annotated[
        str, BeforeValidator(_as_text, json_schema_input_type=str | float), Field(pattern=r"^[0-9]+\.[0-9]+$")
    ]
    """Version of the CUDA toolkit, such as "13.0"."""
    repository: Repository | None = None
    """Where driver and toolkit come from, if not from NVIDIA's own repository."""
    container_toolkit: ContainerToolkit = ContainerToolkit()
    """How containers get GPUs, where an instance with a GPU is one."""
    cards: dict[Name, Card]
    """The GPUs, by names of your own."""
