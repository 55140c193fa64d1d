"""Resolve releases on GitHub to their archives, and verify with `gh` that the authors' own workflow built them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from llamaherd.diagnostics.findings import UserError
from llamaherd.lock.apply import choose_names, describe_system, systems_of
from llamaherd.lock.file import LockedRelease, LockedReleaseFile, ReleaseKey
from llamaherd.text.numbers import parse_json, show_size

if TYPE_CHECKING:
    from httpx2 import Response


T = TypeVar("T")

API = "https://api.github.com"
_SITE = "https://github.com/"
_MOST_RESPONSE = 32 << 20
"""Bytes: a page of 30 releases with 35 archives each has some 2 MB."""
_MOST_ARCHIVE, _SILENCE, _TOTAL = 4 << 30, 30.0, 1800.0
"""The limits of an archive that is fetched to hash or to verify it: bytes, and seconds."""
_NEWEST = 30
"""Releases that are searched for a newer one. llama.cpp has some ten a day."""
_GH_SECONDS = 120
_NEEDS_LOGIN = 4
"""The exit code of `gh` without a login (gh-attestation(1))."""


class GithubError(UserError):
    """A release that cannot be resolved or verified: one sentence, and a fix. Neither holds a token."""


@dataclass(frozen=True)
class Unverified:
    """Why the origin of a release is not verified, and a fix. `is_suspicious`: `gh` ran and found nothing."""

    message: str
    help: str
    is_suspicious: bool = False


class _Asset(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    name: Annotated[str, Field(max_length=300)]
    browser_download_url: Annotated[str, Field(max_length=2000)]
    size: Annotated[int, Field(ge=0, le=_MOST_ARCHIVE)]
    digest: Annotated[str, Field(max_length=200)] | None = None


class _Release(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    tag_name: Annotated[str, Field(max_length=300)]
    draft: bool = False
    assets: Annotated[tuple[_Asset, ...], Field(max_length=1000)] = ()

    @property
    def names(self) -> list[str]:
        """The names of its files."""
        return [each.name for each in self.assets]


def endpoint() -> str:
    """Return the URL of GitHub's API: GITHUB_API_URL, as in GitHub's own workflows, or the public one."""
    return (os.environ.get("GITHUB_API_URL") or API).rstrip("/")


def resolve(key: ReleaseKey) -> LockedRelease:
    """Query GitHub for the archives of a release for a system. Raise GithubError."""
    git, tag, system = key
    repository = _repository(git)
    release = _query(f"/repos/{repository}/releases/tags/{quote(tag, safe='')}", _Release, repository, tag)
    chosen = choose_names(release.names, system)
    if not chosen:
        there = systems_of(release.names)
        known = f"it has some for {', '.join(map(describe_system, there))}; " if there else ""
        raise GithubError(
            f"release {tag} of {repository} has no archive for {describe_system(system)}",
            f"{known}name another release, or write `ref: {tag}` in place of `release`, which builds it on the host",
        )
    assets = {each.name: each for each in release.assets}
    try:
        archives = tuple(_archive(assets[name]) for name in chosen)
        return LockedRelease(git=git, release=tag, system=system, archives=archives)
    except ValidationError:
        raise _invalid(repository) from None


def tags_with_archives(git: str, systems: Collection[str]) -> list[str]:
    """Query GitHub for the tags of new releases that have archives for these systems. Raise GithubError."""
    repository = _repository(git)
    newest = _query(f"/repos/{repository}/releases?per_page={_NEWEST}", tuple[_Release, ...], repository)
    # Builds follow each other so fast that the latest release with a version may be older than all of these.
    latest = _query(f"/repos/{repository}/releases/latest", _Release, repository)
    return [
        each.tag_name
        for each in (*newest, latest)
        if not each.draft and all(choose_names(each.names, system) for system in systems)
    ]


def _repository(git: str) -> str:
    """Return `owner/name` of a repository on GitHub."""
    return git.removeprefix(_SITE).removesuffix(".git")


def _archive(asset: _Asset) -> LockedReleaseFile:
    """Return the entry of an archive, which is fetched to hash it if GitHub has no hash of it."""
    url = asset.browser_download_url
    found = re.fullmatch(r"sha256:([0-9a-f]{64})", asset.digest or "")
    sha256 = found[1] if found else _fetch(LockedReleaseFile(url=url, sha256="0" * 64, size=asset.size), None)
    return LockedReleaseFile(url=url, sha256=sha256, size=asset.size)


def _query(path: str, kind: type[T], repository: str, tag: str = "") -> T:
    """Return a response of the API. Raise GithubError."""
    from llamaherd.bounded import BoundedClient, Bounds

    url = endpoint()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise GithubError("GITHUB_API_URL is not a plain URL", f"unset it, or write it like {API}")
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    if token := _token():
        headers["Authorization"] = f"Bearer {token}"
    with _sentences(url), BoundedClient(Bounds(_MOST_RESPONSE, _SILENCE)) as client:
        response = client.get(f"{url}{path}", headers=headers)
        if response.status_code != 200:
            raise _refused(response, repository, tag)
        try:
            return TypeAdapter(kind).validate_python(parse_json(response.content))
        except (ValueError, RecursionError):
            raise _invalid(repository) from None


def _token() -> str | None:
    """Return the token of the environment, with which GitHub allows more requests. Raise GithubError."""
    token = (os.environ.get("GH_TOKEN") or os.environ.get("GITHUB_TOKEN") or "").strip()
    if token and not re.fullmatch(r"[!-~]+", token):
        raise GithubError("GH_TOKEN contains characters that no token has", "copy it anew, or unset it")
    return token or None


def _refused(response: Response, repository: str, tag: str) -> GithubError:
    status = response.status_code
    if status == 404 and tag:
        help_ = f"{_SITE}{repository}/releases lists them; `ref: {tag}` builds a tag without a release on the host"
        return GithubError(f"{repository} has no release `{tag}`", help_)
    if status in (403, 429):
        help_ = "set GH_TOKEN to a token of yours, or try again in an hour"
        return GithubError(f"GitHub limits the requests of this network ({status})", help_)
    if status == 401:
        return GithubError("GitHub does not accept the token in GH_TOKEN", "copy it anew, or unset it")
    return GithubError(f"GitHub responds with status {status} for {repository}", "try again later")


def _invalid(repository: str) -> GithubError:
    return GithubError(f"{endpoint()} sent no valid list of the releases of {repository}", "check GITHUB_API_URL")


@contextmanager
def _sentences(url: str) -> Iterator[None]:
    """Turn the client's exceptions into GithubError."""
    import httpx2

    from llamaherd.bounded import ExcessError

    host = urlsplit(url).hostname
    help_ = "check the network and any proxy, and try again"
    try:
        yield
    except ExcessError as error:
        raise GithubError(f"{host} {error}", help_) from None
    except (httpx2.RequestError, httpx2.InvalidURL) as error:
        reason = str(error) if isinstance(error, httpx2.ConnectError) else type(error).__name__
        local = "without internet, use a file of this machine: `source: {archive: FILE}`"
        raise GithubError(f"{host} cannot be reached: {reason}", f"{help_}; {local}") from None


