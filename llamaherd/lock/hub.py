"""Models on the hub: the commit, files, quants and headers of a repository, and the hub's errors as sentences."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from llamaherd.diagnostics.findings import HubError
from llamaherd.gguf.folder import CONFIG, INDEX, folder_shape
from llamaherd.lock import HubUrl, LockedFile, LockedModel, LockedPage, contradiction

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

    from llamaherd.bounded import BoundedClient
    from llamaherd.gguf.parse import Parsed
    from llamaherd.gguf.shards import HubPatience


_MAX_COMPARED = 2000  # names that are compared with a missing one
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf")


def projector_of(present: Sequence[RepoSibling], repo: str, mmproj: str) -> RepoSibling:
    """Return the one file that is the vision projector. Raise HubError."""
    matching = [file for file in present if fnmatchcase(file.rfilename, mmproj)]
    if not matching:
        known = sorted(file.rfilename for file in present if "mmproj" in file.rfilename.lower())
        there = (
            f"there is {_listed(known)}" if known else "it has no file with `mmproj` in its name: leave `mmproj` out"
        )
        raise HubError(f"no file of {repo} matches `mmproj: {mmproj}`", there)
    if len(matching) > 1:
        names = _listed(sorted(file.rfilename for file in matching))
        raise HubError(f"`mmproj: {mmproj}` matches {len(matching)} files of {repo}: {names}", "name one of them")
    return matching[0]


def all_matching(present: Sequence[RepoSibling], repo: str, files: str) -> list[RepoSibling]:
    """Return the files that match, whatever they are. Raise HubError."""
    matching = [file for file in present if fnmatchcase(file.rfilename, files)]
    if not matching:
        raise HubError(f"no file of {repo} matches `{files}`", "for a whole repository write `files: '*'`")
    return matching


def shards_of_one(there: Sequence[RepoSibling], repo: str, files: str) -> list[RepoSibling]:
    """Return the files that match, if they are all the shards of one model. Raise HubError."""
    present = {file.rfilename: file for file in there}
    matching = sorted(path for path in present if fnmatchcase(path, files))
    if not matching:
        raise HubError(f"no file of {repo} matches `{files}`", _nearest(files, list(present)))
    totals: dict[str, int] = {}
    for path in matching:
        shard = _SHARD.fullmatch(path)
        totals[f"{shard['stem']} in {int(shard['total'])} shards" if shard else path] = (
            int(shard["total"]) if shard else 1
        )
    if len(totals) > 1:
        raise HubError(
            f"`{files}` matches {len(totals)} things in {repo}, not one model: {_listed(list(totals))}",
            "make the pattern narrower, so that it matches one file or the shards of one model",
        )
    if shard := _SHARD.fullmatch(matching[0]):
        _refuse_gaps(repo, files, shard, set(matching), present.keys())
    return [present[path] for path in matching]


def _refuse_gaps(
    repo: str, files: str, shard: re.Match[str], matching: Collection[str], present: Collection[str]
) -> None:
    total = int(shard["total"])
    wanted = [f"{shard['stem']}-{number:05}-of-{shard['total']}.gguf" for number in range(1, total + 1)]
    absent = [path for path in wanted if path not in present]
    if absent:
        raise HubError(
            f"{repo} lacks {len(absent)} of {total} shards: {_listed(absent)}",
            "the upload may be unfinished: lock an earlier revision, or another quant",
        )
    unmatched = [path for path in wanted if path not in matching]
    if unmatched:
        raise HubError(
            f"`{files}` leaves out {len(unmatched)} of {total} shards: {_listed(unmatched)}",
            f"use `{shard['stem']}-*.gguf`",
        )


def _nearest(files: str, present: Sequence[str]) -> str:
    # Of a set of shards, its first stands for all.
    names = sorted(
        path
        for path in present
        if path.endswith(".gguf") and not ((shard := _SHARD.fullmatch(path)) and int(shard["number"]) != 1)
    )
    if not names:
        return "there is no GGUF file in it; choose a repository that has some, often named `…-GGUF`"
    names = names[:_MAX_COMPARED]
    other_case = [path for path in names if fnmatchcase(path.lower(), files.lower())]
    return f"nearest: {_listed(other_case or get_close_matches(files, names, n=5, cutoff=0.0))}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


# Not JSON, or JSON of another kind: a login page of the network, or some other server.
_NO_HUB = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@contextmanager
def in_sentences(api: HfApi, repo: str, revision: str, patience: float) -> Iterator[None]:
    """Turn the client's exceptions into HubError. `patience` is how many seconds it waits without a response.

    The client's own texts are left out, and so is its traceback: if a header cannot be sent, they quote it, and one of
    the headers is the token.
    """
    from huggingface_hub import constants, errors

    try:
        if constants.is_offline_mode():
            raise errors.OfflineModeIsEnabled
        yield
    except Exception as error:
        sentence = _of_repository(error, api, repo, revision) or _of_connection(error, api.endpoint, patience)
        if sentence is None:
            raise
        raise sentence from None


def _of_repository(error: Exception, api: HfApi, repo: str, revision: str) -> HubError | None:
    """Return the error for the hub's response about a repository, or for the client's own refusal."""
    from huggingface_hub import errors

    url = api.endpoint
    match error:
        case errors.HFValidationError():
            return HubError(f"`{repo}` is not the name of a repository", "write it as `owner/name`")
        case errors.GatedRepoError():
            return HubError(f"{repo} is gated: its owner requires you to accept terms first", _gated(url, repo))
        case errors.RepositoryNotFoundError():
            return HubError(f"{url} has no public repository {repo}", _no_repository())
        case errors.RevisionNotFoundError():
            return HubError(f"{repo} has no revision `{revision}`", _branches(api, repo))
        case errors.DisabledRepoError():
            return HubError(f"{url} has disabled {repo}", f"see {url}/{repo} for the reason; choose another one")
        case errors.OfflineModeIsEnabled():
            return HubError(f"{repo} cannot be queried: HF_HUB_OFFLINE is set", "unset it to lock")
        case errors.HfHubHTTPError():
            return _of_status(url, repo, error)
    return None


def _of_connection(error: Exception, url: str, patience: float) -> HubError | None:
    """Return the error for a hub that does not respond, or responds like another server."""
    import httpx2

    from llamaherd.bounded import ExcessError

    match error:
        case ExcessError():
            return HubError(f"{url} {error}", "check HF_ENDPOINT and any proxy in between; try again")
        case httpx2.TimeoutException():
            return HubError(
                f"{url} did not respond within {patience:.0f} seconds", "try again; check the network and any proxy"
            )
        case httpx2.LocalProtocolError() | UnicodeError():
            return HubError("the hub's token cannot be sent: it holds odd characters", _TOKEN_HELP)
        case httpx2.RequestError():
            # Errors of the operating system about a connection are safe to repeat, and worth it.
            reason = str(error) if isinstance(error, httpx2.ConnectError) else type(error).__name__
            return HubError(
                f"{url} cannot be reached ({reason})",
                "check the network, any proxy (HTTPS_PROXY) and HF_ENDPOINT; without internet, use a file of this "
                "machine: `file: PATH`",
            )
        case httpx2.InvalidURL():
            return HubError("HF_ENDPOINT is no URL that can be opened", "check its host and port")
    if isinstance(error, _NO_HUB):
        return HubError(f"{url} responded, but not as a model hub does", "check HF_ENDPOINT and any proxy in between")
    return None


_TOKEN_HELP = "check HF_TOKEN, or log in anew by `hf auth login`; unset it for public models"


def _gated(url: str, repo: str) -> str:
    from huggingface_hub import get_token

    if get_token():
        return f"open {url}/{repo} and accept with the account of the token in use, which has no access yet"
    return f"open {url}/{repo}, accept, and give a token of that account as HF_TOKEN or by `hf auth login`"


def _no_repository() -> str:
    from huggingface_hub import get_token

    if get_token():
        return "check the spelling; if it is private, the token in use has no access to it"
    return "check the spelling; if it is private, give a token as HF_TOKEN or by `hf auth login`"


def _branches(api: HfApi, repo: str) -> str:
    names: list[str] = []
    # Only to help: whatever goes wrong here, the sentence about the revision matters.
    with suppress(Exception):
        refs = api.list_repo_refs(repo)
        names = [ref.name for ref in (*refs.branches, *refs.tags) if ref.name.isprintable()][:5]
    if not names:
        return "use a branch, a tag or a full commit of that repository"
    return f"it has {', '.join(f'`{name}`' for name in names)}; a full commit works too"


def _of_status(url: str, repo: str, error: HfHubHTTPError) -> HubError:
    status = error.response.status_code
    if status in (401, 403):
        help_ = f"{_TOKEN_HELP}; open {url}/{repo} to check its access"
        return HubError(f"{url} does not accept the token in use for {repo} ({status})", help_)
    if status == 429:
        seconds = error.response.headers.get("Retry-After", "")
        when = f"in {seconds} seconds" if re.fullmatch(r"\d{1,6}", seconds, re.ASCII) else "in some minutes"
        return HubError(f"{url} has received too many requests (429)", f"try again {when}; a token raises the limit")
    if status >= 500:
        return HubError(f"{url} has a failure ({status})", "try again later")
    return HubError(
        f"{url} returned status {status} for {repo}", "check HF_ENDPOINT, and `hf` and `revision` of this model"
    )


DEFAULT_ENDPOINT = "https://huggingface.co"
TIMEOUT = 30.0  # seconds without a response
# Bytes of one file, and of all, that are fetched only to be hashed: a tokenizer has 20 MiB at most.
_MAX_SMALL, _MAX_ALL_SMALL = 32 << 20, 64 << 20
_MAX_LISTING = 6 << 20  # bytes; a repository of ten thousand files has three million
_MAX_NAME = 4096  # characters of a path, as on Linux (PATH_MAX)


def endpoint() -> str:
    """Return the hub's URL as HF_ENDPOINT sets it now, else the public one. Raise HubError."""
    url = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    try:
        return TypeAdapter(HubUrl).validate_python(url)
    except ValidationError:
        # The value is not repeated: it may hold a password. For that reason the lock refuses such a URL, too.
        raise HubError(
            "HF_ENDPOINT is not a plain http or https URL",
            f"set it like {DEFAULT_ENDPOINT}, or unset it; a token belongs into HF_TOKEN or `hf auth login`",
        ) from None


