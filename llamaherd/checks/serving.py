"""What one server cannot do with what it is given: a port that is root's, a draft by itself."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.drafting import OWN_DRAFT

FIRST_PORT = 1024
"""Linux gives ports below to root alone (ip_unprivileged_port_start), and a unit's server has no capability."""


PORT_OF_ROOT = Rule(
    "LH036",
    "A server may not open its port.",
    why="""
    Linux gives ports below 1024 to root, and a unit's server is not root and has no capability. It would end at
    its start.
    """,
    example="""
    instances:
      helper: {port: 80}
    """,
    after="In a container it may: Docker lets anybody open them there.",
    way_out="write a port from 1024 on. A web server or a gateway in front of it can have port 80 or 443.",
)


def ports(subject: RigContext) -> Iterator[Finding]:
    """Ports that a unit's server may not open; in a container, Docker lets anybody open them."""
    for name, instance in subject.rig.instances.items():
        if instance.port < FIRST_PORT and instance.backend == "systemd":
            message = f"instance `{name}` may not open port {instance.port}: those below {FIRST_PORT} are root's"
            help_ = "write a port from 1024 on, such as `port: 8080`; a web server in front can have the other"
            yield PORT_OF_ROOT.at(subject.document.value(("instances", name, "port")), message, help_)


def drafts_itself(subject: RigContext) -> Iterator[Finding]:
    """A model that drafts for itself: it takes its memory twice, and nothing is faster."""
    models = subject.rig.models
    for name, instance in subject.rig.instances.items():
        drafting = instance.draft.model if instance.draft else None
        if drafting and models.get(drafting) is not None and models.get(drafting) == models.get(instance.model):
            message = f"model `{drafting}` would draft for itself, as instance `{name}` serves the same files"
            help_ = "name a smaller model, or write `draft: {mtp: 2}` if it has a prediction head"
            yield OWN_DRAFT.at(subject.document.value(("instances", name, "draft", "model")), message, help_)


IDLE_GATE = Rule(
    "LH330",
    "A gate of a container measures nothing.",
    why="""
    What serves and what is declared are measured as units of systemd, one after the other. A container is neither
    started nor stopped for that: it is let in however fast it is.
    """,
    example="""
    instances:
      helper: {backend: compose, gate: {decode: -3%}}
    """,
    way_out="write `backend: systemd`, or take `gate` out.",
    severity="warning",
)


def gates(subject: RigContext) -> Iterator[Finding]:
    """Gates of containers."""
    for name, instance in subject.rig.instances.items():
        if instance.gate and instance.backend != "systemd":
            message = f"instance `{name}` is a container, and its gate measures units of systemd alone"
            help_ = "write `backend: systemd` if its engine is built here, or take `gate` out"
            yield IDLE_GATE.at(subject.document.value(("instances", name, "gate")), message, help_)
