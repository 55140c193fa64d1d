"""What systemd or Docker is to run for one declared instance: its arguments, limits, health and endpoint."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.engines import DIALECTS, Dialect, Server, listens_on, on_host_network
from llamaherd.inventory.schema import Engine, Instance, Rig
from llamaherd.layout import KEYS, container_user, service_of, unit_user
from llamaherd.lock.apply import NotLockedError
from llamaherd.memory.facts import InstanceFacts
from llamaherd.memory.instances import experts_on_cpu
from llamaherd.plan import (
    BuildPlan,
    Endpoint,
    Health,
    ImagePlan,
    KeyFile,
    ModelPlan,
    ServerGpus,
    ServerLimits,
    ServerSpec,
    Stop,
)
from llamaherd.plan.devices import cdi_devices, gpu_refs, on_one_gpu, server_environment

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
    endpoint = plan_endpoint(declared, dialect)
    return ServerSpec(
        rig=rig.rig,
        name=name,
        model=declared.model,
        engine=declared.engine,
        service=service_of(name),
        user=container_user(name) if in_container else unit_user(name),
        image=(image.tag if image else engine.image) if in_container else None,
        program=_program(build, image),
        command=dialect.command,
        arguments=dialect.arguments(source),
        environment={**dialect.told(declared), **server_environment(rig, declared, build)},
        folders=tuple(dict.fromkeys(each.folder for each in models)),
        key=KeyFile(path=str(KEYS / name), variable=dialect.key_variable) if declared.api_key else None,
        gpus=_gpus(rig, declared, start_seconds) if declared.on else None,
        endpoint=endpoint,
        host_network=on_host_network(engine, declared),
        one_process=dialect.one_process,
        limits=_limits(declared, dialect),
        health=_health(engine, declared, endpoint, bool(image)),
        stop=Stop(signal=STOP_SIGNAL, seconds=dialect.stop_seconds),
        start_seconds=start_seconds,
    )


def plan_endpoint(declared: Instance, dialect: Dialect) -> Endpoint:
    """Return the address of an instance, and its paths."""
    return Endpoint(
        listen=declared.listen,
        port=declared.port,
        models=(declared.model,),
        streams=declared.parallel,
        key=declared.api_key,
        props_path=dialect.props_path,
        health_status=dialect.health_status,
        counts_drafts=dialect.counts_drafts,
    )


def _gpus(rig: Rig, declared: Instance, start_seconds: int) -> ServerGpus:
    at = gpu_refs(rig, declared)
    return ServerGpus(
        cdi=cdi_devices(rig, declared),
        at=at,
        any_one=bool(at) and on_one_gpu(declared),
        gate_seconds=min(GATE_SECONDS, start_seconds // 2),
        wsl=rig.host.wsl is not None,
    )


def _limits(declared: Instance, dialect: Dialect) -> ServerLimits:
    return ServerLimits(
        files=MAX_FILES,
        tasks=MAX_TASKS,
        oom_score=OOM_SCORE,
        cpus=declared.cpus,
        locks_memory=declared.mlock,
        scratch=dialect.scratch.size,
        scratch_runs=dialect.scratch.executable,
        shared_memory=dialect.scratch.shared,
    )


def _health(engine: Engine, declared: Instance, endpoint: Endpoint, ours: bool) -> Health:
    """Return the health probe, which runs inside: a container with its own network has its own loopback."""
    address = None if on_host_network(engine, declared) else "127.0.0.1"
    url = endpoint.url(endpoint.health_path, address=address)
    return Health(
        probe=(*_OUR_PROBE, url) if ours else DIALECTS[engine.kind].probe(url),
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
        raise NotLockedError(f"the header of model `{declared.model}`, which tells the experts of `{name}`,")
    moved = experts_on_cpu(declared, facts.header) if facts.header else None
    return Server(
        declared=declared,
        model_path=model.path,
        threads=facts.threads,
        listen=listens_on(engine, declared),
        overrides=(f"{moved}=CPU",) if moved else (),
        api_key_file=str(KEYS / name) if declared.api_key else None,
        flags=facts.flags,
        draft_path=drafting.path if drafting else None,
        mmproj_path=model.mmproj_path,
    )


def _program(build: BuildPlan | None, image: ImagePlan | None) -> str | None:
    """Return the path of the program; None for a pulled image, which starts by itself."""
    if image:
        return "/usr/local/bin/llama-server"
    return f"{build.folder}/bin/llama-server" if build else None


def _load_timeout(*models: ModelPlan) -> int:
    """Return the seconds for a cold load: a minute, and the models at 100 MB/s, which a hard disk manages.

    The plan contains no sizes of files of the controller: each counts as 24 GB.
    """
    files = [file for model in models for file in model.files]
    return 60 + sum(24 * 10**9 if file.size is None else file.size for file in files) // 100_000_000
