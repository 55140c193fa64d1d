"""The machine of a rig: how it is reached, its processor and memory, WSL around it."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from llamaherd.inventory.schema.base import Declared, LocalPath, Port, Size, wrong
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
