"""Limits of memory in units and Compose files, beside what servers save of prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.recipes import examine

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
