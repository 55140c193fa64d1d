"""From a rig and its lock to exactly what must be true on the host.

Pure: no network, no clock, no environment, no pyinfra. The same rig and lock give the same plan, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

from llamaherd.engines import DIALECTS
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import HUB, Engine, Model, Rig, Store
from llamaherd.inventory.schema.software import cmake_value
from llamaherd.layout import BUILD_PATH, LIBEXEC, STATE
from llamaherd.lock import Lock
from llamaherd.lock.apply import NotLockedError, pinned
from llamaherd.plan import (
    BandwidthRule,
    BuildPlan,
    FromFolder,
    FromHub,
    FromNeighbour,
    ImagePlan,
    InstancePlan,
    ModelFile,
    ModelPlan,
    Origin,
    Plan,
    StorePlan,
    TextFile,
    digest,
)
from llamaherd.planner.driver import driver_repositories, plan_driver
from llamaherd.planner.instance import plan_instance
from llamaherd.planner.power import declared_cards, declared_power, plan_power
from llamaherd.planner.runtime import plan_runtime
from llamaherd.planner.toolkit import host_compiler, host_compilers, plan_toolkit
from llamaherd.planner.wsl import plan_wsl
from llamaherd.reference.distributions import BUILD_PACKAGES, IMAGE_PACKAGES
from llamaherd.resources import DOCKERFILE
from llamaherd.text.render import render

RECIPE = 1
"""Counts up when the same options would give another build; it is part of every build id."""

# Measured: sources, objects and binaries of a CPU build, and of a CUDA build for one architecture.
_BUILD_BYTES = 2 * 10**9
_CUDA_BUILD_BYTES = 8 * 10**9


def plan(
    declared: Rig,
    lock: Lock,
    rigs: Mapping[str, Rig] = MappingProxyType({}),
    unlocked: Mapping[str, Header] = MappingProxyType({}),
) -> Plan:
    """What must be true on the host of the rig that is declared. Raises NotLockedError.

    `rigs` are those of the fleet by name: models may come from one of them. One that is not there is left out.
    `unlocked` are headers of models that the lock does not know, by name.
    """
    rig = pinned(declared, lock)
    used_engines = {instance.engine for instance in rig.instances.values()}
    builds = {name: _build(rig, name, rig.engines[name]) for name in sorted(used_engines)}
    models = {
        name: _model(name, rig.models[name], PurePosixPath(rig.store.path), lock) for name in sorted(rig.used_models)
    }
    headers = {**unlocked, **{name: header for name in models if (header := lock.header(rig.models[name]))}}
    images: dict[str, ImagePlan] = {}
    instances = []
    for name, instance in sorted(rig.instances.items()):
        build = builds[instance.engine]
        image = _image(rig, build) if instance.backend == "compose" and build else None
        if image:
            images[image.tag] = image
        instances.append(plan_instance(rig, name, build, image, models, headers))
    made = tuple(build for build in builds.values() if build)
    toolkit, runtime = plan_toolkit(rig), plan_runtime(rig)
    parts = (toolkit, runtime.toolkit if runtime else None)
    return Plan(
        rig=rig.rig,
        os=rig.host.os,
        packages=_packages(rig, made, bool(images)),
        files=_programs(instances),
        builds=made,
        store=_store(rig, rigs),
        models=tuple(models.values()),
        images=tuple(images.values()),
        instances=tuple(instances),
        ram=rig.host.ram,
        cards=declared_cards(rig),
        toolkit=toolkit,
        runtime=runtime,
        has_cards=rig.gpus is not None and rig.host.wsl is None,
        repositories=tuple(dict.fromkeys([*driver_repositories(rig), *(part.repository for part in parts if part)])),
        driver=plan_driver(rig),
        power=plan_power(rig, instances),
        windows_power=declared_power(rig) if rig.host.wsl is not None else (),
        wsl=plan_wsl(rig, instances),
    )


def _programs(instances: Iterable[InstancePlan]) -> tuple[TextFile, ...]:
    """What units run beside the server, and what asks about a container's cards."""
    names = (
        "wait-healthy",
        "started",
        *(("gpu-gate", "gpu-check") if any(each.server.cards for each in instances) else ()),
    )
    return tuple(TextFile(path=str(LIBEXEC / name), text=render(f"{name}.sh", root=""), mode="0755") for name in names)


def _packages(rig: Rig, builds: Iterable[BuildPlan], images: bool) -> tuple[str, ...]:
    wanted = {"ca-certificates", "curl", "python3"}
    if any(builds):
        wanted |= {*BUILD_PACKAGES, *host_compilers(rig)}
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
        if compiler := host_compiler(rig, engine):
            options["CMAKE_CUDA_HOST_COMPILER"] = compiler
    options |= {option: cmake_value(value) for option, value in engine.options.items()}
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
            "lists_devices": dialect.lists_devices,
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


def _store(rig: Rig, rigs: Mapping[str, Rig]) -> StorePlan:
    store = rig.store
    return StorePlan(
        path=store.path,
        sources=tuple(_sources(store, {name: each for name, each in rigs.items() if name != rig.rig})),
        bandwidth=tuple(BandwidthRule(*each.span, each.limit) for each in store.bandwidth),
        connections=store.connections,
    )


def _sources(store: Store, rigs: Mapping[str, Rig]) -> Iterator[Origin]:
    for origin in store.from_:
        if origin == HUB:
            yield FromHub()
        elif origin.startswith("/"):
            yield FromFolder(path=origin)
        elif neighbour := rigs.get(origin):
            share = neighbour.store.share
            yield FromNeighbour(
                name=origin,
                connect=neighbour.connect,
                address=share.address or neighbour.connect.host,
                port=share.port,
                store=neighbour.store.path,
            )


def _model(name: str, model: Model, store: PurePosixPath, lock: Lock) -> ModelPlan:
    if model.file is not None:
        file = ModelFile(name=model.file.name, sha256=str(model.sha256))
        folder = store / "local" / file.sha256[:16]
        return ModelPlan(name=name, folder=str(folder), files=(file,), local=model.file)
    locked = lock.model(model)
    if locked is None:
        raise NotLockedError(f"model `{name}` ({model.hf} at {model.revision}, {model.files})")
    files = (*locked.shards, *([locked.projector] if locked.projector else []))
    return ModelPlan(
        name=name,
        folder=str(store / locked.repo / locked.commit),
        files=tuple(ModelFile(name=file.path, sha256=file.sha256, size=file.size) for file in files),
        mmproj=locked.projector.path if locked.projector else None,
        url=f"{locked.endpoint}/{locked.repo}/resolve/{locked.commit}",
        repo=model.hf,
        revision=model.revision,
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
    dockerfile = DOCKERFILE.read_text(encoding="utf-8")
    base = f"llamaherd/base:{rig.host.os}-{digest(packages)}"
    return ImagePlan(
        tag=f"llamaherd/engine:{build.id}-{digest(base, dockerfile)[:6]}",
        build=build.id,
        base=base,
        base_packages=packages,
        dockerfile=dockerfile,
    )
