"""Servers behind a gateway: whether it reaches them, with which key, and how much each takes."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.fleet.context import FleetContext
from llamaherd.checks.store import is_own_host
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import DIALECTS

UNREACHED_SERVER = Rule(
    "LH306",
    "The gateway cannot reach a server.",
    why="""
    It runs on another rig, and the server listens on its own host alone. Or that rig is known by an address that means
    something else on the gateway's host.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:6:34: error LH306: the gateway on `attic` cannot reach `porch.coder`: it listens on 127.0.0.1
      help: give instance `coder` of rig `porch` `listen: 0.0.0.0`
    """,
    language="console",
    way_out="""
    let the server listen beyond its host. It needs no `api_key` then: `herd up` makes one, which clients never see.
    `store: {share: {address: …}}` of its rig says which address it has in the LAN.
    """,
)


def within_reach(subject: FleetContext) -> Iterator[Finding]:
    """Servers of other rigs that a gateway cannot use."""
    for gateway in subject.gateways:
        for each in subject.served():
            others = [name for name in gateway.on if name in subject.names and name != each.rig.rig]
            if not others:
                continue
            named = f"{each.rig.rig}.{each.name}"
            address = each.rig.address
            why = help_ = ""
            if each.instance.loopback:
                why = f"it listens on {each.instance.listen}"
                help_ = f"give instance `{each.name}` of rig `{each.rig.rig}` `listen: 0.0.0.0`"
            elif is_own_host(address):
                why = f"its rig is known as {address}, which is another host there"
                help_ = f"give rig `{each.rig.rig}` an address: `store: {{share: {{address: 192.168.1.20}}}}`"
            if why:
                message = f"the gateway on `{others[0]}` cannot reach `{named}`: {why}"
                yield UNREACHED_SERVER.at(each.place, message, help_)


OTHER_SERVERS_KEY = Rule(
    "LH307",
    "Servers of one model have different keys.",
    why="""
    The gateway sends a model's servers one key, whichever of them is free. It writes that key into the request before
    it knows the server.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:6:34: error LH307: `porch.coder` has another key than `attic.coder`, which serves `coder` too
      help: name one key file in `api_key` of both, or leave it out of both: then `herd up` makes one
    """,
    language="console",
    way_out="name one file in `api_key` of all servers of a model, or leave it out of all: then `herd up` makes one.",
)
_OR_NONE = "or leave it out of both: then `herd up` makes one"


def one_key_a_model(subject: FleetContext) -> Iterator[Finding]:
    """Servers that want another key than those beside them."""
    first: dict[str, tuple[str, object]] = {}
    for each in subject.served():
        if each.instance.api_key is None:
            continue
        named, key = f"{each.rig.rig}.{each.name}", (each.instance.api_key.file, each.instance.api_key.env)
        other, its = first.setdefault(each.model, (named, key))
        if key != its:
            message = f"`{named}` has another key than `{other}`, which serves `{each.model}` too"
            yield OTHER_SERVERS_KEY.at(each.place, message, f"name one key file in `api_key` of both, {_OR_NONE}")


BEYOND_SLOTS = Rule(
    "LH308",
    "The gateway is to send a server more requests than it has slots.",
    why="What has no slot waits in the server, where no order is kept, and where a client that leaves is not seen.",
    example="""
    $ herd check
    fleet/fleet.yaml:8:16: error LH308: `coder` is to send each server 4 requests at once, and `attic.coder`
    has 2 slots
      help: write `streams: 2`, or leave it out
    """,
    language="console",
    way_out="leave `streams` out: then it is the server's `parallel`. Or give the server more slots.",
)


def within_slots(subject: FleetContext) -> Iterator[Finding]:
    """Streams beyond the slots of a server."""
    models = dict(subject.models)
    for each in subject.served():
        streams, slots = models[each.model].streams, each.instance.parallel
        if streams is not None and streams > slots:
            named = f"{each.rig.rig}.{each.name}"
            message = (
                f"`{each.model}` is to send each server {streams} requests at once, and `{named}` has {slots} slots"
            )
            place = subject.value("models", each.model, "streams")
            yield BEYOND_SLOTS.at(place, message, f"write `streams: {slots}`, or leave it out")


OTHER_NAME = Rule(
    "LH309",
    "A server that minds names is served under another one.",
    why="""
    llama.cpp answers whatever model a request names. vLLM answers to its own name alone: the name that its rig has for
    the model. So does the server of a group, which has several. A request by an alias, or one that falls back to it,
    would be refused.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:6:21: error LH309: `attic.big` answers to `70b` alone, and people ask for `coder`
      help: call the model `70b` here, without aliases, and let no other model fall back to it
    """,
    language="console",
    way_out="call the model in `fleet.yaml` what its rig calls it, without aliases, and let no other fall back to it.",
)


def by_its_name(subject: FleetContext) -> Iterator[Finding]:
    """Servers that would be asked by a name that they do not know."""
    models = dict(subject.models)
    for each in subject.served():
        engine = each.rig.engines.get(each.instance.engine)
        if engine is None or (DIALECTS[engine.kind].traits.answers_any_name and not each.instance.group):
            continue
        falling = [name for name, model in models.items() if model.fallback == each.model]
        asked = [name for name in (each.model, *models[each.model].aliases, *falling) if name != each.instance.model]
        if asked:
            own = each.instance.model
            message = f"`{each.rig.rig}.{each.name}` answers to `{own}` alone, and people ask for `{asked[0]}`"
            help_ = f"call the model `{own}` here, without aliases, and let no other model fall back to it"
            yield OTHER_NAME.at(each.place, message, help_)


GATEWAY_PORT = Rule(
    "LH310",
    "The gateway has a server's port.",
    why="Both are on one rig, and one port takes one of them.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:3:9: error LH310: port 8001 is that of instance `coder` on rig `attic`
      help: choose another port, such as 8000
    """,
    language="console",
    way_out="choose another port for one of the two.",
)


