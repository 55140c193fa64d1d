"""The gateway: models, fallbacks, servers with slots, keys and ports, and the address that two gateways share."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from llamaherd.checks.context import FleetContext
from llamaherd.checks.store import is_own_host
from llamaherd.diagnostics.findings import Finding, Rule, nearest
from llamaherd.engines import DIALECTS
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import served_rig, served_task, split_served

UNKNOWN_GATEWAY_RIG = Rule(
    "LH300",
    "The gateway runs on a rig that is not in the inventory.",
    why="`gateway.on` names rigs of the same folder.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:2:8: error LH300: `on` names rig `atic`, which is not in this fleet
      help: did you mean `attic`?
    """,
    language="console",
    fix="correct the name: it is the value of `rig:` in that rig's file.",
)


def check_gateway_rigs(subject: FleetContext) -> Iterator[Finding]:
    """Report rigs that are not in the fleet."""
    for gateway in subject.gateways:
        for index, name in enumerate(gateway.on):
            if name not in subject.names:
                message = f"`on` names rig `{name}`, which is not in this fleet"
                yield UNKNOWN_GATEWAY_RIG.at(subject.value("on", index), message, nearest(name, subject.names))


UNKNOWN_SERVER = Rule(
    "LH301",
    "A model of the gateway names a server that no rig declares.",
    why="`serve` names instances as `RIG.INSTANCE`.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:6:21: error LH301: `serve` names `attic.codr`, which no rig declares
      help: did you mean `attic.coder`?
    """,
    language="console",
    fix="correct the name, or declare the instance in the rig's file.",
)


def check_gateway_servers(subject: FleetContext) -> Iterator[Finding]:
    """Report servers that no rig declares. An unreadable rig may declare them."""
    readable = {f"{rig}.{name}" for rig, each in subject.rigs.items() for name in each.instances}
    unread = [name for name in subject.names if name not in subject.rigs]
    for model, each in subject.models:
        for index, named in enumerate(each.serve):
            if split_served(named, subject.rigs) is None and served_rig(named, unread) is None:
                message = f"`serve` names `{named}`, which no rig declares"
                yield UNKNOWN_SERVER.at(
                    subject.value("models", model, "serve", index), message, nearest(named, readable)
                )


SAME_MODEL_NAME = Rule(
    "LH302",
    "Two models of the gateway have one name.",
    why="An alias is the name of another model, or also its alias: a request could mean either.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:9:17: error LH302: `gpt-4o` is a name of model `coder` already
      help: leave it out of one of the two
    """,
    language="console",
    fix="leave the alias out of one of the two.",
)


def check_model_names(subject: FleetContext) -> Iterator[Finding]:
    """Report names of two models."""
    taken = {name: name for name, _ in subject.models}
    for model, each in subject.models:
        for index, alias in enumerate(each.aliases):
            if alias in taken:
                message = f"`{alias}` is a name of model `{taken[alias]}` already"
                place = subject.value("models", model, "aliases", index)
                yield SAME_MODEL_NAME.at(place, message, "leave it out of one of the two")
            taken.setdefault(alias, model)


WRONG_FALLBACK = Rule(
    "LH303",
    "A fallback is not a model, leads back to its start, or is for other requests.",
    why="""
    The fallback serves requests while no server of a model does. In a circle no model would be left. It is named by the
    model's own name, not by an alias. A server of embeddings responds to no chat, and vectors of two models cannot be
    compared.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:7:17: error LH303: the fallback of `coder` leads back to it: coder, small, coder
      help: leave `fallback` out in one of them
    """,
    language="console",
    fix="name a model of the gateway, and let the last one have no fallback.",
)


def check_fallbacks(subject: FleetContext) -> Iterator[Finding]:
    """Report invalid fallbacks."""
    models = dict(subject.models)
    for model, each in models.items():
        if each.fallback is None:
            continue
        place = subject.value("models", model, "fallback")
        if each.fallback not in models:
            message = f"the fallback of `{model}` is `{each.fallback}`, which is not a model of the gateway"
            yield WRONG_FALLBACK.at(place, message, nearest(each.fallback, models))
            continue
        chain = [model]
        following: str | None = each.fallback
        while following in models and following not in chain:
            chain.append(following)
            following = models[following].fallback
        if following == model:
            message = f"the fallback of `{model}` leads back to it: {', '.join([*chain, model])}"
            yield WRONG_FALLBACK.at(place, message, "leave `fallback` out in one of them")
            continue
        own, other = (served_task(one, subject.rigs) for one in (each, models[each.fallback]))
        if "embeddings" in (own, other) or own != other:
            what = f"for {other}, and `{model}` for {own}" if own != other else "for embeddings, which differ by model"
            message = f"the fallback of `{model}` cannot serve its requests: `{each.fallback}` is {what}"
            yield WRONG_FALLBACK.at(place, message, "leave `fallback` out")