def resolve(repo: str, revision: str, files: str, *, mmproj: str | None = None, whole: bool = False) -> LockedModel:
    """Query the hub for the commit and the shards that `files` (a glob) names at `revision`.

    `mmproj` (a glob too) names the vision projector, which is not a shard. `whole` takes every file that matches, as
    vLLM needs them, rather than those of one GGUF model. One request, one more if the repository is gated, and with
    `whole` one for each small file. Raise HubError.
    """
    url = endpoint()
    info = model_info(url, repo, revision)
    projector = projector_of(info.siblings or [], repo, mmproj) if mmproj else None
    others = [file for file in info.siblings or [] if file is not projector]
    chosen = all_matching(others, repo, files) if whole else shards_of_one(others, repo, files)
    small = [file for file in chosen if file.lfs is None] if whole else []
    bodies: dict[str, bytes] = {}
    fetched = _fetched(url, repo, info.sha or "", small, bodies)
    try:
        model = LockedModel(
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
    return _shaped(model, bodies)


def with_shape(model: LockedModel) -> LockedModel:
    """Add the shape of a model that was locked without it, by its config.json and its index. Raise HubError."""
    wanted = [shard for shard in model.shards if shard.path in (CONFIG, INDEX) and shard.size <= _MAX_SMALL]
    bodies: dict[str, bytes] = {}
    with in_sentences(_api(model.endpoint), model.repo, model.commit, TIMEOUT), _small_client() as client:
        for shard in wanted:
            bodies[shard.path] = _read_small(client, model.url(shard), shard.size)
            if hashlib.sha256(bodies[shard.path]).hexdigest() != shard.sha256:
                raise HubError(f"{model.url(shard)} has another sha256 than the lock", "run `herd lock --upgrade`")
    return _shaped(model, bodies)


def _shaped(model: LockedModel, bodies: Mapping[str, bytes]) -> LockedModel:
    """Return the model with its shape, if its config.json describes one."""
    if CONFIG not in bodies:
        return model
    sizes = {shard.path: shard.size for shard in model.shards}
    return model.model_copy(update={"shape": folder_shape(bodies[CONFIG], bodies.get(INDEX), sizes)})


def with_projector(model: LockedModel, mmproj: str | None) -> LockedModel:
    """Return the model at the same commit with another vision projector, or with none. Raise HubError."""
    if mmproj is None:
        return model.model_copy(update={"mmproj": None, "projector": None})
    info = model_info(model.endpoint, model.repo, model.commit)
    projector = _locked(model.repo, projector_of(info.siblings or [], model.repo, mmproj))
    if projector.path in {shard.path for shard in model.shards}:
        raise HubError(f"`mmproj: {mmproj}` is {projector.path}, which `files` names already", "name the projector")
    return model.model_copy(update={"mmproj": mmproj, "projector": projector})


def with_header(model: LockedModel, patience: HubPatience | None = None) -> LockedModel:
    """Add the headers of the model's shards, read by HTTP ranges. Raise HubError.

    It costs a request and some megabytes for each shard.
    """
    from llamaherd.gguf.parse import GgufError
    from llamaherd.gguf.shards import DEFAULT_PATIENCE, fetch_header, join_headers

    shards: list[LockedFile] = []
    parsed: list[Parsed] = []
    for shard in model.shards:
        url = model.url(shard)
        header, _ = fetch_header(url, token_for(url), shard.size, patience or DEFAULT_PATIENCE)
        parsed.append(header)
        shards.append(shard.model_copy(update={"data_offset": header.data_offset}))
    what = f"{model.repo}, {model.files}"
    try:
        joined = join_headers(parsed)
    except GgufError as error:
        raise HubError(f"{what} cannot be used: {error}", _OTHER_FILES) from None
    if problem := contradiction(shards, joined):
        raise HubError(f"{what}: {problem}", _OTHER_FILES)
    return model.model_copy(update={"shards": tuple(shards), "header": joined})


_OTHER_FILES = "lock an earlier revision, or another quant"


def model_info(url: str, repo: str, revision: str) -> ModelInfo:
    """Return the hub's description of a repository that may be downloaded from. Raise HubError."""
    api = _api(url)
    with in_sentences(api, repo, revision, TIMEOUT):
        info = api.model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT)
        _refuse_nonsense(info)
        if info.gated:
            # A gated repository shows its file list to everyone, and refuses only the download.
            api.auth_check(repo)
    return info


