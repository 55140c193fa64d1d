"""Plan the servers of instances and groups: their specs, gates, images, and the programs of their units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath

from llamaherd.diagnostics.findings import UserError
from llamaherd.engines import DIALECTS, TRAITS, Dialect, Server, flags_of, has_own_network, listens_on
from llamaherd.engines.llama_cpp import NotRoutedError, router_arguments, router_preset
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.key_flags import key_arguments
from llamaherd.layout import KEYS, LIBEXEC, PRESETS, container_user, service_of, unit_user
from llamaherd.lock.apply import NotLockedError
from llamaherd.memory.divergence import readings, words_as_served
from llamaherd.memory.facts import InstanceFacts, RigFacts
from llamaherd.memory.instances import experts_on_cpu
from llamaherd.plan import (
    BuildPlan,
    DivergencePlan,
    Endpoint,
    Estimate,
    GatePlan,
    Grows,
    Health,
    Holds,
    ImagePlan,
    InstancePlan,
    KeyFile,
    MemberPlan,
    ModelPlan,
    ServerLimits,
    ServerSpec,
    Stop,
    TextFile,
    digest,
)
from llamaherd.plan.backends import server_definition
from llamaherd.plan.devices import estimate_memory, server_environment, server_gpus
from llamaherd.reference.packages import IMAGE_PACKAGES
from llamaherd.resources import DOCKERFILE
from llamaherd.role.changes import Change, RunVerb
from llamaherd.role.role import Planning, PlanPart
from roles.serve.onhost.model import ImageInput

GATE_SECONDS = 120
"""How long a unit waits for its GPUs, if its model has twice that to load: each command of a unit's start may take
TimeoutStartSec=."""

MAX_FILES = 16384
"""No more than a host in a container may give away, where Docker fails instead of taking less (here: 20,000)."""
MAX_TASKS = 4096
"""llama-server has up to 1,024 threads for connections besides those that compute (server-http.cpp, ThreadPool)."""
OOM_SCORE = 500
"""A server dies before sshd does when memory runs out."""
STOP_SIGNAL = "SIGINT"
_OUR_PROBE = ("/usr/bin/busybox", "wget", "-q", "-O", "/dev/null")
"""The program that checks health in images that are made here."""
HEALTH_SECONDS = 30
"""Between two questions of a container's health, and a second while it starts."""