UNKNOWN_USERS_MODEL = Rule(
    "LH304",
    "A user may use a model that the gateway does not have.",
    why="`models` of a user names models of the gateway by their own names, not by aliases.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:5:44: error LH304: user `tom` may use `codr`, which is not a model of the gateway
      help: did you mean `coder`?
    """,
    language="console",
    fix="correct the name, or leave `models` out: then the user may use all.",
)


def check_user_models(subject: FleetContext) -> Iterator[Finding]:
    """Report models of users that the gateway does not have."""
    for gateway in subject.gateways:
        for user, each in gateway.users.items():
            for index, model in enumerate(each.models):
                if model not in gateway.models:
                    message = f"user `{user}` may use `{model}`, which is not a model of the gateway"
                    place = subject.value("users", user, "models", index)
                    yield UNKNOWN_USERS_MODEL.at(place, message, nearest(model, gateway.models))


SAME_KEY = Rule(
    "LH305",
    "Two users have one key.",
    why="""
    A key identifies the user of a request. With the same key, two users cannot be distinguished, and one cannot be
    revoked alone. Keys in different files are compared when they are sent; no key is ever shown.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:6:11: error LH305: users `ann` and `tom` have the same key
      help: give each a key of their own: `herd users rotate ann`
    """,
    language="console",
    fix="give each a key of their own: `herd users rotate NAME` makes one.",
)


def check_unique_keys(subject: FleetContext) -> Iterator[Finding]:
    """Report users whose keys are in one file."""
    for gateway in subject.gateways:
        owners: dict[object, str] = {}
        for user, each in gateway.users.items():
            owner = owners.setdefault((each.key.file, each.key.env), user)
            if owner != user:
                message = f"users `{user}` and `{owner}` have the same key"
                help_ = f"give each a key of their own: `herd users rotate {user}`"
                yield SAME_KEY.at(subject.value("users", user, "key"), message, help_)


UNREACHED_SERVER = Rule(
    "LH306",
    "The gateway cannot reach a server.",
    why="""
    It runs on another rig, and the server listens on its own host alone. Or the rig's address means another machine on
    the gateway's host.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:6:34: error LH306: the gateway on `attic` cannot reach `porch.coder`: it listens on 127.0.0.1
      help: give instance `coder` of rig `porch` `listen: 0.0.0.0`
    """,
    language="console",
    fix="""
    let the server listen beyond its host. It needs no `api_key` then: `herd up` makes one, which clients never see.
    `store: {share: {address: …}}` of its rig sets its address in the LAN.
    """,
)


def check_server_reach(subject: FleetContext) -> Iterator[Finding]:
    """Report servers of other rigs that a gateway cannot reach."""
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
                why = f"its rig has the address {address}, which is another host there"
                help_ = f"give rig `{each.rig.rig}` an address: `store: {{share: {{address: 192.168.1.20}}}}`"
            if why:
                message = f"the gateway on `{others[0]}` cannot reach `{named}`: {why}"
                yield UNREACHED_SERVER.at(each.place, message, help_)


OTHER_SERVERS_KEY = Rule(
    "LH307",
    "Servers of one model have different keys.",
    why="""
    The gateway sends all servers of a model one key. It writes that key into the request before it chooses the server.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:6:34: error LH307: `porch.coder` has another key than `attic.coder`, which serves `coder` too
      help: name one key file in `api_key` of both, or leave it out of both: then `herd up` makes one
    """,
    language="console",
    fix="name one file in `api_key` of all servers of a model, or leave it out of all: then `herd up` makes one.",
)
_OR_NONE = "or leave it out of both: then `herd up` makes one"


def check_server_keys(subject: FleetContext) -> Iterator[Finding]:
    """Report servers whose key differs from that of the same model's other servers."""
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
    "The gateway sends a server more requests than it has slots.",
    why="A request without a slot waits in the server, which keeps no order and does not notice a client that leaves.",
    example="""
    $ herd check
    fleet/fleet.yaml:8:16: error LH308: `coder` sends each server 4 requests at once, and `attic.coder`
    has 2 slots
      help: write `streams: 2`, or leave it out
    """,
    language="console",
    fix="leave `streams` out: then it is the server's `parallel`. Or give the server more slots.",
)