def _refuse_nonsense(info: ModelInfo) -> None:
    """Check that the client's values from JSON have their declared types. Raise TypeError."""
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
    # Otherwise the client queries the hub about agent programs first, once a day. It reads this at import.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi, set_client_factory

    from llamaherd.bounded import BoundedClient, Bounds

    # The client's own one reads without end.
    set_client_factory(lambda: BoundedClient(Bounds(_MAX_LISTING, TIMEOUT)))
    return HfApi(endpoint=url)


def _fetched(
    url: str, repo: str, commit: str, files: Sequence[RepoSibling], bodies: dict[str, bytes]
) -> list[LockedFile]:
    """Hash files whose sha256 the hub does not list, and put those that describe a model into `bodies`.

    Raise HubError.
    """
    if not files:
        return []
    sizes = [file.size or 0 for file in files]
    if max(sizes) > _MAX_SMALL or sum(sizes) > _MAX_ALL_SMALL:
        most, largest = max(zip(sizes, (file.rfilename for file in files), strict=True))
        raise HubError(
            f"{repo} has {sum(sizes)} bytes in files without a sha256 on the hub, {most} of them in {largest}",
            "make `files` narrower, so that it matches the weights and the other files that the engine needs",
        )
    locked = []
    with in_sentences(_api(url), repo, commit, TIMEOUT), _small_client() as client:
        for file in files:
            address = f"{url}/{repo}/resolve/{commit}/{quote(file.rfilename)}"
            body = _read_small(client, address, file.size or 0)
            if file.rfilename in (CONFIG, INDEX):
                bodies[file.rfilename] = body
            sha256 = hashlib.sha256(body).hexdigest()
            locked.append(LockedFile(path=file.rfilename, size=len(body), sha256=sha256))
    return locked


