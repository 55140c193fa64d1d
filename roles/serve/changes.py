"""The changes of servers: why a server restarts, its downtime, and whether a gate measures the candidate first."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState
from llamaherd.onhost.servers import ContainerState, ServingState, UnitState
from llamaherd.plan import InstancePlan, Plan, TextFile
from llamaherd.plan.backends import UNIT_RESTART, UNIT_RESTART_HASHED, container_limits, pull_policy
from llamaherd.role.changes import (
    Action,
    Change,
    Downtime,
    Gated,
    RunVerb,
    file_differences,
    file_differs,
    other_settings,
    text_differs,
    written_files,
)
from llamaherd.role.report import unit_problems
from llamaherd.role.values import command_changes
from roles.serve.onhost.model import (
    ArgumentCheck,
    CandidateInput,
    ContainerCheck,
    RefusalInput,
    ReplacedServer,
    SwitchInput,
)
from roles.serve.onhost.units import other_unit_error
from roles.serve.ports import held
from roles.serve.state import ServeState
from roles.serve.transaction import (
    UndeclaredServer,
    attempt_identity,
    gpu_needs,
    holds,
    proven,
    raise_if_refused,
    ram_need,
    room_with_old,
    runs_elsewhere,
    server_input,
    serves,
)

_START_SECONDS = 2

_BYTES_A_SECOND = 1e9
"""Of a model, as an SSD of a home rig gives them: a guess, until there is a start to go by."""


def container_check(instance: InstancePlan) -> ContainerCheck:
    """Return the check of a new Compose file.

    The arguments of an engine that was built on the host are checked by its build. An image that starts another program
    than llama-server cannot check its arguments quickly.
    """
    server, image = instance.server, instance.server.image or ""
    return ContainerCheck(
        text=instance.file.text,
        image=image,
        pulled=pull_policy(image) == "missing",
        reads_arguments=instance.build is None and not server.command,
        user=server.user,
        folders=tuple(server.folders),
        key_file=instance.key_file or "",
        environment=dict(server.environment),
        arguments=tuple(server.arguments),
    )


def server_changes(
    instance: InstancePlan,
    state: HostState,
    key: str | None,
    *,
    retry: bool = False,
    candidate: CandidateInput | None = None,
    going: Sequence[UndeclaredServer] = (),
    partners: Sequence[str] = (),
) -> list[Change]:
    """Apply one planned server. `partners` are the services that are stopped before, as they change together with it.

    Raise UserError if another program's unit has its name, or if other tools' drop-ins for many units forbid it, or if
    it was tried and rolled back: that is tried again by `retry` alone, or where nothing serves.
    """
    files = instance_files(instance, key)
    changed = [file for file in files if file_differs(file, state)]
    unit, container = state.servers.units.get(instance.service), state.servers.containers.get(instance.service)
    serving, is_unit = state.servers.serving.get(instance.service, ServingState()), instance.backend == "systemd"
    if is_unit:
        _raise_if_forbidden(instance, serving)
    raise_if_refused(instance, state, retry=retry, instead=_instead(instance, going, partners, state))
    if is_unit:
        restart, unsettled = _unit_restart(instance, unit, changed, state), _unit_unsettled(unit, serving)
        anew, run = bool(restart), unit.run if unit else ""
    else:
        restart, unsettled = _project_restart(instance, container, changed, state), _project_unsettled(container)
        anew = bool(restart) or container is None or container.health == "unhealthy"
        run = container.run if container and not _half_made(instance, container, changed, state) else ""
    named = (*restart, *unsettled, *_left_by_interrupted_run(instance, state))
    reasons = (*named, *(reason for reason in file_differences(changed, state) if reason not in restart))
    if not reasons:
        return []
    new_text = instance.file in changed
    given = SwitchInput(
        server=server_input(instance),
        restart=anew,
        run=run,
        moves=runs_elsewhere(instance, state),
        files=written_files(changed),
        unchanged={file.path: _sha256(file.text) for file in files if file not in changed},
        foreign=tuple(serving.foreign),
        hangs=serving.hangs,
        paused=not is_unit and container is not None and container.status == "paused",
        arguments=argument_checks(instance) if new_text else (),
        container=container_check(instance) if new_text and not is_unit else None,
        needs_gpus=tuple(gpu_needs(instance)),
        needs_ram=ram_need(instance),
        leaving=(*(each.service for each in going), *partners),
        any_speed=retry,
        holds="\t".join((instance.spec, *(f"{place}={size}" for place, size in holds(instance).items()))),
        reads="\t".join(instance.server.folders),
        gpus=tuple(card.at for card in instance.server.cards),
        one_gpu=instance.server.one_card,
        # None where a key is written: two servers would read it from the same place.
        candidate=candidate if all(file is instance.file for file in changed) else None,
        replaced=tuple(ReplacedServer(each.name, each.service, each.port) for each in going),
        replaced_room=room_with_old(instance),
    )
    there = (unit if is_unit else container) is not None or given.moves
    action: Action = "create" if not there else "restart" if given.restart else "start"
    how = RunVerb("serve.switch.switch", given, f"starting {instance.service}")
    own = instance.server.program if is_unit else None
    values = command_changes(serving.arguments, own, instance.server.arguments)
    return [Change(action, "server", instance.service, reasons, how, values=values)]


def _raise_if_forbidden(instance: InstancePlan, serving: ServingState) -> None:
    """Raise UserError if what others wrote keeps a unit from starting as it is planned."""
    if serving.other_unit:
        other = other_unit_error(instance.service, serving.other_unit)
        raise UserError(other.message, other.fix)
    if serving.shared:
        path, keys = next(iter(serving.shared.items()))
        raise UserError(
            f"{path} sets {keys.replace(' ', ', ')} for {instance.service}.service, and for units that are not ours",
            "take that out of the file, or move it away; then `systemctl daemon-reload` and `herd up`, "
            "which goes on here",
        )
    if names := serving.given_to_all:
        raise UserError(
            f"systemd gives {names.replace(' ', ', ')} to all its units, and so to {instance.service}.service",
            f"`systemctl unset-environment {names}`, or take it out of `DefaultEnvironment=` in "
            "/etc/systemd/system.conf; then `herd up`, which goes on here",
        )


def _unit_restart(
    instance: InstancePlan, unit: UnitState | None, changed: Sequence[TextFile], state: HostState
) -> list[str]:
    """Return why the process must restart."""
    if unit is None:
        return ["it runs in a container until now" if runs_elsewhere(instance, state) else "there is no such unit"]
    why = [
        f"{file.path} has another text"
        for file in changed
        if text_differs(file, state) and not _policy_alone(file, state)
    ]
    if unit.spec != instance.spec:
        why.append(other_settings(unit.spec, instance.spec) if unit.spec else "nothing of ours runs")
    return [*why, *outdated(instance, state)]


def _policy_alone(file: TextFile, state: HostState) -> bool:
    """Return whether a unit differs only in its restart policy, which earlier versions wrote differently."""
    have, policies = state.files.get(file.path), (f"\nRestart={UNIT_RESTART}\n", f"\nRestart={UNIT_RESTART_HASHED}\n")
    texts = (file.text.replace(one, another) for one, another in (policies, reversed(policies)))
    return have is not None and have.sha256 in {_sha256(text) for text in texts}


def _unit_unsettled(unit: UnitState | None, serving: ServingState) -> list[str]:
    """Return other problems of the unit."""
    why = [f"{path} changes it, and is not declared" for path in serving.foreign]
    if unit and unit.active != "active":
        why.append(f"it is {unit.active}")
    return [*why, *unit_problems(unit)]


def _left_by_interrupted_run(instance: InstancePlan, state: HostState) -> list[str]:
    """Return what an interrupted run has left: an untried server, or a candidate."""
    serving = state.servers.serving.get(instance.service, ServingState())
    why = ["a candidate still runs"] if serving.beside else []
    if serves(instance, state) and not proven(instance, state):
        why.append("it has not responded to a prompt yet")
    return why


def _project_restart(
    instance: InstancePlan, container: ContainerState | None, changed: Sequence[TextFile], state: HostState
) -> list[str]:
    """Return why the container must be created anew."""
    if container is None:
        return ["it runs as a unit until now" if runs_elsewhere(instance, state) else "there is no such container"]
    why = [f"{file.path} has another text" for file in changed if text_differs(file, state)]
    if container.spec != instance.spec:
        why.append(other_settings(container.spec, instance.spec))
    if container.limits != container_limits(instance.server):
        why.append("its limits are not the declared ones")
    if instance.service in ServeState.of(state).off_gpus:
        why.append("it is not on its GPUs")
    return [*why, *outdated(instance, state)]


def _project_unsettled(container: ContainerState | None) -> list[str]:
    if container is None or (container.status, container.health) == ("running", "healthy"):
        return []
    return [f"it is {container.status}, {container.health or 'without a health check'}"]


def _half_made(
    instance: InstancePlan, container: ContainerState, changed: Sequence[TextFile], state: HostState
) -> bool:
    """Return whether another run may be creating the container: only its record is missing."""
    limited = container.limits != container_limits(instance.server)
    right = container.spec == instance.spec and not limited and instance.service not in ServeState.of(state).off_gpus
    return right and not any(text_differs(file, state) for file in changed) and not _wrong_itself(instance, state)


def _instead(
    instance: InstancePlan, going: Sequence[UndeclaredServer], partners: Sequence[str], state: HostState
) -> str:
    """Return the server that serves in the place of an instance; empty where none does."""
    others = () if serves(instance, state) else (name for name in partners if name in held(state))
    return next(iter([*(each.service for each in going if each.serves), *others]), "")


def serving_instances(plan: Plan, state: HostState) -> list[str]:
    """Return the instances that serve on their own host."""

    def serves(instance: InstancePlan) -> bool:
        unit, container = state.servers.units.get(instance.service), state.servers.containers.get(instance.service)
        if instance.backend == "systemd":
            return unit is not None and unit.active == "active"
        return container is not None and (container.status, container.health) == ("running", "healthy")

    return [instance.name for instance in plan.instances if serves(instance)]


def outdated(instance: InstancePlan, state: HostState) -> list[str]:
    """Return why the running process differs from what would start now, or must restart anyway."""
    serving = state.servers.serving.get(instance.service, ServingState())
    why = [f"{path} has changed since it was started" for path in serving.changed]
    return [*why, *_wrong_itself(instance, state)]


def _wrong_itself(instance: InstancePlan, state: HostState) -> list[str]:
    """Return problems of the running process, whatever is recorded of its start."""
    serving = state.servers.serving.get(instance.service, ServingState())
    why = []
    if serving.argv not in ("", instance.command_line):
        why.append("its arguments are not the declared ones")
    if serving.replaced:
        why.append(f"it runs another program than {serving.replaced}")
    if serving.user:
        why.append(f"it runs as user {serving.user}, not as {instance.server.user}")
    if serving.groups:
        why.append(f"it is in groups of others: {serving.groups}")
    if serving.variables:
        why.append(f"it has other variables than the declared ones: {serving.variables}")
    if serving.hangs:
        why.append(serving.hangs)
    return why


def instance_files(instance: InstancePlan, key: str | None) -> list[TextFile]:
    """Return the unit or project, and the key file, which only its own server can read."""
    files = [instance.file]
    if instance.key_file and key is not None:
        files.append(TextFile(path=instance.key_file, text=f"{key}\n", mode="0400", owner=instance.server.user))
    return files


def argument_checks(instance: InstancePlan) -> tuple[ArgumentCheck, ...]:
    """Return what the built engine is to read before anything is stopped; of a group, the arguments of all."""
    if not instance.build_folder:
        return ()
    program = f"{instance.build_folder}/bin/llama-server"
    every = (instance.server.arguments, *(each.arguments for each in instance.members))
    return tuple(ArgumentCheck(program, tuple(each), instance.server.user) for each in every)


def gated_switch(instance: InstancePlan, state: HostState, key: str | None) -> Gated | None:
    """Return what to measure before this server starts; None without a gate, or without a server to compare."""
    # A key that changes as well keeps its speed from being measured: both would be given the one that the host has.
    unit = state.servers.units.get(instance.service)
    if instance.gate is None or unit is None or not unit.spec or unit.spec == instance.spec:
        return None
    speed = not _gets_a_key(instance, state, key)
    if not (serves(instance, state) and proven(instance, state)) or not (speed or instance.gate.kld is not None):
        return None
    return Gated(instance, unit.spec, partial(_record_refusal, instance), speed=speed)


def _gets_a_key(instance: InstancePlan, state: HostState, key: str | None) -> bool:
    return any(file_differs(file, state) for file in instance_files(instance, key) if file is not instance.file)


def _record_refusal(instance: InstancePlan, why: str) -> RunVerb:
    return RunVerb("serve.removal.refuse", RefusalInput(instance.service, attempt_identity(instance), why))


def estimate_downtime(
    plan: Plan, instance: InstancePlan, state: HostState, beside: bool = False, gated: Gated | None = None
) -> Downtime | None:
    """Return the downtime by the last start, if it read the same models, else by their bytes; None if none serves."""
    # `beside`: the new server may start next to the running one; whether there is room is known at its host alone, when
    # it is done. `gated`: it is measured before.
    if not serves(instance, state):
        return None
    gate = gated.instance.gate.seconds if gated and gated.instance.gate else 0
    last = state.servers.serving.get(instance.service, ServingState()).loaded
    if last and set(last.folders) == set(instance.server.folders):
        return Downtime(last.seconds, measured=True, beside=beside, gate=gate)
    files = [(model, file) for model in plan.models if model.folder in instance.server.folders for file in model.files]
    there = (state.models.stored.get(model.folder, {}).get(file.name, (file.size or 0, 0))[0] for model, file in files)
    return Downtime(_START_SECONDS + sum(there) / _BYTES_A_SECOND, measured=False, beside=beside, gate=gate)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
