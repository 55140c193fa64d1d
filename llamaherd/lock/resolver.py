"""Make the lock of a fleet: resolve every moving name at git, registries and the hub. `herd lock` runs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from llamaherd.diagnostics.findings import Finding, HubError, InventoryError, Place, Rule, Severity, UserError, nearest
from llamaherd.engines import served_whole
from llamaherd.inventory.schema import Fleet, Rig, Source
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.inventory.schema.software import UPSTREAM
from llamaherd.inventory.yaml_file import Document
from llamaherd.lock import (
    Lock,
    LockedArchive,
    LockedImage,
    LockedLocal,
    LockedModel,
    LockedPage,
    LockedRef,
    LockedRelease,
    ModelKey,
    ReleaseKey,
    git_refs,
    github,
    hub,
    registry,
)
from llamaherd.lock.apply import describe_system, release_key
from llamaherd.lock.file import LockEntry
from llamaherd.lock.git_refs import tag_version
from llamaherd.lock.local_files import (
    HashedFile,
    LocalFileError,
    archive_in_lock,
    has_secret,
    hash_archive,
    hash_file,
    name_in_lock,
    sized_file,
)
from llamaherd.lock.registry import RegistryError, image_name
from llamaherd.reference.releases import release_order

UNRESOLVED = Rule(
    "LH034",
    "Something could not be resolved for the lock, or not quite.",
    why="""
    A repository, tag, branch, image, revision or file does not exist, is not public, or could not be queried. Or a file
    has another hash than its `sha256`. After an error, nothing is written. A file or an archive with a `sha256` that
    cannot be read from this machine is a warning: a rig can be planned without it. So is a file of another size than
    when it was locked. A note reports a name that is both a tag and a branch: the tag is taken. Another note reports a
    tag such as `b11434` that `--upgrade` leaves as it is: `herd upgrade` replaces it by the newest tag. A release whose
    attestation was not verified is a note where `gh` is missing or not logged in, and a warning where GitHub has none.
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
    why="An engine at a full commit and an image by digest never move: there is nothing to upgrade.",
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
E = TypeVar("E", bound=LockEntry)


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
class Requirement:
    """One thing to lock: its name in the inventory, and the place of its first use."""

    place: Place
    names: set[str] = field(default_factory=set)
    whole: bool = False
    """For a model: every file that matches is meant, and not one GGUF model among them."""
    built: bool = False
    """For a ref: an engine is built from it on a host, and not only fetched as a release."""


@dataclass
class Requirements:
    """Everything of a fleet that must be locked."""

    refs: dict[tuple[str, str], Requirement] = field(default_factory=dict)
    images: dict[str, Requirement] = field(default_factory=dict)
    models: dict[ModelKey, Requirement] = field(default_factory=dict)
    files: dict[tuple[str | None, Path], Requirement] = field(default_factory=dict)
    """By the declared hash, if there is one, and the path."""
    archives: dict[tuple[str | None, str], tuple[Requirement, Source]] = field(default_factory=dict)
    """By the declared hash, if there is one, and the URL or path."""
    releases: dict[ReleaseKey, Requirement] = field(default_factory=dict)

    @property
    def all(self) -> tuple[Requirement, ...]:
        """Everything, in the order in which it is resolved."""
        groups = (self.refs.values(), self.images.values(), self.models.values(), self.files.values())
        archives = (each for each, _ in self.archives.values())
        return (*(each for group in groups for each in group), *archives, *self.releases.values())

    @property
    def names(self) -> set[str]:
        """All names that `--upgrade` accepts."""
        return {name for requirement in self.all for name in requirement.names}

    def missing(self, lock: Lock, folder: Path) -> Requirements:
        """Return what a rig cannot be planned without, and the lock in a folder lacks."""
        return Requirements(
            refs={key: requirement for key, requirement in self.refs.items() if lock.commit(*key) is None},
            images={image: requirement for image, requirement in self.images.items() if lock.digest(image) is None},
            models={key: requirement for key, requirement in self.models.items() if lock.find(*key) is None},
            files={
                (sha256, path): requirement
                for (sha256, path), requirement in self.files.items()
                if sha256 is None and lock.file_hash(name_in_lock(path, folder)) is None
            },
            archives={
                (sha256, archive): (requirement, source)
                for (sha256, archive), (requirement, source) in self.archives.items()
                if sha256 is None and lock.archive_hash(archive_in_lock(source, folder)) is None
            },
            releases={key: requirement for key, requirement in self.releases.items() if lock.release(key) is None},
        )


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
    report: Callable[[str], None],
    upgrade: Collection[str] = (),
    *,
    folder: Path,
    whole: bool = True,
    own: FleetFile | None = None,
) -> LockOutcome:
    """Return the lock of a fleet: keep locked names, resolve new ones and upgrades, drop unused ones.

    `upgrade` names engines, images and models as the inventory does, or ALL. `report` prints each query. `own` is the
    fleet's own file, and `folder` that of the lock. `whole` is False if other rigs share the lock, whose entries stay.
    One failure does not hide the others. Raise InventoryError for an upgrade of a missing name (LH035).
    """
    required = requirements_of(fleet, place, own)
    unknown = [name for name in upgrade if name != EVERYTHING and name not in required.names]
    if unknown:
        raise InventoryError(
            NOTHING_MOVES.at(
                place("", ()),
                f"no rig declares `{name}`, or it never moves",
                nearest(name, required.names),
            )
            for name in unknown
        )
    outcome = _resolve(required, _Run(old, frozenset(upgrade), report, folder))
    return outcome if whole else replace(outcome, lock=_merged(old, outcome.lock))