def _small_client() -> BoundedClient:
    from llamaherd.bounded import BoundedClient, Bounds

    return BoundedClient(Bounds(_MAX_SMALL, TIMEOUT))


def _read_small(client: BoundedClient, address: str, size: int) -> bytes:
    """Return a file that has this many bytes. Raise HubError."""
    token = token_for(address)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = bytearray()
    with client.stream("GET", address, headers=headers) as response:
        if response.status_code != 200:
            raise HubError(f"{address} returned status {response.status_code}", "try again later")
        for piece in response.iter_raw():
            body += piece
            if len(body) > size:
                break
    if len(body) != size:
        raise HubError(f"{address} has other than the {size} bytes that the hub lists", "try again")
    return bytes(body)


_PAGES = "buckets/ggml-org/llama-ui"
"""Where the authors of llama.cpp publish the web page of each build (scripts/ui-assets.cmake of b11434)."""
_MAX_SUM = 4096
"""Bytes of a file with a sha256."""


def page_of(build: int) -> LockedPage | None:
    """Return the archive of the web page of a build of llama.cpp; None if the hub has none. Raise HubError."""
    from llamaherd.bounded import BoundedClient, Bounds

    hub = endpoint()
    url = f"{hub}/{_PAGES}/resolve/b{build}/dist.tar.gz"
    bounds = Bounds(_MAX_SUM, TIMEOUT)
    with in_sentences(_api(hub), _PAGES, f"b{build}", TIMEOUT), BoundedClient(bounds) as client:
        response = client.get(f"{url}.sha256")
    if response.status_code == 404:
        return None
    found = re.match(r"[0-9a-fA-F]{64}(?![0-9a-fA-F])", response.text)
    if response.status_code != 200 or found is None:
        raise HubError(f"{url}.sha256 returned status {response.status_code} without a sha256", "try again later")
    return LockedPage(url=url, sha256=found[0].lower())


