"""The keys of `fleet.yaml`: the gateway, its users and models, monitoring and alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from llamaherd.inventory.schema import Rig, Task
from llamaherd.inventory.schema.base import Declared, LocalPath, Name, Port, Secret, Size, wrong
from llamaherd.inventory.schema.software import Image, by_digest
from llamaherd.text.numbers import parse_days, parse_duration
from llamaherd.text.quoting import Line


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
    """A mailbox, and the server that accepts mail for it."""

    to: Mailbox
    """The recipient."""
    sender: Mailbox | None = None
    """The sender. Default: the recipient."""
    server: Submission
    """The mail server, as `HOST:PORT`, with TLS."""
    user: Line | None = None
    """The user at the mail server. Default: `to`."""
    key: Secret | None = None
    """The user's password. Default: no login."""


class Ntfy(Declared):
    """A topic of ntfy, which shows alerts on a phone."""

    url: Url
    """The topic's URL. If the server has no users, anyone with the URL can read the alerts."""
    key: Secret | None = None
    """The access token, if the topic requires one."""


class Webhook(Declared):
    """A program that accepts Alertmanager's JSON."""

    url: Url
    """The URL."""
    key: Secret | None = None
    """The token that is sent as `Authorization: Bearer`."""


class Alerts(Declared):
    """The receivers of alerts and of their end. Every receiver gets all of them."""

    mail: Mail | None = None
    """Alerts by mail."""
    ntfy: Ntfy | None = None
    """Alerts on a phone."""
    webhook: Webhook | None = None
    """Alerts to a program."""
    repeat: Repeat = 12 * 3600
    """How often an active alert is repeated, `10m` to `168h`."""

    @property
    def keys(self) -> dict[str, Secret]:
        """Return the places of its keys, by their use."""
        ways = {"mail": self.mail, "ntfy": self.ntfy, "webhook": self.webhook}
        return {name: way.key for name, way in ways.items() if way is not None and way.key is not None}


class Monitoring(Declared):
    """Monitoring of the fleet."""

    on: Name
    """The rig on which Prometheus and Alertmanager run."""
    rigs: Annotated[tuple[Name, ...], Field(max_length=200)] = ()
    """The monitored rigs. Empty: all."""
    retention: Retention = 30
    """How long metrics are kept, `1d` to `3650d`."""
    drift: bool = False
    """Alert on drift that `herd diff --tell` finds, and on rigs without a check for two days."""
    alerts: Alerts = Alerts()
    """The receivers of alerts."""

    def watches(self, rig: str) -> bool:
        """Return whether a rig is monitored: the rig that runs monitoring always is."""
        return not self.rigs or rig in (*self.rigs, self.on)


Wait = Annotated[int, BeforeValidator(parse_duration, json_schema_input_type=str), Field(ge=5, le=3600)]
Body = Annotated[Size, Field(ge=64_000, le=64_000_000)]
Served = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}\.[a-z0-9][a-z0-9._-]{0,39}$")]
Alias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}$")]
Streams = Annotated[int, Field(ge=1, le=1024)]

_LABEL = "[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
"""A DNS name, or a wildcard."""

CLIENTS_WAIT = 300
"""Seconds after which clients stop waiting for the first token: opencode since September 2026."""


def certified(name: str) -> str | None:
    """Return a name or an address as in a certificate; None if it is invalid there."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name.lower() if len(name) <= 253 and _NAME.fullmatch(name) else None


def _certified(name: str) -> str:
    if (held := certified(name)) is None:
        raise wrong(f"`{name}` is neither a name nor an IP address", "write it without `https://` and port: `llm.lan`")
    return held


def _address(value: str) -> str:
    help_ = "write `listen: 127.0.0.1` for its host alone, or `listen: 0.0.0.0` for every network"
    return _plain_address("127.0.0.1" if value == "localhost" else value, help_)


def _virtual(value: str) -> str:
    return _plain_address(value, "write one of the rigs' network that no machine has, without a prefix: `192.168.1.50`")


def _plain_address(value: str, help_: str) -> str:
    """Return an IP address without an interface."""
    with suppress(ValueError):
        if "%" not in value:
            return str(ip_address(value))
    raise wrong(f"`{value}` is no IP address", help_)


Listen = Annotated[Line, AfterValidator(_address)]
VirtualAddress = Annotated[Line, AfterValidator(_virtual)]
HostName = Annotated[Line, AfterValidator(_certified)]


class Tls(Declared):
    """The certificate of the gateway: from your own CA, or an existing one."""

    ca: LocalPath | None = None
    """Folder of this machine with your own CA, which `herd gateway ca` creates and which signs the certificate."""
    names: Annotated[tuple[HostName, ...], Field(max_length=32)] = ()
    """More names and addresses of the gateway for which the CA's certificate is valid."""
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
            raise wrong("no certificate is declared", help_)
        return self


class Queue(Declared):
    """The queue of requests that wait for a free server."""

    wait: Wait = 240
    """The longest wait, `5s` to `1h`."""
    length: Annotated[int, Field(ge=1, le=4096)] = 8
    """The most requests that wait for each model. Further requests receive HTTP 429 with `Retry-After`."""


