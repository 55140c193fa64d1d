"""Trials on this machine, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.trials.trial import Trial, Variant
from llamaherd.plan import InstancePlan


def trial(servers: Iterable[Variant], stops: Iterable[InstancePlan] = (), seconds: float = 60, **more: Any) -> Trial:
    """Return a trial of these servers, in which these declared servers stop."""
    given: dict[str, Any] = {"author": "tom on desk", "report": lambda _: None, **more}
    return Trial("box", Connect(host=LOCAL), tuple(servers), tuple(stops), seconds, **given)
