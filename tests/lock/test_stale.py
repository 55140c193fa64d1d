"""What an inventory declares and its lock lacks: said with the place in the inventory and what to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamaherd import lock
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.lock import Lock, LockedFile, LockedImage, LockedModel, LockedRef

COMMIT, SHA = "cd" * 20, "ab" * 32
GIT = "https://github.com/ggml-org/llama.cpp"
YAML = f"""\
rig: duo
connect: local
host: {{os: debian-12, cpu: {{cores: 4}}, ram: 32GB}}
engines:
  main: {{kind: llama.cpp, ref: b11434}}
  own:
    kind: llama.cpp
    source: {{git: https://git.lan/x, ref: mine}}
  pinned: {{kind: llama.cpp, ref: {COMMIT}}}
  vllm: {{kind: vllm, image: vllm/vllm-openai:v1}}
  fixed: {{kind: vllm, image: vllm/vllm-openai@sha256:{SHA}}}
models:
  gemma: {{hf: unsloth/gemma-GGUF, quant: Q8_0}}
  here: {{file: /srv/m.gguf, sha256: {SHA}}}
instances: {{}}
"""
MODEL = LockedModel(
    repo="unsloth/gemma-GGUF",
    revision="main",
    files="*Q8_0*.gguf",
    commit=COMMIT,
    endpoint="https://huggingface.co",
    shards=(LockedFile(path="gemma-Q8_0.gguf", size=100, sha256=SHA),),
    header=Header(architecture="gemma3"),
)
MAIN = LockedRef(git=GIT, ref="b11434", commit=COMMIT)
MINE = LockedRef(git="https://git.lan/x", ref="mine", commit=COMMIT)
FULL = Lock(
    engines=(MAIN, MINE),
    images=(LockedImage(image="vllm/vllm-openai:v1", digest=f"sha256:{SHA}"),),
    models=(MODEL,),
)


def said(value: Lock, tmp_path: Path) -> list[tuple[str, str, int, str]]:
    file = tmp_path / "duo.yaml"
    file.write_text(YAML)
    document = read_yaml(file)
    rig = Rig.model_validate(document.data)
    findings = list(lock.stale(rig, value, document.value, "herd -i fleet lock"))
    assert all("`herd -i fleet lock`" in finding.help for finding in findings)
    assert all(finding.place.file == file for finding in findings)
    return [(each.code, each.severity, each.place.line, each.message) for each in findings]


def test_a_lock_that_has_everything(tmp_path: Path) -> None:
    assert said(FULL, tmp_path) == []


def test_an_empty_lock_lacks_all_that_moves_and_nothing_else(tmp_path: Path) -> None:
    found = said(Lock(), tmp_path)
    assert [(code, severity, line) for code, severity, line, _ in found] == [
        ("LH031", "error", 5),
        ("LH031", "error", 8),
        ("LH031", "error", 10),
        ("LH031", "error", 13),
    ]
    messages = [message for *_, message in found]
    assert f"rig `duo`: engine `main` ({GIT} at b11434) is not in the lock" in messages
    assert "rig `duo`: model `gemma` (unsloth/gemma-GGUF at main, *Q8_0*.gguf) is not in the lock" in messages


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"engines": (MINE,)}, 5),
        ({"engines": (MAIN,)}, 8),
        ({"engines": (MINE, MAIN.model_copy(update={"ref": "b11433"}))}, 5),
        ({"engines": (MAIN, MINE.model_copy(update={"git": "https://git.lan/y"}))}, 8),
        ({"images": (LockedImage(image="vllm/vllm-openai:v2", digest=f"sha256:{SHA}"),)}, 10),
        ({"models": (MODEL.model_copy(update={"revision": "v2"}),)}, 13),
        ({"models": (MODEL.model_copy(update={"files": "*Q4_0*.gguf"}),)}, 13),
    ],
)
def test_what_was_declared_otherwise_is_not_locked(tmp_path: Path, change: dict[str, Any], line: int) -> None:
    ((code, severity, where, _),) = said(FULL.model_copy(update=change), tmp_path)
    assert (code, severity, where) == ("LH031", "error", line)


def test_a_model_locked_with_a_projector_is_another_one(tmp_path: Path) -> None:
    projector = LockedFile(path="mmproj-F16.gguf", size=5, sha256=SHA)
    seeing = MODEL.model_copy(update={"mmproj": "mmproj*", "projector": projector})
    ((code, *_, message),) = said(FULL.model_copy(update={"models": (seeing,)}), tmp_path)
    assert (code, "*Q8_0*.gguf) is not in the lock" in message) == ("LH031", True)


def test_a_model_without_its_header_is_a_warning(tmp_path: Path) -> None:
    ((code, severity, line, message),) = said(
        FULL.model_copy(update={"models": (MODEL.model_copy(update={"header": None}),)}), tmp_path
    )
    assert (code, severity, line) == ("LH033", "warning", 13)
    assert "memory" in message


def test_a_model_that_has_no_gguf_header_lacks_none(tmp_path: Path) -> None:
    shards = (LockedFile(path="model.safetensors", size=100, sha256=SHA),)
    whole = MODEL.model_copy(update={"shards": shards, "header": None})
    assert said(FULL.model_copy(update={"models": (whole,)}), tmp_path) == []
