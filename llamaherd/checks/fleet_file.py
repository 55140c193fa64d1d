"""The rest of the fleet file: users, the chat page, monitoring; and servers and rigs that sleep."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from llamaherd.checks.context import FleetContext, RigContext
from llamaherd.checks.store import is_own_host
from llamaherd.diagnostics.findings import Finding, Rule, nearest
from llamaherd.engines import flags_of
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import CLIENTS_WAIT, FleetFile
from llamaherd.inventory.schema.key_flags import KEY_FLAGS
from llamaherd.layout import ALERTMANAGER_PORT, EXPORTER_PORT, GATEWAY_FIGURES_PORT, PROMETHEUS_PORT
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


UNKNOWN_MONITORED_RIG = Rule(
    "LH320",
    "Monitoring names a rig that is not in the inventory.",
    why="`monitoring.on` and `monitoring.rigs` name rigs of the same folder. The monitoring rig is monitored, too.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:2:7: error LH320: `on` names rig `atic`, which is not in this fleet
      help: did you mean `attic`?
    """,
    language="console",
    fix="correct the name: it is the value of `rig:` in that rig's file.",
)


def check_monitored_rigs(subject: FleetContext) -> Iterator[Finding]:
    """Report rigs that are not in the fleet."""
    for declared in subject.monitoring:
        named = [(("on",), declared.on), *((("rigs", index), name) for index, name in enumerate(declared.rigs))]
        for path, name in named:
            if name not in subject.names:
                message = f"`{path[0]}` names rig `{name}`, which is not in this fleet"
                place = subject.document.value(("monitoring", *path))
                yield UNKNOWN_MONITORED_RIG.at(place, message, nearest(name, subject.names))


NAMELESS_WATCHER = Rule(
    "LH321",
    "Rigs have no IP address of the monitoring rig.",
    why="""
    The monitoring rig queries the others over the network. They accept its IP address alone, to keep the figures of a
    machine private. A host name is not an address, and may have another one tomorrow.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:2:7: error LH321: rig `attic` monitors others, and its address `attic.lan` is no IP address
      help: give it `store: {share: {address: 192.168.1.20}}`, or monitor it alone: `rigs: [attic]`
    """,
    language="console",
    fix="give the monitoring rig `store: {share: {address: …}}` with the IP address that it has in the LAN.",
)


def check_monitor_address(subject: FleetContext) -> Iterator[Finding]:
    """Report a rig that monitors others and has no IP address for them."""
    for declared in subject.monitoring:
        rig = subject.rigs.get(declared.on)
        others = [name for name in (declared.rigs or subject.names) if name != declared.on]
        if rig is None or not others:
            continue
        address = rig.address
        if is_own_host(address) or not _is_ip(address):
            message = f"rig `{rig.rig}` monitors others, and its address `{address}` is no IP address"
            help_ = f"give it `store: {{share: {{address: 192.168.1.20}}}}`, or monitor it alone: `rigs: [{rig.rig}]`"
            yield NAMELESS_WATCHER.at(subject.document.value(("monitoring", "on")), message, help_)


def _is_ip(address: str) -> bool:
    try:
        return bool(ip_address(address))
    except ValueError:
        return False


