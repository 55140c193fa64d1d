"""The tutorial about a move, on this lane's host: a Compose project really serves there before.

llama-swap cannot be fetched by tests. A unit of its name that listens at its port stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from box.cli import TINY_MOE
from tests.box.bench import Bench
from tests.box.named import UNNAME, internet, named
from tests.box.tutorial import steps, terminal

FILES = "Your files"
"""The section with the files that are on the host before."""
GEMMA, QWEN = "unsloth/gemma-3-270m-it-GGUF", "unsloth/Qwen3-0.6B-GGUF"
"""The models that the page names. The small one of the box stands for both, with 64 bytes more for the first."""
IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
SWAP = """\
[Service]
ExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 9292
[Install]
WantedBy=multi-user.target
"""
BEFORE = f"""
set -e
cd /home/tom/llm
find /var/lib/llamaherd/models -name 'tiny*.gguf' -exec cp {{}} models/qwen.gguf \\;
(cat models/qwen.gguf; head -c 64 /dev/zero) >models/gemma.gguf
chown -R tom: /home/tom/llm
usermod -aG docker tom
engine=$(docker image ls --format '{{{{.Repository}}}}:{{{{.Tag}}}}' llamaherd/engine | head -n 1)
printf 'FROM %s\\nENTRYPOINT ["/usr/local/bin/llama-server"]\\n' "$engine" |
    DOCKER_BUILDKIT=0 docker build -qt {IMAGE} -
printf '{SWAP}' >/etc/systemd/system/llama-swap.service
systemctl daemon-reload
systemctl enable -q --now llama-swap
docker compose up -d --quiet-pull
curl -sSf --retry 60 --retry-all-errors --retry-delay 1 http://127.0.0.1:8080/health
"""
AFTER = f"""
docker compose -f /home/tom/llm/docker-compose.yml down
docker image rm {IMAGE}
systemctl disable --now llama-swap
rm -f /etc/systemd/system/llama-swap.service
{UNNAME}
"""


@pytest.fixture
def emptied(bench: Bench) -> Bench:
    """The host without a server."""
    bench.declare(bench.rig() | {"instances": {}})
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    return bench


@pytest.fixture
def _before(emptied: Bench) -> Iterator[None]:
    """A person's server and llama-swap run on the host."""
    yield
    emptied.sh(AFTER, check=False)


@pytest.mark.usefixtures("_before")
def test_each_command_prints_what_the_page_shows(emptied: Bench, tmp_path: Path) -> None:
    page = steps("tutorial_move")
    folder = tmp_path / "copied"
    folder.mkdir()
    gemma = tmp_path / "gemma.gguf"
    gemma.write_bytes(TINY_MOE.read_bytes() + bytes(64))
    models = {GEMMA: {"gemma-3-270m-it-Q4_K_M.gguf": gemma}, QWEN: {"Qwen3-0.6B-Q4_K_M.gguf": TINY_MOE}}
    within = named({"attic.lan": emptied.host}, tmp_path)
    emptied.sh("mkdir -p /home/tom/llm/models")
    for step in page:
        if step.heading == FILES and "<<" in step.command:
            emptied.sh(f"cd /home/tom/llm && {step.command}")
    emptied.sh(BEFORE)
    with internet(emptied.host, tmp_path, models) as environment, terminal(folder, environment, within) as typed:
        for step in page:
            if step.heading != FILES or "<<" not in step.command:
                typed.follows(step)
    assert emptied.sh("docker ps -q") == ""
