"""`herd lock`, `herd outdated` and `herd upgrade` of a release: GitHub over real HTTP, a real git repository."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.lock import read_lock_file
from tests.lock.test_git_refs import git
from tests.lock.test_releases import published
from tests.support import gguf_files
from tests.support.envelope import the_rig
from tests.support.gguf_files import Weight
from tests.support.github_server import REPOSITORY, Github

RIG = """\
rig: duo
connect: {host: 127.0.0.1, port: 9, user: tom}
host: {os: debian-12, cpu: {cores: 2}, ram: 32GB}
engines:
  # as its authors built it
  main: {kind: llama.cpp, release: b11434}   # stable
models:
  gemma: {file: gemma.gguf}
instances:
  chat: {engine: main, model: gemma, context: 4096, port: 8080}
"""


@dataclass(frozen=True)
class World:
    """A fleet folder with a release, and GitHub."""

    folder: Path
    github: Github

    @property
    def file(self) -> Path:
        return self.folder / "duo.yaml"

    def herd(self, *words: str) -> Result:
        ended = CliRunner().invoke(main, [*words, "-i", str(self.folder)], prog_name="herd")
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    folder, repository = tmp_path / "fleet", tmp_path / "git" / REPOSITORY
    folder.mkdir()
    repository.mkdir(parents=True)
    git(repository, "init", "-q", "--bare")
    commit = git(repository, "commit-tree", git(repository, "mktree"), "-m", "a")
    for tag in ("b11434", "b12359", "b12360"):
        git(repository, "update-ref", f"refs/tags/{tag}", commit)
    weights = (Weight("token_embd.weight", (64, 512), "Q8_0"), Weight("output_norm.weight", (64,)))
    model = gguf_files.Model("llama", "gemma", {"block_count": 0, "embedding_length": 64}, weights)
    gguf_files.write(model, folder / "gemma.gguf")
    (folder / "duo.yaml").write_text(RIG)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{tmp_path}/git/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Github({"b11434": published("b11434")}) as github:
        monkeypatch.setenv("GITHUB_API_URL", github.url)
        yield World(folder, github)


@pytest.mark.usefixtures("starts_processes")
def test_a_release_moves_in_the_inventory_and_in_the_lock(world: World) -> None:
    ended = world.herd("lock")
    assert ended.exit_code == 0, ended.output
    assert "1 release" in ended.output
    (build,) = the_rig(world.herd("show", "duo", "--json").stdout)["builds"]
    assert build["release"]["tag"] == "b11434"
    # A tag is there before its archives.
    world.github.releases = {"b12360": {}, "b12359": published("b12359"), **world.github.releases}
    outdated = world.herd("outdated")
    assert outdated.exit_code == 0, outdated.output
    rows = [line.split() for line in outdated.stdout.splitlines()]
    assert ["main", "engine", "b11434", "b12359", "newer"] in rows
    assert "b12360" not in outdated.output
    ended = world.herd("upgrade", "main", "--yes", "--no-apply", "--no-try")
    assert ended.exit_code == 0, ended.output
    assert world.file.read_text() == RIG.replace("b11434", "b12359")
    lock = read_lock_file(world.folder / "herd.lock")
    assert [each.release for each in lock.releases] == ["b12359"]
    assert [each.ref for each in lock.engines] == ["b12359"]
    assert "everything is at its newest version" in world.herd("upgrade", "--yes").output


@pytest.mark.usefixtures("starts_processes")
def test_a_release_without_an_archive_is_an_error_with_its_place(world: World) -> None:
    world.github.releases["b11434"] = published("b11434", "cuda-12.8-x64")
    ended = world.herd("lock")
    assert ended.exit_code == 1, ended.output
    assert (
        f"{world.file}:6:36: error LH034: release b11434 of {REPOSITORY} has no archive for Linux x86-64"
        in ended.output
    )
    assert "write `ref: b11434` in place of `release`" in ended.output
    assert not (world.folder / "herd.lock").exists()
