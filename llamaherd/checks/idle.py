"""Servers that unload their models when they get no requests, and rigs that sleep."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import FleetContext, RigContext
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.engines import flags_of
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.inventory.schema.key_flags import KEY_FLAGS

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
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if instance.idle and engine and engine.kind not in UNLOADS:
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