def own_port(subject: FleetContext) -> Iterator[Finding]:
    """A port that a server on the gateway's rig has, or with which that rig lends its models."""
    for gateway in subject.gateways:
        for rig in (subject.rigs[name] for name in gateway.on if name in subject.rigs):
            taken = {each.port: f"instance `{name}` on" for name, each in rig.instances.items()}
            if gateway.port in taken:
                message = f"port {gateway.port} is that of {taken[gateway.port]} rig `{rig.rig}`"
                free = next(port for port in range(8000, 9000) if port not in taken)
                yield GATEWAY_PORT.at(subject.value("port"), message, f"choose another port, such as {free}")


SHARED_SERVER = Rule(
    "LH316",
    "One server answers for two models of the gateway.",
    why="""
    Each model sends it as many requests as it has slots, so that more may come than it has. They wait in the server
    then, where nothing keeps their order.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:9:21: warning LH316: `attic.coder` answers for `coder` already
      help: make `fast` an alias of `coder`
    """,
    language="console",
    way_out="make one of the two an alias of the other, or share the slots by `streams`.",
    severity="warning",
)


def served_once(subject: FleetContext) -> Iterator[Finding]:
    """Servers that would get more requests than they have slots, by two names."""
    models = dict(subject.models)
    first: dict[tuple[str, str], str] = {}
    taken: dict[tuple[str, str], int] = {}
    for each in subject.served():
        server = (each.rig.rig, each.name)
        taken[server] = taken.get(server, 0) + (models[each.model].streams or each.instance.parallel)
        other = first.setdefault(server, each.model)
        if other != each.model and taken[server] > each.instance.parallel:
            message = f"`{each.rig.rig}.{each.name}` answers for `{other}` already"
            yield SHARED_SERVER.at(each.place, message, f"make `{each.model}` an alias of `{other}`")