def _locked(repo: str, file: RepoSibling) -> LockedFile:
    if file.lfs is None:
        raise HubError(
            f"the hub lists no sha256 for {file.rfilename} of {repo}, so it could not be verified",
            "match GGUF files alone, such as `*Q4_K_M*.gguf`; the hub keeps sums of large files only",
        )
    return LockedFile(path=file.rfilename, size=file.lfs.size, sha256=file.lfs.sha256)


def token_for(url: str) -> str | None:
    """Return the token in use, if `url` is of the hub in use: a lock that names another host must not get it."""
    from huggingface_hub import get_token

    return get_token() if url.startswith(f"{endpoint()}/") else None


_QUANT_SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}")
_NAME = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d[A-Z0-9]*(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|F32|(?:MX|NV)FP4(?:_[A-Z]+)*))$",
    re.IGNORECASE,
)
_NO_MODELS = ("mmproj", "imatrix")
"""Parts of the names of GGUF files that are no model."""

USUAL = ("UD-Q4_K_XL", "Q4_K_M", "Q4_K_S", "IQ4_XS", "MXFP4_MOE", "MXFP4", "Q4_0", "UD-Q5_K_XL", "Q5_K_M", "Q8_0")
"""The quants that are taken if none is named, the first that a repository has: about 4 bits lose little."""


