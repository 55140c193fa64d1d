"""From a rig and its lock to exactly what must be true on the host.

Pure: no network, no clock, no environment, no pyinfra. The same rig and lock give the same plan, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from llamaherd.distributions import BUILD_PACKAGES, COMPOSE_PACKAGES, IMAGE_PACKAGES
from llamaherd.engines import DIALECTS, Server
from llamaherd.fleet import Engine, Instance, Model, Rig
from llamaherd.layout import BUILD_PATH, CONTAINER_UID, KEYS, LIBEXEC, PROJECTS, STATE, UNITS
from llamaherd.lock import Lock
from llamaherd.planned import BuildPlan, ImagePlan, InstancePlan, ModelFile, ModelPlan, Plan, TextFile
from llamaherd.render import render, unit_quote

RECIPE = 1
"""Counts up when the same options would give another build; it is part of every build id."""

# Measured: sources, objects and binaries of a CPU build, and of a CUDA build for one architecture.
_BUILD_BYTES = 2 * 10**9
_CUDA_BUILD_BYTES = 8 * 10**9


class NotLockedError(Exception):
    """A model's hub name has not been resolved to a commit and hashes yet."""

    def __init__(self, model: str, declared: Model) -> None:
        self.model = model
        super().__init__(f"model `{model}` ({declared.hf} at {declared.revision}, {declared.files}) is not in the lock")


def plan(rig: Rig, lock: Lock) -> Plan:
    """What must be true on `rig`'s host. Raises NotLockedError."""
    used_engines = {instance.engine for instance in rig.instances.values()}
    used_models = {instance.model for instance in rig.instances.values()}
    builds = {name: _build(rig, name, rig.engines[name]) for name in sorted(used_engines)}
    models = {name: _model(name, rig.models[name], lock) for name in sorted(used_models)}
    images: dict[str, ImagePlan] = {}
    instances = []
    for name, declared in sorted(rig.instances.items()):
        build = builds[declared.engine]
        if declared.backend == "compose" and build:
            image = _image(rig, build)
            images[image.tag] = image
        instances.append(_instance(rig, name, declared, build, models[declared.model]))
    made = tuple(build for build in builds.values() if build)
    return Plan(
        rig=rig.rig,
        os=rig.host.os,
        packages=_packages(rig, made, bool(images)),
        files=(TextFile(path=str(LIBEXEC / "wait-healthy"), text=render("wait-healthy.sh"), mode="0755"),),
        builds=made,
        models=tuple(models.values()),
        images=tuple(images.values()),
        instances=tuple(instances),
    )


def digest(*parts: object) -> str:
    """A short hash of JSON-able values, for ids and specs: 12 hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _packages(rig: Rig, builds: Iterable[BuildPlan], images: bool) -> tuple[str, ...]:
    wanted = {"ca-certificates", "curl"}
    if any(builds):
        wanted |= set(BUILD_PACKAGES)
    if any(instance.backend == "compose" for instance in rig.instances.values()):
        wanted |= set(COMPOSE_PACKAGES[rig.host.os])
    if images:
        wanted.add("mmdebstrap")
    return tuple(sorted(wanted))


def _build(rig: Rig, name: str, engine: Engine) -> BuildPlan | None:
    if engine.source is None:
        return None
    dialect = DIALECTS[engine.kind]
    architectures = _architectures(rig, name)
    options = dict(dialect.build_options(architectures))
    if engine.source.version:
        options |= dialect.version_options(engine.source.version)
    cuda = rig.gpus.cuda if rig.gpus and architectures else None
    nvcc = f"/usr/local/cuda-{cuda}/bin/nvcc"
    if cuda:
        options["CMAKE_CUDA_COMPILER"] = nvcc
    options |= {option: _cmake(value) for option, value in engine.options.items()}
    source = engine.source
    origin = source.commit if source.git else source.sha256
    identity = digest(RECIPE, engine.kind, origin, source.folder, source.overlay, options, dialect.targets, rig.host.os)
    build_id = f"{engine.kind}-{identity}"
    declared = {
        "id": build_id,
        "kind": engine.kind,
        "source": {"git": source.git, "commit": source.commit}
        if source.git
        else {"archive": PurePosixPath(source.archive or "").name, "sha256": source.sha256},
        "options": options,
    }
    script = render(
        "build-engine.sh.j2",
        b={
            "id": build_id,
            "kind": engine.kind,
            "options": options,
            "targets": dialect.targets,
            "bytes_per_job": dialect.bytes_per_job * (2 if cuda else 1),
            "cuda": cuda,
            "nvcc": nvcc,
        },
        s=source,
        path=BUILD_PATH,
        logs=STATE / "work" / build_id,
        archive_name=PurePosixPath(source.archive or "").name,
        declared=json.dumps(declared)[:-1],
    )
    return BuildPlan(
        id=build_id,
        engine=name,
        kind=engine.kind,
        source=source,
        options=options,
        targets=dialect.targets,
        cuda=cuda,
        script=script,
        disk=_CUDA_BUILD_BYTES if cuda else _BUILD_BYTES,
    )


def _architectures(rig: Rig, engine: str) -> tuple[str, ...]:
    """Architectures of the cards that this engine's instances run on; none for an engine that only sees CPUs."""
    if rig.gpus is None:
        return ()
    cards = {card for i in rig.instances.values() if i.engine == engine for card in i.on}
    return tuple(sorted({rig.gpus.cards[card].cuda_architecture for card in cards}, key=_by_number))


def _by_number(architecture: str) -> tuple[int, str]:
    return int(architecture.rstrip("af")), architecture


def _cmake(value: str | int | bool) -> str:
    return ("ON" if value else "OFF") if isinstance(value, bool) else str(value)