def server_spec(
    rig: Rig,
    name: str,
    source: Server,
    build: BuildPlan | None,
    image: ImagePlan | None,
    models: Sequence[ModelPlan],
) -> ServerSpec:
    """Return the server that systemd or Docker runs."""
    declared = rig.instances[name]
    engine = rig.engines[declared.engine]
    dialect = DIALECTS[engine.kind]
    in_container = declared.backend == "compose"
    start_seconds = declared.load_timeout or _load_timeout(*models)
    endpoint = Endpoint(
        listen=declared.listen,
        port=declared.port,
        models=(declared.model,),
        streams=declared.parallel,
        key=declared.api_key,
        props_path=dialect.props_path,
        health_status=dialect.health_status,
        counts_drafts=dialect.counts_drafts,
        unloads=declared.idle is not None,
    )
    host_network = in_container and not has_own_network(engine, declared)
    return ServerSpec(
        rig=rig.rig,
        name=name,
        model=declared.model,
        engine=declared.engine,
        service=service_of(name),
        user=container_user(name) if in_container else unit_user(name),
        image=(image.tag if image else engine.image) if in_container else None,
        # A pulled image starts by itself.
        program="/usr/local/bin/llama-server" if image else f"{build.folder}/bin/llama-server" if build else None,
        command=dialect.command,
        arguments=key_arguments(engine.kind, source),
        environment={**dialect.variables(declared), **server_environment(rig, declared, build)},
        folders=tuple(dict.fromkeys(each.folder for each in models)),
        mounts=(rig.store.path,) if rig.store.mount else (),
        key=KeyFile(path=str(KEYS / name), variable=dialect.key_variable) if declared.api_key else None,
        gpus=server_gpus(rig, declared, min(GATE_SECONDS, start_seconds // 2)) if declared.on else None,
        endpoint=endpoint,
        host_network=host_network,
        one_process=dialect.one_process,
        limits=ServerLimits(
            files=MAX_FILES,
            tasks=MAX_TASKS,
            oom_score=OOM_SCORE,
            cpus=declared.cpus,
            locks_memory=declared.mlock,
            scratch=dialect.scratch.size,
            scratch_runs=dialect.scratch.executable,
            shared_memory=dialect.scratch.shared,
        ),
        health=_health(dialect, endpoint, host_network=host_network, ours=bool(image)),
        stop=Stop(signal=STOP_SIGNAL, seconds=dialect.stop_seconds),
        start_seconds=start_seconds,
    )


def _health(dialect: Dialect, endpoint: Endpoint, *, host_network: bool, ours: bool) -> Health:
    """Return the health probe, which runs inside: a container with its own network has its own loopback."""
    url = endpoint.url(endpoint.health_path, address=None if host_network else "127.0.0.1")
    return Health(
        probe=(*_OUR_PROBE, url) if ours else dialect.probe(url),
        interval=HEALTH_SECONDS,
        timeout=5,
        retries=3,
        start_interval=1,
    )


def dialect_input(rig: Rig, name: str, facts: InstanceFacts, model: ModelPlan, drafting: ModelPlan | None) -> Server:
    """Return the input of a dialect for an instance. Raises NotLockedError."""
    declared = rig.instances[name]
    engine = rig.engines[declared.engine]
    if facts.header is None and declared.moves_experts:
        raise NotLockedError(f"the header of model `{declared.model}`, which lists the experts of `{name}`,")
    moved = experts_on_cpu(declared, facts.header) if facts.header else None
    return Server(
        declared=declared,
        model_path=model.path,
        threads=facts.threads,
        listen=listens_on(engine, declared),
        overrides=(f"{moved}=CPU",) if moved else (),
        api_key_file=str(KEYS / name) if declared.api_key else None,
        flags=facts.flags or flags_of(engine),
        draft_path=drafting.path if drafting else None,
        mmproj_path=model.mmproj_path,
    )


def _load_timeout(*models: ModelPlan) -> int:
    """Return the seconds for a cold load: a minute, and the models at 100 MB/s, which a hard disk manages.

    The plan contains no sizes of files of the controller: each counts as 24 GB.
    """
    files = [file for model in models for file in model.files]
    return 60 + sum(24 * 10**9 if file.size is None else file.size for file in files) // 100_000_000


def plan_image(rig: Rig, build: BuildPlan) -> ImagePlan:
    """Return the image of a build. `busybox` probes health inside; the other packages are the server's libraries."""
    packages = (
        "base-files",
        "busybox",
        "ca-certificates",
        "libgomp1",
        "libstdc++6",
        *IMAGE_PACKAGES[rig.host.os],
    )
    dockerfile = DOCKERFILE.read_text(encoding="utf-8")
    base = f"llamaherd/base:{rig.host.os}-{digest(packages)}"
    return ImagePlan(
        tag=f"llamaherd/engine:{build.id}-{digest(base, dockerfile)[:6]}",
        build=build.id,
        base=base,
        base_packages=packages,
        dockerfile=dockerfile,
    )


def image_changes(image: ImagePlan, state: HostState) -> list[Change]:
    """Return the change that makes the image of a build, if the host lacks it."""
    if image.tag in state.servers.images:
        return []
    given = ImageInput(image.tag, image.base, image.base_packages, image.build, image.dockerfile, image.record)
    how = RunVerb("serve.image.make", given, f"making image {image.tag}")
    return [Change("create", "image", image.tag, ("it is not there, or was made as another",), how)]


GATE_BUDGET = 20 * 60
"""Seconds for which a gate measures by default."""
_MOST_READINGS = 3
"""Of reading the text, as many are tried where there is no room for the one before."""


def plan_divergence(facts: RigFacts, name: str, server: ServerSpec, build: BuildPlan | None) -> DivergencePlan | None:
    """Return how an instance's output is compared; None if the tool for it was not built with its engine."""
    known = facts.instances[name]
    flags, tool = known.flags, TRAITS[facts.rig.engines[known.instance.engine].kind].divergence
    if flags is None or tool is None or server.program is None or build is None or tool not in build.targets:
        return None
    says, more = words_as_served(flags, server.arguments)
    return DivergencePlan(
        tool=str(PurePosixPath(server.program).with_name(tool)),
        says=says,
        more=more,
        vocabulary=known.header.vocabulary if known.header else 0,
        readings=tuple(islice(readings(facts, name, known.instance), _MOST_READINGS)),
    )


def plan_group(
    rig: Rig,
    facts: RigFacts,
    group: str,
    build: BuildPlan | None,
    models: Mapping[str, ModelPlan],
) -> InstancePlan:
    """Return the server of a group, which loads its first instance first. Raises NotLockedError and UserError."""
    names = rig.servers[group]
    first = rig.instances[names[0]]
    alone = [_plan_member(rig, facts, name, build, models) for name in names]
    members = tuple(member for member, _ in alone)
    text = _preset(rig, group, members)
    # Named by its hash: what served before has its own for the way back, and another file is another command line.
    file = TextFile(path=str(PRESETS / f"{group}-{digest(text)}.ini"), text=text)
    server = _router_spec(rig, group, [server for _, server in alone], file.path)
    spec, unit = server_definition("systemd", server)
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
        memory=largest_estimate([each.memory for each in members]),
        spec=spec,
        file=unit,
        members=members,
        preset=file,
    )


def _preset(rig: Rig, group: str, members: Sequence[MemberPlan]) -> str:
    """Return the preset file. Raises UserError for paths of models, which only the lock contains."""
    engine = rig.engines[rig.instances[members[0].name].engine]
    try:
        return router_preset([(each.model, each.arguments) for each in members], flags_of(engine), rig.rig, group)
    except NotRoutedError as error:
        raise UserError(f"group `{group}` of rig {rig.rig} has no preset file: {error}", "rename the file") from None


def _plan_member(
    rig: Rig, facts: RigFacts, name: str, build: BuildPlan | None, models: Mapping[str, ModelPlan]
) -> tuple[MemberPlan, ServerSpec]:
    """Return an instance of a group, and its server without the group."""
    declared = rig.instances[name]
    model = models[declared.model]
    drafting = models[declared.draft.model] if declared.draft and declared.draft.model else None
    key = str(KEYS / str(declared.group)) if declared.api_key else None
    known = facts.instances[name]
    source = replace(dialect_input(rig, name, known, model, drafting), api_key_file=key)
    server = server_spec(rig, name, source, build, None, [model, *([drafting] if drafting else [])])
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
        threads=source.threads,
        arguments=server.arguments,
        expect=declared.expect,
        memory=estimate_memory(rig, known.memory) if known.memory else None,
    )
    return member, server