def check_streams(subject: FleetContext) -> Iterator[Finding]:
    """Report streams beyond the slots of a server."""
    models = dict(subject.models)
    for each in subject.served():
        streams, slots = models[each.model].streams, each.instance.parallel
        if streams is not None and streams > slots:
            named = f"{each.rig.rig}.{each.name}"
            message = f"`{each.model}` sends each server {streams} requests at once, and `{named}` has {slots} slots"
            place = subject.value("models", each.model, "streams")
            yield BEYOND_SLOTS.at(place, message, f"write `streams: {slots}`, or leave it out")


OTHER_NAME = Rule(
    "LH309",
    "A server that checks model names is served under another name.",
    why="""
    llama.cpp ignores the model that a request names. vLLM accepts its own name alone: the name that its rig has for the
    model. So does the server of a group, which has several models. It would refuse a request by an alias, or from a
    model that falls back to it.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:6:21: error LH309: `attic.big` accepts the name `70b` alone, and clients request `coder`
      help: call the model `70b` here, without aliases, and let no other model fall back to it
    """,
    language="console",
    fix="call the model in `fleet.yaml` what its rig calls it, without aliases, and let no other fall back to it.",
)


def check_served_names(subject: FleetContext) -> Iterator[Finding]:
    """Report servers that would get requests by a name that they refuse."""
    models = dict(subject.models)
    for each in subject.served():
        engine = each.rig.engines.get(each.instance.engine)
        if engine is None or (DIALECTS[engine.kind].traits.answers_any_name and not each.instance.group):
            continue
        falling = [name for name, model in models.items() if model.fallback == each.model]
        names = [name for name in (each.model, *models[each.model].aliases, *falling) if name != each.instance.model]
        if names:
            own = each.instance.model
            message = f"`{each.rig.rig}.{each.name}` accepts the name `{own}` alone, and clients request `{names[0]}`"
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
    fix="choose another port for one of the two.",
)


def check_gateway_port(subject: FleetContext) -> Iterator[Finding]:
    """Report a port that a server on the gateway's rig has, or that the rig shares its models on."""
    for gateway in subject.gateways:
        for rig in (subject.rigs[name] for name in gateway.on if name in subject.rigs):
            taken = {each.port: f"instance `{name}` on" for name, each in rig.instances.items()}
            if gateway.port in taken:
                message = f"port {gateway.port} is that of {taken[gateway.port]} rig `{rig.rig}`"
                free = next(port for port in range(8000, 9000) if port not in taken)
                yield GATEWAY_PORT.at(subject.value("port"), message, f"choose another port, such as {free}")


SHARED_SERVER = Rule(
    "LH316",
    "One server serves two models of the gateway.",
    why="""
    Each model sends it as many requests as it has slots, so more requests than slots may arrive. They wait in the
    server then, which keeps no order.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:9:21: warning LH316: `attic.coder` serves `coder` already
      help: make `fast` an alias of `coder`
    """,
    language="console",
    fix="make one of the two an alias of the other, or share the slots by `streams`.",
    severity="warning",
)


def check_shared_servers(subject: FleetContext) -> Iterator[Finding]:
    """Report servers that two models would send more requests than they have slots."""
    models = dict(subject.models)
    first: dict[tuple[str, str], str] = {}
    taken: dict[tuple[str, str], int] = {}
    for each in subject.served():
        server = (each.rig.rig, each.name)
        taken[server] = taken.get(server, 0) + (models[each.model].streams or each.instance.parallel)
        other = first.setdefault(server, each.model)
        if other != each.model and taken[server] > each.instance.parallel:
            message = f"`{each.rig.rig}.{each.name}` serves `{other}` already"
            yield SHARED_SERVER.at(each.place, message, f"make `{each.model}` an alias of `{other}`")