MONITORING_PORT = Rule(
    "LH322",
    "A server, the gateway, or its page has a port of the monitoring.",
    why="Prometheus, Alertmanager, the exporter of a host's figures, and a gateway's have ports of their own there.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:2:7: error LH322: port 9090 of rig `attic` is Prometheus', and instance `coder` has it
      help: choose another port for it, such as 8080
    """,
    language="console",
    fix="choose another port than 8405, 9090, 9093 and 9100 for it.",
)


def check_monitoring_ports(subject: FleetContext) -> Iterator[Finding]:
    """Report ports that both the monitoring and something else use."""
    for declared in subject.monitoring:
        for name in dict.fromkeys((declared.on, *(declared.rigs or subject.names))):
            rig = subject.rigs.get(name)
            if rig is None:
                continue
            ours = {EXPORTER_PORT: "the exporter's"}
            if name == declared.on:
                ours |= {PROMETHEUS_PORT: "Prometheus'", ALERTMANAGER_PORT: "Alertmanager's"}
            if any(name in gateway.on for gateway in subject.gateways):
                ours[GATEWAY_FIGURES_PORT] = "for the gateway's figures"
            for what, port in _taken(subject, rig):
                if port in ours:
                    message = f"port {port} of rig `{name}` is {ours[port]}, and {what} has it"
                    place = subject.document.value(("monitoring", "on"))
                    yield MONITORING_PORT.at(place, message, "choose another port for it, such as 8080")


def _taken(subject: FleetContext, rig: Rig) -> Iterator[tuple[str, int]]:
    """Yield what uses which port of a rig."""
    yield from ((f"instance `{name}`", instance.port) for name, instance in rig.instances.items())
    yield from (("the gateway", gateway.port) for gateway in subject.gateways if rig.rig in gateway.on)
    pages = ((gateway.on[0], gateway.chat) for gateway in subject.gateways)
    yield from (("the chat page", page.port) for on, page in pages if page and on == rig.rig)


NOBODY_TOLD = Rule(
    "LH323",
    "Alerts have no receiver.",
    why="Alerts fire in Prometheus and reach no person: `monitoring.alerts` names no receiver.",
    example="""
    $ herd check
    fleet/fleet.yaml:1:1: warning LH323: alerts have no receiver: `monitoring.alerts` names none
      help: add one, such as `alerts: {ntfy: {url: https://ntfy.sh/a-long-random-name}}`
    """,
    language="console",
    fix="add `mail`, `ntfy` or `webhook` to `monitoring.alerts`.",
    severity="warning",
)


def check_alert_receivers(subject: FleetContext) -> Iterator[Finding]:
    """Report alerts without a receiver."""
    for declared in subject.monitoring:
        alerts = declared.alerts
        if not (alerts.mail or alerts.ntfy or alerts.webhook):
            message = "alerts have no receiver: `monitoring.alerts` names none"
            help_ = "add one, such as `alerts: {ntfy: {url: https://ntfy.sh/a-long-random-name}}`"
            yield NOBODY_TOLD.at(subject.document.key(("monitoring",)), message, help_)


UNLOADS: frozenset[str] = frozenset(kind for row in KEY_FLAGS if row.top == "idle" for kind in row.spelled)
"""The engines that can unload a model and load it again for a request."""

UNNOTICED_SINCE = "2026-08-20"
"""In earlier versions, each request for metrics restarts the idle time, or loads the model (ggml-org/llama.cpp#27376).
"""

CANNOT_UNLOAD = Rule(
    "LH360",
    "An engine cannot unload its model.",
    why="""
    `idle` uses llama.cpp's `--sleep-idle-seconds`. ik_llama.cpp and vLLM have no such option. A unit that stops when it
    is idle would be down for the gateway, for health probes and for clients without a gateway.
    """,
    example="""
    engines:
      ik: {kind: ik_llama.cpp, ref: main, flags: 8337e4cd3}
    instances:
      coder: {engine: ik, idle: {unload: 15m}}
    """,
    fix="use an engine of kind `llama.cpp`, or take `idle` out. `herd pause` frees the GPUs of any engine for a time.",
)


def check_idle_engines(subject: RigContext) -> Iterator[Finding]:
    """Report instances that should unload their models, with engines that cannot."""
    for name, instance, engine in subject.servers:
        if instance.idle and engine.kind not in UNLOADS:
            place = subject.document.value(("instances", name, "idle"))
            message = f"{engine.kind} cannot unload the model of instance `{name}`"
            help_ = f"use an engine of kind {' or '.join(sorted(UNLOADS))}, or take `idle` out: `herd pause "
            yield CANNOT_UNLOAD.at(place, message, f"{help_}{subject.rig.rig}/{name}` frees its memory for a time")


KEPT_AWAKE = Rule(
    "LH361",
    "Monitoring keeps a model loaded.",
    why="""
    Prometheus reads the metrics of each server every 30 seconds. In versions of llama.cpp before 20 August 2026, such a
    request counts as work: the server never becomes idle, or loads its model again
    ([llama.cpp#20227](https://github.com/ggml-org/llama.cpp/issues/20227)).
    """,
    example="""
    $ herd check
    fleet.yaml:2:7: warning LH361: monitoring keeps the model of a.coder loaded: llama.cpp b10306 counts it as a request
      help: take a version of September 2026 or later, such as b10867
    """,
    language="console",
    fix="take a newer version, or leave the rig out of `monitoring.rigs`.",
    severity="warning",
)


def check_idle_scrapes(subject: FleetContext) -> Iterator[Finding]:
    """Report servers with an idle time that the fleet's monitoring never lets pass."""
    for declared in subject.monitoring:
        watched = {declared.on, *(declared.rigs or subject.names)}
        for rig in (each for name, each in subject.rigs.items() if name in watched):
            for name, instance in rig.instances.items():
                engine = rig.engines.get(instance.engine)
                known = flags_of(engine) if engine and instance.idle else None
                if known is None or known.kind not in UNLOADS or not known.date or known.date >= UNNOTICED_SINCE:
                    continue
                message = f"monitoring keeps the model of {rig.rig}.{name} loaded: {known} counts it as a request"
                place = subject.document.value(("monitoring", "on"))
                yield KEPT_AWAKE.at(place, message, "take a version of September 2026 or later, such as b10867")


NOT_WOKEN = Rule(
    "LH362",
    "No gateway can wake a rig.",
    why="""
    `wake` lets the gateway send a packet to the network card of a rig that sleeps. The gateway must run on another rig
    of the fleet, in the same network.
    """,
    example="""
    wake: {mac: 3c:7c:3f:12:ab:cd}
    """,
    fix="declare a gateway in `fleet.yaml`, on a rig that does not sleep, or take `wake` out.",
    severity="warning",
)


def check_wake_gateway(subject: RigContext) -> Iterator[Finding]:
    """Report a rig with `wake` in a fleet without a gateway on another rig."""
    if subject.rig.wake is None or not subject.fleet_is_known:
        return
    gateway = subject.fleet.gateway if subject.fleet else None
    if gateway is None:
        message, help_ = (
            "this fleet has no gateway that could wake the rig",
            "declare one in fleet.yaml, or take it out",
        )
    elif set(gateway.on) <= {subject.rig.rig}:
        message = "the gateway runs on this rig, and sleeps with it"
        help_ = "run the gateway on a rig that does not sleep, or take `wake` out"
    else:
        return
    yield NOT_WOKEN.at(subject.document.value(("wake",)), message, help_)


NOT_WOKEN_AGAIN = Rule(
    "LH363",
    "A rig that suspends is not woken again.",
    why="""
    `suspend` lets the host sleep when it gets no requests. Without `wake`, the next request does not reach it.
    """,
    example="""
    suspend: {after: 30m}
    """,
    fix="add `wake: {mac: …}`, or take `suspend` out.",
)


def check_suspend_wake(subject: RigContext) -> Iterator[Finding]:
    """Report a rig that suspends, and that no gateway can wake. LH362 reports a fleet without a gateway."""
    if subject.rig.suspend is None or subject.rig.wake is not None:
        return
    place = subject.document.value(("suspend",))
    help_ = "add `wake: {mac: …}` with the address of its network card, or take `suspend` out"
    yield NOT_WOKEN_AGAIN.at(place, "the rig suspends and has no `wake`, so that no request wakes it", help_)


MUST_NOT_SLEEP = Rule(
    "LH364",
    "A rig suspends that must not sleep.",
    why="""
    Under WSL, Windows decides when the machine sleeps: Linux cannot suspend it. A gateway must receive requests to wake
    other rigs, and the rig that monitors the fleet must be awake to send alerts.
    """,
    example="""
    host: {wsl: {}}
    suspend: {after: 30m}
    wake: {mac: 3c:7c:3f:12:ab:cd}
    """,
    fix="take `suspend` out. Under WSL, set the sleep in Windows' power settings.",
)


def check_suspend_place(subject: RigContext) -> Iterator[Finding]:
    """Report a rig that suspends under WSL, with a gateway, or with the monitoring of the fleet."""
    rig = subject.rig
    if rig.suspend is None:
        return
    place = subject.document.value(("suspend",))
    if rig.host.wsl is not None:
        help_ = "take `suspend` out, and set the sleep in Windows' power settings"
        yield MUST_NOT_SLEEP.at(place, "under WSL, Linux cannot suspend the machine", help_)
    for what in _needed_for(rig.rig, subject.fleet):
        yield MUST_NOT_SLEEP.at(place, f"the rig runs {what}, and must not sleep", "take `suspend` out")


def _needed_for(rig: str, fleet: FleetFile | None) -> Iterator[str]:
    if fleet and fleet.gateway and rig in fleet.gateway.on:
        yield "the gateway"
    if fleet and fleet.monitoring and rig == fleet.monitoring.on:
        yield "the monitoring"
