"""What watches a fleet, for how long it remembers, and whom it tells. In `fleet.yaml`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from llamaherd.inventory.schema.base import Declared, Name, Secret, wrong
from llamaherd.text.characters import Line
from llamaherd.text.units import parse_days, parse_duration


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
