"""What all rigs of a fleet are to people: one address, a key each, and names of models that stay. In `fleet.yaml`."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from llamaherd.inventory.schema.base import Declared, LocalPath, Name, Port, Secret, Size, wrong
from llamaherd.inventory.schema.monitoring import Monitoring
from llamaherd.inventory.schema.software import Image, by_digest
from llamaherd.text.characters import Line
from llamaherd.text.units import parse_duration

Wait = Annotated[int, BeforeValidator(parse_duration, json_schema_input_type=str), Field(ge=5, le=3600)]
Body = Annotated[Size, Field(ge=64_000, le=64_000_000)]
Served = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}\.[a-z0-9][a-z0-9._-]{0,39}$")]
Alias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}$")]
Streams = Annotated[int, Field(ge=1, le=1024)]

_LABEL = "[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
"""Of DNS, perhaps any name below one."""

CLIENTS_WAIT = 300
"""Seconds after which clients give up on an answer's first word: opencode since September 2026."""


def certified(name: str) -> str | None:
    """A name or an address as a certificate holds it; None where it can hold no such thing."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name.lower() if len(name) <= 253 and _NAME.fullmatch(name) else None


def _certified(name: str) -> str:
    if (held := certified(name)) is None:
        raise wrong(f"`{name}` is neither a name nor an IP address", "write it without `https://` and port: `llm.lan`")
    return held


def _address(value: str) -> str:
    try:
        if "%" in value:
            raise ValueError
        return str(ip_address("127.0.0.1" if value == "localhost" else value))
    except ValueError:
        help_ = "write `listen: 127.0.0.1` for its host alone, or `listen: 0.0.0.0` for every network"
        raise wrong(f"`{value}` is no IP address", help_) from None


def _virtual(value: str) -> str:
    try:
        if "%" in value:
            raise ValueError
        return str(ip_address(value))
    except ValueError:
        help_ = "write one of the rigs' network that no machine has, without a prefix: `192.168.1.50`"
        raise wrong(f"`{value}` is no IP address", help_) from None


Listen = Annotated[Line, AfterValidator(_address)]
VirtualAddress = Annotated[Line, AfterValidator(_virtual)]
HostName = Annotated[Line, AfterValidator(_certified)]


class Tls(Declared):
    """The certificate that the gateway shows: one of a CA of your own, or one that you have."""

    ca: LocalPath | None = None
    """Folder of this machine with a CA of your own, which `herd gateway ca` makes; it signs the certificate."""
    names: Annotated[tuple[HostName, ...], Field(max_length=32)] = ()
    """Further names and addresses that people call the gateway by; the CA's certificate holds for them, too."""
    certificate: LocalPath | None = None
    """File of this machine with the certificate in PEM, and the chain behind it."""
    key: LocalPath | None = None
    """File of this machine with the certificate's private key in PEM."""

    @model_validator(mode="after")
    def _one_way(self) -> Tls:
        if self.ca and (self.certificate or self.key):
            raise wrong("the certificate is a CA's, and another one is named", "leave out `ca`, or the other two")
        if self.names and not self.ca:
            raise wrong(
                "`names` are for a certificate that is made here", "add `ca: keys/ca`, or leave them out", "names"
            )
        if not self.ca and not (self.certificate and self.key):
            help_ = "write `ca: keys/ca` for a CA of your own, or both `certificate` and `key`"
            raise wrong("nothing says which certificate is shown", help_)
        return self


class Queue(Declared):
    """Requests that wait for a server that is free."""

    wait: Wait = 240
    """The longest that one waits, `5s` to `1h`."""
    length: Annotated[int, Field(ge=1, le=4096)] = 8
    """How many wait for each model; the next is told to come back."""


class User(Declared):
    """Who may use the gateway: a person, or a program."""

    key: Secret
    """Where the key is that the user sends."""
    streams: Streams = 4
    """Requests of this user that are answered or wait at once."""
    models: tuple[Name, ...] = ()
    """Models that the user may use. Empty: all."""


class ServedModel(Declared):
    """A model as people know it, and the servers that answer for it."""

    serve: Annotated[tuple[Served, ...], Field(min_length=1, max_length=64)]
    """Instances that answer, each as `RIG.INSTANCE`."""
    aliases: Annotated[tuple[Alias, ...], Field(max_length=64)] = ()
    """Other names of it, such as those that a client insists on."""
    fallback: Name | None = None
    """The model that answers while none of its servers does."""
    sticky: Literal["session", "user"] | None = None
    """What stays on one server as long as that is free, for its prompt cache: a client's session, or a user."""
    streams: Streams | None = None
    """Requests that each server answers at once. Default: its slots."""

    @model_validator(mode="after")
    def _each_once(self) -> ServedModel:
        for key in ("serve", "aliases"):
            named = getattr(self, key)
            if len(set(named)) < len(named):
                raise wrong(f"`{key}` names something twice", "leave it out once", at=key)
        return self


class Chat(Declared):
    """A page that people chat on: Open WebUI, in a container beside the gateway, which it asks with one user's key."""

    image: Image
    """Its image: by digest, or by a tag that `herd lock` resolves to one."""
    user: Name
    """The user of the gateway whose key and models it has."""
    listen: Listen = "127.0.0.1"
    """IP address to listen on, or `localhost`."""
    port: Port = 3000
    """Its port."""

    @property
    def digest(self) -> bool:
        """Whether the image is named by digest, which cannot move."""
        return by_digest(self.image)

    @property
    def loopback(self) -> bool:
        """Whether only its own host can reach it."""
        return ip_address(self.listen).is_loopback


class Gateway(Declared):
    """One address for people, before all servers of the fleet."""

    on: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8)]
    """Rigs that it runs on, each by itself."""
    address: VirtualAddress | None = None
    """IP address that two rigs have in turn: where one's gateway does not answer, the other one takes it over."""
    listen: Listen = "127.0.0.1"
    """IP address to listen on, or `localhost`."""
    port: Port = 8000
    """Port of all models."""
    tls: Tls | None = None
    """Its certificate. Without one, keys and answers travel in the clear."""
    queue: Queue = Queue()
    """Requests that wait."""
    body: Body = 4_000_000
    """The largest request, 64KB to 64MB: a conversation with all that is attached."""
    users: Annotated[dict[Name, User], Field(max_length=500)] = Field(default_factory=dict)
    """Who may use it."""
    models: Annotated[dict[Name, ServedModel], Field(min_length=1, max_length=200)]
    """What they may use."""
    chat: Chat | None = None
    """A page that people chat on, on the first rig of `on`."""

    @property
    def loopback(self) -> bool:
        """Whether only its own host can reach it."""
        return ip_address(self.listen).is_loopback


class FleetFile(Declared):
    """What `fleet.yaml` says of all rigs beside it."""

    gateway: Gateway | None = None
    """One address for people, before all servers of the fleet."""
    monitoring: Monitoring | None = None
    """What watches the fleet."""

    @property
    def on(self) -> frozenset[str]:
        """Rigs that any of it runs on."""
        gateways = self.gateway.on if self.gateway else ()
        return frozenset((*gateways, *((self.monitoring.on,) if self.monitoring else ())))

    @property
    def knows_monitoring(self) -> bool:
        """Whether it says anything of it, be it that there is none: then rigs are asked for what is left of it."""
        return "monitoring" in self.model_fields_set