def lock_missing(missing: Requirements, old: Lock, report: Callable[[str], None], folder: Path) -> LockOutcome:
    """Return a lock with these missing names in addition. Locked names stay unchanged."""
    outcome = _resolve(missing, _Run(old, frozenset(), report, folder))
    return replace(outcome, lock=_merged(old, outcome.lock))


def _resolve(required: Requirements, run: _Run) -> LockOutcome:
    new = Lock(
        engines=tuple(run.refs(required.refs)),
        images=tuple(run.images(required.images)),
        models=tuple(run.models(required.models)),
        files=tuple(run.files(required.files)),
        archives=tuple(run.archives(required.archives)),
        releases=tuple(run.releases(required.releases)),
    )
    return LockOutcome(new, tuple(run.findings))


def requirements_of(fleet: Fleet, place: PlaceIn, own: FleetFile | None = None) -> Requirements:
    """Return everything in a fleet whose name may mean something else tomorrow, and files to hash and to size."""
    required = Requirements()
    for rig in fleet.rigs.values():
        _add_engines(required, rig, place)
        _add_models(required, rig, place)
    chat = own.gateway.chat if own and own.gateway else None
    if chat and not chat.digest:
        requirement = required.images.setdefault(chat.image, Requirement(place("", ())))
        requirement.names |= {"chat", chat.image}
    return required


def _add_engines(required: Requirements, rig: Rig, place: PlaceIn) -> None:
    for name, engine in rig.engines.items():
        source = engine.source
        path: tuple[str, ...] = ("engines", name)
        if source and source.git and source.ref:
            where = place(rig.rig, (*path, *engine.version_key))
            requirement = required.refs.setdefault((source.git, source.ref), Requirement(where))
            requirement.names.add(name)
            requirement.built |= engine.release is None
        if key := release_key(rig, name):
            requirement = required.releases.setdefault(key, Requirement(place(rig.rig, (*path, "release"))))
            requirement.names.add(name)
        if source and source.archive:
            where = place(rig.rig, (*path, "source", "sha256" if source.sha256 else "archive"))
            requirement, _ = required.archives.setdefault((source.sha256, source.archive), (Requirement(where), source))
            requirement.names.add(name)
        if engine.image and not engine.digest:
            requirement = required.images.setdefault(engine.image, Requirement(place(rig.rig, (*path, "image"))))
            requirement.names |= {name, engine.image}


