"""The model store of a host: its revisions and their users, inspected, compared with the plan, and cleared."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, Literal

from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.layout import IN_REACH, INCOMING
from llamaherd.onhost.removal import Outcome, is_within
from llamaherd.onhost.store import Item, PruneInput, StoredFile, StoreInput, StoreState
from llamaherd.plan import Plan

RevisionState = Literal["whole", "unfinished", "missing", "foreign"]

LEFT = ".trash"
"""The rest of an interrupted removal, among the removable files: all of it is removed first."""


@dataclass(frozen=True)
class User:
    """A user of a revision: an instance of the plan, or a unit, a container, a file or a process of the host.

    Or a release that a rollback can restore, or a server that is kept to be restored.
    """

    kind: Literal["instance", "unit", "container", "file", "process", "release", "kept"]
    name: str


@dataclass(frozen=True)
class Revision:
    """A folder of the store.

    `missing` is declared and does not exist; `foreign` was not written by llamaherd, and is left alone.
    """

    folder: str
    state: RevisionState
    files: int
    size: int
    linked: int
    """Bytes of it that have another name as well: a removal frees them only if the other name is removed too."""
    users: tuple[User, ...]


@dataclass(frozen=True)
class Unfinished:
    """A file in transfer, of which `have` bytes exist; `wanted` is the file of the plan that it becomes."""

    sha256: str
    have: int
    size: int | None
    wanted: str | None


@dataclass(frozen=True)
class Removal:
    """A removal: a whole folder, `files` in one of which `keep` stays, or a part. `frees` is in bytes."""

    what: str
    files: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    frees: int = 0


@dataclass(frozen=True)
class Holdings:
    """A rig's store: its revisions, and the removable ones."""

    rig: str
    store: str
    free: int | None
    fetch: str | None
    revisions: tuple[Revision, ...]
    parts: tuple[Unfinished, ...]
    removals: tuple[Removal, ...]
    notes: tuple[str, ...]

    @property
    def frees(self) -> int:
        """Bytes that the removal of everything unused frees."""
        return sum(removal.frees for removal in self.removals)

    def as_json(self) -> dict[str, Any]:
        """Return the holdings as plain JSON values."""
        return asdict(self) | {"frees": self.frees}


_CONTROL = frozenset({".manifest", ".manifest.part", ".lock"})
_ARRIVING = re.compile(r"\.incoming/([0-9a-f]{64})(\..*)?")
_SENT = re.compile(r"[0-9a-f]{64}(\.part)?")
# llamaherd's own names for the folders of revisions: a commit, or a hash of the file.
_REVISION = re.compile(r"([^/]+/[^/]+/[0-9a-f]{40}|local/[0-9a-f]{16})(?=/|$)")

PlannedFiles = Mapping[str, frozenset[str]]
"""The names of the files that the plan has in each folder of the store."""
StoredFiles = Mapping[str, tuple[StoredFile, ...]]
"""The files in each folder of the store."""


def judge_store(plan: Plan, state: StoreState) -> Holdings:
    """Compare the plan with the state of a store."""
    store, wanted = plan.store.path, _wanted(plan)
    held = _by_folder(state, wanted)
    revisions = tuple(
        _revision(plan, state, folder, held.get(folder, ()), wanted) for folder in sorted({*held, *wanted})
    )
    arriving = _arriving(state)
    parts = tuple(_part(plan, sha256, files) for sha256, files in sorted(arriving.items()))
    sent = tuple(_sent(plan, state, file) for file in state.sent if _SENT.fullmatch(file.path))
    return Holdings(
        rig=plan.rig,
        store=store,
        free=state.free,
        fetch=state.fetch,
        revisions=revisions,
        parts=(*parts, *sent),
        removals=tuple(
            _with_frees([*_removals(store, state, held, revisions, wanted, arriving, parts), *_unsent(state, sent)])
        ),
        notes=(
            *(f"{link} is a symbolic link: its target is not inspected" for link in state.links),
            *(
                f"{folder or 'the store'} has a name with a control character in it: not inspected"
                for folder in sorted(state.odd)
            ),
        ),
    )


def _wanted(plan: Plan) -> PlannedFiles:
    found: dict[str, frozenset[str]] = {}
    for model in plan.models:
        folder = model.folder.removeprefix(f"{plan.store.path}/")
        found[folder] = found.get(folder, frozenset()) | {file.name for file in model.files}
    return found


