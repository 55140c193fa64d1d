"""Make the lock of a fleet: resolve every moving name at git, registries and the hub. `herd lock` runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from llamaherd.diagnostics.findings import Finding, HubError, InventoryError, Place, Rule, nearest
from llamaherd.engines import served_whole
from llamaherd.gguf.parse import GgufError
from llamaherd.gguf.shards import join_headers, read_header
from llamaherd.inventory.schema import Fleet
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.inventory.yaml_file import Document
from llamaherd.lock import Lock, LockedImage, LockedLocal, LockedModel, LockedRef, ModelKey, git_refs, hub, registry
from llamaherd.lock.registry import RegistryError, image_name

UNRESOLVED = Rule(
    "LH034",
    "Something could not be resolved for the lock, or not quite.",
    why="""
    A repository, tag, branch, image, revision or file does not exist, is not public, or could not be queried. After an
    error, nothing is written. A `file` of this machine that does not exist, or has another hash, is a warning: a rig
    can be planned without it. A note reports a name that is both a tag and a branch: the tag is taken.
    """,
    example="""
    $ herd lock
    fleet/attic.yaml:12:31: error LH034: https://github.com/ggml-org/llama.cpp has no tag and no branch `b1143`
      help: nearest: `b11434`, `b11433`, `b11432`, `b11431`, `b11430`
    """,
    language="console",
    fix="""
    apply the fix of the help line. For gated models give a token as `HF_TOKEN` or by `hf auth login`. If a hub is down,
    try again later: the lock stays usable.
    """,
    sometimes=(
        "warning",
        "note",
    ),
)


NOTHING_MOVES = Rule(
    "LH035",
    "`herd lock --upgrade` was given a name that no rig declares, or that never moves.",
    why="An engine at a full commit, an image by digest and a source archive never move: there is nothing to upgrade.",
    example="""
    $ herd lock --upgrade mian
    /home/tom/fleet: error LH035: no rig declares `mian`, or it never moves
      help: did you mean `main`?
    """,
    language="console",
    fix="name an engine, an image or a model as the inventory does, or `all`.",
)


EVERYTHING = "all"
"""The name that upgrades everything."""

PlaceIn = Callable[[str, tuple[str | int, ...]], Place]
"""Returns where the value at a path of the rig of this name is."""
T = TypeVar("T")


@dataclass(frozen=True)
class LockOutcome:
    """A new lock, and the findings of its resolution. It is to be written only if it is `ok`."""

    lock: Lock
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Return whether the lock has everything that it must have."""
        return not any(finding.severity == "error" for finding in self.findings)


@dataclass
class WantedName:
    """One thing to lock: its name in the inventory, and the place of its first use."""

    place: Place
    names: set[str] = field(default_factory=set)
    whole: bool = False
    """For a model: every file that matches is meant, and not one GGUF model among them."""


@dataclass
class Wants:
    """Everything of a fleet that must be locked."""

    refs: dict[tuple[str, str], WantedName] = field(default_factory=dict)
    images: dict[str, WantedName] = field(default_factory=dict)
    models: dict[ModelKey, WantedName] = field(default_factory=dict)
    files: dict[tuple[str, Path], WantedName] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """All names that `--upgrade` accepts."""
        groups = (self.refs.values(), self.images.values(), self.models.values(), self.files.values())
        return {name for group in groups for wanted in group for name in wanted.names}


def value_places(documents: Mapping[str, Document], otherwise: Path) -> PlaceIn:
    """Return where values of rigs are, from the rigs' documents by name; `otherwise` is the file to name
    for all else.
    """

    def place(rig: str, path: tuple[str | int, ...]) -> Place:
        return documents[rig].value(path) if rig in documents else Place(otherwise)

    return place


