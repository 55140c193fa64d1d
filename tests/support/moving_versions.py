"""A locked rig whose engines, image and model come from servers of this machine, where newer versions appear."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from tests.lock.test_git_refs import git
from tests.support import gguf_files
from tests.support.hub_server import Hub
from tests.support.registry_server import Registry, index

REPO = "unsloth/Gemma-3-270m-GGUF"
IMAGE = "vllm/vllm-openai"
RIG = """\
rig: duo   # the big one
connect: {{host: 127.0.0.1, port: 9, user: tom}}
host: {{os: debian-12, cpu: {{cores: 4}}, ram: 32GB}}
engines:
  # what everybody uses
  main: {{kind: llama.cpp, source: {{git: "file://{git}", ref: b11434}}}}   # stable
  edge:
    kind: llama.cpp
    source: {{git: "file://{git}", ref: master}}
    flags: b11434
  vllm: {{kind: vllm, image: "{host}/vllm/vllm-openai:v0.33.0"}}
models:
  gemma: {{hf: unsloth/Gemma-3-270m-GGUF, quant: Q8_0}}
instances:
  chat: {{engine: main, model: gemma, context: 4096, port: 8080}}
  next: {{engine: edge, model: gemma, context: 4096, port: 8081}}
"""


@dataclass(frozen=True)
class MovingVersions:
    """The inventory, and the servers that its versions come from."""

    folder: Path
    git: Path
    hub: Hub
    registry: Registry

    @property
    def file(self) -> Path:
        return self.folder / "duo.yaml"

    def herd(self, *words: str) -> Result:
        """Run a command on the inventory."""
        ended = CliRunner().invoke(main, [*words, "-i", str(self.folder)], prog_name="herd")
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended

    def herd_process(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command that loads pyinfra, which a process with running servers cannot do."""
        command = [sys.executable, "-m", "llamaherd.cli", *words, "-i", str(self.folder)]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100
        )

    def commit(self, text: str, *refs: str) -> str:
        """Make a commit, and let refs point to it."""
        made = git(self.git, "commit-tree", git(self.git, "mktree"), "-m", text)
        for ref in refs:
            git(self.git, "update-ref", ref, made)
        return made

    def release(self) -> None:
        """Publish something newer of everything."""
        self.commit("newer", "refs/heads/master", "refs/tags/b12359")
        self.commit("older", "refs/tags/b12000", "refs/tags/b9999", "refs/tags/v1.0.0", "refs/tags/b99999-rc1")
        self.registry.images |= {f"{IMAGE}:v0.34.0": index("newer"), f"{IMAGE}:v0.9.9": index("older")}
        self.registry.images |= {f"{IMAGE}:nightly": index("n"), f"{IMAGE}:v0.35.0-cu129": index("c")}
        self.hub.push(REPO, _files(self.folder.parent, "better"))


def _files(folder: Path, name: str) -> dict[str, bytes | Path]:
    model = gguf_files.gemma3()
    parameters = {**model.parameters, "rope.freq_base": 20000.0 if name == "better" else 10000.0}
    written = gguf_files.write(gguf_files.Model("gemma3", name, parameters, model.tensors), folder / f"{name}.gguf")
    return {"gemma-Q8_0.gguf": written[0], "README.md": name.encode()}


@contextmanager
def moving_versions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingVersions]:
    """Yield a locked rig."""
    repository, inventory = folder / "llama.cpp", folder / "inventory"
    repository.mkdir()
    inventory.mkdir()
    git(repository, "init", "-q", "--bare", "-b", "master")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
    assert "GIT_DIR" not in os.environ
    images = {f"{IMAGE}:v0.33.0": index("v0.33.0")}
    with Hub({REPO: _files(folder, "first")}) as hub, Registry(images, login="bearer") as registry:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        world = MovingVersions(inventory, repository, hub, registry)
        world.file.write_text(RIG.format(git=repository, host=registry.host))
        world.commit("first", "refs/heads/master", "refs/tags/b11434")
        locked = world.herd("lock")
        assert locked.exit_code == 0, locked.output
        yield world
