"""Models: fetched into the store by revision, and admitted by their hashes."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from llamaherd.diagnostics.findings import UserError
from llamaherd.host import protocol
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.host.responses import stored_files
from llamaherd.host.state import HostState, ModelsState, StatePart
from llamaherd.host.time_limits import HOUR, transfer_seconds
from llamaherd.inventory.schema import HUB, Model, Rig, Store
from llamaherd.lock import Lock
from llamaherd.lock.apply import NotLockedError
from llamaherd.lock.hub import endpoint, token_for
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import Disk
from llamaherd.onhost.verification import Probe
from llamaherd.plan import (
    BandwidthRule,
    Estimate,
    FromFolder,
    FromHub,
    FromPeer,
    ModelFile,
    ModelOrigin,
    ModelPlan,
    Plan,
    StorePlan,
    digest,
)
from llamaherd.role.changes import Action, Change, DeferredVerb, How, Report, RunVerb, SendFile
from llamaherd.role.preflight import DiskNeed, Refusal, disk_row
from llamaherd.role.report import Installed
from llamaherd.role.role import Inspection, Judging, Planning, PlanPart, Role, Task, Verified
from llamaherd.store.files import missing_files
from llamaherd.text.numbers import show_size
from roles.models.onhost import FetchInput, JoinInput, RequestedFile, Shared, ShareInput
from roles.models.onhost.store import AdmitInput, AdmittedFile, AdmittedModel, Found, InspectInput

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
        elif peer := rigs.get(origin):
            yield FromPeer(
                name=origin,
                connect=peer.connect,
                address=peer.address,
                port=peer.store.share.port,
                store=peer.store.path,
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


_NO_SECRET = "_"
"""The name of the token in a job if the source needs none; no source has this name."""


@dataclass(frozen=True)
class StoreState(StatePart):
    """The disk of the store, and the files that arrive."""

    disk: Disk | None = None
    incoming: Mapping[str, int] = field(default_factory=dict)
    """By name in the store's `.incoming`: bytes on the disk."""
    fetch: str | None = None
    """The id of the fetch that runs."""


@dataclass(frozen=True)
class ModelSource:
    """A source of files: the URL of each file, by its sha256, and the bearer token that the source requires."""

    name: str
    urls: Mapping[str, str]
    token: str | None = field(default=None, repr=False)


Places = Callable[[Plan, Sequence[str], Report], Sequence[ModelSource]]
"""Finds out, when it is needed, where the files with these sha256s are to be had."""


def to_fetch(plan: Plan, state: HostState) -> list[tuple[ModelPlan, ModelFile]]:
    """Return the files that are missing and have not arrived: each content once, for all of its models."""
    wanted: dict[str, tuple[ModelPlan, ModelFile]] = {}
    for model in plan.models:
        for file in missing_files(model, state) if model.url else ():
            if file.sha256 not in StoreState.of(state).incoming:
                wanted.setdefault(file.sha256, (model, file))
    return list(wanted.values())


def model_sends(plan: Plan, state: HostState) -> list[SendFile]:
    """Return the controller's own files that the store lacks."""
    local: dict[str, Path] = {}
    places: dict[str, list[PurePosixPath]] = {}
    for model in plan.models:
        for file in missing_files(model, state) if model.local else ():
            assert model.local
            local[file.sha256] = model.local
            places.setdefault(file.sha256, []).append(PurePosixPath(model.folder, file.name))
    return [SendFile(local[sha256], sha256, tuple(settled)) for sha256, settled in places.items()]


def begin_changes(plan: Plan, state: HostState, places: Places, watcher: str) -> list[Change]:
    """Start to fetch, and do other things meanwhile. `watcher` distinguishes runs of `herd up`."""
    wanted = to_fetch(plan, state)
    if not wanted:
        return []
    job = _job_id(plan)
    if StoreState.of(state).fetch == job:
        join = RunVerb("models.join", JoinInput(job, watcher))
        return [_model_change("fetch", wanted, join, "a fetch of it runs")]
    make = partial(_fetch, "models.begin", plan, wanted, places, watcher)
    return [_model_change("fetch", wanted, DeferredVerb(make, "querying the sources of models"))]