@dataclass(frozen=True)
class Quant:
    """One model of a repository. `name` is its quant, or its file if the file's name has none; `size` is in bytes.

    `files` is a pattern for exactly its files. `short` is set if the key `quant` with its name has the same meaning.
    """

    name: str
    files: str
    size: int
    short: bool = False

    @property
    def keys(self) -> dict[str, str]:
        """Return the keys of an inventory that name its files."""
        return {"quant": self.name} if self.short else {"files": self.files}


@dataclass(frozen=True)
class RepoQuants:
    """The quants of a repository, the largest first, and its vision projectors."""

    repo: str
    each: tuple[Quant, ...]
    projectors: tuple[str, ...] = ()

    def named(self, name: str | None) -> Quant:
        """Return the quant of a name, in upper or lower case; without a name, a usual one. Raise HubError."""
        by_name = {each.name.upper(): each for each in self.each}
        found = [each for word in ((name,) if name else USUAL) if (each := by_name.get(word.upper()))]
        if name is None and len(self.each) == 1:
            found = [*self.each]
        if found:
            return found[0]
        if not self.each:
            raise HubError(f"{self.repo} has no GGUF file", "choose a repository that has some, often named `…-GGUF`")
        what = f"has no quant `{name}`" if name else "has no usual quant"
        raise HubError(f"{self.repo} {what}", f"name one of its quants: {self.shown}")

    def smaller(self, than: int) -> tuple[Quant, ...]:
        """Return the quants with fewer bytes, the largest first."""
        return tuple(each for each in self.each if each.size < than)

    @property
    def shown(self) -> str:
        """The names of the quants, as many as a message holds."""
        names = [each.name for each in self.each]
        more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
        return f"{', '.join(f'`{each}`' for each in names[:_MOST_SHOWN])}{more}"


_MOST_SHOWN = 12


def quants_of(repo: str, revision: str = "main") -> RepoQuants:
    """Query the hub for the quants of a repository. Raise HubError."""
    return group_files(repo, model_info(endpoint(), repo, revision).siblings or [])


def group_files(repo: str, siblings: Sequence[RepoSibling]) -> RepoQuants:
    """Return the quants among the files of a repository. The shards of a model are one quant."""
    sizes = {each.rfilename: each.size or 0 for each in siblings}
    paths = [path for path in sorted(sizes) if path.endswith(".gguf")]
    projectors = tuple(path for path in paths if "mmproj" in path.lower())
    groups: dict[str, list[str]] = {}
    for path in paths:
        if not any(part in path.rpartition("/")[2].lower() for part in _NO_MODELS):
            shard = _QUANT_SHARD.fullmatch(path.removesuffix(".gguf"))
            groups.setdefault(shard["stem"] if shard else path, []).append(path)
    found = [_quant(stem, files, sum(sizes[each] for each in files), sizes) for stem, files in groups.items()]
    names = [each.name.upper() for each in found]
    # Two files with one quant differ by their paths.
    single = [
        each if names.count(each.name.upper()) == 1 else Quant(each.files, each.files, each.size) for each in found
    ]
    return RepoQuants(repo, tuple(sorted(single, key=lambda each: -each.size)), projectors)


def _quant(stem: str, files: Sequence[str], size: int, everything: Iterable[str]) -> Quant:
    """Return the quant of a group of files."""
    whole = stem if len(files) == 1 and files[0] == stem else f"{stem}-*.gguf"
    match = _NAME.search(stem.removesuffix(".gguf"))
    if match is None:
        return Quant(whole, whole, size)
    matching = {path for path in everything if fnmatchcase(path, f"*{match[1]}*.gguf")}
    return Quant(match[1], whole, size, short=matching == {*files})