def lock_fleet(
    fleet: Fleet,
    old: Lock,
    place: PlaceIn,
    say: Callable[[str], None],
    upgrade: Collection[str] = (),
    *,
    whole: bool = True,
    own: FleetFile | None = None,
) -> LockOutcome:
    """Return the lock of a fleet: keep locked names, resolve new ones and upgrades, drop unused ones.

    `upgrade` names engines, images and models as the inventory does, or ALL. `say` prints each query. `own` is the
    fleet's own file. `whole` is False if other rigs share the lock, whose entries stay. One failure does not hide the
    others. Raise InventoryError for an upgrade of a missing name (LH035).
    """
    wants = wanted_by(fleet, place, own)
    unknown = [name for name in upgrade if name != EVERYTHING and name not in wants.names]
    if unknown:
        raise InventoryError(
            NOTHING_MOVES.at(
                place("", ()),
                f"no rig declares `{name}`, or it never moves",
                nearest(name, wants.names),
            )
            for name in unknown
        )
    run = _Run(old, frozenset(upgrade), say)
    new = Lock(
        engines=tuple(run.refs(wants.refs)),
        images=tuple(run.images(wants.images)),
        models=tuple(run.models(wants.models)),
        files=tuple(run.files(wants.files)),
    )
    return LockOutcome(new if whole else _merged(old, new), tuple(run.findings))


def wanted_by(fleet: Fleet, place: PlaceIn, own: FleetFile | None = None) -> Wants:
    """Return everything in a fleet whose name may mean something else tomorrow, and files whose header has sizes."""
    wants = Wants()
    for name, rig in fleet.rigs.items():
        for engine_name, engine in rig.engines.items():
            source = engine.source
            path: tuple[str, ...] = ("engines", engine_name)
            if source and source.git and source.ref:
                where = place(name, (*path, "ref") if engine.ref else (*path, "source", "ref"))
                wants.refs.setdefault((source.git, source.ref), WantedName(where)).names.add(engine_name)
            if engine.image and not engine.digest:
                wanted = wants.images.setdefault(engine.image, WantedName(place(name, (*path, "image"))))
                wanted.names |= {engine_name, engine.image}
        whole = served_whole(rig)
        for model_name, model in rig.models.items():
            if model.hf is not None:
                where = place(name, ("models", model_name, "hf"))
                key = (model.hf, model.revision, model.files, model.mmproj)
                wanted = wants.models.setdefault(key, WantedName(where))
                wanted.whole |= model_name in whole
            elif model.file is not None:
                where = place(name, ("models", model_name, "file"))
                wanted = wants.files.setdefault((str(model.sha256), model.file), WantedName(where))
            wanted.names.add(model_name)
    chat = own.gateway.chat if own and own.gateway else None
    if chat and not chat.digest:
        wanted = wants.images.setdefault(chat.image, WantedName(place("", ())))
        wanted.names |= {"chat", chat.image}
    return wants


def _merged(old: Lock, new: Lock) -> Lock:
    """Return the new lock with the entries that only the old one has."""
    return Lock(
        engines=_with_old(new.engines, old.engines, lambda each: (each.git, each.ref)),
        images=_with_old(new.images, old.images, lambda each: each.image),
        models=_with_old(new.models, old.models, lambda each: each.key),
        files=_with_old(new.files, old.files, lambda each: each.sha256),
    )


def _with_old(new: tuple[T, ...], old: tuple[T, ...], key: Callable[[T], object]) -> tuple[T, ...]:
    known = {key(each) for each in new}
    return (*new, *(each for each in old if key(each) not in known))


