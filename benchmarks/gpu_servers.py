"""Servers that are started and asked on this machine, on its GPUs: for what benchmarks measure of them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu_memory_cases import MODELS
from llamaherd.plan import InstancePlan
from tests.support.gguf_files import write

ANSWER = 48
"""Tokens that are generated in every slot."""


class ServerError(Exception):
    """A server that did not start, or did not answer; one sentence."""


def written(folder: Path, name: str) -> Path:
    """A model's file in the folder, which is written unless it is there."""
    path = folder / f"{name.replace(' ', '-')}.gguf"
    if not path.exists():
        unfinished = path.with_suffix(".part")
        write(MODELS[name], unfinished, noise=True)
        unfinished.rename(path)
    return path


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def smi(what: str, fields: str) -> list[list[str]]:
    """Rows of nvidia-smi's answer, sizes in MiB."""
    command = ["nvidia-smi", f"--query-{what}={fields}", "--format=csv,noheader,nounits"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return [re.split(r"\s*,\s*", line.strip()) for line in said.stdout.splitlines() if line.strip()]


@contextmanager
def running(
    server: Path, planned: InstancePlan, log: Path, environment: dict[str, str], cores: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """The server of a plan, when it is ready, on some of the processors if they are named. Raises ServerError."""
    on = ["taskset", "-c", cores] if cores else []
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*on, server, *planned.server.arguments], stdout=stream, stderr=stream, env=environment
        )
    try:
        end = time.monotonic() + 300
        while not _is_ready(f"http://127.0.0.1:{planned.endpoint.port}/health"):
            if process.poll() is not None or time.monotonic() > end:
                raise ServerError(f"the server did not start; {log} ends: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # it waits for work that it has begun
            process.kill()
            process.wait()


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def complete(url: str, prompt: list[int], tokens: int = ANSWER, *, cache: bool = False) -> dict[str, Any]:
    """Have a prompt read and answered; the server's timings. Raises ServerError."""
    body = {"prompt": prompt, "n_predict": tokens, "ignore_eos": True, "cache_prompt": cache}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            timings: dict[str, Any] = json.load(answer)["timings"]
    except (OSError, urllib.error.HTTPError) as error:
        raise ServerError(f"the server did not answer: {error}") from error
    if timings["prompt_n"] != len(prompt) or timings["predicted_n"] != tokens:
        raise ServerError(f"the server read {timings['prompt_n']} tokens and wrote {timings['predicted_n']}")
    return timings