def _add_models(required: Requirements, rig: Rig, place: PlaceIn) -> None:
    whole = served_whole(rig)
    for name, model in rig.models.items():
        if model.hf is not None:
            key = (model.hf, model.revision, model.files, model.mmproj)
            requirement = required.models.setdefault(key, Requirement(place(rig.rig, ("models", name, "hf"))))
            requirement.whole |= name in whole
        elif model.file is not None:
            where = place(rig.rig, ("models", name, "sha256" if model.sha256 else "file"))
            requirement = required.files.setdefault((model.sha256, model.file), Requirement(where))
        requirement.names.add(name)


def _merged(old: Lock, new: Lock) -> Lock:
    """Return the new lock with the entries that only the old one has."""
    return Lock(
        engines=_with_old(new.engines, old.engines),
        images=_with_old(new.images, old.images),
        models=_with_old(new.models, old.models),
        files=_with_old(new.files, old.files),
        archives=_with_old(new.archives, old.archives),
        releases=_with_old(new.releases, old.releases),
    )


def _with_old(new: tuple[E, ...], old: tuple[E, ...]) -> tuple[E, ...]:
    known = {each.key for each in new}
    return (*new, *(each for each in old if each.key not in known))


@dataclass
class _Run:
    """One run that resolves all names. Failures are collected as findings."""

    old: Lock
    upgrade: frozenset[str]
    report: Callable[[str], None]
    folder: Path
    findings: list[Finding] = field(default_factory=list)

    def refs(self, required: Mapping[tuple[str, str], Requirement]) -> Iterator[LockedRef]:
        """Resolve engines' refs to commits."""
        for (git, ref), requirement in required.items():
            locked = self._kept(self.old.ref(git, ref), requirement)
            try:
                if locked is None:
                    self.report(f"querying {git_refs.plain_url(git)} for {ref}")
                    found = git_refs.commit_of(git, ref)
                    locked = LockedRef(git=git, ref=ref, commit=found.commit)
                    if found.note:
                        help_ = "rename one of them, or give its `commit`"
                        self.findings.append(UNRESOLVED.at(requirement.place, found.note, help_, "note"))
                    old = self.old.ref(git, ref)
                    self._note_tag(ref, requirement, stays=old is not None and old.commit == found.commit)
                    if page := self._page(git, ref, requirement, old if old and old.commit == found.commit else None):
                        locked = locked.model_copy(update={"page": page})
                yield locked
            except git_refs.GitError as error:
                self._failed(requirement, error)
            except ValidationError as error:
                problem = error.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
                self._failed(
                    requirement, git_refs.GitError(f"`git` {problem}", "keep it in a credential helper instead")
                )

    def _note_tag(self, tag: str, requirement: Requirement, *, stays: bool) -> None:
        """Note that an upgrade leaves a tag with a version as it is: only the inventory can name a newer one."""
        if stays and tag_version(tag):
            name = min(requirement.names, key=len)  # an image is also named by itself
            message = f"`{name}` stays at the tag `{tag}`, which the inventory names"
            help_ = f"`herd upgrade {name}` replaces it by the newest tag"
            self.findings.append(UNRESOLVED.at(requirement.place, message, help_, "note"))

    def _page(self, git: str, ref: str, requirement: Requirement, same: LockedRef | None) -> LockedPage | None:
        """Resolve the page of a build of llama.cpp. Without it, the server is built without a page: no error.

        `same` is the locked entry at the same commit. If the hub fails, its page stays.
        """
        build = release_order(ref)
        if (
            not requirement.built
            or git.removesuffix(".git") != UPSTREAM["llama.cpp"]
            or build is None
            or len(build) > 1
        ):
            return None
        try:
            self.report(f"querying {hub.endpoint()} for the page of b{build[0]}")
            page = hub.page_of(build[0])
        except HubError as error:
            if same and same.page:
                self._warn(requirement.place, f"the page of {ref} stays as it is locked: {error.message}", error.help)
                return same.page
            help_ = f"{error.help}; then run `herd lock --upgrade {min(requirement.names)}`"
            self._warn(requirement.place, f"{ref} is built without a page for browsers: {error.message}", help_)
            return None
        if page is None:
            message = f"{ref} is built without a page for browsers: its authors have published none for b{build[0]}"
            help_ = "chat with `herd chat`, or choose another build"
            self.findings.append(UNRESOLVED.at(requirement.place, message, help_, "note"))
        return page

    def releases(self, required: Mapping[ReleaseKey, Requirement]) -> Iterator[LockedRelease]:
        """Resolve releases to their archives, and verify their origin if `gh` is installed."""
        for key, requirement in required.items():
            old = self.old.release(key)
            locked = self._kept(old, requirement)
            try:
                yield locked or self._release(key, requirement, old)
            except github.GithubError as error:
                # The commit of a release is an error at the same place if GitHub cannot be reached.
                if not any((each.place, each.severity) == (requirement.place, "error") for each in self.findings):
                    self._failed(requirement, error)

    def _release(self, key: ReleaseKey, requirement: Requirement, old: LockedRelease | None) -> LockedRelease:
        self.report(f"querying {github.endpoint()} for release {key[1]} for {describe_system(key[2])}")
        found = github.resolve(key)
        if old and old.archives != found.archives:
            message = f"release {key[1]} has other archives than when it was locked"
            self._warn(requirement.place, message, "find out why before you commit the lock: releases do not change")
        doubt = github.unverified(found, self.report)
        if doubt:
            message = f"the attestation of release {key[1]} was not verified: {doubt.message}"
            severity: Severity = "warning" if doubt.is_suspicious else "note"
            self.findings.append(UNRESOLVED.at(requirement.place, message, doubt.help, severity))
        return found.model_copy(update={"attested": doubt is None})

    def images(self, required: Mapping[str, Requirement]) -> Iterator[LockedImage]:
        """Resolve images to digests."""
        for image, requirement in required.items():
            digest = self._kept(self.old.digest(image), requirement)
            try:
                if digest is None:
                    self.report(f"querying {image_name(image).host} for {image}")
                    digest = registry.digest_of(image)
                    tag = image_name(image).tag
                    self._note_tag(tag, requirement, stays=digest == self.old.digest(image))
                yield LockedImage(image=image, digest=digest)
            except RegistryError as error:
                self._failed(requirement, error)

    def models(self, required: Mapping[ModelKey, Requirement]) -> Iterator[LockedModel]:
        """Resolve models of a hub, with their headers."""
        for key, requirement in required.items():
            model = self._kept(self.old.find(*key), requirement)
            try:
                if model is None:
                    self.report(
                        f"querying {hub.endpoint()} for {key[0]} at {key[1]}, {' and '.join(filter(None, key[2:]))}"
                    )
                    model = self._resolved(key, requirement)
                if model.header is None and model.is_gguf:
                    self.report(f"reading the headers of {len(model.shards)} files of {model.repo}")
                    model = hub.with_header(model)
                if requirement.whole and model.lacks_shape:
                    self.report(f"reading the shape of {model.repo}")
                    model = hub.with_shape(model)
                yield model
            except HubError as error:
                self._failed(requirement, error)

    def _resolved(self, key: ModelKey, requirement: Requirement) -> LockedModel:
        """Resolve a model. If only its projector differs, the weights stay as they are locked."""
        repo, revision, files, mmproj = key
        known = next((model for model in self.old.models if model.key[:3] == key[:3]), None)
        kept = self._kept(known, requirement)
        if kept and kept.endpoint == hub.endpoint():
            return hub.with_projector(kept, mmproj)
        model = hub.resolve(repo, revision, files, mmproj=mmproj, whole=requirement.whole)
        # A commit that changed a README leaves the weights, and so their headers, as they were.
        if known and known.header and _shard_hashes(known) == _shard_hashes(model):
            return model.model_copy(update={"shards": known.shards, "header": known.header})
        return model

    def files(self, required: Mapping[tuple[str | None, Path], Requirement]) -> Iterator[LockedLocal]:
        """Hash and size files of this machine.

        A file that cannot be read is a warning if its hash is declared or locked.
        """
        done: dict[str, LockedLocal] = {}
        for (sha256, path), requirement in required.items():
            name = name_in_lock(path, self.folder)
            if name in done:
                self._require_hash(path, sha256, done[name].sha256, requirement)
            elif entry := self._file(path, name, sha256, requirement):
                done[name] = entry
        yield from {entry.file or entry.sha256: entry for entry in done.values()}.values()

    def _file(self, path: Path, name: str, sha256: str | None, requirement: Requirement) -> LockedLocal | None:
        """Return the entry of a file: the locked one if the file still has its size, or cannot be read."""
        unnamed = next((each for each in self.old.files if each.file is None and each.sha256 == sha256), None)
        known = self._kept(self.old.local_file(name) or unnamed, requirement)
        if known and sha256 not in (None, known.sha256):
            known = None
        if known and (size := _size(path)) in (None, known.size) and (known.file or size is None):
            return known
        if known and known.file and sha256 is None:
            message = f"{path} has another size than when it was locked"
            self._warn(requirement.place, message, f"to use it, run `herd lock --upgrade {min(requirement.names)}`")
            return known
        self.report(f"reading {path}")
        try:
            hashed = hash_file(path)
            fits = self._require_hash(path, sha256, hashed.sha256, requirement)
            return sized_file(path, name, hashed) if fits else None
        except LocalFileError as error:
            self._unread(requirement, sha256, error)
            return None

    def archives(
        self, required: Mapping[tuple[str | None, str], tuple[Requirement, Source]]
    ) -> Iterator[LockedArchive]:
        """Hash source archives. One that cannot be read is a warning if its hash is declared."""
        done: dict[str, str] = {}
        for (sha256, archive), (requirement, source) in required.items():
            name = archive_in_lock(source, self.folder)
            if has_secret(archive):
                if sha256 is None:
                    error = LocalFileError(
                        "the URL of the archive has a user, a password or a query, which the lock would show",
                        "add the archive's `sha256:`",
                    )
                    self._failed(requirement, error)
            elif name in done:
                self._require_hash(archive, sha256, done[name], requirement)
            elif entry := self._archive(source, name, requirement):
                done[name] = entry.sha256
                yield entry

    def _archive(self, source: Source, name: str, requirement: Requirement) -> LockedArchive | None:
        """Return the entry of an archive, which is fetched if it is new."""
        known = self._kept(next((each for each in self.old.archives if each.archive == name), None), requirement)
        if known and source.sha256 in (None, known.sha256):
            return known
        self.report(f"reading {source.archive}")
        try:
            hashed: HashedFile = hash_archive(source)
        except LocalFileError as error:
            self._unread(requirement, source.sha256, error)
            return None
        fits = self._require_hash(str(source.archive), source.sha256, hashed.sha256, requirement)
        return LockedArchive(archive=name, sha256=hashed.sha256, size=hashed.size) if fits else None

    def _require_hash(self, file: Path | str, declared: str | None, actual: str, requirement: Requirement) -> bool:
        """Return whether a file has the declared hash, if there is one. Report an error otherwise."""
        if declared in (None, actual):
            return True
        help_ = f"write `sha256: {actual}` if it is the right file, or leave `sha256` out: the lock then has it"
        self._failed(requirement, LocalFileError(f"{file} has another sha256 than declared", help_))
        return False

    def _unread(self, requirement: Requirement, sha256: str | None, error: LocalFileError) -> None:
        """Report a file that cannot be read: a warning if its hash is declared, so that it can be planned."""
        if sha256 is None:
            self._failed(requirement, error)
        else:
            self._warn(requirement.place, error.message, error.help)

    def _kept(self, known: T | None, requirement: Requirement) -> T | None:
        """Return the locked entry, unless it is to be upgraded."""
        return None if self.upgrade & (requirement.names | {EVERYTHING}) else known

    def _failed(self, requirement: Requirement, error: UserError) -> None:
        self.findings.append(UNRESOLVED.at(requirement.place, error.message, error.help))

    def _warn(self, place: Place, message: str, help_: str) -> None:
        self.findings.append(UNRESOLVED.at(place, message, help_, "warning"))


def _size(path: Path) -> int | None:
    """Return the size of a file in bytes; None if there is no such file."""
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        return None


def _shard_hashes(model: LockedModel) -> list[tuple[str, str]]:
    return [(shard.path, shard.sha256) for shard in model.shards]