SWAPS_BESIDE = Rule(
    "LH325",
    "A model of a group has other servers, too.",
    why="""
    The server of a group has several models, and takes a number of requests for all of them together. So these wait in
    one queue. HAProxy does not count servers of two queues together: a model is in one queue alone.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:6:34: error LH325: `coder` is served by `attic.coder` of group `card`, and by another server
      help: serve `coder` by this server alone, and name a model of the other servers as its `fallback`
    """,
    language="console",
    fix="""
    serve the model by the instance of the group alone, or by other servers alone. `fallback` names a model that is used
    while the group's server does not respond.
    """,
)


def check_grouped_models(subject: FleetContext) -> Iterator[Finding]:
    """Report models of which one server is a group's, and another is not."""
    served = list(subject.served())
    for each in served:
        own = {(one.rig.rig, one.rig.server_of(one.name)) for one in served if one.model == each.model}
        if each.instance.group and len(own) > 1:
            message = f"`{each.model}` is served by `{each.rig.rig}.{each.name}` of group `{each.instance.group}`, "
            message += "and by another server"
            help_ = (
                f"serve `{each.model}` by this server alone, and name a model of the other servers as its `fallback`"
            )
            yield SWAPS_BESIDE.at(each.place, message, help_)


Address = IPv4Address | IPv6Address

PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")))
"""Networks that are private to each home (RFC 1918, RFC 4193)."""
_ALL = {4: "0.0.0.0", 6: "::"}

NOT_OF_TWO = Rule(
    "LH350",
    "An address is shared by another number of gateways than two.",
    why="""
    keepalived on each of the two hosts reports to the peer each second that it runs. With one there is no host to take
    the address over; more than two would each count requests for themselves, which two do already.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:3:12: error LH350: 192.168.1.50 moves between two rigs, and `on` names one
      help: name two rigs in `on`, or leave `address` out
    """,
    language="console",
    fix="name two rigs in `on`, or leave `address` out: a gateway is reached at its rig's own address, too.",
)


def check_gateway_pair(subject: FleetContext) -> Iterator[Finding]:
    """Report one rig, or more than two."""
    for gateway in subject.gateways:
        rigs = set(gateway.on)
        if gateway.address and (len(rigs), len(gateway.on)) != (2, 2):
            named = "one" if len(rigs) == 1 else f"{len(rigs)} of them" if len(rigs) > 2 else "one of them twice"
            message = f"{gateway.address} moves between two rigs, and `on` names {named}"
            help_ = "name two rigs in `on`, or leave `address` out"
            yield NOT_OF_TWO.at(subject.value("address"), message, help_)


NOT_PRIVATE = Rule(
    "LH351",
    "A shared address is not in a private network.",
    why="""
    It is set on an interface of a host and announced to the machines of its network. An address of the internet belongs
    to another network. 127.0.0.1, 0.0.0.0, addresses of groups and those of a single cable mean something else on each
    machine.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:3:12: error LH351: 127.0.0.1 is on each machine, and moves nowhere
      help: choose one of the rigs' network that no machine has, outside of the router's DHCP range
    """,
    language="console",
    fix="""
    choose an address of the rigs' own network (10.…, 172.16.… to 172.31.…, 192.168.…, or fd… of IPv6) that no machine
    has, outside of the router's DHCP range.
    """,
)


def check_private_address(subject: FleetContext) -> Iterator[Finding]:
    """Report an address outside of private networks."""
    for gateway in subject.gateways:
        address = ip_address(gateway.address) if gateway.address else None
        if address and not any(address in network for network in PRIVATE):
            help_ = "choose one of the rigs' network that no machine has, outside of the router's DHCP range"
            yield NOT_PRIVATE.at(subject.value("address"), f"{address} {_kind(address)}", help_)


def _kind(address: Address) -> str:
    if address.is_loopback:
        return "is on each machine, and moves nowhere"
    if address.is_unspecified:
        return "means all addresses of a machine"
    if address.is_multicast:
        return "means a group of machines"
    return "is valid on one cable alone" if address.is_link_local else "is not in a private network"


