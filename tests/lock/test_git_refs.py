"""Tags and branches of real repositories, asked with the real git."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llamaherd.lock import git_refs
from llamaherd.lock.git_refs import GitError, Ref
from tests.support.registry_server import Registry

SECRET = "canary-token"


@dataclass(frozen=True)
class Repository:
    """A bare repository, and what its names stand for."""

    folder: Path
    first: str
    second: str

    @property
    def url(self) -> str:
        return f"file://{self.folder}"


def git(folder: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "tom@lan" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    folder = tmp_path_factory.mktemp("git") / "llama.cpp"
    folder.mkdir()
    git(folder, "init", "-q", "--bare", "-b", "master")
    tree = git(folder, "mktree")
    first = git(folder, "commit-tree", tree, "-m", "first")
    second = git(folder, "commit-tree", tree, "-p", first, "-m", "second")
    for ref, commit in {
        "refs/heads/master": second,
        "refs/heads/gg/kv-cache": first,
        "refs/tags/b11433": first,
        "refs/tags/b11434": second,
        "refs/tags/twice": first,
        "refs/heads/twice": second,
        "refs/tags/same": first,
        "refs/heads/same": first,
        # Names that end like another one are others.
        "refs/tags/old/b1": first,
        "refs/heads/refs/heads/odd": first,
    }.items():
        git(folder, "update-ref", ref, commit)
    git(folder, "tag", "-a", "v1.0", first, "-m", "a tag with a text")
    return Repository(folder, first, second)


def refusal(url: str, ref: str = "master") -> GitError:
    with pytest.raises(GitError) as caught:
        git_refs.commit_of(url, ref)
    assert SECRET not in str(caught.value)
    assert caught.value.help
    return caught.value


def test_branches_and_tags_are_full_commits(repository: Repository) -> None:
    assert git_refs.commit_of(repository.url, "master") == Ref(repository.second)
    assert git_refs.commit_of(repository.url, "b11433") == Ref(repository.first)
    assert git_refs.commit_of(repository.url, "gg/kv-cache") == Ref(repository.first)
    assert git_refs.commit_of(str(repository.folder), "b11434") == Ref(repository.second)


def test_an_annotated_tag_is_followed_to_its_commit(repository: Repository) -> None:
    tag = git(repository.folder, "rev-parse", "v1.0")
    assert tag != repository.first
    assert git_refs.commit_of(repository.url, "v1.0") == Ref(repository.first)


def test_of_a_tag_and_a_branch_the_tag_is_taken_and_said(repository: Repository) -> None:
    found = git_refs.commit_of(repository.url, "twice")
    assert found.commit == repository.first
    assert found.note
    assert "tag and a branch named `twice`" in found.note
    assert git_refs.commit_of(repository.url, "same") == Ref(repository.first)


@pytest.mark.parametrize(
    ("ref", "help_"),
    [("b11435", "`b11434`"), ("mastr", "`master`"), ("b1", "`b11434`"), ("odd", "nearest"), ("*", "nearest")],
)
def test_a_name_that_is_not_there_gets_the_nearest(repository: Repository, ref: str, help_: str) -> None:
    error = refusal(repository.url, ref)
    assert f"no tag and no branch `{ref}`" in error.message
    assert help_ in error.help


def test_the_start_of_a_commit_gets_the_whole_one(repository: Repository) -> None:
    assert repository.second in refusal(repository.url, repository.second[:9]).help
    assert "all 40 digits" in refusal(repository.url, "0123456789ab").help


def test_an_empty_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare")
    assert "empty" in refusal(f"file://{tmp_path}").help


@pytest.mark.usefixtures("starts_processes")
def test_where_there_is_no_repository(tmp_path: Path) -> None:
    assert "no git repository at" in refusal(f"file://{tmp_path}/absent").message
    assert "no git repository at" in refusal(f"file://{tmp_path}").message


@pytest.mark.parametrize(
    "url", ["--upload-pack=touch HERE", "-oProxyCommand=touch HERE", "file:///x\0y", "https://x\n/y"]
)
def test_a_url_is_never_an_option(url: str, tmp_path: Path) -> None:
    here = tmp_path / "made"
    assert "is not a git URL" in refusal(url.replace("HERE", str(here))).message
    assert not here.exists()


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("url", ["ext::touch HERE", "ext::sh -c touch% HERE", "fd::17", "foo://x/y"])
def test_a_url_never_runs_a_command(url: str, tmp_path: Path) -> None:
    here = tmp_path / "made"
    assert "needs a protocol that is not allowed" in refusal(url.replace("HERE", str(here))).message
    assert not here.exists()


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = refusal(f"http://tom:{SECRET}@127.0.0.1:{taken.getsockname()[1]}/llama.cpp")
        assert "cannot be reached" in error.message
        assert "`source: {archive: FILE}`" in error.help


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "without a login"),
        (403, "without a login"),
        (404, "no git repository"),
        (429, "429"),
        (503, "has a failure"),
    ],
)
def test_what_servers_answer(monkeypatch: pytest.MonkeyPatch, status: int, words: str) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Registry({}) as server:
        server.status = status
        assert words in refusal(f"http://tom:{SECRET}@{server.host}/llama.cpp").message
        assert server.requests


def test_somebody_else_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Registry({}) as server:
        server.status = 200
        assert server.host in refusal(f"http://{server.host}/llama.cpp").message


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"git://127.0.0.1:{server.getsockname()[1]}/x"


def test_a_silent_server_is_left(monkeypatch: pytest.MonkeyPatch, silent: str) -> None:
    monkeypatch.setattr(git_refs, "TIMEOUT", 0.5)
    assert "did not respond" in refusal(silent).message


def test_git_that_closes_its_output_and_stays_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexec >&- 2>&-\nsleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(git_refs, "TIMEOUT", 1)
    began = time.monotonic()
    assert "did not respond within 1 seconds" in refusal("file:///x").message
    assert time.monotonic() - began < 15


@pytest.mark.usefixtures("starts_processes")
def test_git_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install git" in refusal("file:///x").help


def test_settings_of_the_folder_one_stands_in_do_not_matter(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "url.file:///absent.insteadOf", repository.url)
    monkeypatch.chdir(tmp_path)
    assert git_refs.commit_of(repository.url, "master") == Ref(repository.second)


def test_a_shown_url_has_no_password() -> None:
    assert git_refs.plain_url(f"https://tom:{SECRET}@git.lan/x") == "https://git.lan/x"
    assert git_refs.plain_url("git@github.com:a/b") == "git@github.com:a/b"