def _model(name: str, model: Model, lock: Lock) -> ModelPlan:
    if model.file is not None:
        file = ModelFile(name=model.file.name, sha256=str(model.sha256))
        folder = STATE / "models" / "local" / file.sha256[:16]
        return ModelPlan(name=name, folder=str(folder), files=(file,), local=model.file)
    locked = lock.find(str(model.hf), model.revision, model.files)
    if locked is None:
        raise NotLockedError(name, model)
    return ModelPlan(
        name=name,
        folder=str(STATE / "models" / locked.repo / locked.commit),
        files=tuple(ModelFile(name=shard.path, sha256=shard.sha256, size=shard.size) for shard in locked.shards),
        url=f"{locked.endpoint}/{locked.repo}/resolve/{locked.commit}",
    )


def _image(rig: Rig, build: BuildPlan) -> ImagePlan:
    """`busybox` asks for health inside; the rest is what the server is linked against."""
    packages = (
        "base-files",
        "busybox",
        "ca-certificates",
        "libgomp1",
        "libstdc++6",
        *IMAGE_PACKAGES[rig.host.os],
    )
    dockerfile = (Path(__file__).resolve().parent.parent / "compose" / "engine.Dockerfile").read_text()
    base = f"llamaherd/base:{rig.host.os}-{digest(packages)}"
    return ImagePlan(
        tag=f"llamaherd/engine:{build.id}-{digest(base, dockerfile)[:6]}",
        build=build.id,
        base=base,
        base_packages=packages,
        dockerfile=dockerfile,
    )


def _instance(rig: Rig, name: str, declared: Instance, build: BuildPlan | None, model: ModelPlan) -> InstancePlan:
    engine = rig.engines[declared.engine]
    compose = declared.backend == "compose"
    server = Server(
        model_path=model.first,
        alias=declared.model,
        context=declared.context,
        kv=declared.kv,
        parallel=declared.parallel,
        threads=declared.threads or rig.host.cpu.cores,
        mtp=declared.draft.mtp if declared.draft else 0,
        on_gpu=bool(declared.on),
        listen="0.0.0.0" if compose else declared.listen,
        port=declared.port,
        api_key_file=str(KEYS / name) if declared.api_key else None,
        extra_args=declared.extra_args,
    )
    if build is None:
        program, image = None, engine.image
    elif compose:
        program, image = "/usr/local/bin/llama-server", _image(rig, build).tag
    else:
        program, image = f"{build.folder}/bin/llama-server", None
    service = f"llama-{name}"
    context = {
        "name": name,
        "service": service,
        "engine": declared.engine,
        "model": declared.model,
        "model_folder": model.folder,
        "image": image,
        "program": program,
        "arguments": DIALECTS[engine.kind].arguments(server),
        "environment": _environment(rig, declared),
        "devices": _uuids(rig, declared),
        "on_gpu": bool(declared.on),
        "listen": declared.listen,
        "health": f"http://{_reachable(declared.listen)}:{declared.port}/health",
        "loopback": declared.loopback,
        "port": declared.port,
        "api_key": declared.api_key is not None,
        "load_timeout": declared.load_timeout or _load_timeout(model),
        "spec": "",
    }
    # The spec is the hash of the whole text that has no spec in it yet: nothing that matters can be left out.
    context["spec"] = digest(_serving_text(rig, compose, context))
    return InstancePlan(
        name=name,
        service=service,
        backend=declared.backend,
        engine=declared.engine,
        engine_kind=engine.kind,
        build=build.id if build else None,
        image=image,
        model=declared.model,
        model_folder=model.folder,
        model_file=model.first,
        context=declared.context,
        mtp=server.mtp,
        threads=server.threads,
        listen=declared.listen,
        port=declared.port,
        api_key=declared.api_key,
        load_timeout=int(str(context["load_timeout"])),
        program=program,
        arguments=DIALECTS[engine.kind].arguments(server),
        spec=str(context["spec"]),
        file=TextFile(
            path=str(PROJECTS / name / "compose.yaml" if compose else UNITS / f"{service}.service"),
            text=_serving_text(rig, compose, context),
        ),
    )


def _reachable(listen: str) -> str:
    """Where a server that listens there is asked from its own host, as URLs have it."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)
    return f"[{address}]" if ":" in address else address


def _serving_text(rig: Rig, compose: bool, context: Mapping[str, object]) -> str:
    if compose:
        return render("compose.yaml.j2", rig=rig.rig, i=context, uid=CONTAINER_UID)
    program, arguments = context["program"], context["arguments"]
    assert isinstance(program, str)
    assert isinstance(arguments, tuple)
    return render(
        "llama-server.service.j2",
        rig=rig.rig,
        i=context,
        exec_start=" ".join([program, *map(unit_quote, arguments)]),
    )


def _environment(rig: Rig, declared: Instance) -> dict[str, str]:
    if not declared.on or rig.gpus is None:
        return {}
    uuids = _uuids(rig, declared)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} | ({"CUDA_VISIBLE_DEVICES": ",".join(uuids)} if uuids else {})


def _uuids(rig: Rig, declared: Instance) -> list[str]:
    """None where a lone card needs no telling; findings see to it that cards of several have one."""
    cards = rig.gpus.cards if rig.gpus else {}
    return [uuid for card in declared.on if (uuid := cards[card].uuid)]


def _load_timeout(model: ModelPlan) -> int:
    """Seconds for a cold load: a minute, and the model at 100 MB/s, which a hard disk manages.

    How large a file of the controller is, the plan does not know: it is taken for one of 24 GB.
    """
    return 60 + sum(24 * 10**9 if file.size is None else file.size for file in model.files) // 100_000_000
