"""A server that is changed in a run gets nothing new from its gateways meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyinfra import logger
from pyinfra.api import Host

from llamaherd.gateway.aside import Front, front_of
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Change
from llamaherd.text.terminal import plain

_SPARE = 300
"""Seconds beyond what a switch takes: downloads that its host is in the middle of slow all down."""


@contextmanager
def drained(host: Host, change: Change) -> Iterator[None]:
    """While a server that serves is changed, those of its gateways that have others for it send it nothing new.

    What is in flight there is waited for by its own host. A run that is ended in the middle leaves timers on the hosts
    of gateways, which take it back.
    """
    front = _front(host, change)
    aside = front.step_aside() if front else {}
    try:
        yield
    finally:
        if front and aside:
            front.step_back(aside)


def _front(host: Host, change: Change) -> Front | None:
    """What stands in front of a server that serves; None where nothing does, or what does is not to be known."""
    if change.away is None:
        return None
    plan = Plan.model_validate(host.data.plan)
    instance = next((each for each in plan.instances if each.service == change.name), None)
    if instance is None:
        return None

    def say(line: str) -> None:
        logger.info(f"{host.print_prefix}{plain(line)}")

    return front_of(Path(host.data.inventory), plan, instance, _longest(instance), say)


def _longest(instance: InstancePlan) -> int:
    """Seconds in which it is changed, whatever comes of it: what served before comes back by a second start."""
    gate = instance.gate.seconds if instance.gate else 0
    return gate + 2 * (instance.drain + instance.server.start_seconds) + _SPARE
