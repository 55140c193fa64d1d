"""Servers that are measured before they are let in: those with a `gate`, where something else of them serves."""

from __future__ import annotations

from functools import partial

from llamaherd.host.state import HostState
from llamaherd.plan import InstancePlan
from llamaherd.role.changes import Gated, RunVerb, differs
from roles.serve.changes import instance_files
from roles.serve.onhost.model import RefusalInput
from roles.serve.transaction import proven, serves, tried


def gated(instance: InstancePlan, state: HostState, key: str | None) -> Gated | None:
    """What must be measured before this one is started; None where there is no gate, or nothing to hold it against.

    A key that changes as well keeps its speed from being measured: both would be given the one that the host has.
    """
    unit = state.units.get(instance.service)
    if instance.gate is None or unit is None or not unit.spec or unit.spec == instance.spec:
        return None
    speed = not _gets_a_key(instance, state, key)
    if not (serves(instance, state) and proven(instance, state)) or not (speed or instance.gate.kld is not None):
        return None
    return Gated(instance, unit.spec, partial(_refused, instance), speed=speed)


def _gets_a_key(instance: InstancePlan, state: HostState, key: str | None) -> bool:
    return any(differs(file, state) for file in instance_files(instance, key) if file is not instance.file)


def _refused(instance: InstancePlan, why: str) -> RunVerb:
    return RunVerb("serve.removal.refuse", RefusalInput(instance.service, tried(instance), why))