# --- the attestation ----------------------------------------------------------------------------------------


def unverified(release: LockedRelease, report: Callable[[str], None]) -> Unverified | None:
    """Verify that the authors' workflow built the archives; return None if it did, or why that is unknown.

    `gh` reads the archives, so they are fetched. Raise GithubError if an attestation is not valid.
    """
    program = shutil.which("gh")
    if program is None:
        help_ = "the lock has the hashes that GitHub lists; with `gh`, `herd lock --upgrade` verifies their origin"
        return Unverified("`gh` is not installed on this machine", help_)
    try:
        with TemporaryDirectory(prefix="llamaherd-release-") as folder:
            return _unverified_in(Path(folder), program, release, report)
    except OSError as error:
        help_ = "make room there, or set TMPDIR to another folder"
        raise GithubError(f"{error.filename or 'the archive'} cannot be written: {error.strerror}", help_) from None


def _unverified_in(
    folder: Path, program: str, release: LockedRelease, report: Callable[[str], None]
) -> Unverified | None:
    """Fetch each archive to a folder, and verify it. Raise GithubError and OSError."""
    for archive in release.archives:
        name = archive.url.rpartition("/")[2]
        report(f"fetching {name} ({show_size(archive.size)}) to verify its attestation")
        file = folder / name
        if _fetch(archive, file) != archive.sha256:
            raise GithubError(f"{name} has another sha256 than GitHub lists", "try again; do not lock it otherwise")
        if doubt := _unverified_file(program, file, _repository(release.git)):
            return doubt
        file.unlink()
    return None


def _unverified_file(program: str, file: Path, repository: str) -> Unverified | None:
    """Return None if `gh` verifies an archive, or why that is unknown. Raise GithubError."""
    command = [program, "attestation", "verify", str(file), "--repo", repository, "--format", "json"]
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GH_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GH_PROMPT_DISABLED": "1", "NO_COLOR": "1"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it has not ended within {_GH_SECONDS} s"
        return Unverified(f"`gh` failed: {reason}", "run `gh attestation verify --help`, and lock again")
    if ended.returncode == _NEEDS_LOGIN:
        return Unverified("`gh` is not logged in", "run `gh auth login`, and lock again")
    # Until 2.66, gh ended with 0 where there is no attestation (cli/cli#10418).
    if ended.returncode == 0 and _has_results(ended.stdout):
        return None
    last = next(iter(ended.stderr.strip().splitlines()[-1:]), "no result")[:200]
    if ended.returncode == 0 or re.search(r"(?i)no attestations|HTTP 404", ended.stderr):
        help_ = f"compare it with {_SITE}{repository}/attestations before you commit the lock"
        return Unverified(f"GitHub has no attestation of {file.name}", help_, is_suspicious=True)
    help_ = f"fetch it, and run `gh attestation verify FILE --repo {repository}` to see why; do not use it otherwise"
    raise GithubError(f"`gh` does not verify {file.name}: {last}", help_)


def _has_results(text: str) -> bool:
    try:
        found = parse_json(text.encode())
    except (ValueError, RecursionError):
        return False
    return isinstance(found, list) and bool(found)


def _fetch(archive: LockedReleaseFile, to: Path | None) -> str:
    """Return the sha256 of an archive's content, which is written to a file. Raise GithubError, and OSError for it."""
    from llamaherd.bounded import BoundedClient, Bounds

    name, digest = archive.url.rpartition("/")[2], hashlib.sha256()
    with (
        _sentences(archive.url),
        BoundedClient(Bounds(archive.size, _SILENCE, _TOTAL)) as client,
        client.stream("GET", archive.url) as response,
        Path(to or os.devnull).open("wb") as file,
    ):
        if response.status_code != 200:
            raise GithubError(f"{name} cannot be fetched: status {response.status_code}", "try again later")
        for piece in response.iter_bytes():
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()
