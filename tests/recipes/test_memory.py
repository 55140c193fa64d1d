"""Limits of memory in units and Compose files, beside what servers save of prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.recipes import examine
from tests.support import gguf_files

UNIT = """[Service]
ExecStart=/usr/local/bin/llama-server -m /srv/models/model.gguf -c 8192 --port 8080{more}
{settings}
"""
COMPOSE = """services:
  chat:
    image: ghcr.io/ggml-org/llama.cpp:server-b11434
    command: -m /models/model.gguf -c 8192 --host 0.0.0.0 --port 8080{more}
    volumes: [/srv/models:/models]
    {settings}
"""
DEPLOY = "deploy: {resources: {limits: {memory: 4G}}}"


def said(folder: Path, name: str, text: str) -> list[str]:
    (folder / name).write_text(text, encoding="utf-8")
    return [one.help for one in examine(folder / name) if one.code == "LH241"]


@pytest.mark.parametrize(
    ("settings", "more", "count"),
    [
        ("MemoryMax=4G", "", 1),
        ("MemoryMax=8192M", "", 1),
        ("MemoryMax=4294967296", "", 1),
        ("MemoryMax=16G", "", 0),
        ("MemoryMax=16G", " --cache-ram -1", 1),
        ("MemoryMax=4G", " --cache-ram 1024", 0),
        ("MemoryMax=4G", " -cram 0", 0),
        ("MemoryMax=4G\nEnvironment=LLAMA_ARG_CACHE_RAM=1024", "", 0),
        ("MemoryMax=infinity", "", 0),
        ("MemoryMax=80%", "", 0),
        ("", "", 0),
    ],
)
def test_units(settings: str, more: str, count: int, tmp_path: Path) -> None:
    assert len(said(tmp_path, "a.service", UNIT.format(settings=settings, more=more))) == count


@pytest.mark.parametrize(
    ("settings", "more", "count"),
    [
        ("mem_limit: 4g", "", 1),
        ("mem_limit: 4gb", "", 1),
        (DEPLOY, "", 1),
        ("mem_limit: 16g", "", 0),
        (DEPLOY, " --cache-ram 512", 0),
        ("restart: always", "", 0),
    ],
)
def test_containers(settings: str, more: str, count: int, tmp_path: Path) -> None:
    assert len(said(tmp_path, "compose.yaml", COMPOSE.format(settings=settings, more=more))) == count


@pytest.mark.parametrize("limit", ["4G", "900M", "1.5G", "100K"])
def test_the_way_out_is_accepted(limit: str, tmp_path: Path) -> None:
    (help_,) = said(tmp_path, "a.service", UNIT.format(settings=f"MemoryMax={limit}", more=""))
    more = f" {help_.split('`')[1]}"
    assert said(tmp_path, "a.service", UNIT.format(settings=f"MemoryMax={limit}", more=more)) == []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Llama 8B, 4.2 GiB of weights, of which the header is there."""
    return gguf_files.write(gguf_files.llama(), tmp_path_factory.mktemp("models") / "model.gguf")[0]


def held(folder: Path, name: str, text: str) -> list[str]:
    (folder / name).write_text(text, encoding="utf-8")
    return [one.severity for one in examine(folder / name) if one.code == "LH279"]


@pytest.mark.parametrize(
    ("limit", "more", "expected"),
    [
        ("3G", "-ngl 0", ["warning"]),
        ("3G", "-ngl 0 --load-mode none", ["error"]),
        ("3G", "-ngl 0 -c 65536", ["error"]),
        ("3G", "--device none", ["warning"]),
        ("8G", "-ngl 0", []),
        ("3G", "-ngl 99", []),
        ("3G", "", []),
        ("3G", "-ngl $LAYERS", []),
        ("infinity", "-ngl 0", []),
    ],
)
def test_a_unit_that_has_less_than_its_model_takes(
    limit: str, more: str, expected: list[str], model: Path, tmp_path: Path
) -> None:
    unit = f"[Service]\nExecStart=/usr/local/bin/llama-server -m {model} --cache-ram 0 {more}\nMemoryMax={limit}\n"
    assert held(tmp_path, "a.service", unit) == expected
    assert held(tmp_path, "b.service", unit.replace(str(model), "/srv/elsewhere.gguf")) == []


@pytest.mark.parametrize(("limit", "expected"), [("3g", ["warning"]), ("16g", [])])
def test_a_container_that_has_less_than_its_model_takes(
    limit: str, expected: list[str], model: Path, tmp_path: Path
) -> None:
    image, command = "ghcr.io/ggml-org/llama.cpp:server-b11434", "-m /models/model.gguf --cache-ram 0"
    run = f"docker run --memory {limit} -v {model.parent}:/models:ro {image} {command}\n"
    assert held(tmp_path, "run.sh", run) == expected
    assert held(tmp_path, "mount.sh", run.replace(f"-v {model.parent}:/models:ro", _mount(model.parent))) == expected
    service = f"    image: {image}\n    command: {command}\n    mem_limit: {limit}\n"
    (tmp_path / "models").symlink_to(model.parent)
    for source in (str(model.parent), "./models"):
        volumes = f"    volumes: [{source}:/models]\n"
        assert held(tmp_path, "compose.yaml", f"services:\n  chat:\n{service}{volumes}") == expected
    assert held(tmp_path, "compose.yaml", f"services:\n  chat:\n{service}    volumes: [models:/models]\n") == []


def _mount(folder: Path) -> str:
    return f"--mount type=bind,source={folder},target=/models"