def _by_folder(state: StoreState, wanted: PlannedFiles) -> StoredFiles:
    """Return the files of each revision; those in transfer or removal are in none."""
    locked = {str(PurePosixPath(file.path).parent) for file in state.files if file.name == ".lock"}
    known = {*state.manifests, *wanted, *locked} - {"."}
    found: dict[str, list[StoredFile]] = defaultdict(list)
    for file in state.files:
        if not file.path.startswith((".incoming/", ".trash-")) and file.path != ".lock":
            found[_revision_of(file.path, known)].append(file)
    for path in state.empty:
        if _REVISION.fullmatch(path):
            found[path] = []
    return {folder: tuple(files) for folder, files in found.items()}


def _revision_of(path: str, known: set[str]) -> str:
    """Return the folder that a file belongs to: the nearest known revision, else its own."""
    above = [str(parent) for parent in PurePosixPath(path).parents]
    named = _REVISION.match(path)
    return next((folder for folder in above if folder in known), named[1] if named else above[0])


def _revision(
    plan: Plan, state: StoreState, folder: str, files: tuple[StoredFile, ...], wanted: PlannedFiles
) -> Revision:
    models = [file for file in files if file.name not in _CONTROL]
    return Revision(
        folder=folder,
        state=_state(state, folder, files, wanted.get(folder, frozenset())),
        files=len(models),
        size=sum(file.size for file in models),
        linked=sum(file.size for file in models if file.links > 1),
        users=tuple(_users(plan, state, folder)),
    )


def _state(state: StoreState, folder: str, files: tuple[StoredFile, ...], wanted: frozenset[str]) -> RevisionState:
    there = {file.path: file.size for file in files}
    if wanted and not any(file.name not in _CONTROL for file in files):
        return "missing"
    if folder in state.manifests:
        vouched = {path: size for path, size in state.vouched.items() if path.startswith(f"{folder}/")}
        right = all(there.get(path) == size for path, size in vouched.items())
        # A file without a verified hash is damaged, or not yet adopted.
        return "whole" if right and all(f"{folder}/{name}" in vouched for name in wanted) else "unfinished"
    begun = any(file.name == ".lock" or file.name.endswith(".part") for file in files)
    return "unfinished" if wanted or begun or _REVISION.fullmatch(folder) else "foreign"


def _users(plan: Plan, state: StoreState, folder: str) -> Iterator[User]:
    """Yield the users of a revision, declared ones first."""
    path = f"{plan.store.path}/{folder}"
    for instance in plan.instances:
        if path in instance.server.folders:
            yield User("instance", instance.name)
    whole = plan.store.path
    uses = (use for use in state.uses if use.path == whole or is_within(use.path, path))
    yield from dict.fromkeys(User(use.kind, use.name) for use in uses)


def _arriving(state: StoreState) -> Mapping[str, list[StoredFile]]:
    found: dict[str, list[StoredFile]] = defaultdict(list)
    for file in state.files:
        if named := _ARRIVING.fullmatch(file.path):
            found[named[1]].append(file)
    return found


def _part(plan: Plan, sha256: str, files: Iterable[StoredFile]) -> Unfinished:
    """Return a file in transfer; its progress is its space on the disk, since a file that arrives in pieces
    has holes.
    """
    by_name = {file.name: file for file in files}
    wanted = next((file for model in plan.models for file in model.files if file.sha256 == sha256), None)
    name = wanted.name if wanted else None
    if whole := by_name.get(sha256):
        return Unfinished(sha256, whole.size, whole.size, name)
    part = by_name.get(f"{sha256}.part")
    size = wanted.size if wanted and wanted.size is not None else part.size if part else None
    return Unfinished(sha256, min(part.allocated, part.size) if part else 0, size, name)


def _sent(plan: Plan, state: StoreState, file: StoredFile) -> Unfinished:
    """Return a file of the controller, or the beginning of one, in transfer; nothing needs it if the target exists by
    now.
    """
    sha256 = file.name.removesuffix(".part")
    missing = (
        each.name
        for model in plan.models
        for each in model.files
        if each.sha256 == sha256
        and f"{model.folder.removeprefix(f'{plan.store.path}/')}/{each.name}" not in state.vouched
    )
    sources = (f"the source of {build.engine}" for build in plan.builds if build.source.sha256 == sha256)
    whole = file.size if file.name == sha256 else None
    return Unfinished(sha256, file.size, whole, next(chain(missing, sources), None))


