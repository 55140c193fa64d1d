"""Users of the gateway: API keys, encryption, request size, waiting time, and the chat page."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import FleetContext
from llamaherd.diagnostics.findings import Finding, Rule, nearest
from llamaherd.inventory.schema.fleet_file import CLIENTS_WAIT
from llamaherd.text.numbers import show_size

BYTES_A_TOKEN = 5
"""Bytes of a request for each token: four of text, and one of JSON."""


SMALL_BODY = Rule(
    "LH311",
    "A request that fills a server's context is larger than the gateway accepts.",
    why="""
    A token is about four bytes of text, and JSON adds to that. The gateway reads a whole request to find its model, and
    refuses what is larger than `body`. Pictures are larger by far than their tokens.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:4:9: warning LH311: `body` takes 500 kB, and a slot of `attic.coder` has room for
    131,072 tokens, about 655 kB
      help: write `body: 1MB`
    """,
    language="console",
    fix="give `body` five bytes for each token of the largest slot.",
    severity="warning",
)


def check_body_size(subject: FleetContext) -> Iterator[Finding]:
    """Report a largest request that is smaller than the largest context."""
    for gateway in subject.gateways:
        largest = max(subject.served(), key=lambda each: each.instance.context // each.instance.parallel, default=None)
        if largest is None:
            continue
        tokens = largest.instance.context // largest.instance.parallel
        needs = tokens * BYTES_A_TOKEN
        if needs > gateway.body:
            message = f"`body` takes {show_size(gateway.body)}, and a slot of `{largest.rig.rig}.{largest.name}` has "
            message += f"room for {tokens:,} tokens, about {show_size(needs)}"
            megabytes = min(-(-needs // 1_000_000), 64)
            yield SMALL_BODY.at(subject.value("body"), message, f"write `body: {megabytes}MB`")


LONG_WAIT = Rule(
    "LH312",
    "Requests wait longer than clients do.",
    why=f"""
    opencode gives up after {CLIENTS_WAIT} s without response headers, and nothing can be sent to a client while its
    request waits. It then repeats the request, at the end of the queue.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:4:16: warning LH312: a request may wait for 600 s, and clients give up after 300 s
      help: write `wait: 240s`
    """,
    language="console",
    fix="let `queue.wait` be less than 300 s: a client that waits longer receives HTTP 429 with `Retry-After`.",
    severity="warning",
)


def check_queue_wait(subject: FleetContext) -> Iterator[Finding]:
    """Report a queue in which requests wait for longer than clients do."""
    for gateway in subject.gateways:
        if gateway.queue.wait >= CLIENTS_WAIT:
            message = f"a request may wait for {gateway.queue.wait} s, and clients give up after {CLIENTS_WAIT} s"
            yield LONG_WAIT.at(subject.value("queue", "wait"), message, "write `wait: 240s`")


IN_THE_CLEAR = Rule(
    "LH313",
    "Keys for the gateway travel in the clear.",
    why="It listens beyond its own host without `tls`: any machine between can read keys, prompts and responses.",
    example="""
    $ herd check
    fleet/fleet.yaml:3:11: note LH313: the gateway listens on 0.0.0.0 without `tls`: the network can read keys
      help: add `tls: {ca: keys/ca}` and run `herd gateway ca`, or keep to networks that you trust
    """,
    language="console",
    fix="""
    add `tls: {ca: keys/ca}` and run `herd gateway ca`: the CA is yours, and clients trust its root certificate. Or add
    a certificate that you have, or keep the gateway in a network whose machines you trust.
    """,
    severity="note",
)


def check_gateway_tls(subject: FleetContext) -> Iterator[Finding]:
    """Report a gateway for other machines without a certificate."""
    for gateway in subject.gateways:
        if gateway.tls is None and not gateway.loopback:
            message = f"the gateway listens on {gateway.listen} without `tls`: the network can read keys"
            help_ = "add `tls: {ca: keys/ca}` and run `herd gateway ca`, or keep to networks that you trust"
            yield IN_THE_CLEAR.at(subject.value("listen"), message, help_)


NO_USERS = Rule(
    "LH314",
    "The gateway has no users.",
    why="Every request needs a key, and no user has one.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:1:1: warning LH314: the gateway has no users, and refuses every request
      help: add one: `herd users add NAME`
    """,
    language="console",
    fix="add a user: `herd users add NAME` makes a key and prints it once.",
    severity="warning",
)


def check_has_users(subject: FleetContext) -> Iterator[Finding]:
    """Report a gateway without users."""
    for gateway in subject.gateways:
        if not gateway.users:
            message = "the gateway has no users, and refuses every request"
            yield NO_USERS.at(subject.key("users"), message, "add one: `herd users add NAME`")


UNKNOWN_CHAT_USER = Rule(
    "LH317",
    "The chat page uses a user that the gateway does not have.",
    why="""
    It sends requests to the gateway with that user's key, for that user's models. All users of the page share its
    streams.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:9:11: error LH317: the chat page uses `pgae`, which is not a user of the gateway
      help: did you mean `page`?
    """,
    language="console",
    fix="correct the name, or add the user: `herd users add page --streams 8`.",
)


def check_chat_user(subject: FleetContext) -> Iterator[Finding]:
    """Report a chat page whose user the gateway does not have."""
    for gateway in subject.gateways:
        chat = gateway.chat
        if chat and chat.user not in gateway.users:
            message = f"the chat page uses `{chat.user}`, which is not a user of the gateway"
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
    fix="choose another port for one of the two.",
)


def check_chat_port(subject: FleetContext) -> Iterator[Finding]:
    """Report a port that something else has on the page's rig."""
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
    why="It listens beyond its own host and uses plain HTTP: any machine between can read passwords and conversations.",
    example="""
    $ herd check
    fleet/fleet.yaml:9:49: note LH319: the chat page listens on 0.0.0.0 by plain HTTP: the network can read passwords
      help: keep to networks that you trust, or leave `listen` out and put a proxy with TLS before it
    """,
    language="console",
    fix="""
    keep it in a network whose machines you trust; or leave `listen` out, and reach it by `ssh -L` or by a proxy with
    TLS on its host.
    """,
    severity="note",
)


def check_chat_tls(subject: FleetContext) -> Iterator[Finding]:
    """Report a chat page that other machines reach by plain HTTP."""
    for gateway in subject.gateways:
        if gateway.chat and not gateway.chat.loopback:
            message = f"the chat page listens on {gateway.chat.listen} by plain HTTP: the network can read passwords"
            help_ = "keep to networks that you trust, or leave `listen` out and put a proxy with TLS before it"
            yield CHAT_IN_THE_CLEAR.at(subject.value("chat", "listen"), message, help_)