def model_changes(plan: Plan, state: HostState, places: Places, watcher: str) -> list[Change]:
    """Send or fetch missing files, then admit all files to the store.

    If `watcher` has started or joined a fetch, it waits for that fetch; a failed fetch does not start again. The change
    that admits what one other change brings has the name of that change: a preview shows both as one.
    """
    incomplete = [model for model in plan.models if missing_files(model, state)]
    if not incomplete:
        return []
    wanted = to_fetch(plan, state)
    make = partial(_fetch, "models.wait", plan, wanted, places, watcher)
    wait = DeferredVerb(make, f"fetching {_what(wanted)}")
    lacking = [(model, file) for model in incomplete for file in missing_files(model, state)]
    sends = [
        _model_change("send", [each for each in lacking if each[1].sha256 == send.sha256], send)
        for send in model_sends(plan, state)
    ]
    brought = [*sends, *([_model_change("fetch", wanted, wait)] if wanted else [])]
    admit = RunVerb("models.store.admit", AdmitInput(plan.store.path, _admitted(incomplete)))
    whole = brought[0] if len(brought) == 1 else None
    admitted = _model_change("update", lacking, admit, "its files are verified and get their names")
    if whole and whole.name == admitted.name:
        admitted = replace(whole, how=admit)
    return [*brought, admitted]


def _model_change(action: Action, wanted: Sequence[tuple[ModelPlan, ModelFile]], how: How, why: str = "") -> Change:
    """Return a change of the models of these files. Its reason is `why`, or the size of what is missing, if known."""
    names = dict.fromkeys(model.name for model, _ in wanted)
    sizes = {file.sha256: file.size or 0 for _, file in wanted}.values()
    size = show_size(sum(sizes)) if all(sizes) else "not in the store"
    return Change(action, "model", ", ".join(names), (why or size,), how)


def _admitted(models: Sequence[ModelPlan]) -> tuple[AdmittedModel, ...]:
    """Return the models to let in; a file is kept if another one that comes later has the same content."""
    left = Counter(file.sha256 for model in models for file in model.files)

    def admitted(file: ModelFile) -> AdmittedFile:
        left[file.sha256] -= 1
        return AdmittedFile(file.name, file.sha256, keep=left[file.sha256] > 0)

    return tuple(AdmittedModel(model.folder, tuple(map(admitted, model.files))) for model in models)


def _fetch(
    verb: str,
    plan: Plan,
    wanted: Sequence[tuple[ModelPlan, ModelFile]],
    places: Places,
    watcher: str,
    report: Report,
) -> RunVerb:
    """Return the verb that fetches files, from where they are now."""
    found = places(plan, [file.sha256 for _, file in wanted], report)
    seconds = transfer_seconds(file.size for _, file in wanted)
    given = FetchInput(
        id=_job_id(plan),
        watcher=watcher,
        what=_what(wanted),
        store=plan.store.path,
        wanted=tuple(RequestedFile(model.folder, file.name, file.sha256) for model, file in wanted),
        job=fetch_job(plan, wanted, found),
        secrets={place.name: Secret(place.token) for place in found if place.token},
        seconds=seconds,
    )
    return RunVerb(verb, given, seconds=seconds + HOUR)