@dataclass
class _Run:
    """One run that resolves all names. Failures are collected as findings."""

    old: Lock
    upgrade: frozenset[str]
    say: Callable[[str], None]
    findings: list[Finding] = field(default_factory=list)

    def refs(self, wants: Mapping[tuple[str, str], WantedName]) -> Iterator[LockedRef]:
        """Resolve engines' refs to commits."""
        for (git, ref), wanted in wants.items():
            commit = self._kept(self.old.commit(git, ref), wanted)
            try:
                if commit is None:
                    self.say(f"querying {git_refs.plain_url(git)} for {ref}")
                    found = git_refs.commit_of(git, ref)
                    commit = found.commit
                    if found.note:
                        help_ = "rename one of them, or give its `commit`"
                        self.findings.append(UNRESOLVED.at(wanted.place, found.note, help_, "note"))
                yield LockedRef(git=git, ref=ref, commit=commit)
            except git_refs.GitError as error:
                self._failed(wanted, error)
            except ValidationError as error:
                problem = error.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
                self._failed(wanted, git_refs.GitError(f"`git` {problem}", "keep it in a credential helper instead"))

    def images(self, wants: Mapping[str, WantedName]) -> Iterator[LockedImage]:
        """Resolve images to digests."""
        for image, wanted in wants.items():
            digest = self._kept(self.old.digest(image), wanted)
            try:
                if digest is None:
                    self.say(f"querying {image_name(image).host} for {image}")
                    digest = registry.digest_of(image)
                yield LockedImage(image=image, digest=digest)
            except RegistryError as error:
                self._failed(wanted, error)

    def models(self, wants: Mapping[ModelKey, WantedName]) -> Iterator[LockedModel]:
        """Resolve models of a hub, with their headers."""
        for key, wanted in wants.items():
            model = self._kept(self.old.find(*key), wanted)
            try:
                if model is None:
                    self.say(
                        f"querying {hub.endpoint()} for {key[0]} at {key[1]}, {' and '.join(filter(None, key[2:]))}"
                    )
                    model = self._resolved(key, wanted)
                if model.header is None and model.is_gguf:
                    self.say(f"reading the headers of {len(model.shards)} files of {model.repo}")
                    model = hub.with_header(model)
                yield model
            except HubError as error:
                self._failed(wanted, error)

    def _resolved(self, key: ModelKey, wanted: WantedName) -> LockedModel:
        """Resolve a model. If only its projector differs, the weights stay as they are locked."""
        repo, revision, files, mmproj = key
        known = next((model for model in self.old.models if model.key[:3] == key[:3]), None)
        kept = self._kept(known, wanted)
        if kept and kept.endpoint == hub.endpoint():
            return hub.with_projector(kept, mmproj)
        model = hub.resolve(repo, revision, files, mmproj=mmproj, whole=wanted.whole)
        # A commit that changed a README leaves the weights, and so their headers, as they were.
        if known and known.header and _shard_hashes(known) == _shard_hashes(model):
            return model.model_copy(update={"shards": known.shards, "header": known.header})
        return model

    def files(self, wants: Mapping[tuple[str, Path], WantedName]) -> Iterator[LockedLocal]:
        """Read files of this machine. A problem is a warning, because a rig can be planned without the file."""
        done: set[str] = set()
        for (sha256, path), wanted in wants.items():
            if sha256 in done:
                continue
            entry = self._kept(self.old.local(sha256), wanted) or self._read(path, sha256, wanted.place)
            if entry:
                done.add(sha256)
                yield entry

    def _read(self, path: Path, sha256: str, place: Place) -> LockedLocal | None:
        self.say(f"reading {path}")
        try:
            if path.exists() and not (path.is_file() or path.is_dir()):
                # Reading a pipe would wait, and a device has no end.
                self._warn(place, f"{path} is not a file", "name a GGUF file that is whole")
                return None
            with path.open("rb") as stream:
                actual = hashlib.file_digest(stream, "sha256").hexdigest()
            if actual != sha256:
                help_ = "correct `sha256`, or copy the right file here"
                self._warn(place, f"{path} has another sha256: {actual}", help_)
                return None
            header = read_header(path)
            return LockedLocal(
                sha256=sha256, size=path.stat().st_size, data_offset=header.data_offset, header=join_headers((header,))
            )
        except (OSError, ValueError) as error:
            # ValueError: a name that no file can have.
            reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            help_ = "copy it here and run `herd lock`, so that its memory can be calculated"
            self._warn(place, f"{path} cannot be read: {reason}", help_)
        except GgufError as error:
            self._warn(place, str(error), "name a GGUF file that is whole")
        return None

    def _kept(self, known: T | None, wanted: WantedName) -> T | None:
        """Return the locked entry, unless it is to be upgraded."""
        return None if self.upgrade & (wanted.names | {EVERYTHING}) else known

    def _failed(self, wanted: WantedName, error: git_refs.GitError | RegistryError | HubError) -> None:
        self.findings.append(UNRESOLVED.at(wanted.place, error.message, error.help))

    def _warn(self, place: Place, message: str, help_: str) -> None:
        self.findings.append(UNRESOLVED.at(place, message, help_, "warning"))


def _shard_hashes(model: LockedModel) -> list[tuple[str, str]]:
    return [(shard.path, shard.sha256) for shard in model.shards]