def _unsent(state: StoreState, sent: Iterable[Unfinished]) -> Iterator[tuple[Removal, Iterable[StoredFile]]]:
    """Yield files that were sent and are unused."""
    for sha256 in sorted({part.sha256 for part in sent if not part.wanted}):
        yield Removal(str(INCOMING / sha256)), [file for file in state.sent if file.name.startswith(sha256)]


def _removals(
    store: str,
    state: StoreState,
    held: StoredFiles,
    revisions: Iterable[Revision],
    wanted: PlannedFiles,
    arriving: Mapping[str, list[StoredFile]],
    parts: Iterable[Unfinished],
) -> Iterator[tuple[Removal, Iterable[StoredFile]]]:
    """Yield the removals, each with its files; the bytes that it frees are not yet in it."""
    left = [file for file in state.files if file.path.startswith(".trash-")]
    if left:
        yield Removal(LEFT), left
    for revision in revisions:
        folder = revision.folder
        if folder in wanted:
            if stale := _stale(store, state, folder, held.get(folder, ()), wanted[folder]):
                names = tuple(file.path.removeprefix(f"{folder}/") for file in stale)
                yield Removal(folder, names, tuple(sorted(wanted[folder]))), stale
        elif not revision.users and revision.state != "foreign" and not _is_odd(state, folder):
            yield Removal(folder), held[folder]
    for part in parts:
        if not part.wanted:
            yield Removal(f".incoming/{part.sha256}"), arriving[part.sha256]


def _is_odd(state: StoreState, folder: str) -> bool:
    return any(odd == folder or odd.startswith(f"{folder}/") for odd in state.odd)


def _stale(
    store: str, state: StoreState, folder: str, files: Iterable[StoredFile], wanted: frozenset[str]
) -> list[StoredFile]:
    """Return files of a declared revision that no model of the plan has, such as another quantisation, if they are
    unused.
    """
    path, names = f"{store}/{folder}", {f"{folder}/{name}" for name in wanted}
    for use in state.uses:
        if use.path == store:
            return []
        if is_within(use.path, path) and not any(is_within(use.path, f"{store}/{name}") for name in names):
            return []
    return [file for file in files if file.path in state.vouched and file.path not in names]


def _with_frees(removals: Iterable[tuple[Removal, Iterable[StoredFile]]]) -> Iterator[Removal]:
    """Add the bytes that removals free: a file with several names is freed with the last of them."""
    gone: Counter[str] = Counter()
    for removal, files in removals:
        freed = 0
        for file in files:
            gone[file.inode] += 1
            freed += file.allocated if gone[file.inode] == file.links else 0
        yield replace(removal, frees=freed)


_INSPECT_SECONDS = 120
_REMOVE_SECONDS = 30
"""For each folder: a large file takes seconds to remove, and each time the host inspects its users."""


def inspect_store(plan: Plan, remote: Remote, keep: int = IN_REACH) -> Holdings:
    """Return the state of the rig's store; `keep` good releases count as users. Raise RemoteError."""
    given = StoreInput(plan.store.path, keep)
    return judge_store(plan, query_verb(remote, "llamaherd.store.inspect", given, StoreState, _INSPECT_SECONDS))


def remove_unused(holdings: Holdings, remote: Remote, keep: int = IN_REACH) -> Outcome:
    """Remove what is still unused. Raise RemoteError if the result is unknown."""
    seconds = _INSPECT_SECONDS + _REMOVE_SECONDS * len(holdings.removals)
    given = prune_input(holdings.store, holdings.removals, keep)
    return query_verb(remote, "llamaherd.store.prune", given, Outcome, seconds)


def prune_input(store: str, removals: Iterable[Removal], keep: int = IN_REACH) -> PruneInput:
    """Return the input that removes folders, files and parts, if they are still unused."""
    removals = list(removals)
    parts = [each for each in removals if each.what.startswith(".incoming/")]
    sent = [each for each in removals if each.what.startswith(f"{INCOMING}/")]
    items = [each for each in removals if each not in (*parts, *sent) and each.what != LEFT]
    return PruneInput(
        store=store,
        items=tuple(Item(each.what, each.files, each.keep) for each in items),
        parts=tuple(each.what.removeprefix(".incoming/") for each in parts),
        uploads=tuple(each.what for each in sent),
        keep=keep,
    )