def fetch_job(
    plan: Plan, wanted: Sequence[tuple[ModelPlan, ModelFile]], places: Iterable[ModelSource]
) -> dict[str, object]:
    """Return the fetcher's input. It contains no secret: `secret` names the file that contains one."""
    sources = [(place, place.name if place.token else _NO_SECRET) for place in places]
    return {
        "id": _job_id(plan),
        "incoming": f"{plan.store.path}/.incoming",
        "store": plan.store.path,
        "files": [
            {
                "name": f"{model.name}: {file.name}",
                "sha256": file.sha256,
                "size": file.size,
                "sources": [
                    {"name": place.name, "url": place.urls[file.sha256], "secret": secret}
                    for place, secret in sources
                    if file.sha256 in place.urls
                ],
            }
            for model, file in wanted
        ],
        "folders": [source.path for source in plan.store.sources if isinstance(source, FromFolder)],
        "connections": plan.store.connections,
        "bandwidth": [rule._asdict() for rule in plan.store.bandwidth],
    }


def _job_id(plan: Plan) -> str:
    """Return the same id for the same plan, whichever files have arrived and whichever peers are on."""
    files = [file.sha256 for model in plan.models if model.url for file in model.files]
    return digest(files, plan.store.model_dump(mode="json"))


def _what(wanted: Sequence[tuple[ModelPlan, ModelFile]]) -> str:
    names = list(dict.fromkeys(model.name for model, _ in wanted))
    size = sum(file.size or 0 for _, file in wanted)
    files = "1 file" if len(wanted) == 1 else f"{len(wanted)} files"
    return f"{files} of {', '.join(names)} ({show_size(size)})"


IDLE_SECONDS = 900
"""Seconds without a request after which it closes again."""

_SHARE_SECONDS = 60


class SharingError(UserError):
    """A rig shares nothing just now, and reports why."""


def share_input(source: FromPeer, wanted: Sequence[str], peer: str, token: str) -> ShareInput:
    """Return the input that opens a rig's store to a peer: the file of its own with the token is named `peer`."""
    return ShareInput(
        store=source.store,
        wanted=tuple(wanted),
        peer=peer,
        token=Secret(token),
        address=source.address,
        port=source.port,
        idle=IDLE_SECONDS,
    )


def shared_urls(source: FromPeer, wanted: Sequence[str], shared: Shared) -> dict[str, str]:
    """Return the URLs of the shared files, by sha256.

    Raise SharingError if the rig shares nothing, and UnexpectedLineError for a file that was not requested.
    """
    if shared.refused:
        raise SharingError(shared.refused, f"`herd verify {source.name}` reports the state of that rig")
    if unwanted := {*shared.files} - {*wanted}:
        raise UnexpectedLineError(min(unwanted))
    host = f"[{source.address}]" if ":" in source.address else source.address
    return {sha256: f"http://{host}:{source.port}/{sha256}" for sha256 in shared.files}


def file_places(plan: Plan, wanted: Sequence[str], report: Report) -> list[ModelSource]:
    """Return the sources of files with these sha256s, in the order of `from`, without rigs that are off."""
    found: list[ModelSource] = []
    for source in plan.store.sources:
        if isinstance(source, FromHub):
            found += _from_hub(plan, wanted)
        elif isinstance(source, FromPeer):
            found += _from_peer(source, wanted, report)
    return found


def _from_hub(plan: Plan, wanted: Sequence[str]) -> list[ModelSource]:
    """Return the hub that a model was locked at, or its mirror by HF_ENDPOINT. Raise HubError."""
    urls = {
        file.sha256: f"{_mirrored(str(model.url), str(model.repo))}/{quote(file.name)}"
        for model in plan.models
        if model.url
        for file in model.files
        if file.sha256 in wanted
    }
    # A token is for the hub in use, and for no other that a lock may name.
    tokens = {sha256: token_for(url) for sha256, url in urls.items()}
    return [
        ModelSource("hub", {sha256: url for sha256, url in urls.items() if tokens[sha256] == token}, token)
        for token in dict.fromkeys(tokens.values())
    ]


def _mirrored(url: str, repo: str) -> str:
    if not os.environ.get("HF_ENDPOINT"):
        return url
    at = url.index(f"/{repo}/resolve/")
    return f"{endpoint()}{url[at:]}"


