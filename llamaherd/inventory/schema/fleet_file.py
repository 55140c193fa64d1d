"""The keys of `fleet.yaml`: the gateway, its users and models, monitoring and alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.base import Declared, LocalPath, Name, Port, Secret, Size, wrong
from llamaherd.inventory.schema.software import Image, by_digest
from llamaherd.text.characters import Line
from llamaherd.text.numbers import parse_days, parse_duration


def _http(value: str) -> str:
    try:
        parts = urlsplit(value)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        fits = fits and parts.username is None and not parts.fragment
    except ValueError:
        fits = False
    if not fits or not value.isascii() or any(sign in value for sign in " {}\"'\\"):
        raise wrong(f"`{value}` is no URL to send to", "write it like https://ntfy.sh/my-topic, without a user in it")
    return value


Url = Annotated[Line, AfterValidator(_http)]
Mailbox = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,190}$")]
Submission = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]{1,190}:[0-9]{1,5}$")]
Retention = Annotated[int, BeforeValidator(parse_days, json_schema_input_type=str), Field(ge=1, le=3650)]
Repeat = Annotated[int, BeforeValidator(parse_duration, json_schema_input_type=str), Field(ge=600, le=7 * 86400)]


class Mail(Declared):
    """A mailbox, and the server that takes mail for it."""

    to: Mailbox
    """Who is told."""
    sender: Mailbox | None = None
    """Who it comes from. Default: the same."""
    server: Submission
    """The server that takes it, as `HOST:PORT`, by TLS."""
    user: Line | None = None
    """Who logs in there. Default: `to`."""
    key: Secret | None = None
    """Where that one's password is. Without one, nobody logs in."""


class Ntfy(Declared):
    """A topic of ntfy, which shows it on a phone."""

    url: Url
    """The topic's URL. Who knows it can read along, if the server has no users."""
    key: Secret | None = None
    """Where the access token is, if the topic wants one."""


class Webhook(Declared):
    """Any program that takes Alertmanager's JSON."""

    url: Url
    """Where it is sent to."""
    key: Secret | None = None
    """Where the token is that is sent as `Authorization: Bearer`."""


class Alerts(Declared):
    """Who is told when something is wrong, and when it is over. All that are named are."""

    mail: Mail | None = None
    """By mail."""
    ntfy: Ntfy | None = None
    """On a phone."""
    webhook: Webhook | None = None
    """A program."""
    repeat: Repeat = 12 * 3600
    """How often it is said again while it lasts, `10m` to `168h`."""

    @property
    def keys(self) -> dict[str, Secret]:
        """Where its keys are, by what they are for."""
        ways = {"mail": self.mail, "ntfy": self.ntfy, "webhook": self.webhook}
        return {name: way.key for name, way in ways.items() if way is not None and way.key is not None}


class Monitoring(Declared):
    """What watches the fleet."""

    on: Name
    """The rig that Prometheus and Alertmanager run on."""
    rigs: Annotated[tuple[Name, ...], Field(max_length=200)] = ()
    """Rigs that are watched. Empty: all."""
    retention: Retention = 30
    """Days that figures are kept, `1d` to `3650d`."""
    drift: bool = False
    """Whether people are told of drift that `herd diff --tell` finds, and where nobody has looked for two days."""
    alerts: Alerts = Alerts()
    """Who is told."""

    def watches(self, rig: str) -> bool:
        """Whether a rig is watched: the one that watches always is."""
        return not self.rigs or rig in (*self.rigs, self.on)


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


def split_served(named: str, rigs: Mapping[str, Rig]) -> tuple[str, str] | None:
    """The rig and the instance that are named; None where there is no such one."""
    return next((pair for pair in _pairs(named) if pair[0] in rigs and pair[1] in rigs[pair[0]].instances), None)


def server_named(named: str, rigs: Mapping[str, Rig]) -> str:
    """`RIG.SERVER` of what is named: an instance of a group answers by the group's server. As it is, where unknown."""
    found = split_served(named, rigs)
    return f"{found[0]}.{rigs[found[0]].server_of(found[1])}" if found else named


def served_rig(named: str, names: Iterator[str] | list[str]) -> str | None:
    """The rig that is named, whatever it serves; None where there is no such one."""
    known = set(names)
    return next((rig for rig, _ in _pairs(named) if rig in known), None)


def _pairs(named: str) -> Iterator[tuple[str, str]]:
    parts = named.split(".")
    for at in range(1, len(parts)):
        yield ".".join(parts[:at]), ".".join(parts[at:])
