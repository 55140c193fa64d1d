"""The input of a switch: a server's identity, its proof, and what it needs of its host."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState
from llamaherd.layout import service_of, unit_user
from llamaherd.memory.instances import MARGIN, SYSTEM_RAM
from llamaherd.onhost.servers import NeededGpu, ServingState
from llamaherd.plan import RAM, InstancePlan, MemberPlan, digest
from llamaherd.plan.instance import lowest_speed, planned_task, task_path
from llamaherd.role.report import PROMPT, chat_seconds
from roles.serve.onhost.model import Room, Server
from roles.serve.state import ServeState

MEASURED_TOKENS = 64
"""Tokens of a response whose speed, or whose drafts, are checked; else a few are enough."""

_FEW_TOKENS = 8

DRAFTED = 16
"""Tokens that must have been drafted before it means anything that none was accepted."""


@dataclass(frozen=True)
class UndeclaredServer:
    """A server that is not declared any more: a unit, a container, or both."""

    name: str
    unit: bool
    container: bool
    port: bool = False
    """Whether it has the port of the instance that replaces it, or will have it when it starts."""
    serves: bool = False
    """Whether it runs."""

    @property
    def service(self) -> str:
        """Return the name in systemd and Docker."""
        return service_of(self.name)


def proof_facts(instance: InstancePlan) -> dict[str, object]:
    """Return what is declared of a server, for `roles/serve/onhost/proof.py`; no key is in it."""
    endpoint = instance.endpoint
    kind = planned_task(instance)
    props = endpoint.props_path
    return {
        "kind": kind,
        "url": endpoint.url(task_path(endpoint, kind)),
        "models": list(endpoint.models),
        "models_path": endpoint.models_path,
        "props_path": endpoint.of_model(props, instance.model) if props else None,
        "health_path": endpoint.health_path,
        "listen": endpoint.listen,
        # vLLM's workers find each other by ports of their own.
        "closed": props is not None,
        "context": instance.context // max(1, endpoint.streams),
    }


def probe_question(instance: InstancePlan, member: MemberPlan | None = None) -> dict[str, object]:
    """Return what is declared of a server, for the probes of a verification; of a group, for those of a member."""
    endpoint, kind = instance.endpoint, planned_task(instance, member)
    model = (member or instance).model
    props = endpoint.props_path
    return {
        **proof_facts(instance),
        "kind": kind,
        "url": endpoint.url(task_path(endpoint, kind)),
        "metrics": [endpoint.url(endpoint.of_model(endpoint.metrics_path, model))],
        "props_path": endpoint.of_model(props, model) if props else None,
        "body": {"model": model},
    }


def server_input(instance: InstancePlan) -> Server:
    """Return an instance's server as the program on hosts reads it."""
    return Server(
        name=instance.name,
        service=instance.service,
        kind="unit" if instance.backend == "systemd" else "container",
        user=unit_user(instance.name),
        spec=instance.spec,
        tried=attempt_identity(instance),
        key_file=instance.key_file or "",
        port=instance.endpoint.port,
        start_seconds=instance.server.start_seconds,
        drain_seconds=instance.drain,
        inputs=tuple(instance.server.inputs),
        question={
            **proof_prompt(instance),
            **proof_facts(instance),
            "same": speed_identity(instance),
            "spec": instance.spec,
        },
        prompts=not instance.members,
        response_seconds=chat_seconds(instance),
    )


def room_with_old(instance: InstancePlan) -> Room | None:
    """Return what must be free for an instance side by side with others; None where that is not certain."""
    if instance.memory is None or instance.memory.doubts or instance.server.one_card:
        return None
    at = {card.name: card.at for card in instance.server.cards}
    needs = {each.where: each.total for each in instance.memory.holds}
    if not needs.keys() - {RAM} <= at.keys():
        return None
    gpus = (NeededGpu(name, at[name], need + MARGIN) for name, need in needs.items() if name in at)
    return Room(needs.get(RAM, 0) + SYSTEM_RAM, tuple(gpus))