class User(Declared):
    """A user of the gateway: a person, or a program."""

    key: Secret
    """The API key of the user."""
    streams: Streams = 4
    """The most running and waiting requests of this user."""
    models: tuple[Name, ...] = ()
    """Models that the user may use. Empty: all."""


class ServedModel(Declared):
    """A model of the gateway, and its servers."""

    serve: Annotated[tuple[Served, ...], Field(min_length=1, max_length=64)]
    """Instances that serve the model, each as `RIG.INSTANCE`."""
    aliases: Annotated[tuple[Alias, ...], Field(max_length=64)] = ()
    """Other names of the model, for example those that a client requires."""
    fallback: Name | None = None
    """The model that serves requests while all of its servers are down."""
    sticky: Literal["session", "user"] | None = None
    """What stays on one free server, for its prompt cache: a client's session, or a user."""
    streams: Streams | None = None
    """Parallel requests to each server. Default: its slots."""

    @model_validator(mode="after")
    def _each_once(self) -> ServedModel:
        for key in ("serve", "aliases"):
            named = getattr(self, key)
            if len(set(named)) < len(named):
                raise wrong(f"`{key}` names something twice", "leave it out once", at=key)
        return self


class Chat(Declared):
    """A chat page: Open WebUI in a container next to the gateway, which it uses with one user's key."""

    image: Image
    """Its image: by digest, or by a tag that `herd lock` resolves to one."""
    user: Name
    """The gateway user whose key and models it uses."""
    listen: Listen = "127.0.0.1"
    """IP address to listen on, or `localhost`."""
    port: Port = 3000
    """Its port."""

    @property
    def digest(self) -> bool:
        """Return whether the image is given by digest, which never changes."""
        return by_digest(self.image)

    @property
    def loopback(self) -> bool:
        """Return whether only its own host can reach it."""
        return ip_address(self.listen).is_loopback


class Gateway(Declared):
    """A gateway: one address for all servers of the fleet."""

    on: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8)]
    """The rigs on which a gateway runs."""
    address: VirtualAddress | None = None
    """Virtual IP address of two rigs: if one gateway fails, the other takes it over."""
    listen: Listen = "127.0.0.1"
    """IP address to listen on, or `localhost`."""
    port: Port = 8000
    """Port of all models."""
    tls: Tls | None = None
    """Its certificate. Without one, keys and responses are sent unencrypted."""
    queue: Queue = Queue()
    """The queue of waiting requests."""
    body: Body = 4_000_000
    """The largest request, 64KB to 64MB: a conversation with its attachments."""
    users: Annotated[dict[Name, User], Field(max_length=500)] = Field(default_factory=dict)
    """The users of the gateway."""
    models: Annotated[dict[Name, ServedModel], Field(min_length=1, max_length=200)]
    """The models of the gateway."""
    chat: Chat | None = None
    """A chat page, on the first rig of `on`."""

    @property
    def loopback(self) -> bool:
        """Return whether only its own host can reach it."""
        return ip_address(self.listen).is_loopback


class FleetFile(Declared):
    """The settings of `fleet.yaml` for all rigs in its folder."""

    gateway: Gateway | None = None
    """One address for people, before all servers of the fleet."""
    monitoring: Monitoring | None = None
    """What watches the fleet."""

    @property
    def on(self) -> frozenset[str]:
        """Return the rigs on which a part of it runs."""
        gateways = self.gateway.on if self.gateway else ()
        return frozenset((*gateways, *((self.monitoring.on,) if self.monitoring else ())))

    @property
    def knows_monitoring(self) -> bool:
        """Return whether it declares monitoring, also as null: then rigs are inspected for its remains."""
        return "monitoring" in self.model_fields_set


def split_served(named: str, rigs: Mapping[str, Rig]) -> tuple[str, str] | None:
    """Return the rig and the instance of a name; None if they do not exist."""
    return next((pair for pair in _pairs(named) if pair[0] in rigs and pair[1] in rigs[pair[0]].instances), None)


def served_task(model: ServedModel, rigs: Mapping[str, Rig]) -> Task:
    """Return what the first server of a model that exists is for, by its key `serve`."""
    places = (split_served(named, rigs) for named in model.serve)
    return next((rigs[place[0]].instances[place[1]].serve for place in places if place), "chat")


def server_named(named: str, rigs: Mapping[str, Rig]) -> str:
    """Return the `RIG.SERVER` of a name: the server of a group's instance. Unknown names stay unchanged."""
    found = split_served(named, rigs)
    return f"{found[0]}.{rigs[found[0]].server_of(found[1])}" if found else named


def served_rig(named: str, names: Iterator[str] | list[str]) -> str | None:
    """Return the rig of a name; None if it does not exist."""
    known = set(names)
    return next((rig for rig, _ in _pairs(named) if rig in known), None)


def _pairs(named: str) -> Iterator[tuple[str, str]]:
    parts = named.split(".")
    for at in range(1, len(parts)):
        yield ".".join(parts[:at]), ".".join(parts[at:])
