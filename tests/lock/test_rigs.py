"""The example rigs, locked against a hub with shard sets of the real shapes and sizes, and real git repositories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd import lock
from llamaherd.diagnostics.findings import Place
from llamaherd.gguf.shards import read_header
from llamaherd.inventory.schema import Fleet, Model
from llamaherd.lock import Lock, LockedImage, LockedPage
from llamaherd.lock.resolver import LockOutcome, lock_fleet
from llamaherd.pipeline.fleet_files import load_fleet
from tests.lock.test_git_refs import git
from tests.support import gguf_files
from tests.support.hub_files import Content, Hollow
from tests.support.hub_server import Hub
from tests.support.rigs import ROOT

REFS = {"ggml-org/llama.cpp": "refs/tags/b11434", "ikawrakow/ik_llama.cpp": "refs/heads/main"}


def shape(model: Model) -> gguf_files.Model:
    """What a model of this name is like."""
    name = str(model.hf)
    mtp, experts = "MTP" in name, {"UD-IQ3_S": "IQ3_S", "UD-Q3_K_XL": "Q3_K"}.get(str(model.quant), "Q4_K")
    if "122B" in name:
        return gguf_files.qwen(gguf_files.QWEN_122B, experts=experts, mtp=mtp, tokens=20_000)
    return gguf_files.qwen(experts=experts, mtp=mtp, tokens=20_000) if "35B" in name else gguf_files.gemma3()


def published(model: Model, folder: Path) -> dict[str, Content]:
    """The model's files as a hub shows them: the large ones in shards, in a folder of their own."""
    name = f"{str(model.hf).partition('/')[2].removesuffix('-GGUF')}-{model.quant}"
    large = "122B" in name
    paths = gguf_files.write(shape(model), folder / f"{name}.gguf", per_shard=300 if large else 0)
    files: dict[str, Content] = {}
    for path in paths:
        with path.open("rb") as stream:
            head = stream.read(read_header(path).data_offset)
        files[f"{model.quant}/{path.name}" if large else path.name] = Hollow(head, path.stat().st_size)
        path.unlink()
    return files


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return load_fleet(ROOT / "inventory" / "examples")


@pytest.fixture
def running(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    repos: dict[str, dict[str, Content]] = {}
    for rig in fleet.rigs.values():
        for model in rig.models.values():
            repos.setdefault(str(model.hf), {}).update(published(model, tmp_path))
    for name, ref in REFS.items():
        folder = tmp_path / "git" / name
        folder.mkdir(parents=True)
        git(folder, "init", "-q", "--bare")
        git(folder, "update-ref", ref, git(folder, "commit-tree", git(folder, "mktree"), "-m", name))
    # A mirror, as git itself knows it.
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{tmp_path}/git/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
    page = LockedPage(url="https://hub.lan/page.tar.gz", sha256="5b" * 32)  # test_pages.py queries a hub for one
    monkeypatch.setattr("llamaherd.lock.hub.page_of", lambda _: page)
    with Hub(repos) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def test_the_rigs_are_locked_once_and_offline_from_then_on(fleet: Fleet, running: Hub, tmp_path: Path) -> None:
    images = {engine.image for rig in fleet.rigs.values() for engine in rig.engines.values() if engine.image}
    # Registries other than this machine's speak TLS alone; test_locking.py asks one.
    old = Lock(images=tuple(LockedImage(image=image, digest=f"sha256:{'ab' * 32}") for image in images))
    place = Place(tmp_path / "herd.lock")

    def locked(value: Lock) -> LockOutcome:
        return lock_fleet(fleet, value, lambda *_: place, lambda _: None, folder=Path())

    outcome = locked(old)
    assert outcome.findings == ()
    assert lock.write_lock(place.file, outcome.lock)
    read_back = lock.read_lock_file(place.file)
    assert read_back == outcome.lock
    for rig in fleet.rigs.values():
        assert list(lock.stale(rig, read_back, lambda _: place)) == []
        for model in rig.models.values():
            header = read_back.header(model)
            assert header
            assert {t.name: t.bytes for t in header.each} == {w.name: w.bytes for w in shape(model).tensors}
    assert sum(model.size for model in read_back.models) > 150 * 10**9
    assert {len(model.shards) for model in read_back.models if "122B" in model.repo} == {3}
    asked = len(running.requests)
    assert asked == sum(1 + len(model.shards) for model in read_back.models)
    assert locked(read_back) == outcome
    assert len(running.requests) == asked