def _from_peer(source: FromPeer, wanted: Sequence[str], report: Report) -> list[ModelSource]:
    """Open the store of a rig for a while. A client with the token, which is made here, can read from it."""
    token = secrets.token_hex(32)
    try:
        given = share_input(source, wanted, secrets.token_hex(6), token)
        shared = protocol.query_verb(Remote(source.connect), "models.share", given, Shared, _SHARE_SECONDS)
        urls = shared_urls(source, wanted, shared)
    except (RemoteError, SharingError) as error:
        report(f"nothing comes from {source.name}: {error.message}")
        return []
    report(f"{source.name} has {len(urls)} of the {len(wanted)} files")
    return [ModelSource(source.name, urls, token)] if urls else []


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


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield the problem of the store's filesystem, if it has one."""
    path, disk = plan.store.path, StoreState.of(state).disk
    if disk is None:
        return
    row = disk_row(disk.folder)
    waits = any(path in each.server.mounts for each in plan.instances)
    # A store that contains all that is planned may well be read-only.
    lacks_files = any(missing_files(model, state) for model in plan.models)
    if waits and disk.mount == "/":
        help_ = f"mount the disk (`findmnt -T {path}` shows what is there), or leave out `mount: true`"
        yield Refusal(f"{path} must be on a mounted disk, and is on the host's own", help_, row)
    elif lacks_files and disk.kind in _NETWORK:
        help_ = "keep them on a disk of this host (`store: path:`), and name that folder in `store: from:`"
        yield Refusal(f"{path} is on another machine ({disk.kind}): servers map models into memory", help_, row)
    elif lacks_files and not disk.writable:
        help_ = f"see why with `findmnt -T {disk.folder}` and `dmesg`; `mount -o remount,rw` if it was meant so"
        yield Refusal(f"{path} is on a filesystem that is mounted read-only", help_, row)


def needs(plan: Plan, state: HostState, local_sizes: Mapping[str, int]) -> list[DiskNeed]:
    """Return the room that missing files take. `local_sizes`: bytes of the controller's files, by sha256."""
    store = StoreState.of(state)
    if store.disk is None:
        return []
    missing = {file.sha256: file for model in plan.models for file in missing_files(model, state)}
    need = 0
    for sha256, file in missing.items():
        size = file.size if file.size is not None else local_sizes.get(sha256, 0)
        need += max(0, size - store.incoming.get(sha256, store.incoming.get(f"{sha256}.part", 0)))
    return [DiskNeed(store.disk.folder, store.disk.free, store.disk.device, need)]


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of the files of every model."""
    for model in plan.models:
        files = ("find", model.folder, "-type", "f", "!", "-name", ".manifest", "-printf", r"%s\t%P\n")
        yield Probe("model", model.folder, files)


def judge(judging: Judging) -> Verified:
    """Return the files in the store."""
    there = [(model, stored_files(model.folder, judging.outputs)) for model in judging.plan.models]
    installed = (
        Installed(f"model {model.name} ({show_size(sum(files.values()))})", model.folder)
        for model, files in there
        if files
    )
    return Verified(installed=tuple(installed))


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Return the store, and its models."""
    if not plan.models:
        return []
    return [*_store_lines(plan.store), *(line for model in plan.models for line in _model_lines(model))]


def _store_lines(store: StorePlan) -> list[str]:
    limits = [
        f"{show_size(rule.bytes_per_second)}/s "
        + ("always" if rule.begin == rule.end else f"from {rule.begin} to {rule.end}")
        for rule in store.bandwidth
    ]
    limited = f", at most {', '.join(limits)}" if limits else ""
    return [
        f"  store      {store.path}",
        f"             from {', '.join(map(_origin, store.sources)) or 'nowhere'}",
        f"             by {store.connections} connections{limited}",
    ]


def _origin(origin: ModelOrigin) -> str:
    match origin:
        case FromPeer():
            return f"rig {origin.name} ({origin.address}:{origin.port})"
        case FromFolder():
            return origin.path
        case FromHub():
            return "hub"


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
            continues=True,
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
