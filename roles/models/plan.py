"""Models as they must lie in the store, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from llamaherd.inventory.schema import HUB, Model, Rig, Store
from llamaherd.lock import Lock
from llamaherd.lock.apply import NotLockedError
from llamaherd.plan import (
    BandwidthRule,
    FromFolder,
    FromHub,
    FromNeighbour,
    ModelFile,
    ModelOrigin,
    ModelPlan,
    StorePlan,
)
from llamaherd.role.role import Planning, PlanPart


def plan(planning: Planning) -> PlanPart:
    """The store, and the models that are used. Raises NotLockedError."""
    rig = planning.rig
    store = PurePosixPath(rig.store.path)
    models = tuple(_model(name, rig.models[name], store, planning.lock) for name in sorted(rig.used_models))
    return PlanPart(fields={"store": _store(rig, planning.rigs), "models": models})


def _store(rig: Rig, rigs: Mapping[str, Rig]) -> StorePlan:
    store = rig.store
    return StorePlan(
        path=store.path,
        sources=tuple(_sources(store, {name: each for name, each in rigs.items() if name != rig.rig})),
        bandwidth=tuple(BandwidthRule(*each.span, each.limit) for each in store.bandwidth),
        connections=store.connections,
    )


def _sources(store: Store, rigs: Mapping[str, Rig]) -> Iterator[ModelOrigin]:
    for origin in store.from_:
        if origin == HUB:
            yield FromHub()
        elif origin.startswith("/"):
            yield FromFolder(path=origin)
        elif neighbour := rigs.get(origin):
            yield FromNeighbour(
                name=origin,
                connect=neighbour.connect,
                address=neighbour.address,
                port=neighbour.store.share.port,
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
