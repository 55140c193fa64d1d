"""What `herd lock` does, against a real hub, a real registry and real git repositories of this machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd import lock
from llamaherd.diagnostics.findings import HubError, InventoryError, Place
from llamaherd.gguf.parse import CHUNK
from llamaherd.gguf.shards import HubPatience
from llamaherd.inventory.schema import Fleet, Rig
from llamaherd.inventory.yaml_file import Document, read_yaml
from llamaherd.lock import Lock, LockedImage, hub
from llamaherd.lock.resolver import LockOutcome, lock_fleet, lock_missing, requirements_of, value_places
from tests.lock.test_git_refs import git
from tests.support import gguf_files
from tests.support.gguf_files import Weight
from tests.support.hub_files import Content
from tests.support.hub_server import Hub
from tests.support.registry_server import Registry, digest_of, index

REPO, VLLM_REPO = "unsloth/Tiny-GGUF", "Qwen/Tiny"
TOKEN = "hf_canary0123456789"
SAFETENSORS = {"config.json": b"{}", "tokenizer.json": b"[" * 4000, "model.safetensors": b"x" * 9000}
BUILD_REF = "b11434"
NEW_MODELS = {"duo": {}, "six": {"small": {"hf": REPO, "quant": "Q8_0"}}}


def tiny(layers: int = 4) -> gguf_files.Model:
    weights = [Weight("token_embd.weight", (64, 512), "Q8_0"), Weight("output_norm.weight", (64,))]
    weights += [Weight(f"blk.{layer}.ffn_up.weight", (64, 96), "Q4_0") for layer in range(layers)]
    return gguf_files.Model("llama", "Tiny", {"block_count": layers, "embedding_length": 64}, tuple(weights))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Content]:
    """A repository: a model in one file, and one in three shards."""
    folder = tmp_path_factory.mktemp("models")
    one = gguf_files.write(tiny(), folder / "tiny-Q8_0.gguf")
    three = gguf_files.write(tiny(), folder / "tiny-Q4_0.gguf", per_shard=2)
    assert len(three) == 3
    return {"README.md": b"# Tiny", **{path.name: path.read_bytes() for path in (*one, *three)}}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    # The client is imported by now, so its variables are set rather than the environment.
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)


@dataclass
class World:
    """Everything that a lock asks, and the inventory that it is for."""

    folder: Path
    hub: Hub
    registry: Registry
    git: Path
    said: list[str]

    @property
    def image(self) -> str:
        return f"{self.registry.host}/vllm/vllm-openai:v1"

    def rig(self, name: str = "duo", **sections: Mapping[str, Any]) -> Document:
        """A rig's file; what is not given is one engine from git, an image, and the model in three shards."""
        declared = {
            "rig": name,
            "connect": {"host": f"{name}.lan"},
            "host": {"os": "debian-12", "cpu": {"cores": 4}, "ram": "32GB"},
            "engines": {
                "main": {"kind": "llama.cpp", "source": {"git": f"file://{self.git}", "ref": BUILD_REF}},
                "vllm": {"kind": "vllm", "image": self.image},
            },
            "models": {"tiny": {"hf": REPO, "quant": "Q4_0"}},
            "instances": {},
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(declared | sections, sort_keys=False))
        return read_yaml(file)

    def lock(
        self, *documents: Document, old: Lock | None = None, upgrade: tuple[str, ...] = (), whole: bool = True
    ) -> LockOutcome:
        """Lock the rigs in these files, and see that nothing secret was said."""
        by_name = {str(document.data["rig"]): document for document in documents}
        fleet = Fleet(rigs={name: Rig.model_validate(document.data) for name, document in by_name.items()})
        place = value_places(by_name, self.folder / "herd.lock")
        outcome = lock_fleet(fleet, old or Lock(), place, self.said.append, upgrade, folder=self.folder, whole=whole)
        assert TOKEN not in "\n".join((*self.said, *map(str, outcome.findings), lock.dumps(outcome.lock)))
        assert all(finding.help for finding in outcome.findings)
        return outcome

    @property
    def requests(self) -> int:
        return len(self.hub.requests) + len(self.registry.requests)


