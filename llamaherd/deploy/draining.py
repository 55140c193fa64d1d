"""A server that is changed in a run gets nothing new from its gateways meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    with ExitStack() as stack:
        for front in _fronts(host, change):
            if aside := front.step_aside():
                stack.callback(front.step_back, aside)
        yield


def _fronts(host: Host, change: Change) -> Iterator[Front]:
    """Yield what stands in front of each server that serves and is changed, where that is known."""
    names = {part.name for part in change.parts if part.away is not None}
    if not names:
        return
    plan = Plan.model_validate(host.data.plan)
    changed = [each for each in plan.instances if each.service in names]

    def say(line: str) -> None:
        logger.info(f"{host.print_prefix}{plain(line)}")

    seconds = sum(map(_longest, changed))
    for instance in changed:
        if front := front_of(Path(host.data.inventory), plan, instance, seconds, say):
            yield front


def _longest(instance: InstancePlan) -> int:
    """Seconds in which it is changed, whatever comes of it: what served before comes back by a second start."""
    gate = instance.gate.seconds if instance.gate else 0
    return gate + 2 * (instance.drain + instance.server.start_seconds) + _SPARE
