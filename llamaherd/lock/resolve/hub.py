"""The model hub: what a repository, a revision and a pattern stand for right now."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from llamaherd.diagnostics.findings import HubError
from llamaherd.lock import HubUrl, LockedFile, LockedModel, contradiction
from llamaherd.lock.resolve.hub_errors import in_sentences
from llamaherd.lock.resolve.hub_files import all_matching, projector_of, shards_of_one

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

    from llamaherd.gguf.parsed import Parsed
    from llamaherd.gguf.remote import HubPatience

DEFAULT_ENDPOINT = "https://huggingface.co"
TIMEOUT = 30.0  # seconds without an answer
# Bytes of one file, and of all, that are fetched only to be hashed: a tokenizer has 20 MiB at most.
_MAX_SMALL, _MAX_ALL_SMALL = 32 << 20, 64 << 20
_MAX_LISTING = 6 << 20  # bytes; a repository of ten thousand files has three million
_MAX_NAME = 4096  # characters of a path, as on Linux (PATH_MAX)


def endpoint() -> str:
    """The hub's URL as HF_ENDPOINT gives it now, else the public one. Raises HubError."""
    url = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    try:
        return TypeAdapter(HubUrl).validate_python(url)
    except ValidationError:
        # The value is not repeated: it may hold a password. For that reason, too, the lock takes none such.
        raise HubError(
            "HF_ENDPOINT is not a plain http or https URL",
            f"set it like {DEFAULT_ENDPOINT}, or unset it; a token belongs into HF_TOKEN or `hf auth login`",
        ) from None


def resolve(repo: str, revision: str, files: str, *, mmproj: str | None = None, whole: bool = False) -> LockedModel:
    """Ask the hub for the commit and the shards that `files` (a glob) names at `revision`.

    `mmproj` (a glob too) names the vision projector, which is no shard. `whole` takes every file that matches, as vLLM
    needs them, rather than those of one GGUF model. One request, one more where the repository is gated, and with
    `whole` one for each small file. Raises HubError.
    """
    url = endpoint()
    info = _asked(url, repo, revision)
    projector = projector_of(info.siblings or [], repo, mmproj) if mmproj else None
    others = [file for file in info.siblings or [] if file is not projector]
    chosen = all_matching(others, repo, files) if whole else shards_of_one(others, repo, files)
    small = [file for file in chosen if file.lfs is None] if whole else []
    fetched = _fetched(url, repo, info.sha or "", small)
    try:
        return LockedModel(
            repo=repo,
            revision=revision,
            files=files,
            mmproj=mmproj,
            commit=info.sha or "",
            endpoint=url,
            shards=(*fetched, *(_locked(repo, file) for file in chosen if file not in small)),
            projector=_locked(repo, projector) if projector else None,
        )
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
        raise HubError(
            f"{url} describes {repo} in a way that cannot be locked: {problem}",
            "check `hf`, `revision` and `files` of this model, and that HF_ENDPOINT is a model hub",
        ) from None


def with_projector(model: LockedModel, mmproj: str | None) -> LockedModel:
    """The model at the same commit with another vision projector, or with none. Raises HubError."""
    if mmproj is None:
        return model.model_copy(update={"mmproj": None, "projector": None})
    info = _asked(model.endpoint, model.repo, model.commit)
    projector = _locked(model.repo, projector_of(info.siblings or [], model.repo, mmproj))
    if projector.path in {shard.path for shard in model.shards}:
        raise HubError(f"`mmproj: {mmproj}` is {projector.path}, which `files` names already", "name the projector")
    return model.model_copy(update={"mmproj": mmproj, "projector": projector})


def with_header(model: LockedModel, patience: HubPatience | None = None) -> LockedModel:
    """The model with what the headers of its shards say, read by HTTP ranges. Raises HubError.

    It costs a request and some megabytes for each shard.
    """
    from llamaherd.gguf.join import join
    from llamaherd.gguf.parsed import GgufError
    from llamaherd.gguf.remote import DEFAULT_PATIENCE, fetch_header

    shards: list[LockedFile] = []
    parsed: list[Parsed] = []
    for shard in model.shards:
        url = model.url(shard)
        header, _ = fetch_header(url, token_for(url), shard.size, patience or DEFAULT_PATIENCE)
        parsed.append(header)
        shards.append(shard.model_copy(update={"data_offset": header.data_offset}))
    what = f"{model.repo}, {model.files}"
    try:
        joined = join(parsed)
    except GgufError as error:
        raise HubError(f"{what} cannot be used: {error}", _OTHER_FILES) from None
    if problem := contradiction(shards, joined):
        raise HubError(f"{what}: {problem}", _OTHER_FILES)
    return model.model_copy(update={"shards": tuple(shards), "header": joined})