@pytest.fixture
def world(tmp_path: Path, files: dict[str, Content], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    repository = tmp_path / "llama.cpp"
    repository.mkdir()
    git(repository, "init", "-q", "--bare")
    commit(repository, "first")
    images = {"vllm/vllm-openai:v1": index("v1")}
    with Hub({REPO: files, VLLM_REPO: SAFETENSORS}) as running, Registry(images, login="bearer") as registry:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield World(tmp_path, running, registry, repository, [])


def commit(repository: Path, text: str) -> str:
    """A commit that the tag stands for from now on."""
    made = git(repository, "commit-tree", git(repository, "mktree"), "-m", text)
    git(repository, "update-ref", f"refs/tags/{BUILD_REF}", made)
    return made


def test_everything_that_moves_is_locked(world: World, files: dict[str, Content]) -> None:
    outcome = world.lock(world.rig())
    assert outcome.findings == ()
    assert outcome.lock.commit(f"file://{world.git}", BUILD_REF) == git(world.git, "rev-parse", BUILD_REF)
    assert outcome.lock.digest(world.image) == digest_of(world.registry.images["vllm/vllm-openai:v1"])
    (model,) = outcome.lock.models
    assert model.commit == world.hub.commit(REPO)
    assert len(model.shards) == 3
    assert [hashlib.sha256(content(files, shard.path)).hexdigest() for shard in model.shards] == [
        shard.sha256 for shard in model.shards
    ]
    assert model.header
    assert {tensor.name: tensor.bytes for tensor in model.header.each} == {w.name: w.bytes for w in tiny().tensors}
    assert model.header.layers == 4
    assert world.said == [
        f"querying file://{world.git} for {BUILD_REF}",
        f"querying {world.registry.host} for {world.image}",
        f"querying {world.hub.url} for {REPO} at main, *Q4_0*.gguf",
        f"reading the headers of 3 files of {REPO}",
    ]


def content(files: Mapping[str, Content], path: str) -> bytes:
    body = files[path]
    assert isinstance(body, bytes)
    return body


def test_what_is_locked_is_read_back_and_stays_without_a_single_request(world: World) -> None:
    document = world.rig()
    first = world.lock(document).lock
    file = world.folder / "herd.lock"
    assert lock.write_lock(file, first)
    asked, said = world.requests, len(world.said)
    commit(world.git, "second")
    world.registry.images["vllm/vllm-openai:v1"] = index("moved")
    world.hub.push(REPO, {"tiny-Q4_0.gguf": b"GGUF, but newer"})
    again = world.lock(document, old=lock.read_lock_file(file))
    assert again == LockOutcome(first, ())
    assert not lock.write_lock(file, again.lock)
    assert (world.requests, len(world.said)) == (asked, said)


def test_missing_names_are_added_and_no_locked_one_moves(world: World) -> None:
    """As `herd up` does: whatever the locked names would mean now, and what no rig declares stays, too."""
    first = world.lock(world.rig()).lock
    commit(world.git, "second")
    world.registry.images["vllm/vllm-openai:v1"] = index("moved")
    rigs = [Rig.model_validate(world.rig(name, models=models).data) for name, models in NEW_MODELS.items()]
    missing = requirements_of(Fleet(rigs={rig.rig: rig for rig in rigs}), lambda *_: Place(world.folder)).missing(
        first, world.folder
    )
    assert missing.names == {"small"}
    asked = len(world.registry.requests)
    outcome = lock_missing(missing, first, world.said.append, world.folder)
    assert (outcome.lock.engines, outcome.lock.images) == (first.engines, first.images)
    assert {model.files for model in outcome.lock.models} == {"*Q4_0*.gguf", "*Q8_0*.gguf"}
    assert first.models[0] in outcome.lock.models
    assert len(world.registry.requests) == asked


def test_a_header_costs_one_small_request_a_shard(world: World, tmp_path: Path) -> None:
    big = gguf_files.Model("llama", "Big", {"block_count": 1}, (Weight("token_embd.weight", (4096, 4096), "F16"),))
    (path,) = gguf_files.write(big, tmp_path / "big-F16.gguf")
    world.hub.push(REPO, {path.name: path})
    assert path.stat().st_size > 32 << 20
    outcome = world.lock(world.rig(models={"big": {"hf": REPO, "quant": "F16"}}, engines={}))
    assert outcome.ok
    resolved, *ranges = world.hub.requests
    assert resolved.path.startswith(f"/api/models/{REPO}/revision/main")
    assert [request.range for request in ranges] == [f"bytes=0-{CHUNK - 1}"]


def test_only_what_is_named_is_upgraded(world: World) -> None:
    document = world.rig()
    old = world.lock(document).lock
    second = commit(world.git, "second")
    world.registry.images["vllm/vllm-openai:v1"] = index("moved")
    assert world.lock(document, old=old, upgrade=("main",)).lock == old.model_copy(
        update={"engines": (old.engines[0].model_copy(update={"commit": second}),)}
    )
    moved = (LockedImage(image=world.image, digest=digest_of(index("moved"))),)
    assert world.lock(document, old=old, upgrade=("vllm",)).lock == old.model_copy(update={"images": moved})
    assert world.lock(document, old=old, upgrade=(world.image,)).lock == old.model_copy(update={"images": moved})
    everything = world.lock(document, old=old, upgrade=("all",)).lock
    assert (everything.engines[0].commit, everything.images) == (second, moved)


def test_an_upgrade_that_leaves_the_weights_alone_reads_no_header_again(
    world: World, files: dict[str, Content]
) -> None:
    document = world.rig()
    old = world.lock(document).lock
    world.hub.push(REPO, files | {"README.md": b"# Tiny, explained"})
    before = len(world.hub.requests)
    new = world.lock(document, old=old, upgrade=("tiny",)).lock
    assert len(world.hub.requests) == before + 1
    assert new.models == (old.models[0].model_copy(update={"commit": world.hub.commit(REPO)}),)


def test_a_projector_that_is_added_later_moves_no_weights(world: World, files: dict[str, Content]) -> None:
    old = world.lock(world.rig()).lock
    world.hub.push(REPO, files | {"mmproj-F16.gguf": b"GGUF" + b"p" * 99})
    commit = world.hub.commit(REPO)
    document = world.rig(models={"tiny": {"hf": REPO, "quant": "Q4_0", "mmproj": "mmproj-F16.gguf"}})
    lacking = world.lock(document, old=old)
    (finding,) = lacking.findings
    assert (finding.code, lacking.ok) == ("LH034", False)
    assert "matches `mmproj: mmproj-F16.gguf`" in finding.message

    upgraded = world.lock(document, old=old, upgrade=("tiny",)).lock
    (model,) = upgraded.models
    assert (model.commit, model.shards, model.header) == (commit, old.models[0].shards, old.models[0].header)
    assert model.projector
    assert model.projector.size == 103

    before = len(world.hub.requests)
    assert world.lock(document, old=upgraded).lock == upgraded
    without = world.lock(world.rig(), old=upgraded).lock
    assert without.models == (model.model_copy(update={"mmproj": None, "projector": None}),)
    assert len(world.hub.requests) == before
    assert world.lock(document, old=without).lock == upgraded
    assert len(world.hub.requests) == before + 1


def test_an_upgrade_of_what_is_not_there_asks_nobody(world: World) -> None:
    with pytest.raises(InventoryError) as caught:
        world.lock(world.rig(), upgrade=("main", "mian", "vllm"))
    (finding,) = caught.value.findings
    assert (finding.code, finding.place.file) == ("LH035", world.folder / "herd.lock")
    assert "`main`" in finding.help
    assert world.requests == 0


def test_a_lock_without_headers_gets_them_for_the_commit_that_it_has(world: World, files: dict[str, Content]) -> None:
    document = world.rig()
    whole = world.lock(document).lock
    bare = tuple(shard.model_copy(update={"data_offset": None}) for shard in whole.models[0].shards)
    model = whole.models[0].model_copy(update={"header": None, "shards": bare})
    world.hub.push(REPO, {"tiny-Q4_0.gguf": content(files, "tiny-Q8_0.gguf")})
    assert world.lock(document, old=whole.model_copy(update={"models": (model,)})).lock == whole


def test_what_nobody_declares_goes_unless_others_share_the_lock(world: World) -> None:
    old = world.lock(world.rig(), world.rig("six", models={"small": {"hf": REPO, "quant": "Q8_0"}})).lock
    assert len(old.models) == 2
    document = world.rig("six", models={"small": {"hf": REPO, "quant": "Q8_0"}}, engines={})
    alone = world.lock(document, old=old).lock
    assert (alone.engines, alone.images, alone.models) == ((), (), (old.models[1],))
    assert world.lock(document, old=old, whole=False).lock == old


def test_two_rigs_with_the_same_wishes_ask_once(world: World) -> None:
    world.lock(world.rig(), world.rig("six"))
    assert len(world.said) == 4


def test_every_failure_is_said_at_its_place(world: World) -> None:
    document = world.rig(
        engines={
            "absent": {"kind": "llama.cpp", "source": {"git": f"file://{world.git}", "ref": "b11435"}},
            "secret": {"kind": "llama.cpp", "source": {"git": f"https://tom:{TOKEN}@127.0.0.1:1/x", "ref": "main"}},
            "vllm": {"kind": "vllm", "image": f"{world.registry.host}/vllm/vllm-openai:v9"},
            "named": {"kind": "vllm", "image": "UPPER/case"},
        },
        models={
            "good": {"hf": REPO, "quant": "Q8_0"},
            "gone": {"hf": "unsloth/Absent", "quant": "Q8_0"},
            "none": {"hf": REPO, "quant": "Q5_K"},
        },
    )
    outcome = world.lock(document)
    assert not outcome.ok
    assert {(finding.code, finding.place) for finding in outcome.findings} == {
        ("LH034", document.value(path))
        for path in (
            ("engines", "absent", "source", "ref"),
            ("engines", "secret", "source", "ref"),
            ("engines", "vllm", "image"),
            ("engines", "named", "image"),
            ("models", "gone", "hf"),
            ("models", "none", "hf"),
        )
    }
    assert [model.files for model in outcome.lock.models] == ["*Q8_0*.gguf"]


def test_a_name_of_a_tag_and_a_branch_is_noted(world: World) -> None:
    git(world.git, "update-ref", f"refs/heads/{BUILD_REF}", git(world.git, "rev-parse", BUILD_REF))
    commit(world.git, "another")
    outcome = world.lock(world.rig())
    assert outcome.ok
    ((code, severity),) = [(finding.code, finding.severity) for finding in outcome.findings]
    assert (code, severity) == ("LH034", "note")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "requires access (401)"),
        (404, "does not exist (404)"),
        (429, "in 100 seconds"),
        (503, "has a failure (503)"),
    ],
)
def test_a_hub_that_does_not_give_the_header(world: World, status: int, words: str) -> None:
    world.hub.retry_after = 100
    world.hub.status["tiny-Q8_0.gguf"] = status
    outcome = world.lock(world.rig(models={"tiny": {"hf": REPO, "quant": "Q8_0"}}))
    assert not outcome.ok
    (finding,) = outcome.findings
    assert words in str(finding)
    assert outcome.lock.models == ()