TAKEN = Rule(
    "LH352",
    "A shared address is a rig's own.",
    why="It would be on two machines at once, and each packet would reach one or the other at random.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:3:12: error LH352: 192.168.1.20 is the address of rig `attic`
      help: choose one that no machine has, outside of the router's DHCP range
    """,
    language="console",
    fix="choose an address of the same network that no machine has.",
)


def check_free_address(subject: FleetContext) -> Iterator[Finding]:
    """Report an address that a rig has."""
    for gateway in subject.gateways:
        for name, rig in subject.rigs.items():
            if gateway.address and gateway.address in map(_ip, (rig.address, rig.connect.host)):
                message = f"{gateway.address} is the address of rig `{name}`"
                help_ = "choose one that no machine has, outside of the router's DHCP range"
                yield TAKEN.at(subject.value("address"), message, help_)


NOT_LISTENING = Rule(
    "LH353",
    "The gateways do not listen at the shared address.",
    why="""
    One of the two does not have the address, and cannot listen at an absent address. Each host also probes its own
    gateway. So both listen at all addresses of their hosts: each address requires a key.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:4:11: error LH353: the gateways listen on 127.0.0.1, and must serve 192.168.1.50
      help: write `listen: 0.0.0.0`
    """,
    language="console",
    fix="write `listen: 0.0.0.0`, or `listen: '::'` where the address is one of IPv6.",
)


def check_listen_address(subject: FleetContext) -> Iterator[Finding]:
    """Report gateways that listen at one address of their hosts, or at addresses of the other IP version."""
    for gateway in subject.gateways:
        if gateway.address is None:
            continue
        listen, address = ip_address(gateway.listen), ip_address(gateway.address)
        if not listen.is_unspecified or listen.version < address.version:
            message = f"the gateways listen on {listen}, and must serve {address}"
            written = _ALL[address.version]
            help_ = f"write `listen: {written}`" if address.version == 4 else f"write `listen: '{written}'`"
            yield NOT_LISTENING.at(subject.value("listen"), message, help_)


UNKNOWN_TO_EACH_OTHER = Rule(
    "LH354",
    "Two gateways that share an address do not find each other.",
    why="""
    keepalived on each of them reports to the peer that it runs, at the IP address that it has in their network, and
    accepts no other source. A host name is not an address, and may have another one tomorrow.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:2:15: error LH354: rig `porch` has the address `porch.lan`, which is not an address of IPv4
      help: give it the one of the network that has 192.168.1.50: `store: {share: {address: 192.168.1.21}}`
    """,
    language="console",
    fix="""
    give each of the two rigs `store: {share: {address: …}}` with the IP address that it has in the network of
    `gateway: {address: …}`.
    """,
)


def check_pair_addresses(subject: FleetContext) -> Iterator[Finding]:
    """Report rigs without an address of the same IP version, or with the same address."""
    for gateway in subject.gateways:
        if gateway.address is None:
            continue
        address = ip_address(gateway.address)
        earlier: dict[str, str] = {}
        for index, name in enumerate(gateway.on):
            rig, place = subject.rigs.get(name), subject.value("on", index)
            if rig is None and name in subject.names:
                message = f"rig `{name}` cannot be read, and its address is needed"
                yield UNKNOWN_TO_EACH_OTHER.at(place, message, "correct that rig's file")
            elif rig and (wrong := _unknown(rig, address, earlier)):
                help_ = f"give it the one of the network that has {address}: "
                help_ += f"`store: {{share: {{address: {_example(address)}}}}}`"
                yield UNKNOWN_TO_EACH_OTHER.at(place, f"rig `{name}` {wrong}", help_)


def _unknown(rig: Rig, address: Address, earlier: dict[str, str]) -> str:
    """Return why the peer does not find this rig; `seen` are the rigs before it, by their addresses."""
    known = _ip(rig.address)
    if known is None or ip_address(known).version != address.version:
        return f"has the address `{rig.address}`, which is not an address of IPv{address.version}"
    if ip_address(known).is_loopback:
        return f"has the address `{known}`, which is each machine's own"
    other = earlier.setdefault(known, rig.rig)
    return "" if other == rig.rig else f"has the address `{known}`, like rig `{other}`"


def _example(address: Address) -> str:
    """Return another address of the same network, in the usual form of home networks."""
    return str(address + 1) if int(address) % 256 < 254 else str(address - 1)


def _ip(text: str) -> str | None:
    """Return an address in the form that is compared; None for a name."""
    try:
        return str(ip_address(text))
    except ValueError:
        return None
