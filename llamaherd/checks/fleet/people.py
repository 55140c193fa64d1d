"""What people meet at a gateway: whether they may use it, how long they wait, and how much they may ask."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.fleet.context import FleetContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.schema.gateway import CLIENTS_WAIT
from llamaherd.text.units import show_size

BYTES_A_TOKEN = 5
"""Of a request: four of text, and what JSON adds."""


SMALL_BODY = Rule(
    "LH311",
    "A request that fills a server's context is larger than the gateway takes.",
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
    way_out="give `body` five bytes for each token of the largest slot.",
    severity="warning",
)


def body(subject: FleetContext) -> Iterator[Finding]:
    """A largest request that is smaller than the largest context."""
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
    opencode gives up after {CLIENTS_WAIT} s without an answer's headers, and nothing can be sent to a client while its
    request waits. It asks again, and is at the end of the queue.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:4:16: warning LH312: a request may wait for 600 s, and clients give up after 300 s
      help: write `wait: 240s`
    """,
    language="console",
    way_out="let `queue.wait` be less than 300 s: who waits longer is told to come back.",
    severity="warning",
)


def waiting(subject: FleetContext) -> Iterator[Finding]:
    """A queue in which people wait for longer than they do."""
    for gateway in subject.gateways:
        if gateway.queue.wait >= CLIENTS_WAIT:
            message = f"a request may wait for {gateway.queue.wait} s, and clients give up after {CLIENTS_WAIT} s"
            yield LONG_WAIT.at(subject.value("queue", "wait"), message, "write `wait: 240s`")


IN_THE_CLEAR = Rule(
    "LH313",
    "Keys for the gateway travel in the clear.",
    why="It listens beyond its own host without `tls`: whoever is on the way can read keys, prompts and answers.",
    example="""
    $ herd check
    fleet/fleet.yaml:3:11: note LH313: the gateway listens on 0.0.0.0 without `tls`: keys can be read on the way
      help: add `tls: {ca: keys/ca}` and run `herd gateway ca`, or keep to networks that you trust
    """,
    language="console",
    way_out="""
    add `tls: {ca: keys/ca}` and run `herd gateway ca`: the CA is yours, and clients trust its root certificate. Or add
    a certificate that you have, or keep the gateway in a network whose machines you trust.
    """,
    severity="note",
)


def in_the_clear(subject: FleetContext) -> Iterator[Finding]:
    """A gateway for other machines without a certificate."""
    for gateway in subject.gateways:
        if gateway.tls is None and not gateway.loopback:
            message = f"the gateway listens on {gateway.listen} without `tls`: keys can be read on the way"
            help_ = "add `tls: {ca: keys/ca}` and run `herd gateway ca`, or keep to networks that you trust"
            yield IN_THE_CLEAR.at(subject.value("listen"), message, help_)


NO_USERS = Rule(
    "LH314",
    "Nobody may use the gateway.",
    why="Every request needs a key, and no user has one.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:1:1: warning LH314: the gateway has no users, and refuses every request
      help: add one: `herd users add NAME`
    """,
    language="console",
    way_out="add a user: `herd users add NAME` makes a key and prints it once.",
    severity="warning",
)


def somebody(subject: FleetContext) -> Iterator[Finding]:
    """A gateway without users."""
    for gateway in subject.gateways:
        if not gateway.users:
            message = "the gateway has no users, and refuses every request"
            yield NO_USERS.at(subject.key("users"), message, "add one: `herd users add NAME`")