def test_half_a_header_is_no_header(world: World) -> None:
    world.hub.truncate_after = 0
    model = hub.resolve(REPO, "main", "*Q8_0*")
    with pytest.raises(HubError) as caught:
        hub.with_header(model, HubPatience(attempts=2, pause=0.01))
    assert "failed" in caught.value.message
    world.hub.truncate_after = 1000
    assert hub.with_header(model, HubPatience(pause=0.01)).header


def test_a_file_that_is_no_model_is_refused(world: World, files: dict[str, Content]) -> None:
    body = content(files, "tiny-Q8_0.gguf")
    for broken, words in (
        (b"<html>" + body, "not a GGUF file"),
        (body[:-1], "ends too early"),
        (body + bytes(1 << 20), "take no more than"),
    ):
        world.hub.push(REPO, {"tiny-Q8_0.gguf": broken})
        outcome = world.lock(world.rig(models={"tiny": {"hf": REPO, "quant": "Q8_0"}}, engines={}))
        (finding,) = outcome.findings
        assert words in finding.message


def test_the_token_goes_to_the_hub_and_into_no_lock(
    files: dict[str, Content], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub({REPO: files}, TOKEN, cdn=True) as private:
        monkeypatch.setenv("HF_ENDPOINT", private.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert world.lock(world.rig()).ok
        assert all(request.had_auth for request in private.requests)
        assert len(private.cdn_requests) == 3
        assert not any(request.had_auth for request in private.cdn_requests)


def test_vllm_gets_every_file_that_matches(world: World) -> None:
    world.hub.not_lfs.add("tokenizer.json")
    models = {"tiny": {"hf": VLLM_REPO, "files": "*"}}
    served = {"engine": "vllm", "model": "tiny", "context": 4096, "port": 8001, "backend": "compose"}
    document = world.rig(models=models, instances={"one": served})
    outcome = world.lock(document)
    assert outcome.ok
    (model,) = outcome.lock.models
    assert {shard.path: (shard.size, shard.sha256) for shard in model.shards} == {
        path: (len(body), hashlib.sha256(body).hexdigest()) for path, body in SAFETENSORS.items()
    }
    assert model.header is None
    before = world.requests
    assert world.lock(document, old=outcome.lock) == outcome
    assert world.requests == before
    # Large files have their sums at the hub; only the two small ones are fetched.
    assert sum("/resolve/" in request.path for request in world.hub.requests) == 2
    # Without vLLM it is one GGUF model or nothing.
    assert not world.lock(world.rig(models=models)).ok


SERVED_WHOLE = {"one": {"engine": "vllm", "model": "tiny", "context": 4096, "port": 8001, "backend": "compose"}}
CONFIG = {"architectures": ["TinyForCausalLM"], "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}


@pytest.mark.parametrize("small", [True, False])
def test_the_shape_of_a_folder_is_locked(world: World, small: bool) -> None:
    """The hub keeps sums of large files alone; the small ones are read anyway."""
    index = json.dumps({"weight_map": {"a": "model.safetensors"}}).encode()
    files = {**SAFETENSORS, "config.json": json.dumps(CONFIG).encode(), "model.safetensors.index.json": index}
    world.hub.push(VLLM_REPO, {**files, "other.safetensors": b"y" * 500})
    world.hub.not_lfs |= {"config.json", "model.safetensors.index.json"} if small else set()
    document = world.rig(models={"tiny": {"hf": VLLM_REPO, "files": "*"}}, instances=SERVED_WHOLE)
    (model,) = world.lock(document).lock.models
    assert model.shape is not None
    assert (model.shape.architecture, model.shape.weights, model.shape.layers) == ("TinyForCausalLM", 9000, 2)
    assert (model.shape.kv_heads, model.shape.head_width) == (4, 16)


def test_a_lock_of_before_gets_the_shape_at_the_same_commit(world: World) -> None:
    world.hub.push(VLLM_REPO, {**SAFETENSORS, "config.json": json.dumps(CONFIG).encode()})
    document = world.rig(models={"tiny": {"hf": VLLM_REPO, "files": "*"}}, instances=SERVED_WHOLE)
    new = world.lock(document)
    (model,) = new.lock.models
    before = new.lock.model_copy(update={"models": (model.model_copy(update={"shape": None}),)})
    world.hub.push(VLLM_REPO, {"config.json": b"{}"})
    assert world.lock(document, old=before) == new
    assert lock.read_lock_file(written(world.folder, new.lock)) == new.lock


def written(folder: Path, made: Lock) -> Path:
    file = folder / "herd.lock"
    lock.write_lock(file, made)
    return file


def test_vllm_files_that_cannot_be_had_are_said(world: World) -> None:
    world.hub.status["config.json"] = 503
    with pytest.raises(HubError, match="status 503"):
        hub.resolve(VLLM_REPO, "main", "*", whole=True)
    with pytest.raises(HubError, match="no file of"):
        hub.resolve(VLLM_REPO, "main", "*.gguf", whole=True)
    world.hub.not_lfs.add("model.safetensors")
    world.hub.push(VLLM_REPO, {"model.safetensors": bytes(33 << 20)})
    with pytest.raises(HubError, match="in files without a sha256 on the hub"):
        hub.resolve(VLLM_REPO, "main", "*", whole=True)


def local_rig(world: World, path: Path, sha256: str) -> Document:
    return world.rig(engines={}, models={"here": {"file": str(path), "sha256": sha256}})


def test_the_header_of_a_file_here_is_read_once(world: World) -> None:
    (path,) = gguf_files.write(tiny(), world.folder / "here.gguf")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    document = local_rig(world, path, sha256)
    outcome = world.lock(document)
    assert outcome.findings == ()
    (entry,) = outcome.lock.files
    assert (entry.sha256, entry.size) == (sha256, path.stat().st_size)
    assert entry.header.layers == 4
    path.unlink()
    assert world.lock(document, old=outcome.lock) == outcome


def test_a_file_here_that_cannot_be_read_is_a_warning(world: World) -> None:
    other, pipe = world.folder / "other.gguf", world.folder / "pipe.gguf"
    other.write_bytes(b"no model")
    os.mkfifo(pipe)
    for file, sha256, words in (
        (world.folder / "absent.gguf", "ab" * 32, "No such file"),
        (world.folder, "ab" * 32, "Is a directory"),
        (pipe, "ab" * 32, "is not a file"),
        (Path("/dev/zero"), "ab" * 32, "is not a file"),
        (other, hashlib.sha256(b"no model").hexdigest(), "not a GGUF file"),
    ):
        outcome = world.lock(local_rig(world, file, sha256))
        (finding,) = outcome.findings
        assert (finding.code, finding.severity) == ("LH034", "warning")
        assert words in finding.message
        assert outcome.ok
        assert outcome.lock.files == ()