def _router_spec(rig: Rig, group: str, servers: Sequence[ServerSpec], preset_path: str) -> ServerSpec:
    """Return the server that starts the servers of a group, with its user, GPUs, sandbox and environment."""
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
            "unloads": any(each.endpoint.unloads for each in servers),
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


def largest_estimate(estimates: Sequence[Estimate | None]) -> Estimate | None:
    """Return the memory of a group: in each place, that of its largest instance, as one is loaded at a time.

    None if one of them is unknown.
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


def plan(planning: Planning) -> PlanPart:
    """Return all servers, the images of containers, and the programs of units. Raises NotLockedError."""
    rig, facts = planning.rig, planning.facts
    builds = {build.engine: build for build in planning.planned["builds"]}
    models = {model.name: model for model in planning.planned["models"]}
    images = {
        instance.engine: plan_image(rig, build)
        for _, instance in sorted(rig.instances.items())
        if instance.backend == "compose" and (build := builds.get(instance.engine))
    }
    instances = tuple(
        plan_group(rig, facts, server, builds.get(rig.instances[names[0]].engine), models)
        if rig.instances[names[0]].group
        else plan_instance(rig, facts, server, builds, images, models)
        for server, names in sorted(rig.servers.items())
    )
    return PlanPart(
        packages=frozenset({"mmdebstrap"} if images else ()),
        files=(*_unit_programs(instances), *(each.preset for each in instances if each.preset)),
        fields={"images": tuple(images.values()), "instances": instances},
    )


def _unit_programs(instances: Sequence[InstancePlan]) -> Iterator[TextFile]:
    """Yield the programs that units run in addition to the server, and the program that checks a container's GPUs."""
    grouped = any(each.members for each in instances)
    on_gpus = any(each.server.cards for each in instances)
    modules = {
        "wait-healthy": "wait_programs.py",
        "started": "started_program.py",
        **({"wait-loaded": "wait_programs.py"} if grouped else {}),
        **({"gpu-gate": "gpu_programs.py", "gpu-check": "gpu_programs.py"} if on_gpus else {}),
    }
    for name, module in modules.items():
        # The text of a module that is shipped alone.
        text = (Path(__file__).parent / "onhost" / module).read_text(encoding="utf-8")
        yield TextFile(path=str(LIBEXEC / name), text=text, mode="0755")


def plan_instance(
    rig: Rig,
    facts: RigFacts,
    name: str,
    builds: Mapping[str, BuildPlan],
    images: Mapping[str, ImagePlan],
    models: Mapping[str, ModelPlan],
) -> InstancePlan:
    """Return one server as it must run; builds and images are by name of engine. Raises NotLockedError."""
    declared, known = rig.instances[name], facts.instances[name]
    build = builds.get(declared.engine)
    image = images.get(declared.engine) if declared.backend == "compose" else None
    model = models[declared.model]
    drafting = models[declared.draft.model] if declared.draft and declared.draft.model else None
    source = dialect_input(rig, name, known, model, drafting)
    server = server_spec(rig, name, source, build, image, [model, *([drafting] if drafting else [])])
    spec, file = server_definition(declared.backend, server)
    gate = declared.gate if known.task == "chat" else None
    return InstancePlan(
        name=name,
        backend=declared.backend,
        engine=declared.engine,
        build=build.id if build else None,
        model=declared.model,
        model_folder=model.folder,
        model_path=model.path,
        context=declared.context,
        mtp=declared.draft.mtp or 0 if declared.draft else 0,
        draft_folder=drafting.folder if drafting else None,
        threads=source.threads,
        server=server,
        expect=declared.expect,
        gate=GatePlan(decode=gate.decode, prefill=gate.prefill, kld=gate.kld, seconds=gate.budget or GATE_BUDGET)
        if gate
        else None,
        divergence=plan_divergence(facts, name, server, build),
        drain=declared.drain,
        memory=estimate_memory(rig, known.memory) if known.memory else None,
        spec=spec,
        file=file,
    )
