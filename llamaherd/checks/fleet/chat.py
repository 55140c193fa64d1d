"""The page that people chat on: whose key it has, which port, and who can read on the way."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.fleet.context import FleetContext
from llamaherd.diagnostics.findings import Finding, nearest
from llamaherd.diagnostics.rule import Rule

UNKNOWN_CHAT_USER = Rule(
    "LH317",
    "The chat page is to ask as a user that the gateway does not have.",
    why="""
    It asks the gateway with that user's key, for that user's models. All who chat on it share that user's streams.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:9:11: error LH317: the chat page asks as `pgae`, which is no user of the gateway
      help: did you mean `page`?
    """,
    language="console",
    way_out="correct the name, or add the user: `herd users add page --streams 8`.",
)


def chat_user(subject: FleetContext) -> Iterator[Finding]:
    """A user that is none."""
    for gateway in subject.gateways:
        chat = gateway.chat
        if chat and chat.user not in gateway.users:
            message = f"the chat page asks as `{chat.user}`, which is no user of the gateway"
            help_ = nearest(chat.user, gateway.users) if gateway.users else f"add it: `herd users add {chat.user}`"
            yield UNKNOWN_CHAT_USER.at(subject.value("chat", "user"), message, help_)


CHAT_PORT = Rule(
    "LH318",
    "The chat page has the gateway's port, or a server's.",
    why="They are on one rig, and one port takes one of them.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:9:42: error LH318: port 8000 of the chat page is the gateway's
      help: choose another port, such as 3000
    """,
    language="console",
    way_out="choose another port for one of the two.",
)


def chat_port(subject: FleetContext) -> Iterator[Finding]:
    """A port that something else has on the page's rig."""
    for gateway in subject.gateways:
        rig = subject.rigs.get(gateway.on[0])
        if gateway.chat is None or rig is None:
            continue
        taken = {each.port: f"that of instance `{name}`" for name, each in rig.instances.items()}
        taken[gateway.port] = "the gateway's"
        if gateway.chat.port in taken:
            message = f"port {gateway.chat.port} of the chat page is {taken[gateway.chat.port]}"
            free = next(port for port in range(3000, 4000) if port not in taken)
            yield CHAT_PORT.at(subject.value("chat", "port"), message, f"choose another port, such as {free}")


CHAT_IN_THE_CLEAR = Rule(
    "LH319",
    "Passwords for the chat page travel in the clear.",
    why="""
    It listens beyond its own host and speaks plain HTTP: whoever is on the way can read passwords and conversations.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:9:49: note LH319: the chat page listens on 0.0.0.0 by plain HTTP: passwords can be read on the way
      help: keep to networks that you trust, or leave `listen` out and put a proxy with TLS before it
    """,
    language="console",
    way_out="""
    keep it in a network whose machines you trust; or leave `listen` out, and reach it by `ssh -L` or by a proxy with
    TLS on its host.
    """,
    severity="note",
)


def chat_in_the_clear(subject: FleetContext) -> Iterator[Finding]:
    """A page for other machines."""
    for gateway in subject.gateways:
        if gateway.chat and not gateway.chat.loopback:
            message = f"the chat page listens on {gateway.chat.listen} by plain HTTP: passwords can be read on the way"
            help_ = "keep to networks that you trust, or leave `listen` out and put a proxy with TLS before it"
            yield CHAT_IN_THE_CLEAR.at(subject.value("chat", "listen"), message, help_)
