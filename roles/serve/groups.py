"""From the instances of a group to its one server: a unit, and the preset file that has what each of them is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from llamaherd.backends import definition
from llamaherd.diagnostics.findings import UserError
from llamaherd.engines import flags_of, listens_on
from llamaherd.engines.router import NotRoutedError, preset, router_arguments
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.layout import KEYS, PRESETS, service_of, unit_user
from llamaherd.plan import (
    BuildPlan,
    Estimate,
    Grows,
    Holds,
    InstancePlan,
    KeyFile,
    MemberPlan,
    ModelPlan,
    ServerSpec,
    TextFile,
    digest,
)
from llamaherd.role.held import estimated
from roles.serve.spec import projectors_of, server_spec, told_server


def plan_group(
    rig: Rig,
    group: str,
    names: Sequence[str],
    build: BuildPlan | None,
    models: Mapping[str, ModelPlan],
    headers: Mapping[str, Header],
) -> InstancePlan:
    """The server of a group, whose first instance is loaded first. Raises NotLockedError and UserError."""
    first = rig.instances[names[0]]
    alone = [_alone(rig, name, build, models, headers) for name in names]
    members = tuple(member for member, _ in alone)
    text = _preset(rig, group, members)
    # Named by its hash: what served before has its own for the way back, and another file is another command line.
    file = TextFile(path=str(PRESETS / f"{group}-{digest(text)}.ini"), text=text)
    server = _in_front(rig, group, [server for _, server in alone], file.path)
    spec, unit = definition("systemd", server)
    return InstancePlan(
        name=group,
        backend="systemd",
        engine=first.engine,
        build=build.id if build else None,
        model=first.model,
        model_folder=members[0].model_folder,
        model_path=members[0].model_path,
        context=first.context,
        mtp=first.draft.mtp or 0 if first.draft else 0,
        draft_folder=members[0].draft_folder,
        threads=members[0].threads,
        server=server,
        expect=first.expect,
        drain=max(rig.instances[name].drain for name in names),
        memory=largest([each.memory for each in members]),
        spec=spec,
        file=unit,
        members=members,
        preset=file,
    )


def _preset(rig: Rig, group: str, members: Sequence[MemberPlan]) -> str:
    """The preset file. Raises UserError for what only the lock tells: paths of models."""
    engine = rig.engines[rig.instances[members[0].name].engine]
    try:
        return preset([(each.model, each.arguments) for each in members], flags_of(engine), rig.rig, group)
    except NotRoutedError as error:
        raise UserError(f"group `{group}` of rig {rig.rig} has no preset file: {error}", "rename the file") from None


def _alone(
    rig: Rig, name: str, build: BuildPlan | None, models: Mapping[str, ModelPlan], headers: Mapping[str, Header]
) -> tuple[MemberPlan, ServerSpec]:
    """An instance of a group, and the server that it would be by itself."""
    declared = rig.instances[name]
    model = models[declared.model]
    drafting = models[declared.draft.model] if declared.draft and declared.draft.model else None
    key = str(KEYS / str(declared.group)) if declared.api_key else None
    told = replace(told_server(rig, name, model, drafting, headers), api_key_file=key)
    server = server_spec(rig, name, told, build, None, [model, *([drafting] if drafting else [])])
    member = MemberPlan(
        name=name,
        model=declared.model,
        model_folder=model.folder,
        model_path=model.path,
        draft_folder=drafting.folder if drafting else None,
        drafts=declared.draft is not None,
        mtp=declared.draft.mtp or 0 if declared.draft else 0,
        context=declared.context,
        slots=declared.parallel,
        threads=told.threads,
        arguments=server.arguments,
        expect=declared.expect,
        memory=estimated(rig, declared, headers, projectors_of(models)),
    )
    return member, server


def _in_front(rig: Rig, group: str, servers: Sequence[ServerSpec], preset_path: str) -> ServerSpec:
    """The server that starts the others, which have its user, its GPUs, its walls and its environment."""
    first = servers[0]
    declared = rig.instances[first.name]
    key = KeyFile(path=str(KEYS / group)) if declared.api_key else None
    listen = listens_on(rig.engines[declared.engine], declared)
    endpoint = first.endpoint.model_copy(
        update={
            "models": tuple(each.model for each in servers),
            # Which of them is loaded, nobody knows who sends a request: none gets more than it has slots.
            "streams": min(each.endpoint.streams for each in servers),
            "swaps": True,
        }
    )
    locks = any(each.limits.locks_memory for each in servers)
    return first.model_copy(
        update={
            "name": group,
            "service": service_of(group),
            "user": unit_user(group),
            "arguments": router_arguments(preset_path, listen, declared.port, key.path if key else None),
            "folders": tuple(dict.fromkeys(folder for each in servers for folder in each.folders)),
            "key": key,
            "endpoint": endpoint,
            "one_process": False,
            "limits": first.limits.model_copy(update={"locks_memory": locks}),
            "start_seconds": max(each.start_seconds for each in servers),
        }
    )


def largest(estimates: Sequence[Estimate | None]) -> Estimate | None:
    """What a group holds of each place: as much as the largest of its instances there, for one is loaded at a time.

    None where one of them is not known.
    """
    known = [each for each in estimates if each is not None]
    if len(known) < len(estimates):
        return None
    holds: dict[str, Holds] = {}
    for each in (held for estimate in known for held in estimate.holds):
        if each.where not in holds or each.total > holds[each.where].total:
            holds[each.where] = each
    residents = [each.resident for each in known if each.resident is not None]
    return Estimate(
        source="arithmetic",
        holds=tuple(holds.values()),
        doubts=tuple(dict.fromkeys(doubt for each in known for doubt in each.doubts)),
        grows=_grows(each.grows for each in known),
        resident=max(residents) if len(residents) == len(known) else None,
    )


def _grows(every: Iterable[Grows]) -> Grows:
    known = list(every)
    prompts = [each.prompts for each in known]
    most = None if None in prompts else max(each or 0 for each in prompts)
    return Grows(prompts=most, checkpoints=max(each.checkpoints for each in known))