def gpu_needs(instance: InstancePlan) -> list[NeededGpu]:
    """Return what it takes of each of its GPUs; nothing where that, or which GPU it will be, is not certain."""
    cards = {card.name: card.at for card in instance.server.cards if card.at != "any"}
    if instance.memory is None or instance.memory.doubts or instance.server.one_card:
        return []
    return [
        NeededGpu(each.where, cards[each.where], each.total) for each in instance.memory.holds if each.where in cards
    ]


def ram_need(instance: InstancePlan) -> int:
    """Return the bytes of RAM that it certainly needs; 0 if they are uncertain."""
    if instance.memory is None or instance.memory.doubts:
        return 0
    return instance.memory.resident or 0


def holds(instance: InstancePlan) -> dict[str, int]:
    """Return the bytes that an instance is sure to hold, by GPU and of RAM; nothing where that is not certain."""
    needs = {each.name: each.need for each in gpu_needs(instance)}
    ram = ram_need(instance)
    return needs | ({RAM: ram} if ram else {})


def runs_elsewhere(instance: InstancePlan, state: HostState) -> bool:
    """Return whether a part of it exists by the other backend."""
    if instance.backend == "systemd":
        return instance.name in ServeState.of(state).projects or instance.service in state.servers.containers
    return instance.service in state.servers.units


def serves(instance: InstancePlan, state: HostState) -> bool:
    """Return whether it runs by either backend, with whatever spec."""
    unit, container = state.servers.units.get(instance.service), state.servers.containers.get(instance.service)
    return bool((unit and unit.active == "active") or (container and container.health == "healthy"))


def proven(instance: InstancePlan, state: HostState) -> bool:
    """Return whether the running server has responded to a prompt since its start, by its record."""
    unit, container = state.servers.units.get(instance.service), state.servers.containers.get(instance.service)
    runs = {each.spec for each in (unit, container) if each}
    serving = state.servers.serving.get(instance.service)
    return serving is None or runs.isdisjoint(serving.untried)


def raise_if_refused(instance: InstancePlan, state: HostState, *, retry: bool, instead: str = "") -> None:
    """Raise UserError if the declared version was tried and rolled back, unless no version serves or `retry` is set.

    `instead` is what serves in its place, if anything does.
    """
    refused = state.servers.serving.get(instance.service, ServingState()).refused
    served = serves(instance, state) and proven(instance, state)
    if refused and refused.tried == attempt_identity(instance) and not retry and (served or instead):
        serves_on = f"{instead} serves in place of {instance.name}" if instead else f"{instance.name} serves as before"
        raise UserError(
            f"{serves_on}: what is declared was tried on {refused.when}, and {refused.why}",
            "change the inventory, or `herd up --retry` to try the same again",
        )


def proof_prompt(instance: InstancePlan) -> dict[str, object]:
    """Return one prompt, and the conditions of its response. It contains no key."""
    # `drafts`: drafted tokens from which on some must have been accepted, 0 where nothing drafts. `floor`: tokens/s.
    drafts = instance.drafts and instance.endpoint.counts_drafts
    least = lowest_speed(instance.expect.decode if instance.expect else None) or 0
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


def speed_identity(instance: InstancePlan) -> str:
    """Return the identity of a speed: the same bytes of a model on the same GPUs."""
    # It is no part of what was tried.
    return digest(instance.model_path, [card.at for card in instance.server.cards])


def attempt_identity(instance: InstancePlan) -> str:
    """Return the identity of an attempt: the spec, the conditions of its response, and its least speed."""
    gate = instance.gate
    limits = (gate.model_dump(mode="json", exclude={"kld"}),) if gate else ()
    kld = (gate.kld,) if gate and gate.kld is not None else ()
    return digest(instance.spec, proof_prompt(instance), *limits, *kld)
