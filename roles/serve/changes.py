"""The changes of servers: why a server restarts, its downtime, and whether a gate measures the candidate first."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from roles.serve.onhost.model import ArgumentCheck, CandidateInput, ContainerCheck, RefusalInput, SwitchInput
from roles.serve.onhost.units import other_unit_error
from roles.serve.ports import held
from roles.serve.state import ServeState
from roles.serve.transaction import (
    UndeclaredServer,
    attempt_identity,
    proven,
    raise_if_refused,
    runs_elsewhere,
    serves,
    switch_input,
)

_START_SECONDS = 2

_BYTES_A_SECOND = 1e9
"""Of a model, as an SSD of a home rig gives them: a guess, until there is a start to go by."""


def shared_drop_in_error(instance: InstancePlan, drop_ins: Mapping[str, str]) -> UserError:
    """Return why a drop-in for many units keeps an instance from starting."""
    path, keys = next(iter(drop_ins.items()))
    return UserError(
        f"{path} sets {keys.replace(' ', ', ')} for {instance.service}.service, and for units that are not ours",
        "take that out of the file, or move it away; then `systemctl daemon-reload` and `herd up`, which goes on here",
    )


def manager_environment_error(instance: InstancePlan, names: str) -> UserError:
    """Return why variables that systemd gives to all its units keep an instance from starting."""
    return UserError(
        f"systemd gives {names.replace(' ', ', ')} to all its units, and so to {instance.service}.service",
        f"`systemctl unset-environment {names}`, or take it out of `DefaultEnvironment=` in /etc/systemd/system.conf; "
        "then `herd up`, which goes on here",
    )


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


def unit_changes(
    instance: InstancePlan,
    state: HostState,
    key: str | None,
    *,
    retry: bool = False,
    candidate: CandidateInput | None = None,
    going: Sequence[UndeclaredServer] = (),
    partners: Sequence[str] = (),
) -> list[Change]:
    """Apply one planned systemd instance.

    Raise UserError if another program's unit has its name, or if other tools' drop-ins for many units forbid it, or if
    it was tried and rolled back: that is tried again by `retry` alone, or where nothing serves.
    """
    files = instance_files(instance, key)
    changed = [file for file in files if file_differs(file, state)]
    unit = state.servers.units.get(instance.service)
    serving = state.servers.serving.get(instance.service, ServingState())
    if serving.other_unit:
        other = other_unit_error(instance.service, serving.other_unit)
        raise UserError(other.message, other.fix)
    if serving.shared:
        raise shared_drop_in_error(instance, serving.shared)
    if serving.given_to_all:
        raise manager_environment_error(instance, serving.given_to_all)
    raise_if_refused(instance, state, retry=retry, instead=_instead(instance, going, partners, state))
    restart = _unit_restart(instance, unit, changed, state)
    wrong = (*_unit_unsettled(unit, serving), *_left_by_interrupted_run(instance, state))
    reasons = (*restart, *wrong, *_unnamed(changed, restart, state))
    if not reasons:
        return []
    given = replace(
        _given(instance, state, files, changed, candidate, going, partners, restart=bool(restart), any_speed=retry),
        run=unit.run if unit else "",
        foreign=tuple(serving.foreign),
    )
    return [_switch(instance, given, unit is not None or given.moves, reasons, serving)]


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
    return have is not None and have.sha256 in {hashlib.sha256(text.encode()).hexdigest() for text in texts}


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


def _unnamed(changed: Sequence[TextFile], output: Sequence[str], state: HostState) -> list[str]:
    """Return differences of files that are no reason yet."""
    return [reason for reason in file_differences(changed, state) if reason not in output]


def project_changes(
    instance: InstancePlan,
    state: HostState,
    key: str | None,
    *,
    retry: bool = False,
    candidate: CandidateInput | None = None,
    going: Sequence[UndeclaredServer] = (),
    partners: Sequence[str] = (),
) -> list[Change]:
    """Apply one planned compose instance. Raise UserError if it was tried and rolled back, as above."""
    files = instance_files(instance, key)
    changed = [file for file in files if file_differs(file, state)]
    container = state.servers.containers.get(instance.service)
    raise_if_refused(instance, state, retry=retry, instead=_instead(instance, going, partners, state))
    restart = _project_restart(instance, container, changed, state)
    unsettled = (*_project_unsettled(container), *_left_by_interrupted_run(instance, state))
    reasons = (*restart, *unsettled, *_unnamed(changed, restart, state))
    if not reasons:
        return []
    recreate = bool(restart) or container is None or container.health == "unhealthy"
    given = replace(
        _given(instance, state, files, changed, candidate, going, partners, restart=recreate, any_speed=retry),
        paused=container is not None and container.status == "paused",
        run=container.run if container and not _half_made(instance, container, changed, state) else "",
    )
    serving = state.servers.serving.get(instance.service, ServingState())
    return [_switch(instance, given, container is not None or given.moves, reasons, serving)]


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


def _given(
    instance: InstancePlan,
    state: HostState,
    files: Sequence[TextFile],
    changed: Sequence[TextFile],
    candidate: CandidateInput | None,
    going: Sequence[UndeclaredServer],
    partners: Sequence[str],
    *,
    restart: bool,
    any_speed: bool,
) -> SwitchInput:
    """Return the input of a switch by either backend. `any_speed`: it may be slower than its model was."""
    new_text = instance.file in changed
    return replace(
        switch_input(
            instance,
            restart=restart,
            moves=runs_elsewhere(instance, state),
            any_speed=any_speed,
            candidate=candidate if _file_alone(instance, changed) else None,
            replaced=going,
            partners=partners,
        ),
        hangs=state.servers.serving.get(instance.service, ServingState()).hangs,
        arguments=argument_checks(instance) if new_text else (),
        container=container_check(instance) if new_text and instance.backend == "compose" else None,
        files=written_files(changed),
        unchanged=_hashes(files, but=changed),
    )


def _instead(
    instance: InstancePlan, going: Sequence[UndeclaredServer], partners: Sequence[str], state: HostState
) -> str:
    """Return the server that serves in the place of an instance; empty where none does."""
    others = () if serves(instance, state) else (name for name in partners if name in held(state))
    return next(iter([*(each.service for each in going if each.serves), *others]), "")


def _switch(
    instance: InstancePlan, given: SwitchInput, there: bool, reasons: tuple[str, ...], serving: ServingState
) -> Change:
    action: Action = "create" if not there else "restart" if given.restart else "start"
    how = RunVerb("serve.switch.switch", given, f"starting {instance.service}")
    own = instance.server.program if instance.backend == "systemd" else None
    values = command_changes(serving.arguments, own, instance.server.arguments)
    return Change(action, "server", instance.service, reasons, how, values=values)


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


def _file_alone(instance: InstancePlan, changed: Sequence[TextFile]) -> bool:
    """Return whether no key is written: two servers would read it from the same place."""
    return all(file is instance.file for file in changed)


def _hashes(files: Sequence[TextFile], *, but: Sequence[TextFile]) -> dict[str, str]:
    """Return the sha256 of each file, except for some, by its path."""
    return {file.path: hashlib.sha256(file.text.encode()).hexdigest() for file in files if file not in but}


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
