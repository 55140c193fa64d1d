"""Tags and branches: their commits, queried with the controller's own git, and the versions in tags."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from llamaherd.diagnostics.findings import UserError
from llamaherd.text.numbers import show_size

TIMEOUT = 60.0  # seconds for one query; the list of llama.cpp's refs takes two
_PROTOCOLS = "https:http:ssh:git:file"  # not `ext`, by which a URL would run commands here
_LINE = re.compile(r"(?P<commit>[0-9a-f]{40})\trefs/(?P<kind>heads|tags)/(?P<name>.+)")
_SHORTEST = 7  # digits that git shortens a commit to
_AGAIN = "check the network and any proxy, and try again"
_ODD = "check the spelling of `git`, and any proxy in between"
_MOST = 32 << 20  # bytes that git may print: llama.cpp's list of refs has three million
_MEMORY_KIB = 200 << 10  # that git may take to read the output of a server; it needs some 10,000
_MAX_COMPARED = 20_000  # names that are compared with a missing one
_NOT_FOUND = 127  # the exit status of a shell that has not found its command


class GitError(UserError):
    """A ref that cannot be resolved: one sentence, and a fix. Neither holds a password of the URL."""


@dataclass(frozen=True)
class Ref:
    """The commit of a name; `note` describes what may be unexpected about it."""

    commit: str
    note: str | None = None


@dataclass(frozen=True)
class _Refs:
    """Names and commits; of an annotated tag, the commit that it is for."""

    tags: Mapping[str, str]
    branches: Mapping[str, str]


def commit_of(git: str, ref: str) -> Ref:
    """Query the repository at the URL `git` for the commit of `ref`: a tag, else a branch. Raise GitError."""
    found = _list_refs(git, f"refs/tags/{ref}", f"refs/tags/{ref}^{{}}", f"refs/heads/{ref}")
    tag, branch = found.tags.get(ref), found.branches.get(ref)
    if tag and branch and tag != branch:
        return Ref(tag, f"{plain_url(git)} has a tag and a branch named `{ref}`; the tag is taken")
    if commit := tag or branch:
        return Ref(commit)
    raise GitError(f"{plain_url(git)} has no tag and no branch `{ref}`", _suggest(git, ref))


def tags_and_branch(git: str, ref: str) -> tuple[Mapping[str, str], str | None]:
    """Query a repository for the commits of all its tags, and for the commit of the branch `ref`. Raise GitError."""
    found = _list_refs(git, "refs/tags/*", f"refs/heads/{ref}")
    return found.tags, found.branches.get(ref)


def plain_url(git: str) -> str:
    """Return a git URL without the user and password that may be in it."""
    return re.sub(r"(?<=://)[^/]*@", "", git)


def _suggest(git: str, ref: str) -> str:
    refs = _list_refs(git, "refs/tags/*", "refs/heads/*")
    known = {**refs.branches, **refs.tags}
    begun = next((commit for commit in known.values() if commit.startswith(ref)), None)
    if begun and len(ref) >= _SHORTEST:
        return f"that may be `commit: {begun}`"
    close = get_close_matches(ref, list(known)[:_MAX_COMPARED], n=5, cutoff=0.5)
    # llama.cpp's tags, such as b11434, are hexadecimal digits as well.
    if not close and re.fullmatch(rf"[0-9a-f]{{{_SHORTEST},40}}", ref):
        return "for a commit, give all 40 digits of it"
    names = close or list(refs.branches)[:5]
    return f"nearest: {', '.join(f'`{name}`' for name in names)}" if names else "that repository is empty"


def _list_refs(git: str, *patterns: str) -> _Refs:
    """Return the refs that match. Raise GitError."""
    if git.startswith("-") or not git.isprintable():
        raise GitError(f"{git!r} is not a git URL", "write it like `https://github.com/ggml-org/llama.cpp`")
    tags: dict[str, str] = {}
    branches: dict[str, str] = {}
    for line in _run_git(git, "ls-remote", "--", git, *patterns).splitlines():
        if match := _LINE.fullmatch(line):
            named = tags if match["kind"] == "tags" else branches
            # The line with `^{}` follows that of the tag itself, and is for the commit rather than the tag's text.
            named[match["name"].removesuffix("^{}")] = match["commit"]
    return _Refs(tags, branches)


def _run_git(git: str, *arguments: str) -> str:
    """Return the output of git. Raise GitError."""
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
        # git must not read settings of a repository that herd is started in.
        "GIT_DIR": os.devnull,
    }
    try:
        # In a session of its own it has no terminal, so ssh cannot prompt for a passphrase.
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'ulimit -d {_MEMORY_KIB} 2>/dev/null; exec git "$@"', "git", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise _no_git(error.strerror or type(error).__name__) from None
    with process:
        try:
            out, complaints = _read_output(process, git)
        except BaseException:
            _kill(process)
            raise
    if process.returncode == _NOT_FOUND:
        raise _no_git("it is not installed")
    if process.returncode != 0:
        raise _refusal(git, complaints.decode(errors="replace"))
    return out.decode(errors="replace")


def _read_output(process: subprocess.Popen[bytes], git: str) -> tuple[bytes, bytes]:
    """Return the output and the errors of a process until it ends. Raise GitError if that is too much, or too late."""
    deadline = time.monotonic() + TIMEOUT
    heard = {stream: bytearray() for stream in (process.stdout, process.stderr) if stream}
    with selectors.DefaultSelector() as open_ones:
        for stream in heard:
            open_ones.register(stream, selectors.EVENT_READ)
        while open_ones.get_map():
            ready = open_ones.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise _too_late(git)
            for stream in heard:
                if any(key.fileobj is stream for key, _ in ready):
                    piece = os.read(stream.fileno(), 1 << 16)
                    heard[stream] += piece
                    if not piece:
                        open_ones.unregister(stream)
            if sum(map(len, heard.values())) > _MOST:
                raise GitError(f"{plain_url(git)} returns more than {show_size(_MOST)}", _ODD)
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise _too_late(git) from None
    out, complaints = heard.values()
    return bytes(out), bytes(complaints)


def _too_late(git: str) -> GitError:
    return GitError(f"{plain_url(git)} did not respond within {TIMEOUT:.0f} seconds", _AGAIN)


def _no_git(reason: str) -> GitError:
    return GitError(f"git cannot be run here: {reason}", "install git on this machine")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End git and its child processes: a transport that continues would hold the pipes open."""
    os.killpg(process.pid, signal.SIGKILL)


