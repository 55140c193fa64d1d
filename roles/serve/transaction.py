"""A switch as a transaction: what is new must answer a prompt as declared, or what served before comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.serving import Refused, ServingState
from llamaherd.host.state import HostState
from llamaherd.layout import (
    BESIDE,
    BESIDE_UNITS,
    KEPT,
    LOCK_WAIT,
    LOCKS,
    PROBATION,
    PROBATION_RUN,
    PROJECTS,
    PROVE,
    REFUSED,
    RELEASES,
    STARTED,
    UNITS,
    beside_of,
    probation_of,
    service_of,
    unit_user,
)
from llamaherd.plan import RAM, InstancePlan, digest
from llamaherd.plan.speed import floor
from llamaherd.render import render
from llamaherd.role.report import PROMPT, chat_seconds
from llamaherd.text.quoting import Written, base64_lines
from roles.serve.proof import proof

MEASURED_TOKENS = 64
"""Tokens of an answer whose speed, or whose drafts, are looked at; else a few will do."""

_FEW_TOKENS = 8

DRAFTED = 16
"""Tokens that must have been drafted before it says anything that none was accepted."""


Phase = Literal["", "check", "switch"]
"""Of a switch together with others: what is found out before any of them is stopped, and what follows."""

Beside = Mapping[str, Any]
"""What starts a second server beside the one that serves; empty where there is no room for both."""
ALONE: Beside = MappingProxyType({})
NOBODY: Mapping[str, Any] = MappingProxyType({"going": (), "going_needs": ""})
"""Where no server waits for this one to come."""


def transaction(
    instance: InstancePlan,
    *,
    elsewhere: bool,
    any_speed: bool,
    beside: Beside,
    going: Mapping[str, Any] = NOBODY,
    phase: Phase = "",
    partners: Sequence[str] = (),
) -> dict[str, Any]:
    """What the scripts of a switch are given, beside what is their backend's.

    `elsewhere`: it may run by the other backend by now, and goes on by that where it does not serve by this one.
    `any_speed`: it may be slower than its model was. `going`: what goes on until it serves. `phase` is the part of a
    switch together with `partners`, the services that are stopped before; empty for a server that changes alone.
    """
    systemd = instance.backend == "systemd"
    return {
        **_places(instance),
        "spec": instance.spec,
        "inputs": instance.server.inputs,
        "drain": instance.drain,
        "needs": json.dumps(needs) if (needs := gpu_needs(instance)) else "",
        "ram": ram_need(instance),
        "reads": "\t".join(instance.server.folders),
        "timeout": instance.server.start_seconds,
        "port": instance.endpoint.port,
        "started": STARTED,
        "asked": base64_lines(
            json.dumps({**asked(instance), **proof(instance), "same": same(instance), "spec": instance.spec})
        ),
        "tried": tried(instance),
        "kind": "unit" if systemd else "container",
        "forget": forget(instance.name, unit=systemd, project=not systemd),
        "elsewhere": elsewhere,
        "any_speed": any_speed,
        "prove": PROVE,
        **probation([instance]),
        "forget_elsewhere": forget(instance.name, unit=not systemd, project=systemd),
        **going,
        "phase": phase,
        "leaving": (*(each.service for each in going["going"]), *partners),
        "holds": "\t".join((instance.spec, *(f"{place}={size}" for place, size in holds(instance).items()))),
        "beside_name": beside_of(instance.name),
        "beside_units": BESIDE_UNITS,
        "beside_folder": BESIDE,
        "beside": bool(beside),
        **beside,
    }


def _places(instance: InstancePlan) -> dict[str, Any]:
    """What it is called, and where its files lie."""
    return {
        "instance": instance.name,
        "name": instance.service,
        "file": instance.file.path,
        "unit_file": UNITS / f"{instance.service}.service",
        "project_file": PROJECTS / instance.name / "compose.yaml",
        "key_file": instance.key_file or "",
        "kept": KEPT / instance.service,
        "refused": REFUSED / instance.service,
    }


def probation(instances: Sequence[InstancePlan]) -> dict[str, Any]:
    """What starts the program that watches servers for a minute after a switch, and what that program reads."""
    first = instances[0]
    return {
        "probation": base64_lines(json.dumps([_watched(each) for each in instances])),
        "probation_unit": probation_of(first.name),
        "probation_run": PROBATION_RUN,
        "probation_file": PROBATION_RUN / f"{first.service}.json",
        "probation_program": PROBATION,
        "probation_seconds": 2 * LOCK_WAIT + 2 * sum(each.server.start_seconds for each in instances),
    }


def _watched(instance: InstancePlan) -> dict[str, object]:
    """One server as that program is given it."""
    systemd = instance.backend == "systemd"
    return {
        "service": instance.service,
        "kind": "unit" if systemd else "container",
        "spec": instance.spec,
        "tried": tried(instance),
        "instance": instance.name,
        "user": unit_user(instance.name),
        "kept": str(KEPT / instance.service),
        "refused": str(REFUSED / instance.service),
        "releases": str(RELEASES),
        "locks": str(LOCKS),
        "lock_seconds": LOCK_WAIT,
        "seconds": chat_seconds(instance),
        "prompts": not instance.members,
        "prove": str(PROVE),
        "started": str(STARTED),
        "forget": forget(instance.name, unit=systemd, project=not systemd),
    }


def gpu_needs(instance: InstancePlan) -> list[dict[str, object]]:
    """What it takes of each of its GPUs, in bytes; nothing where that, or which GPU it will be, is not certain."""
    cards = {card.name: card.at for card in instance.server.cards if card.at != "any"}
    if instance.memory is None or instance.memory.doubts or instance.server.one_card:
        return []
    return [
        {"name": each.where, "at": cards[each.where], "need": each.total}
        for each in instance.memory.holds
        if each.where in cards
    ]


def ram_need(instance: InstancePlan) -> int:
    """The bytes of RAM that it cannot do without; 0 where that is not certain."""
    if instance.memory is None or instance.memory.doubts:
        return 0
    return instance.memory.resident or 0


def holds(instance: InstancePlan) -> dict[str, int]:
    """Return the bytes that an instance is sure to hold, by GPU and of RAM; nothing where that is not certain."""
    needs = {str(each["name"]): int(str(each["need"])) for each in gpu_needs(instance)}
    ram = ram_need(instance)
    return needs | ({RAM: ram} if ram else {})


def forget(name: str, *, unit: bool, project: bool, key: bool = False) -> Written:
    """The script that stops an instance and removes what is its own: as a unit, as a container, and its key."""
    return render(
        "serve/forget.sh.j2",
        name=name,
        user=unit_user(name),
        unit=unit,
        project=project,
        forget_key=key,
        kept=KEPT / service_of(name),
        refused=REFUSED / service_of(name),
    )


def runs_elsewhere(instance: InstancePlan, state: HostState) -> bool:
    """Whether there is anything of it by the other backend."""
    if instance.backend == "systemd":
        return instance.name in state.projects or instance.service in state.containers
    return instance.service in state.units


def serves(instance: InstancePlan, state: HostState) -> bool:
    """Whether it runs by either backend, as whatever it is."""
    unit, container = state.units.get(instance.service), state.containers.get(instance.service)
    return bool((unit and unit.active == "active") or (container and container.health == "healthy"))


def proven(instance: InstancePlan, state: HostState) -> bool:
    """Whether what runs has answered a prompt since it was started as another, as far as that is known."""
    unit, container = state.units.get(instance.service), state.containers.get(instance.service)
    runs = {each.spec for each in (unit, container) if each}
    serving = state.serving.get(instance.service)
    return serving is None or runs.isdisjoint(serving.untried)


def refuse_again(instance: InstancePlan, state: HostState, *, retry: bool, instead: str = "") -> None:
    """Raise UserError where what is declared was tried and taken back, unless nothing serves, or by `retry`.

    `instead` is what serves in its place, if anything does.
    """
    refused = state.serving.get(instance.service, ServingState()).refused
    served = serves(instance, state) and proven(instance, state)
    if refused and refused.tried == tried(instance) and not retry and (served or instead):
        raise not_again(instance, refused, instead)


def asked(instance: InstancePlan) -> dict[str, object]:
    """One prompt, and what its answer must be like: no key is in it.

    `drafts`: drafted tokens from which on some must have been accepted, 0 where nothing drafts. `floor`: tokens/s.
    """
    drafts = instance.drafts and instance.endpoint.counts_drafts
    least = floor(instance.expect.decode if instance.expect else None) or 0
    metrics = instance.endpoint.metrics
    return {
        "url": instance.endpoint.url(instance.endpoint.chat_path),
        "metrics": list(metrics) if instance.members else metrics[0],
        "key": instance.key_file,
        "seconds": chat_seconds(instance),
        "drafts": DRAFTED if drafts else 0,
        "floor": least,
        "body": {
            "model": instance.model,
            "messages": [{"role": "user", "content": PROMPT}],
            "temperature": 0,
            "max_tokens": MEASURED_TOKENS if drafts or least else _FEW_TOKENS,
        },
    }


def same(instance: InstancePlan) -> str:
    """What has one speed: the same bytes of a model on the same GPUs. It is no part of what was tried."""
    return digest(instance.model_path, [card.at for card in instance.server.cards])


def tried(instance: InstancePlan) -> str:
    """What tells one try from another: the spec, what its answer must be like, and how fast it must be."""
    gate = instance.gate
    limits = (gate.model_dump(mode="json", exclude={"kld"}),) if gate else ()
    kld = (gate.kld,) if gate and gate.kld is not None else ()
    return digest(instance.spec, asked(instance), *limits, *kld)


def not_again(instance: InstancePlan, refused: Refused, instead: str = "") -> UserError:
    """Why what is declared is not tried: it was, and what served before serves since."""
    serves_on = f"{instead} serves in place of {instance.name}" if instead else f"{instance.name} serves as before"
    return UserError(
        f"{serves_on}: what is declared was tried on {refused.when}, and {refused.why}",
        "change the inventory, or `herd up --retry` to try the same again",
    )
