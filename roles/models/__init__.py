"""Models: fetched into the store by revision, and admitted by their hashes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from llamaherd.host.responses import stored_files
from llamaherd.host.state import HostState, ModelsState
from llamaherd.inventory.schema import HUB, Model, Rig, Store
from llamaherd.lock import Lock
from llamaherd.lock.apply import NotLockedError
from llamaherd.onhost.verification import Probe
from llamaherd.plan import (
    BandwidthRule,
    Estimate,
    FromFolder,
    FromHub,
    FromNeighbour,
    ModelFile,
    ModelOrigin,
    ModelPlan,
    Plan,
    StorePlan,
)
from llamaherd.role.preflight import DiskNeed, Refusal, disk_row
from llamaherd.role.report import Installed
from llamaherd.role.role import Inspection, Judging, Planning, PlanPart, Role, Task, Verified
from llamaherd.store.files import missing_files
from llamaherd.text.numbers import show_size
from roles.models.changes import StoreState, begin_changes, file_places, model_changes, model_sends
from roles.models.onhost.store import Found, InspectInput

_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "drvfs", "virtiofs", "ceph", "afs"})
"""Filesystems, by findmnt's names, where owners, locks and renames are another machine's."""

_WATCHER = secrets.token_hex(8)
"""What this run of `herd up` is called by the hosts where it waits for a fetch."""


def plan(planning: Planning) -> PlanPart:
    """Return the store, and the models that are used. Raise NotLockedError."""
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


def inspection_input(plan: Plan) -> InspectInput:
    """Return what to inspect."""
    return InspectInput(plan.store.path, tuple(dict.fromkeys(model.folder for model in plan.models)))


def state_parts(found: Found) -> tuple[ModelsState, StoreState]:
    """Return the parts of the host's state."""
    models = ModelsState(
        verified={
            folder: {each.name: (each.size, each.written, each.sha256) for each in files}
            for folder, files in found.verified.items()
        },
        stored={
            folder: {each.name: (each.size, each.written) for each in files} for folder, files in found.stored.items()
        },
        kept=found.kept,
    )
    return models, StoreState(found.store, found.incoming, found.fetch)


def refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """Return problems of the store's filesystem."""
    disk = StoreState.of(state).disk
    waits = any(plan.store.path in each.server.mounts for each in plan.instances)
    if disk and waits and disk.mount == "/":
        return [
            Refusal(
                f"{plan.store.path} must be on a mounted disk, and is on the host's own",
                f"mount the disk (`findmnt -T {plan.store.path}` shows what is there), or leave out `mount: true`",
                disk_row(disk.folder),
            )
        ]
    # A store that contains all that is planned may well be read-only.
    if disk is None or not any(missing_files(model, state) for model in plan.models):
        return []
    if disk.kind in _NETWORK:
        return [
            Refusal(
                f"{plan.store.path} is on another machine ({disk.kind}): servers map models into memory",
                "keep them on a disk of this host (`store: path:`), and name that folder in `store: from:`",
                disk_row(disk.folder),
            )
        ]
    if not disk.writable:
        return [
            Refusal(
                f"{plan.store.path} is on a filesystem that is mounted read-only",
                f"see why with `findmnt -T {disk.folder}` and `dmesg`; `mount -o remount,rw` if it was meant so",
                disk_row(disk.folder),
            )
        ]
    return []


def needs(plan: Plan, state: HostState, local_sizes: Mapping[str, int]) -> list[DiskNeed]:
    """Return the room that missing files take. `local_sizes`: bytes of the controller's files, by sha256."""
    disk = StoreState.of(state).disk
    if disk is None:
        return []
    return [
        DiskNeed(
            disk.folder,
            disk.free,
            disk.device,
            _missing_bytes(plan, state, local_sizes),
        )
    ]


def _missing_bytes(plan: Plan, state: HostState, local_sizes: Mapping[str, int]) -> int:
    missing = {file.sha256: file for model in plan.models for file in missing_files(model, state)}
    need = 0
    for sha256, file in missing.items():
        size = file.size if file.size is not None else local_sizes.get(sha256, 0)
        here = StoreState.of(state).incoming.get(sha256, StoreState.of(state).incoming.get(f"{sha256}.part", 0))
        need += max(0, size - here)
    return need


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of the files of every model."""
    for model in plan.models:
        files = ("find", model.folder, "-type", "f", "!", "-name", ".manifest", "-printf", r"%s\t%P\n")
        yield Probe("model", model.folder, files)


def judge(judging: Judging) -> Verified:
    """Return the files in the store."""
    there = [(model, stored_files(model.folder, judging.answers)) for model in judging.plan.models]
    return Verified(
        installed=tuple(
            Installed(f"model {model.name} ({show_size(sum(files.values()))})", model.folder)
            for model, files in there
            if files
        )
    )


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Return the store, and its models."""
    return (
        [*_store_lines(plan.store), *(line for model in plan.models for line in _model_lines(model))]
        if plan.models
        else []
    )


def _store_lines(store: StorePlan) -> list[str]:
    limits = [f"{show_size(rule.bytes_per_second)}/s {_hours(rule)}" for rule in store.bandwidth]
    limited = f", at most {', '.join(limits)}" if limits else ""
    return [
        f"  store      {store.path}",
        f"             from {', '.join(map(_origin, store.sources)) or 'nowhere'}",
        f"             by {store.connections} connections{limited}",
    ]


def _origin(origin: ModelOrigin) -> str:
    match origin:
        case FromNeighbour():
            return f"rig {origin.name} ({origin.address}:{origin.port})"
        case FromFolder():
            return origin.path
        case FromHub():
            return "hub"


def _hours(rule: BandwidthRule) -> str:
    return "always" if rule.begin == rule.end else f"from {rule.begin} to {rule.end}"


def _model_lines(model: ModelPlan) -> list[str]:
    origin = model.url or str(model.local)
    sizes = [file.size for file in model.files if file.size is not None]
    total = f", {show_size(sum(sizes))}" if sizes else ""
    return [
        f"  model      {model.name}: {len(model.files)} file{'s' if len(model.files) != 1 else ''}{total}",
        f"             from {origin}",
        *(f"             {file.name}  sha256 {file.sha256}" for file in model.files),
        f"             into {model.folder}",
    ]


def begin_tasks(plan: Plan) -> Iterator[Task]:
    """Start to fetch, in a unit of its own that runs while the other roles work."""
    if any(model.url for model in plan.models):
        yield Task("begin to fetch", lambda state, _: begin_changes(plan, state, file_places, _WATCHER), alone=True)


def tasks(plan: Plan) -> Iterator[Task]:
    """Wait for what is fetched, and let all that has arrived into the store."""
    if plan.models:
        yield Task(
            "in the store",
            lambda state, _: model_changes(plan, state, file_places, _WATCHER),
            alone=True,
            goes_on=True,
        )


BEGIN = Role(
    name="models begin",
    summary="What is missing in the store is on its way, while engines are built.",
    for_instances=True,
    tasks=begin_tasks,
)

ROLE = Role(
    name="models",
    summary="Every file of every model is in the store with its hash.",
    for_instances=True,
    plan=plan,
    inspection=Inspection("models.store.inspect", inspection_input, Found, state_parts),
    refusals=refusals,
    needs=needs,
    sends=model_sends,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
