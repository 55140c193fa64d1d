"""Numbers that are none, or far too large, in files of others: findings of one short line each, never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mutations import NUMBERS
from llamaherd.recipes import understand
from llamaherd.recipes.suggestions import inventory_fragment

FILES = {
    "port": ("x.service", "[Service]\nExecStart=/usr/bin/llama-server -m /m/a.gguf --port {}\n"),
    "threads": ("x.service", "[Service]\nCPUQuota={0}%\nExecStart=/usr/bin/llama-server -m /m/a.gguf -t {0}\n"),
    "processors": ("x.service", "[Service]\nCPUAffinity={0}\nExecStart=/usr/bin/llama-server -m /m/a.gguf -t 4\n"),
    "flags": ("x.sh", "llama-server -m a.gguf -c {0} -ngl {0} -ncmoe {0} --temp {0} -ts {0},{0} -ot '{0}=CUDA{0}'\n"),
    "vllm": ("x.sh", "vllm serve a/b --tensor-parallel-size {0} --gpu-memory-utilization {0} --max-model-len {0}\n"),
    "cards": ("x.sh", "CUDA_VISIBLE_DEVICES={0},{0} llama-server -m a.gguf --main-gpu {0}\n"),
    "run": (
        "x.sh",
        "docker run --gpus {0} -p {0}:{0} --memory {0} --shm-size {0} vllm/vllm-openai:v0.33.0 --model a\n",
    ),
    "compose": (
        "compose.yaml",
        "services: {{a: {{image: 'vllm/vllm-openai:v0.33.0', command: '--model a/b -tp {0}', ports: ['{0}:{0}'], "
        "mem_limit: '{0}', deploy: {{replicas: {0}, resources: {{reservations: {{devices: [{{count: {0}}}]}}}}}}}}}}\n",
    ),
    "wsl": (".wslconfig", "[wsl2]\nmemory={0}GB\nprocessors={0}\nswap={0}\nvmIdleTimeout={0}\n"),
    "preset": ("x.ini", "version = 1\n[qwen]\nmodel = /m/a.gguf\nctx-size = {0}\nport = {0}\n"),
    "swap": ("x.yaml", "startPort: {0}\nmodels: {{a: {{cmd: 'llama-server -m a.gguf --port {0}', ttl: {0}}}}}\n"),
}


@pytest.mark.parametrize("what", FILES)
def test_whatever_stands_where_a_number_is_read(what: str, tmp_path: Path) -> None:
    name, text = FILES[what]
    for number in NUMBERS:
        file = tmp_path / name
        file.write_text(text.format(number), encoding="utf-8")
        read = understand(file)
        assert all(len(finding.message) < 600 and finding.message.isprintable() for finding in read.findings)
        if read.servers:
            assert inventory_fragment(file, read.servers)