# Messages of git, of curl in it and of ssh (in the C locale), our sentence, and the fix.
_REFUSALS = (
    (
        r"transport '.*' not allowed|protocol '.*' is not supported|remote helper|Unable to find remote helper",
        "{url} needs a protocol that is not allowed here",
        "give an https, ssh or file URL",
    ),
    (
        r"Could not resolve host|Name or service not known|Temporary failure in name resolution|Failed to connect"
        r"|Couldn't connect|Connection (refused|timed out|reset|closed)|unable to connect|No route to host",
        "{url} cannot be reached",
        f"{_AGAIN}; without internet, use a file of this machine: `source: {{archive: FILE}}`",
    ),
    (r"[Oo]ut of memory|Cannot allocate memory", "{url} returns more than a repository has", _ODD),
    (r"certificate|SSL", "{url} has no certificate that is trusted here", "check the host's name and any proxy"),
    (
        r"Host key verification failed",
        "the SSH key of {url} is unknown here",
        "log in there once by hand, so that its key is kept",
    ),
    (
        r"could not read (Username|Password)|Authentication failed|Permission denied|terminal prompts disabled"
        r"|error: 40[13]",
        "{url} has no such repository without a login",
        "check the spelling; if it is private, let a credential helper or an SSH key of this machine log in",
    ),
    (
        r"not found|does not exist|does not appear to be a git repository|No such file",
        "there is no git repository at {url}",
        "check the spelling of `git`",
    ),
    (r"error: 429", "{url} has received too many requests (429)", "try again in some minutes"),
    (r"error: 5\d\d", "{url} has a failure", "try again later"),
)


def _refusal(git: str, complaints: str) -> GitError:
    for pattern, message, help_ in _REFUSALS:
        if re.search(pattern, complaints):
            return GitError(message.format(url=plain_url(git)), help_)
    complaint = next((line for line in complaints.splitlines() if line.startswith("fatal: ")), complaints)
    reason = plain_url(complaint.replace(git, plain_url(git))).removeprefix("fatal: ").strip()[:200]
    return GitError(
        f"git cannot query {plain_url(git)}: {reason or 'it prints no reason'}", "try `git ls-remote` with it by hand"
    )


_VERSION = re.compile(r"(?<![\w.])(v?)(\d{1,9}(?:\.\d{1,9}){1,3})(?![\w.])|(?<![\w.])(b)(\d{1,9})(?![\w.])", re.ASCII)
"""The version in a tag: `v0.33.0` of `v0.33.0-cu129`, `b11434` of `server-cuda13-b11434`."""


@dataclass(frozen=True)
class TagVersion:
    """The version in a tag, and the text around it, which differs between the variants of a release."""

    before: str
    numbers: tuple[int, ...]
    after: str

    @property
    def variant(self) -> tuple[str, str, int]:
        """The parts that are equal in two tags that differ in their version only."""
        return self.before, self.after, len(self.numbers)


def tag_version(tag: str) -> TagVersion | None:
    """Return the version in a tag; None for a tag such as `latest`."""
    found = _VERSION.search(tag)
    if found is None:
        return None
    letter, digits = (found[1], found[2]) if found[2] else (found[3], found[4])
    numbers = tuple(int(part) for part in digits.split("."))
    return TagVersion(tag[: found.start()] + letter, numbers, tag[found.end() :])


def moved_version(version: str, old: str, new: str) -> str | None:
    """Return what a version becomes when a tag moves: `0.34.0` for `0.33.0`; None if it is not that of the old tag."""
    before, after = _VERSION.search(old), _VERSION.search(new)
    if before is None or after is None:
        return None
    return {before[0]: after[0], before[0].removeprefix("v"): after[0].removeprefix("v")}.get(version)


def newest_tag(tag: str, tags: Iterable[str]) -> str:
    """Return the newest tag that differs from a tag in its version only: `b12359` for `b11434`.

    A tag without a version is the newest of its kind.
    """
    own = tag_version(tag)
    if own is None:
        return tag
    known = ((tag_version(each), each) for each in tags)
    same = [(version.numbers, each) for version, each in known if version and version.variant == own.variant]
    return max([(own.numbers, tag), *same])[1]
