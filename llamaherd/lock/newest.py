"""The newest version of each locked engine, image and model, queried at git, registries and the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from llamaherd.diagnostics.findings import UserError
from llamaherd.lock import Lock, LockedModel, ModelKey, git_refs, github, hub, registry
from llamaherd.lock.git_refs import newest_tag, tag_version
from llamaherd.lock.resolver import Requirement, Requirements

AT_ONCE = 8
"""The queries at the same time. Each has its own limits of time and bytes."""

Kind = Literal["engine", "image", "model"]
Key = tuple[str, str] | str | ModelKey


@dataclass(frozen=True)
class Version:
    """A locked version and the newest one, as they are shown; `error` is set if the newest version is unknown.

    `key` is the declaration: git and ref, an image, or a model. `move_to` is the ref or the image that the inventory
    must declare for the newest version; without it, only the lock changes.
    """

    kind: Kind
    names: tuple[str, ...]
    key: Key
    locked: str
    newest: str = ""
    newer: bool = False
    move_to: str | None = None
    error: str = ""

    @property
    def name(self) -> str:
        """Its name in the inventory; the first, if it has several."""
        return self.names[0]


def newest_versions(required: Requirements, lock: Lock) -> tuple[Version, ...]:
    """Return the version of everything that is locked, with the newest one. A failed query is the error of its row."""
    queries = [*_engine_queries(required, lock), *_image_queries(required, lock), *_model_queries(required, lock)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return tuple(pool.map(_run, queries))


Query = tuple[Version, Callable[[Version], Version]]
"""A version as it is locked, and the function that adds the newest one. It raises UserError."""


def _run(query: Query) -> Version:
    locked, with_newest = query
    try:
        return with_newest(locked)
    except UserError as error:
        return replace(locked, error=error.message)


def _names(requirement: Requirement, image: str = "") -> tuple[str, ...]:
    """Return the names in the inventory; an image is also named by itself."""
    return tuple(sorted(requirement.names - {image})) or (image,)


def _engine_queries(required: Requirements, lock: Lock) -> Iterator[Query]:
    for (git, ref), requirement in required.refs.items():
        if commit := lock.commit(git, ref):
            systems = [system for repository, tag, system in required.releases if (repository, tag) == (git, ref)]
            newest = partial(_release, git, systems) if systems else partial(_engine, git, ref, commit)
            yield Version("engine", _names(requirement), (git, ref), ref), newest


def _engine(git: str, ref: str, commit: str, locked: Version) -> Version:
    """Return the newest tag in place of a tag, or the newest commit of a branch."""
    tags, branch = git_refs.tags_and_branch(git, ref)
    if ref not in tags:
        if branch is None:
            raise git_refs.GitError(f"{git_refs.plain_url(git)} has no tag and no branch `{ref}`", "correct `ref`")
        return _moved(replace(locked, locked=f"{ref} {commit[:_SHORT]}"), commit, branch, f"{ref} {branch[:_SHORT]}")
    newest = newest_tag(ref, tags)
    if newest == ref:
        return _moved(locked, commit, tags[ref], ref)
    return replace(locked, newest=newest, newer=True, move_to=newest)


def _release(git: str, systems: Sequence[str], locked: Version) -> Version:
    """Return the newest release that has archives for the systems of a fleet. A tag is there before its archives."""
    newest = newest_tag(locked.locked, github.tags_with_archives(git, systems))
    is_newer = newest != locked.locked
    return replace(locked, newest=newest, newer=is_newer, move_to=newest if is_newer else None)


_SHORT = 9


def _moved(locked: Version, old: str, new: str, shown: str) -> Version:
    return replace(locked, newest=shown, newer=old != new)


def _image_queries(required: Requirements, lock: Lock) -> Iterator[Query]:
    for image, requirement in required.images.items():
        if digest := lock.digest(image):
            tag = registry.image_name(image).tag
            yield Version("image", _names(requirement, image), image, tag), partial(_image, image, digest)


def _image(image: str, digest: str, locked: Version) -> Version:
    """Return the newest tag in place of a tag with a version, or the digest that a tag has now."""
    tag = locked.locked
    newest = newest_tag(tag, registry.tags_of(image)) if tag_version(tag) else tag
    if newest != tag:
        return replace(locked, newest=newest, newer=True, move_to=f"{image.removesuffix(f':{tag}')}:{newest}")
    now = registry.digest_of(image)
    locked = replace(locked, locked=f"{tag} {_shown_digest(digest)}")
    return _moved(locked, digest, now, f"{tag} {_shown_digest(now)}")


def _shown_digest(digest: str) -> str:
    return digest.removeprefix("sha256:")[:_SHORT]


def _model_queries(required: Requirements, lock: Lock) -> Iterator[Query]:
    for key, requirement in required.models.items():
        if model := lock.find(*key):
            yield Version("model", _names(requirement), key, model.commit[:_SHORT]), partial(_model, model)


def _model(model: LockedModel, locked: Version) -> Version:
    """Return the newest commit of a model's revision. A commit that leaves its files as they are is not newer."""
    info = hub.model_info(hub.endpoint(), model.repo, model.revision)
    now = {each.rfilename: each.lfs.sha256 if each.lfs else None for each in info.siblings or []}
    files = [*model.shards, *([model.projector] if model.projector else [])]
    if info.sha == model.commit or all(now.get(each.path) == each.sha256 for each in files):
        return replace(locked, newest=locked.locked)
    return replace(locked, newest=(info.sha or "")[:_SHORT], newer=True)