_OTHER_FILES = "lock an earlier revision, or another quant"


def _asked(url: str, repo: str, revision: str) -> ModelInfo:
    """What the hub says of a repository that may be downloaded from. Raises HubError."""
    api = _api(url)
    with in_sentences(api, repo, revision, TIMEOUT):
        info = api.model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT)
        _refuse_nonsense(info)
        if info.gated:
            # A gated repository shows its file list to everyone, and refuses only the download.
            api.auth_check(repo)
    return info


def _refuse_nonsense(info: ModelInfo) -> None:
    """See that what the client has taken from JSON is of the kinds that it is declared to be. Raises TypeError."""
    sound = isinstance(info.sha, str) and all(
        isinstance(file.rfilename, str)
        and file.rfilename.isprintable()
        and len(file.rfilename) <= _MAX_NAME
        and (file.size is None or type(file.size) is int)
        and (file.lfs is None or (type(file.lfs.size) is int and isinstance(file.lfs.sha256, str)))
        for file in info.siblings or []
    )
    if not sound:
        raise TypeError


def _api(url: str) -> HfApi:
    # Otherwise the client asks the hub about agent programs first, once a day. It reads this at import.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi, set_client_factory

    from llamaherd.bounded import BoundedClient, Bounds

    # The client's own one reads without end.
    set_client_factory(lambda: BoundedClient(Bounds(_MAX_LISTING, TIMEOUT)))
    return HfApi(endpoint=url)


def _fetched(url: str, repo: str, commit: str, files: Sequence[RepoSibling]) -> list[LockedFile]:
    """Files that the hub keeps no sha256 of, hashed here. Raises HubError."""
    from llamaherd.bounded import BoundedClient, Bounds

    if not files:
        return []
    sizes = [file.size or 0 for file in files]
    if max(sizes) > _MAX_SMALL or sum(sizes) > _MAX_ALL_SMALL:
        most, largest = max(zip(sizes, (file.rfilename for file in files), strict=True))
        raise HubError(
            f"{repo} has {sum(sizes)} bytes in files that the hub keeps no sha256 of, {most} of them in {largest}",
            "make `files` narrower, so that it matches the weights and what the engine needs beside them",
        )
    locked = []
    bounds = Bounds(_MAX_SMALL, TIMEOUT)
    with in_sentences(_api(url), repo, commit, TIMEOUT), BoundedClient(bounds) as client:
        for file in files:
            address = f"{url}/{repo}/resolve/{commit}/{quote(file.rfilename)}"
            token = token_for(address)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            digest, size = hashlib.sha256(), 0
            with client.stream("GET", address, headers=headers) as answer:
                if answer.status_code != 200:
                    raise HubError(f"{address} was answered with status {answer.status_code}", "try again later")
                for piece in answer.iter_raw():
                    digest.update(piece)
                    size += len(piece)
                    if size > (file.size or 0):
                        break
            if size != file.size:
                raise HubError(f"{address} has other than the {file.size} bytes that the hub lists", "try again")
            locked.append(LockedFile(path=file.rfilename, size=size, sha256=digest.hexdigest()))
    return locked


def _locked(repo: str, file: RepoSibling) -> LockedFile:
    if file.lfs is None:
        raise HubError(
            f"the hub gives no sha256 for {file.rfilename} of {repo}, so it could not be verified",
            "match GGUF files alone, such as `*Q4_K_M*.gguf`; the hub keeps sums of large files only",
        )
    return LockedFile(path=file.rfilename, size=file.lfs.size, sha256=file.lfs.sha256)


def token_for(url: str) -> str | None:
    """The token in use, if `url` is of the hub in use: a lock that names another host must not be given it."""
    from huggingface_hub import get_token

    return get_token() if url.startswith(f"{endpoint()}/") else None
